//! Byte strings with a short debug output: a failure with a value of 20 MiB must fit on a line.

use std::fmt;

/// A key or a value that shows its length, its first bytes and its last bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bytes(pub(super) Vec<u8>);

/// The record of `key` and `value`, copied.
pub(super) fn record(key: &[u8], value: &[u8]) -> (Bytes, Bytes) {
    (Bytes(key.to_vec()), Bytes(value.to_vec()))
}

impl fmt::Debug for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_BYTES: usize = 12;
        let bytes = &self.0;
        if bytes.len() <= 2 * SHOWN_BYTES {
            return write!(out, "[{}]", bytes.escape_ascii());
        }
        let (head, tail) = (&bytes[..SHOWN_BYTES], &bytes[bytes.len() - SHOWN_BYTES..]);
        write!(out, "[{}..{}: {}]", head.escape_ascii(), tail.escape_ascii(), bytes.len())
    }
}
