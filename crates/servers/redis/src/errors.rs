//! Errors that many commands answer with, in Redis's words.

use pando_keyspace::failure::{Failure, said};

/// Options that do not fit each other, or are none.
pub(crate) const SYNTAX: Failure = said("ERR syntax error");
/// An argument is no integer of 64 bits.
pub(crate) const NOT_AN_INTEGER: Failure = said("ERR value is not an integer or out of range");
/// An argument is no floating-point number.
pub(crate) const NOT_A_FLOAT: Failure = said("ERR value is not a valid float");
/// A sum has more than 64 bits.
pub(crate) const OUT_OF_RANGE: Failure = said("ERR increment or decrement would overflow");
/// A key that must be there is not.
pub(crate) const NO_SUCH_KEY: Failure = said("ERR no such key");
