//! What of the `pando` command is worth calling from elsewhere: the formats of records.

pub mod format;
