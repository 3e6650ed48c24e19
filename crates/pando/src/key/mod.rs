//! Order-preserving encodings of keys.
//!
//! [`Key`] has the table of the encodings. They are part of the format on the medium.

mod element;
mod error;
mod float;
mod integer;
mod range;
mod text;
mod time;
mod tuple;

#[cfg(test)]
mod tests;

pub use error::KeyError;
pub use range::{AsKeyPrefix, AsKeyRange};

/// A form of a key of type `K`: `K` itself, a reference to it, or a borrowed form such as `str` for
/// `String`.
///
/// Each form must encode to the same bytes as the key.
pub trait AsKey<K: ?Sized> {
    /// Appends the encoding for use inside a tuple. It is self-delimiting: no encoding is a proper
    /// prefix of another encoding of the same type.
    ///
    /// # Errors
    ///
    /// [`KeyError::NotANumber`] for a float that is NaN. `bytes` may have a part of the encoding
    /// then.
    fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError>;

    /// Appends the encoding for use as a whole key.
    ///
    /// # Errors
    ///
    /// As [`encode_element`](Self::encode_element).
    fn encode(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
        self.encode_element(bytes)
    }
}

/// The bytes of a whole key.
pub(crate) fn encoded<K: ?Sized>(key: &impl AsKey<K>) -> Result<Vec<u8>, KeyError> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes)?;
    Ok(bytes)
}

/// A type of keys, with an encoding that keeps its order, and the decoding.
///
/// A pool orders keys bytewise. The encodings make this the order of the Rust type: `a < b` exactly
/// if the bytes of `a` come before those of `b`. The encodings are part of the format on the
/// medium, so they never change. Other programs (`pando get '\x00\x00\x00\x05'`) may rely on them.
/// `docs/typed-keys.md` has the rules for other languages, and test vectors:
///
/// | type | as a whole key | inside a tuple or `Option` |
/// | --- | --- | --- |
/// | `u8` to `u128` | big-endian | the same |
/// | `i8` to `i128` | big-endian, sign bit flipped | the same |
/// | `f32`, `f64` | big-endian; all bits flipped if it is negative, else the sign bit. `-0.0` as `0.0`; NaN is refused | the same |
/// | `bool`, `char` | one byte, 0 or 1; four bytes, big-endian | the same |
/// | `[u8; N]`, such as a UUID | its bytes | the same |
/// | `SystemTime` | seconds since 1970 as `i64`, rounded down, and nanoseconds as `u32` | the same |
/// | `String`, `Vec<u8>` | its bytes | each 0x00 as 0x00 0xFF, then 0x00 0x00 |
/// | tuples of 1 to 4 | their elements, one after the other | the same |
/// | `Option` | 0x00, or 0x01 and the element | the same |
///
/// Longer tuples are tuples in tuples: `(a, (b, c))` has the bytes of `(a, b, c)`.
///
/// The pool does not know the type of a map's keys. If a map of `u64` is opened with keys of `i64`,
/// or of `String` and its bytes are text, it is read without an error. Only bytes that no key of
/// the type has are an error.
///
/// To encode a type of your own, encode its fields as a tuple:
///
/// ```
/// use pando::{AsKey, Key, KeyError};
///
/// #[derive(Debug, PartialEq, PartialOrd)]
/// struct Version { major: u16, minor: u16 }
///
/// impl AsKey<Version> for Version {
///     fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
///         AsKey::<(u16, u16)>::encode_element(&(self.major, self.minor), bytes)
///     }
/// }
///
/// impl Key for Version {
///     fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
///         let (major, minor) = <(u16, u16)>::decode_element(bytes)?;
///         Ok(Self { major, minor })
///     }
/// }
///
/// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
/// let releases = pool.map("releases")?.typed::<Version>();
/// releases.insert(Version { major: 1, minor: 12 }, "bookworm")?;
/// # Ok::<(), pando::Error>(())
/// ```
pub trait Key: Sized + AsKey<Self> {
    /// Decodes one element at the start of `bytes`, and removes it from `bytes`.
    fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError>;

    /// Decodes a whole key.
    fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
        let mut rest = bytes;
        let key = Self::decode_element(&mut rest)?;
        if rest.is_empty() {
            Ok(key)
        } else {
            Err(KeyError::TrailingBytes { found_bytes: rest.len() })
        }
    }
}

impl<K, Q: AsKey<K> + ?Sized> AsKey<K> for &Q {
    fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
        (**self).encode_element(bytes)
    }

    fn encode(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
        (**self).encode(bytes)
    }
}

/// Removes `N` bytes from the start of `bytes`, for a `what`.
fn take<const N: usize>(what: &'static str, bytes: &mut &[u8]) -> Result<[u8; N], KeyError> {
    match bytes.split_first_chunk::<N>() {
        Some((head, rest)) => {
            *bytes = rest;
            Ok(*head)
        }
        None => Err(KeyError::TooShort { what, needed_bytes: N, found_bytes: bytes.len() }),
    }
}
