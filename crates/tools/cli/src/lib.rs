//! The part of the `pando` command that other crates use: the formats of records.

pub mod format;
