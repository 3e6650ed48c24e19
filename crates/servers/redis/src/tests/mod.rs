//! Tests of files below `commands` that need the table of commands.
//!
//! They stand here because a file uses only files below it.

mod access;
mod acl;
mod clients;
mod rules;
