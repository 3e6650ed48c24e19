//! Tuples: their elements one after the other. Each element is self-delimiting.

use super::{AsKey, Key, KeyError};

macro_rules! tuple {
    ($(($($key:ident $source:ident $element:tt),+))*) => {$(
        impl<$($key, $source: AsKey<$key>),+> AsKey<($($key,)+)> for ($($source,)+) {
            fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
                $(self.$element.encode_element(bytes)?;)+
                Ok(())
            }
        }

        impl<$($key: Key),+> Key for ($($key,)+) {
            fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                Ok(($($key::decode_element(bytes)?,)+))
            }
        }
    )*};
}

tuple! {
    (A P 0)
    (A P 0, B Q 1)
    (A P 0, B Q 1, C R 2)
    (A P 0, B Q 1, C R 2, D S 3)
}
