//! Why bytes are not a key of the expected type.

/// Why a stored key is not one of the type that was asked for: the map holds keys of another
/// type, and should be opened with that one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key ends too early.
    #[error("the key ends too early for a {what}: {needed_bytes} bytes needed, {found_bytes} left")]
    TooShort {
        /// The type that was being decoded.
        what: &'static str,
        /// Bytes that it takes.
        needed_bytes: usize,
        /// Bytes that were left.
        found_bytes: usize,
    },
    /// Bytes are left behind the key.
    #[error("{found_bytes} bytes are left behind the key; it is of a longer type")]
    TrailingBytes {
        /// Bytes that are left.
        found_bytes: usize,
    },
    /// The text is not UTF-8.
    #[error("the text is not UTF-8 from byte {valid_bytes} on; read it as Vec<u8>")]
    NotUtf8 {
        /// Bytes before the first that is wrong.
        valid_bytes: usize,
    },
    /// A byte that tells variants apart has a value that none has.
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
