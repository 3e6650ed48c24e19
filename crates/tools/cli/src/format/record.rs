//! A record that was read, and the errors of a line.

use super::escape;

/// A record that was read.
pub type Record = (Vec<u8>, Vec<u8>);

/// Why a line is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// There is no TAB between key and value.
    #[error("no TAB between key and value")]
    NoTab,
    /// The key's escapes are wrong.
    #[error("in the key: {0}")]
    KeyEscape(escape::EscapeError),
    /// The value's escapes are wrong.
    #[error("in the value: {0}")]
    ValueEscape(escape::EscapeError),
    /// The line is not JSON, or not such an object.
    #[error("not an object with key and value: {0}")]
    Json(String),
    /// The object has a field twice or not at all.
    #[error("the object has {found}; it needs either {name} or {name}_hex")]
    OneOfTwo {
        /// The fields that were found.
        found: &'static str,
        /// `key` or `value`.
        name: &'static str,
    },
    /// The text is no hexadecimal number.
    #[error("{name} is not an even number of hexadecimal digits")]
    Hexadecimal {
        /// The field.
        name: &'static str,
    },
    /// The text begins with the byte order mark of UTF-16.
    #[error("the text is UTF-16, and records are bytes or UTF-8; convert it, for example by iconv")]
    Utf16,
    /// The value is a number, an object or the like.
    #[error("the value is {found}, and a record holds bytes; write it as a string")]
    NotText {
        /// The type of the JSON value.
        found: &'static str,
    },
    /// The line is too long.
    #[error("a line of {found_bytes} bytes is longer than {max_bytes}; raise --max-line-bytes")]
    TooLong {
        /// The line's length.
        found_bytes: u64,
        /// The longest line that is read.
        max_bytes: usize,
    },
}
