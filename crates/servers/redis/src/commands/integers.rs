//! Integers among a command's words, with Redis's errors.

use pando_keyspace::failure::{Result, fail};

use crate::decimal::parse_i64;
use crate::errors::NOT_AN_INTEGER;

/// Any integer.
pub(super) fn integer(text: &[u8]) -> Result<i64> {
    parse_i64(text).ok_or(NOT_AN_INTEGER)
}

/// A count whose negative sign allows repeated picks.
pub(super) fn signed_count(text: &[u8]) -> Result<i64> {
    match integer(text)? {
        i64::MIN => Err(fail(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        count => Ok(count),
    }
}

/// A count of elements to take.
pub(super) fn count(text: &[u8]) -> Result<u64> {
    natural(text, "ERR value is out of range, must be positive")
}

/// A number that is not negative.
pub(super) fn natural(text: &[u8], error: &'static str) -> Result<u64> {
    parse_i64(text).and_then(|number| u64::try_from(number).ok()).ok_or(fail(error))
}

/// LIMIT of SINTERCARD and ZINTERCARD: zero means no limit.
pub(super) fn limit(text: &[u8]) -> Result<u64> {
    match natural(text, "ERR LIMIT can't be negative")? {
        0 => Ok(u64::MAX),
        limit => Ok(limit),
    }
}

/// A cursor, as C's `strtoul` reads it: an empty text is zero, and a minus counts from the end.
pub(super) fn cursor(text: &[u8]) -> Result<u64> {
    let (is_negative, digits) = match text {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    // A second sign is not allowed.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
    let cursor = digits.and_then(|digits| digits.parse::<u64>().ok());
    let cursor = cursor.ok_or(fail("ERR invalid cursor"))?;
    Ok(if is_negative { cursor.wrapping_neg() } else { cursor })
}
