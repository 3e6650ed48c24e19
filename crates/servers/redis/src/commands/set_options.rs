//! The options of SET and GETEX, and the expiry times in them and in SETEX.

use pando_keyspace::Transaction;
use pando_keyspace::failure::{Result, fail_with};

use crate::decimal;
use crate::errors::{NOT_AN_INTEGER, SYNTAX};

/// The form of an expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiryForm {
    /// Seconds from now.
    InSeconds,
    /// Milliseconds from now.
    InMilliseconds,
    /// Seconds since 1970.
    AtSecond,
    /// Milliseconds since 1970.
    AtMillisecond,
}

/// The options after the key and the value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options<'request> {
    /// NX: only if the key does not exist.
    pub is_nx: bool,
    /// XX: only if the key exists.
    pub is_xx: bool,
    /// GET: the old value is the reply.
    pub is_get: bool,
    /// KEEPTTL: the expiry time does not change.
    pub keeps_ttl: bool,
    /// PERSIST: the expiry time is removed.
    pub persists: bool,
    /// The expiry time.
    pub expires: Option<(ExpiryForm, &'request [u8])>,
}

impl<'request> Options<'request> {
    /// Parses the options of SET.
    pub(super) fn of_set(words: &[&'request [u8]]) -> Result<Self> {
        Self::read(words, true)
    }

    /// Parses the options of GETEX.
    pub(super) fn of_getex(words: &[&'request [u8]]) -> Result<Self> {
        Self::read(words, false)
    }

    fn read(mut words: &[&'request [u8]], is_set: bool) -> Result<Self> {
        let mut options = Self::default();
        while let [word, rest @ ..] = words {
            words = rest;
            let lower = word.to_ascii_lowercase();
            match (lower.as_slice(), is_set) {
                (b"nx", true) if !options.is_xx => options.is_nx = true,
                (b"xx", true) if !options.is_nx => options.is_xx = true,
                (b"get", true) => options.is_get = true,
                (b"keepttl", true) if options.expires.is_none() => options.keeps_ttl = true,
                (b"persist", false) if options.expires.is_none() => options.persists = true,
                (name, _) => {
                    let form = match name {
                        b"ex" => ExpiryForm::InSeconds,
                        b"px" => ExpiryForm::InMilliseconds,
                        b"exat" => ExpiryForm::AtSecond,
                        b"pxat" => ExpiryForm::AtMillisecond,
                        _ => return Err(SYNTAX),
                    };
                    // The same form is allowed twice; the last one applies.
                    let is_other = options.expires.is_some_and(|(former, _)| former != form);
                    let [time, behind @ ..] = words else { return Err(SYNTAX) };
                    if is_other || options.keeps_ttl || options.persists {
                        return Err(SYNTAX);
                    }
                    options.expires = Some((form, time));
                    words = behind;
                }
            }
        }
        Ok(options)
    }
}

/// The expiry time by the store's clock, for a value of `command`. It may be in the past.
pub(super) fn expiry(
    transaction: &Transaction<'_>,
    command: &str,
    (form, time): (ExpiryForm, &[u8]),
) -> Result<u64> {
    let invalid = || fail_with(format!("ERR invalid expire time in '{command}' command"));
    let time = decimal::parse_i64(time).ok_or(NOT_AN_INTEGER)?;
    if time <= 0 {
        return Err(invalid());
    }
    let time_ms = match form {
        ExpiryForm::InSeconds | ExpiryForm::AtSecond => {
            time.checked_mul(1000).ok_or_else(invalid)?
        }
        ExpiryForm::InMilliseconds | ExpiryForm::AtMillisecond => time,
    };
    let at_ms = match form {
        ExpiryForm::InSeconds | ExpiryForm::InMilliseconds => {
            time_ms.checked_add(transaction.now_ms() as i64).ok_or_else(invalid)?
        }
        ExpiryForm::AtSecond | ExpiryForm::AtMillisecond => {
            transaction.store().clock().by_store(time_ms)
        }
    };
    Ok(u64::try_from(at_ms).unwrap_or(0))
}
