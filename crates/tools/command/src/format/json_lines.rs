//! Records as lines of JSON.
//!
//! `{"key": "...", "value": "..."}`; bytes that are not text are `"key_hex"` or `"value_hex"`, two
//! hexadecimal digits for each byte. A value that is no string (a number, an object, ...) is an
//! error: a record holds bytes, so a dump could not distinguish it from a string.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::record::{LineError, Record};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with key and value")]
struct Read<'line> {
    #[serde(borrow, default, deserialize_with = "present")]
    key: Option<&'line RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    key_hex: Option<&'line RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'line RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    value_hex: Option<&'line RawValue>,
}

/// A field that is there, also if it is null.
fn present<'line, D: Deserializer<'line>>(found: D) -> Result<Option<&'line RawValue>, D::Error> {
    <&RawValue>::deserialize(found).map(Some)
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
    // The parser takes an array of values as the fields in their order.
    if line.trim_ascii_start().starts_with(b"[") {
        return Err(LineError::JsonArray);
    }
    let read: Read<'_> = serde_json::from_slice(line).map_err(json_error)?;
    let key = bytes("key", read.key, ("key_hex", read.key_hex))?;
    let value = bytes("value", read.value, ("value_hex", read.value_hex))?;
    Ok((key, value))
}

fn json_error(error: serde_json::Error) -> LineError {
    // The text has one line; the caller adds the number of the line in the file.
    LineError::Json(error.to_string().replace(" at line 1 column ", ", at byte "))
}

/// The bytes of a field that is either a text or, under another name, hexadecimal digits.
fn bytes(
    name: &'static str,
    plain: Option<&RawValue>,
    (hex_name, hex): (&'static str, Option<&RawValue>),
) -> Result<Vec<u8>, LineError> {
    match (plain, hex) {
        (Some(raw), None) => text(name, raw).map(String::into_bytes),
        (None, Some(raw)) => hexadecimal(hex_name, &text(hex_name, raw)?),
        (None, None) => Err(LineError::OneOfTwo { found: "neither", name }),
        (Some(_), Some(_)) => Err(LineError::OneOfTwo { found: "both", name }),
    }
}

/// The text of the field `name`.
fn text(name: &'static str, raw: &RawValue) -> Result<String, LineError> {
    let found = match raw.get().as_bytes().first() {
        Some(b'"') => return serde_json::from_str(raw.get()).map_err(json_error),
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    };
    Err(LineError::NotText { name, found })
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
            ("null", "null"),
        ] {
            for name in ["key", "value", "key_hex", "value_hex"] {
                let other = if name.starts_with("key") { "value" } else { "key" };
                let line = format!("{{\"{other}\":\"a\",\"{name}\":{value}}}");
                let refused = Err(LineError::NotText { name, found });
                assert_eq!(parse(line.as_bytes()), refused, "{value}");
            }
        }
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
        named(br#"["a",null,"b",null]"#, "the line is an array");
        named(br#" [{"key":"a","value":"b"}]"#, "one object on each line");
        named(br#"{"key_hex":"abc","value":""}"#, "key_hex is not an even number");
        named(br#"{"key":"a","value":"\ud800"}"#, "not an object");
        named(br#"{"key":"a","value":""} {}"#, "trailing characters");
    }
}
