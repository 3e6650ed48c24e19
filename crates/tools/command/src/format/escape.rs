//! The escaping of the command: for records of `tsv`, and for keys and values on the command line.
//!
//! `\t`, `\n`, `\r` and `\\` have their usual meaning. Control characters, byte order marks, and
//! bytes that are not UTF-8 are written as `\xNN`, byte by byte. All other text is written as it
//! is.

/// Why an escaped text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EscapeError {
    /// A backslash before another character.
    #[error(
        "\\{found} is no escape; allowed are \\t \\n \\r \\\\ \\xNN (write \\\\ for a backslash)"
    )]
    Unknown {
        /// The character behind the backslash.
        found: char,
    },
    /// A backslash at the very end.
    #[error("a backslash at the end; write \\\\ for a backslash")]
    AtEnd,
    /// `\x` without two hexadecimal digits.
    #[error("\\x is not followed by two hexadecimal digits")]
    Hexadecimal,
}

/// Appends `bytes`, escaped.
pub fn append(bytes: &[u8], escaped: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut buffer = [0; 4];
            let encoded = character.encode_utf8(&mut buffer).as_bytes();
            match character {
                '\t' => escaped.extend_from_slice(b"\\t"),
                '\n' => escaped.extend_from_slice(b"\\n"),
                '\r' => escaped.extend_from_slice(b"\\r"),
                '\\' => escaped.extend_from_slice(b"\\\\"),
                // At the beginning of a file it would be skipped.
                '\u{feff}' => append_hexadecimal(encoded, escaped),
                _ if character.is_control() => append_hexadecimal(encoded, escaped),
                _ => escaped.extend_from_slice(encoded),
            }
        }
        append_hexadecimal(chunk.invalid(), escaped);
    }
}

/// `bytes`, escaped, as text.
pub fn escaped_text(bytes: &[u8]) -> String {
    let mut escaped = Vec::new();
    append(bytes, &mut escaped);
    String::from_utf8_lossy(&escaped).into_owned()
}

/// The bytes of the escaped text.
pub fn unescaped(escaped: &[u8]) -> Result<Vec<u8>, EscapeError> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(backslash) = rest.iter().position(|&byte| byte == b'\\') {
        bytes.extend_from_slice(&rest[..backslash]);
        rest = &rest[backslash + 1..];
        let (&escape, behind) = rest.split_first().ok_or(EscapeError::AtEnd)?;
        match escape {
            b't' => bytes.push(b'\t'),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let digits = behind.get(..2).ok_or(EscapeError::Hexadecimal)?;
                bytes.extend(hex::decode(digits).map_err(|_| EscapeError::Hexadecimal)?);
                rest = &behind[2..];
                continue;
            }
            _ => {
                let found =
                    rest.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
                let found = found.unwrap_or(char::REPLACEMENT_CHARACTER);
                return Err(EscapeError::Unknown { found });
            }
        }
        rest = behind;
    }
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

fn append_hexadecimal(bytes: &[u8], escaped: &mut Vec<u8>) {
    for byte in bytes {
        escaped.extend_from_slice(b"\\x");
        escaped.extend_from_slice(hex::encode([*byte]).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_other_form_is_escaped() {
        assert_eq!(escaped_text(b"a\tb\nc\rd\\e"), r"a\tb\nc\rd\\e");
        assert_eq!(escaped_text(b"\0\x1b[31m\xff"), r"\x00\x1b[31m\xff");
        assert_eq!(escaped_text("größe 森".as_bytes()), "größe 森");
        assert_eq!(escaped_text("\u{9b}".as_bytes()), r"\xc2\x9b");
        assert_eq!(escaped_text("\u{feff}".as_bytes()), r"\xef\xbb\xbf");
    }

    #[test]
    fn what_is_no_escape_is_named() {
        assert_eq!(unescaped(br"C:\dir"), Err(EscapeError::Unknown { found: 'd' }));
        assert_eq!(unescaped("\\森".as_bytes()), Err(EscapeError::Unknown { found: '森' }));
        assert_eq!(unescaped(b"end\\"), Err(EscapeError::AtEnd));
        assert_eq!(unescaped(br"\x4"), Err(EscapeError::Hexadecimal));
        assert_eq!(unescaped(br"\x+4"), Err(EscapeError::Hexadecimal));
        assert_eq!(unescaped(br"\x4a\xFf\\x"), Ok(b"J\xff\\x".to_vec()));
    }
}
