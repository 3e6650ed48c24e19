//! Tests of files that `commands` uses, if the tests need the table of commands.
//!
//! They are here because of the rule that files must not use each other in a cycle.

mod access;
mod acl;
mod clients;
mod rules;
