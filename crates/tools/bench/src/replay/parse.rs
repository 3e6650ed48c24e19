//! Files of operations, a line each:
//!
//! ```text
//! # a comment; empty lines are skipped too
//! insert KEY VALUE      add a record; the answer is whether the key was absent
//! update KEY VALUE      replace a value; the answer is whether the key was present
//! get KEY               the answer is the value, if the key is present
//! delete KEY            the answer is whether the key was present
//! scan KEY N            up to N records from KEY, included, upwards
//! scan-reverse KEY N    the same downwards
//! ```
//!
//! Words are separated by blanks. A byte of a key or value is written as it is, or as `\xNN` with
//! two hexadecimal digits. These must be written as `\xNN`: a blank (`\x20`), a line end, a
//! backslash (`\x5c`), and `#` at the beginning of a line. Keys have 1 to 128 bytes, values 1 to
//! 4,096.

use crate::record::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Maximum number of records of a scan.
pub const MAX_SCAN_RECORDS: u64 = 1_000_000;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The line's number, from 1.
    pub line: usize,
    /// The key, or the first key of a scan.
    pub key: Vec<u8>,
    /// The operation.
    pub verb: Verb,
}

/// The operation of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Adds a record with this value.
    Insert(Vec<u8>),
    /// Replaces the value by this one.
    Update(Vec<u8>),
    /// Gets the value.
    Get,
    /// Removes the record.
    Delete,
    /// Visits up to this many records upwards.
    Scan(u64),
    /// Visits up to this many records downwards.
    ScanReverse(u64),
}

/// Parses the text of a file; an error is the number of a line and its fault.
pub fn parse(text: &[u8]) -> Result<Vec<Operation>, (usize, String)> {
    let mut operations = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        let words: Vec<&[u8]> = line
            .split(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
            .filter(|word| !word.is_empty())
            .collect();
        match words.first() {
            None => continue,
            Some(first) if first.starts_with(b"#") => continue,
            Some(_) => operations.push(operation(number, &words).map_err(|what| (number, what))?),
        }
    }
    Ok(operations)
}

fn operation(line: usize, words: &[&[u8]]) -> Result<Operation, String> {
    let verb = String::from_utf8_lossy(words[0]);
    let usage = match &*verb {
        "insert" => "insert KEY VALUE",
        "update" => "update KEY VALUE",
        "get" => "get KEY",
        "delete" => "delete KEY",
        "scan" => "scan KEY N",
        "scan-reverse" => "scan-reverse KEY N",
        other => {
            return Err(format!(
                "unknown operation {other:?}; allowed are insert, update, get, delete, scan and scan-reverse"
            ));
        }
    };
    if words.len() != usage.split(' ').count() {
        return Err(format!("found {} words; expected {usage}", words.len()));
    }
    let key = bytes(words[1], "key", MAX_KEY_BYTES)?;
    let value = || bytes(words[2], "value", MAX_VALUE_BYTES);
    let verb = match &*verb {
        "insert" => Verb::Insert(value()?),
        "update" => Verb::Update(value()?),
        "get" => Verb::Get,
        "delete" => Verb::Delete,
        "scan" => Verb::Scan(limit(words[2])?),
        _ => Verb::ScanReverse(limit(words[2])?),
    };
    Ok(Operation { line, key, verb })
}

fn limit(word: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(word);
    match text.parse() {
        Ok(limit) if (1..=MAX_SCAN_RECORDS).contains(&limit) => Ok(limit),
        _ => Err(format!("found {text:?}; expected a number of records, 1 to {MAX_SCAN_RECORDS}")),
    }
}

fn bytes(word: &[u8], what: &str, most: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let digits = after.strip_prefix(b"x").and_then(|after| after.get(..2));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => out.push(byte),
            None => return Err(format!("a backslash in the {what} is not followed by xNN")),
        }
        rest = &after[3..];
    }
    if out.len() > most {
        return Err(format!("the {what} has {} bytes; at most {most} are allowed", out.len()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_read() {
        let text = b"# first\n\ninsert a\\x20b 1\nupdate k v\r\n get k \ndelete k\nscan k 10\nscan-reverse k 2";
        let operations = parse(text).unwrap();
        assert_eq!(operations.len(), 6);
        assert_eq!(operations[0].key, b"a b");
        assert_eq!((operations[0].line, operations[5].line), (3, 8));
        assert_eq!(operations[4].verb, Verb::Scan(10));
    }

    #[test]
    fn errors_name_the_line_and_what_is_allowed() {
        let long = [b"get ", vec![b'k'; 129].as_slice()].concat();
        for (text, line, says) in [
            (&b"get k\nput k v"[..], 2, "allowed are insert"),
            (b"insert k", 1, "expected insert KEY VALUE"),
            (b"scan k ten", 1, "expected a number of records"),
            (b"scan k 0", 1, "1 to 1000000"),
            (b"get a\\n", 1, "xNN"),
            (b"get a\\x2", 1, "xNN"),
            (&long, 1, "at most 128"),
        ] {
            let (at, what) = parse(text).unwrap_err();
            assert!(at == line && what.contains(says), "{at}: {what}");
        }
    }
}
