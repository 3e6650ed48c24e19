//! Errors that many commands answer with, in Redis's words.

use pando_keyspace::failure::{Failure, fail};

/// Options that do not fit each other, or are none.
pub(crate) const SYNTAX: Failure = fail("ERR syntax error");
/// An argument is no integer of 64 bits.
pub(crate) const NOT_AN_INTEGER: Failure = fail("ERR value is not an integer or out of range");
/// An argument is no floating-point number.
pub(crate) const NOT_A_FLOAT: Failure = fail("ERR value is not a valid float");
/// A sum has more than 64 bits.
pub(crate) const OUT_OF_RANGE: Failure = fail("ERR increment or decrement would overflow");
/// A key that must be there is not.
pub(crate) const NO_SUCH_KEY: Failure = fail("ERR no such key");
