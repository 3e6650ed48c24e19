//! Records as lines of key TAB value.

use super::escape;
use super::record::{LineError, Record};

/// The record of an escaped line.
pub fn parse(line: &[u8]) -> Result<Record, LineError> {
    let (key, value) = split(line)?;
    let key = escape::unescaped(key).map_err(LineError::KeyEscape)?;
    let value = escape::unescaped(value).map_err(LineError::ValueEscape)?;
    Ok((key, value))
}

/// The record of a line without escapes.
pub fn parse_raw(line: &[u8]) -> Result<Record, LineError> {
    let (key, value) = split(line)?;
    Ok((key.to_vec(), value.to_vec()))
}

/// Appends a record, escaped, without a line end.
pub fn append(key: &[u8], value: &[u8], line: &mut Vec<u8>) {
    escape::append(key, line);
    line.push(b'\t');
    escape::append(value, line);
}

fn split(line: &[u8]) -> Result<(&[u8], &[u8]), LineError> {
    let tab = line.iter().position(|&byte| byte == b'\t').ok_or(LineError::NoTab)?;
    Ok((&line[..tab], &line[tab + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tab_parts_key_and_value() {
        assert_eq!(parse(b"a\tb\tc"), Ok((b"a".to_vec(), b"b\tc".to_vec())));
        assert_eq!(parse(b"\t"), Ok((Vec::new(), Vec::new())));
        assert_eq!(parse(b"a"), Err(LineError::NoTab));
        assert_eq!(parse_raw(b"C:\\dir\tx\r"), Ok((b"C:\\dir".to_vec(), b"x\r".to_vec())));
    }

    #[test]
    fn the_error_says_on_which_side_it_is() {
        let error = escape::EscapeError::Unknown { found: 'q' };
        assert_eq!(parse(b"\\q\tb"), Err(LineError::KeyEscape(error.clone())));
        assert_eq!(parse(b"a\t\\q"), Err(LineError::ValueEscape(error)));
    }
}
