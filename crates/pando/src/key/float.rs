//! Floating-point numbers: negative infinity, ..., 0.0, ..., infinity. Negative zero is the key
//! 0.0, because both are equal. NaN is refused, because it is not equal to itself: a record with
//! such a key could not be found.

use super::{AsKey, Key, KeyError, take};

macro_rules! float {
    ($($float:ident as $bits:ident)*) => {$(
        impl AsKey<$float> for $float {
            fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                if self.is_nan() {
                    return Err(KeyError::NotANumber { what: stringify!($float) });
                }
                // The sum is 0.0 for negative zero too.
                let bits = (*self + 0.0).to_bits();
                // Magnitudes of negative numbers descend, so all their bits are flipped.
                let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
                bytes.extend_from_slice(&ordered.to_be_bytes());
                Ok(())
            }
        }

        impl Key for $float {
            fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                let what = stringify!($float);
                let ordered = $bits::from_be_bytes(take(what, bytes)?);
                let bits = if ordered & SIGN == 0 { !ordered } else { ordered & !SIGN };
                let float = Self::from_bits(bits);
                match float.is_nan() || bits == SIGN {
                    true => Err(KeyError::NoKeyOfFloat { what, found_bits: bits.into() }),
                    false => Ok(float),
                }
            }
        }
    )*};
}

float!(f32 as u32 f64 as u64);
