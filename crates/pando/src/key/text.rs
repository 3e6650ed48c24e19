//! Strings and byte strings.
//!
//! As a whole key they are their own bytes, so that a typed map and a map of bytes see the same
//! keys. Inside a tuple the decoder must find the end, and the end must sort before every byte that
//! could follow. So each 0x00 becomes 0x00 0xFF, and 0x00 0x00 ends the string.

use super::{AsKey, Key, KeyError};

const ESCAPE: u8 = 0x00;
const ESCAPED_ZERO: u8 = 0xFF;
const END: u8 = 0x00;

impl Key for Vec<u8> {
    fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        unescaped(bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
        Ok(bytes.to_vec())
    }
}

impl Key for String {
    fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        text(unescaped(bytes)?)
    }

    fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
        text(bytes.to_vec())
    }
}

fn text(bytes: Vec<u8>) -> Result<String, KeyError> {
    String::from_utf8(bytes)
        .map_err(|error| KeyError::NotUtf8 { valid_bytes: error.utf8_error().valid_up_to() })
}

fn escape(string: &[u8], bytes: &mut Vec<u8>) {
    for &byte in string {
        bytes.push(byte);
        if byte == ESCAPE {
            bytes.push(ESCAPED_ZERO);
        }
    }
    bytes.extend_from_slice(&[ESCAPE, END]);
}

fn unescaped(bytes: &mut &[u8]) -> Result<Vec<u8>, KeyError> {
    let mut string = Vec::new();
    loop {
        let zero = bytes.iter().position(|&byte| byte == ESCAPE).ok_or(KeyError::Unterminated)?;
        string.extend_from_slice(&bytes[..zero]);
        let follower = *bytes.get(zero + 1).ok_or(KeyError::Unterminated)?;
        *bytes = &bytes[zero + 2..];
        match follower {
            END => return Ok(string),
            ESCAPED_ZERO => string.push(ESCAPE),
            found => return Err(KeyError::UnknownEscape { found }),
        }
    }
}

/// Each `source` is a form of a `key`: both have the same bytes.
macro_rules! stands_for {
    ($($source:ty, $key:ty, [$($parameters:tt)*];)*) => {$(
        impl<$($parameters)*> AsKey<$key> for $source {
            fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
                let string: &[u8] = self.as_ref();
                escape(string, bytes);
                Ok(())
            }

            fn encode(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
                let string: &[u8] = self.as_ref();
                bytes.extend_from_slice(string);
                Ok(())
            }
        }
    )*};
}

stands_for! {
    String, String, [];
    str, String, [];
    Vec<u8>, Vec<u8>, [];
    [u8], Vec<u8>, [];
    [u8; N], Vec<u8>, [const N: usize];
}
