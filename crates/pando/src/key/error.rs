//! The error for bytes that are not a key of the expected type.

/// Why a key has no encoding, or why stored bytes are not a key of the requested type. In the
/// second case the map holds keys of another type; open it with that type.
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
    /// The float is NaN. It equals nothing, so no key could be found by it.
    #[error("a key of type {what} is NaN; keys may be any other number, or an infinity")]
    NotANumber {
        /// The type.
        what: &'static str,
    },
    /// The bytes are those of NaN or of negative zero, which no key has.
    #[error(
        "the key has the bits {found_bits:#x} of a {what}: NaN is no key, and -0.0 is the key 0.0"
    )]
    NoKeyOfFloat {
        /// The type.
        what: &'static str,
        /// The bits of the float.
        found_bits: u64,
    },
    /// A time has a second or more of nanoseconds.
    #[error("a time has {found} nanoseconds; allowed are 0 to 999999999")]
    TooManyNanoseconds {
        /// The nanoseconds that were found.
        found: u32,
    },
    /// The time is too far away for the type of its key, or for the system.
    #[error("{seconds} seconds from 1970 are beyond the times of this system and of keys")]
    NoTime {
        /// Seconds since the beginning of 1970.
        seconds: i128,
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
