//! Truth values, characters, arrays of bytes and optional keys.

use super::{AsKey, Key, KeyError, take};

impl AsKey<bool> for bool {
    fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
        bytes.push(u8::from(*self));
        Ok(())
    }
}

impl Key for bool {
    fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        tag("bool", bytes)
    }
}

impl AsKey<char> for char {
    fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
        bytes.extend_from_slice(&u32::from(*self).to_be_bytes());
        Ok(())
    }
}

impl Key for char {
    fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        let found = u32::from_be_bytes(take("char", bytes)?);
        char::from_u32(found).ok_or(KeyError::NotACharacter { found })
    }
}

impl<const N: usize> AsKey<[u8; N]> for [u8; N] {
    fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
        bytes.extend_from_slice(self);
        Ok(())
    }
}

impl<const N: usize> Key for [u8; N] {
    fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        take("[u8; N]", bytes)
    }
}

impl<K, Q: AsKey<K>> AsKey<Option<K>> for Option<Q> {
    fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
        bytes.push(u8::from(self.is_some()));
        self.iter().try_for_each(|key| key.encode_element(bytes))
    }
}

impl<K: Key> Key for Option<K> {
    fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        if tag("Option", bytes)? { Ok(Some(K::decode_element(bytes)?)) } else { Ok(None) }
    }
}

fn tag(what: &'static str, bytes: &mut &[u8]) -> Result<bool, KeyError> {
    match take(what, bytes)? {
        [0] => Ok(false),
        [1] => Ok(true),
        [found] => Err(KeyError::UnknownTag { what, found }),
    }
}
