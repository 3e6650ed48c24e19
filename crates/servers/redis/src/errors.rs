//! Error replies of many commands, in Redis's words.

use pando_keyspace::failure::{Failure, fail};

/// Incompatible or unknown options.
pub(crate) const SYNTAX: Failure = fail("ERR syntax error");
/// An argument is not an integer of 64 bits.
pub(crate) const NOT_AN_INTEGER: Failure = fail("ERR value is not an integer or out of range");
/// An argument is not a floating-point number.
pub(crate) const NOT_A_FLOAT: Failure = fail("ERR value is not a valid float");
/// A sum does not fit into 64 bits.
pub(crate) const OUT_OF_RANGE: Failure = fail("ERR increment or decrement would overflow");
/// A required key does not exist.
pub(crate) const NO_SUCH_KEY: Failure = fail("ERR no such key");
