//! Order-preserving encodings of keys.
//!
//! [`Key`] has the table of them, which is a promise about what is on the medium.

mod element;
mod error;
mod float;
mod integer;
mod text;
mod tuple;

#[cfg(test)]
mod tests;

pub use error::KeyError;

/// Something that stands for a key of type `K`: `K` itself, a reference to it, or a borrowed
/// form such as `str` for `String`.
///
/// Whatever stands for a key has to encode to the same bytes as the key.
pub trait AsKey<K: ?Sized> {
    /// Appends the encoding that stands inside a tuple. It ends by itself: no encoding is a
    /// proper prefix of another one of the same type.
    fn encode_element(&self, bytes: &mut Vec<u8>);

    /// Appends the encoding that stands alone, as a whole key.
    fn encode(&self, bytes: &mut Vec<u8>) {
        self.encode_element(bytes);
    }
}

/// A type of keys: encoded in an order that is its own, and decoded again.
///
/// A pool orders keys bytewise. The encodings make that the order of the Rust type: `a < b` exactly
/// if the bytes of `a` come before those of `b`. They are part of what is on the medium, so they
/// never change, and other programs (`pando get '\x00\x00\x00\x05'`) may rely on them:
///
/// | type | as a whole key | inside a tuple or `Option` |
/// | --- | --- | --- |
/// | `u8` to `u128` | big-endian | the same |
/// | `i8` to `i128` | big-endian, sign bit flipped | the same |
/// | `f32`, `f64` | big-endian; all bits flipped if it is negative, else the sign bit: the order of `total_cmp` | the same |
/// | `bool`, `char` | one byte, 0 or 1; four bytes, big-endian | the same |
/// | `[u8; N]` | its bytes | the same |
/// | `String`, `Vec<u8>` | its bytes | each 0x00 as 0x00 0xFF, then 0x00 0x00 |
/// | tuples of 1 to 4 | their elements, one behind the other | the same |
/// | `Option` | 0x00, or 0x01 and the element | the same |
///
/// `-0.0` and `0.0` are two keys, as `total_cmp` has them. Longer tuples are tuples in tuples:
/// `(a, (b, c))` has the bytes of `(a, b, c)`.
///
/// The pool does not know of which type a map's keys are: a map of `u64` opened as one of `i64` or,
/// as far as the bytes are text, of `String` reads without an error. Only bytes that no key of the
/// type has are one.
///
/// A type of one's own is encoded by handing its fields, as a tuple, to the encodings there are:
///
/// ```
/// use pando::{AsKey, Key, KeyError};
///
/// #[derive(Debug, PartialEq, PartialOrd)]
/// struct Version { major: u16, minor: u16 }
///
/// impl AsKey<Version> for Version {
///     fn encode_element(&self, bytes: &mut Vec<u8>) {
///         AsKey::<(u16, u16)>::encode_element(&(self.major, self.minor), bytes);
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
/// releases.insert(Version { major: 1, minor: 12 }, b"bookworm")?;
/// # Ok::<(), pando::Error>(())
/// ```
pub trait Key: Sized + AsKey<Self> {
    /// Takes one element from the front of `bytes`.
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
    fn encode_element(&self, bytes: &mut Vec<u8>) {
        (**self).encode_element(bytes);
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        (**self).encode(bytes);
    }
}

/// Takes `N` bytes from the front of `bytes` for a `what`.
fn take<const N: usize>(what: &'static str, bytes: &mut &[u8]) -> Result<[u8; N], KeyError> {
    match bytes.split_first_chunk::<N>() {
        Some((head, rest)) => {
            *bytes = rest;
            Ok(*head)
        }
        None => Err(KeyError::TooShort { what, needed_bytes: N, found_bytes: bytes.len() }),
    }
}
