//! Records as lines of JSON.
//!
//! `{"key": "...", "value": "..."}`; bytes that are not text are `"key_hex"` or `"value_hex"`, two
//! hexadecimal digits for each byte. A value that is no string (a number, an object, ...) is an
//! error: a record holds bytes, so a dump could not distinguish it from a string.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::record::{LineError, Record};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with key and value")]
struct Read<'line> {
    key: Option<String>,
    key_hex: Option<String>,
    #[serde(borrow)]
    value: Option<&'line RawValue>,
    value_hex: Option<String>,
}

#[derive(Serialize)]
struct Written<'record> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'record str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'record str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

/// The record of a line.
pub fn parse(line: &[u8]) -> Result<Record, LineError> {
    // The text has one line; the caller adds the number of the line in the file.
    let json_error = |error: serde_json::Error| {
        LineError::Json(error.to_string().replace(" at line 1 column ", ", at byte "))
    };
    let read: Read<'_> = serde_json::from_slice(line).map_err(json_error)?;
    let key = match (read.key, read.key_hex) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(digits)) => hexadecimal("key_hex", &digits)?,
        (None, None) => return Err(LineError::OneOfTwo { found: "neither", name: "key" }),
        _ => return Err(LineError::OneOfTwo { found: "both", name: "key" }),
    };
    let value = match (read.value, read.value_hex) {
        (Some(raw), None) if raw.get().starts_with('"') => {
            serde_json::from_str::<String>(raw.get()).map_err(json_error)?.into_bytes()
        }
        (Some(raw), None) => {
            let found = match raw.get().as_bytes().first() {
                Some(b'{') => "an object",
                Some(b'[') => "an array",
                Some(b't' | b'f') => "a boolean",
                _ => "a number",
            };
            return Err(LineError::NotText { found });
        }
        (None, Some(digits)) => hexadecimal("value_hex", &digits)?,
        (None, None) => return Err(LineError::OneOfTwo { found: "neither", name: "value" }),
        _ => return Err(LineError::OneOfTwo { found: "both", name: "value" }),
    };
    Ok((key, value))
}

/// Appends a record, without a line end.
pub fn append(key: &[u8], value: &[u8], line: &mut Vec<u8>) {
    let (key, key_hex) = text_or_hexadecimal(key);
    let (value, value_hex) = text_or_hexadecimal(value);
    write(&Written { key, key_hex, value, value_hex }, line);
}

/// Appends a key alone, without a line end.
pub fn append_key(key: &[u8], line: &mut Vec<u8>) {
    let (key, key_hex) = text_or_hexadecimal(key);
    write(&Written { key, key_hex, value: None, value_hex: None }, line);
}

fn write(written: &Written<'_>, line: &mut Vec<u8>) {
    serde_json::to_writer(line, written)
        .unwrap_or_else(|_| unreachable!("text and digits always have a JSON form"));
}

fn text_or_hexadecimal(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(hex::encode(bytes))),
    }
}

fn hexadecimal(name: &'static str, digits: &str) -> Result<Vec<u8>, LineError> {
    hex::decode(digits).map_err(|_| LineError::Hexadecimal { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &[u8], value: &[u8]) -> Result<Record, LineError> {
        Ok((key.to_vec(), value.to_vec()))
    }

    #[test]
    fn text_and_bytes_are_read() {
        assert_eq!(parse(br#"{"key":"a\u00e9\\","value":"\n"}"#), record("aé\\".as_bytes(), b"\n"));
        assert_eq!(parse(br#" {"value_hex":"00fF","key_hex":""} "#), record(b"", b"\x00\xff"));
    }

    #[test]
    fn a_value_that_is_no_string_is_refused() {
        for (value, found) in [
            ("3", "a number"),
            ("-1.5", "a number"),
            ("{\"n\":1}", "an object"),
            ("[ ]", "an array"),
            ("true", "a boolean"),
        ] {
            let line = format!("{{\"key\":\"a\",\"value\":{value}}}");
            assert_eq!(parse(line.as_bytes()), Err(LineError::NotText { found }), "{value}");
        }
        let null = parse(br#"{"key":"a","value":null}"#);
        assert_eq!(null, Err(LineError::OneOfTwo { found: "neither", name: "value" }));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let named = |line: &[u8], reason: &str| {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        };
        named(b"{", "EOF");
        named(b"\xff", "not an object");
        named(b"7", "expected an object with key and value, at byte 1");
        named(br#"{"key":"a"}"#, "neither; it needs either value or value_hex");
        named(br#"{"key":"a","key_hex":"61","value":""}"#, "both; it needs either key or key_hex");
        named(br#"{"key":"a","value":"b","extra":1}"#, "unknown field `extra`");
        named(br#"{"key":"a","key":"b","value":""}"#, "duplicate field `key`");
        named(br#"{"key":7,"value":""}"#, "expected a string");
        named(br#"{"key_hex":"abc","value":""}"#, "key_hex is not an even number");
        named(br#"{"key":"a","value":"\ud800"}"#, "not an object");
        named(br#"{"key":"a","value":""} {}"#, "trailing characters");
    }
}
