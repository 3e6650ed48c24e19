//! Floating-point numbers, in the total order of IEEE 754 (`f64::total_cmp`): negative NaN,
//! negative infinity, ..., -0.0, +0.0, ..., infinity, NaN. -0.0 and +0.0 are two keys.

use super::{AsKey, Key, KeyError, take};

macro_rules! float {
    ($($float:ident as $bits:ident)*) => {$(
        impl AsKey<$float> for $float {
            fn encode_element(&self, bytes: &mut Vec<u8>) {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                let bits = self.to_bits();
                // Magnitudes of negative numbers descend, so all their bits are flipped.
                let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
                bytes.extend_from_slice(&ordered.to_be_bytes());
            }
        }

        impl Key for $float {
            fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                let ordered = $bits::from_be_bytes(take(stringify!($float), bytes)?);
                let bits = if ordered & SIGN == 0 { !ordered } else { ordered & !SIGN };
                Ok(Self::from_bits(bits))
            }
        }
    )*};
}

float!(f32 as u32 f64 as u64);
