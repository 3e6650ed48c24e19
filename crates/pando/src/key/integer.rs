//! Integers: big-endian, the sign bit of signed ones flipped.

use super::{AsKey, Key, KeyError, take};

macro_rules! unsigned {
    ($($integer:ident)*) => {$(
        impl AsKey<$integer> for $integer {
            fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
                bytes.extend_from_slice(&self.to_be_bytes());
                Ok(())
            }
        }

        impl Key for $integer {
            fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                Ok(Self::from_be_bytes(take(stringify!($integer), bytes)?))
            }
        }
    )*};
}

macro_rules! signed {
    ($($integer:ident)*) => {$(
        impl AsKey<$integer> for $integer {
            fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
                // Flipping the sign bit puts the negative numbers before the others.
                bytes.extend_from_slice(&(self ^ Self::MIN).to_be_bytes());
                Ok(())
            }
        }

        impl Key for $integer {
            fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                Ok(Self::from_be_bytes(take(stringify!($integer), bytes)?) ^ Self::MIN)
            }
        }
    )*};
}

unsigned!(u8 u16 u32 u64 u128);
signed!(i8 i16 i32 i64 i128);
