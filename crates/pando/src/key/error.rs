//! The error for bytes that are not a key of the expected type.

/// Why a stored key does not have the requested type. The map holds keys of another type; open it
/// with that type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key ends too early.
    #[error("the key ends too early for a {what}: {needed_bytes} bytes needed, {found_bytes} left")]
    TooShort {
        /// The type that was being decoded.
        what: &'static str,
        /// Bytes that the type needs.
        needed_bytes: usize,
        /// Bytes that were left.
        found_bytes: usize,
    },
    /// Bytes follow the key.
    #[error("{found_bytes} bytes follow the key; it has a longer type")]
    TrailingBytes {
        /// Bytes after the key.
        found_bytes: usize,
    },
    /// The text is not UTF-8.
    #[error("the text is not UTF-8 from byte {valid_bytes} on; read it as Vec<u8>")]
    NotUtf8 {
        /// Bytes before the first invalid one.
        valid_bytes: usize,
    },
    /// The byte that selects a variant has an unknown value.
    #[error("the first byte of a {what} is {found:#04x}; allowed are 0x00 and 0x01")]
    UnknownTag {
        /// The type that was being decoded.
        what: &'static str,
        /// The byte that was found.
        found: u8,
    },
    /// The number is not that of a character.
    #[error("{found:#x} is not the number of a character")]
    NotACharacter {
        /// The number that was found.
        found: u32,
    },
    /// A string inside a tuple has no end.
    #[error("a string inside a tuple has no 0x00 0x00 at its end")]
    Unterminated,
    /// A string inside a tuple has a zero byte that is followed by something unknown.
    #[error("0x00 inside a string of a tuple is followed by {found:#04x}; allowed are 0x00, 0xff")]
    UnknownEscape {
        /// The byte that was found.
        found: u8,
    },
}
