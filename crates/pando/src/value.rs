//! Types of values: what a typed map gives and takes in the place of bytes.

use std::borrow::Cow;
use std::time::SystemTime;

use crate::key::{AsKey, Key, encoded};

/// The cause of a [`ValueError`].
pub type ValueCause = Box<dyn std::error::Error + Send + Sync>;

/// A value has no bytes, or stored bytes are not a value of the requested type. In the second case
/// the map holds values of another type; open it with that type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// The value cannot be stored in this form. Nothing was written.
    #[error("the value has no bytes as {what}: {cause}")]
    NotEncoded {
        /// The type.
        what: &'static str,
        /// The reason.
        cause: ValueCause,
    },
    /// The stored bytes are no value of the type. After `swap` and `take` that has taken place, and
    /// `value` is what is left. All other calls leave the record as it is.
    #[error("the stored value is no {what}, but {} bytes: {cause}", value.len())]
    NotDecoded {
        /// The type.
        what: &'static str,
        /// The stored bytes.
        value: Vec<u8>,
        /// The reason.
        cause: ValueCause,
    },
}

/// A type of the values of a [`TypedMap`](crate::TypedMap), with an encoding and the decoding.
///
/// | type | bytes | lent as |
/// | --- | --- | --- |
/// | `Vec<u8>` | as they are; writes take any `AsRef<[u8]>` | `&[u8]` |
/// | `String` | UTF-8 | `&str` |
/// | integers, `bool`, `char`, `[u8; N]`, `SystemTime` | those of a whole key ([`Key`]) | a copy |
/// | `f32`, `f64` | IEEE 754, big-endian. All bits are kept, also those of NaN and of `-0.0` | a copy |
/// | `Json<T>`, with the feature `json` | JSON of any `T` of serde | a `T` |
///
/// The encodings are part of the format on the medium, so they never change. The pool does not know
/// the type of a map's values.
///
/// To store a type of your own without serde, implement this trait and [`AsValue`]:
///
/// ```
/// use std::borrow::Cow;
/// use pando::{AsValue, Value, ValueError};
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Colour([u8; 3]);
///
/// impl AsValue<Colour> for Colour {
///     fn value_bytes(&self) -> Result<Cow<'_, [u8]>, ValueError> {
///         Ok(Cow::Borrowed(&self.0))
///     }
/// }
///
/// impl Value for Colour {
///     type Owned = Colour;
///     type Lent<'bytes> = Colour;
///
///     fn lend(bytes: &[u8]) -> Result<Colour, ValueError> {
///         let three = bytes.try_into().map_err(|cause: std::array::TryFromSliceError| {
///             ValueError::NotDecoded { what: "Colour", value: bytes.to_vec(), cause: cause.into() }
///         });
///         three.map(Colour)
///     }
///
///     fn decode(bytes: Vec<u8>) -> Result<Colour, ValueError> {
///         Self::lend(&bytes)
///     }
/// }
///
/// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
/// let leaves = pool.map("leaves")?.typed::<String>().with_values::<Colour>();
/// leaves.put("aspen", Colour([200, 180, 40]))?;
/// assert_eq!(leaves.get("aspen")?, Some(Colour([200, 180, 40])));
/// # Ok::<(), pando::Error>(())
/// ```
pub trait Value: Sized {
    /// What calls return: usually the type itself.
    type Owned: AsValue<Self>;

    /// What calls lend to a closure, made from the stored bytes.
    type Lent<'bytes>;

    /// Looks at stored bytes.
    ///
    /// # Errors
    ///
    /// [`ValueError::NotDecoded`].
    fn lend(bytes: &[u8]) -> Result<Self::Lent<'_>, ValueError>;

    /// Decodes stored bytes.
    ///
    /// # Errors
    ///
    /// [`ValueError::NotDecoded`].
    fn decode(bytes: Vec<u8>) -> Result<Self::Owned, ValueError>;
}

/// A form of a value of type `V`: `V` itself, a reference to it, or a borrowed form such as `str`
/// for `String`. Each form must have the same bytes as the value.
pub trait AsValue<V: ?Sized> {
    /// The bytes that are stored.
    ///
    /// # Errors
    ///
    /// [`ValueError::NotEncoded`].
    fn value_bytes(&self) -> Result<Cow<'_, [u8]>, ValueError>;
}

impl<Q: AsRef<[u8]>> AsValue<Vec<u8>> for Q {
    fn value_bytes(&self) -> Result<Cow<'_, [u8]>, ValueError> {
        Ok(Cow::Borrowed(self.as_ref()))
    }
}

impl Value for Vec<u8> {
    type Owned = Self;
    type Lent<'bytes> = &'bytes [u8];

    fn lend(bytes: &[u8]) -> Result<&[u8], ValueError> {
        Ok(bytes)
    }

    fn decode(bytes: Vec<u8>) -> Result<Self, ValueError> {
        Ok(bytes)
    }
}

impl<Q: AsRef<str>> AsValue<String> for Q {
    fn value_bytes(&self) -> Result<Cow<'_, [u8]>, ValueError> {
        Ok(Cow::Borrowed(self.as_ref().as_bytes()))
    }
}

impl Value for String {
    type Owned = Self;
    type Lent<'bytes> = &'bytes str;

    fn lend(bytes: &[u8]) -> Result<&str, ValueError> {
        std::str::from_utf8(bytes).map_err(|cause| refused("String", bytes, cause))
    }

    fn decode(bytes: Vec<u8>) -> Result<Self, ValueError> {
        Self::from_utf8(bytes).map_err(|error| {
            let cause = Box::new(error.utf8_error());
            ValueError::NotDecoded { what: "String", value: error.into_bytes(), cause }
        })
    }
}

/// The bytes of a whole key.
macro_rules! values_of_keys {
    ($([$($parameters:tt)*] $value:ty, $what:literal;)*) => {$(
        impl<Q: AsKey<$value>, $($parameters)*> AsValue<$value> for Q {
            fn value_bytes(&self) -> Result<Cow<'_, [u8]>, ValueError> {
                let bytes = encoded::<$value>(self);
                let refused = |cause| ValueError::NotEncoded { what: $what, cause };
                bytes.map(Cow::Owned).map_err(|cause| refused(Box::new(cause)))
            }
        }

        impl<$($parameters)*> Value for $value {
            type Owned = Self;
            type Lent<'bytes> = Self;

            fn lend(bytes: &[u8]) -> Result<Self, ValueError> {
                <$value as Key>::decode(bytes).map_err(|cause| refused($what, bytes, cause))
            }

            fn decode(bytes: Vec<u8>) -> Result<Self, ValueError> {
                Self::lend(&bytes)
            }
        }
    )*};
}

values_of_keys! {
    [] u8, "u8";
    [] u16, "u16";
    [] u32, "u32";
    [] u64, "u64";
    [] u128, "u128";
    [] i8, "i8";
    [] i16, "i16";
    [] i32, "i32";
    [] i64, "i64";
    [] i128, "i128";
    [] bool, "bool";
    [] char, "char";
    [] SystemTime, "SystemTime";
    [const N: usize] [u8; N], "[u8; N]";
}

/// A key of a float has not all floats: as a value each has its own bits.
macro_rules! values_of_floats {
    ($($float:ident)*) => {$(
        impl<Q: std::borrow::Borrow<$float>> AsValue<$float> for Q {
            fn value_bytes(&self) -> Result<Cow<'_, [u8]>, ValueError> {
                Ok(Cow::Owned(self.borrow().to_be_bytes().to_vec()))
            }
        }

        impl Value for $float {
            type Owned = Self;
            type Lent<'bytes> = Self;

            fn lend(bytes: &[u8]) -> Result<Self, ValueError> {
                let bits = bytes.try_into();
                let bits = bits.map_err(|cause: std::array::TryFromSliceError| {
                    refused(stringify!($float), bytes, cause)
                });
                bits.map(Self::from_be_bytes)
            }

            fn decode(bytes: Vec<u8>) -> Result<Self, ValueError> {
                Self::lend(&bytes)
            }
        }
    )*};
}

values_of_floats!(f32 f64);

/// The stored bytes are no value of this type.
pub(crate) fn refused(
    what: &'static str,
    bytes: &[u8],
    cause: impl Into<ValueCause>,
) -> ValueError {
    ValueError::NotDecoded { what, value: bytes.to_vec(), cause: cause.into() }
}
