//! The formats in which records are read and written.
//!
//! * `tsv`: one record on each line, key TAB value, both escaped ([`escape`]). A further TAB
//!   belongs to the value.
//! * `raw-tsv`: the same without escapes: bytes as they are, for files that have backslashes of
//!   their own. It cannot hold every record, so it is only read.
//! * `json-lines`: one object on each line; see [`json_lines`].
//!
//! Empty lines are skipped in each, and so is a byte order mark of UTF-8 at the beginning.

pub mod escape;
pub mod json_lines;
pub mod lines;
pub mod record;
pub mod tsv;

use std::path::Path;

use clap::ValueEnum;

pub use record::{LineError, Record};

/// The format of records that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Key TAB value, with \t \n \r \\ \xNN for what has no other form
    Tsv,
    /// Key TAB value, bytes as they are
    RawTsv,
    /// {"key": ..., "value": ...}; key_hex and value_hex for bytes that are not text
    #[value(alias = "json", alias = "jsonl")]
    JsonLines,
}

/// The format of records that are written; each is a [`Format`] that reads them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Key TAB value, with \t \n \r \\ \xNN for what has no other form
    Tsv,
    /// {"key": ..., "value": ...}; key_hex and value_hex for bytes that are not text
    #[value(alias = "json", alias = "jsonl")]
    JsonLines,
}

impl Format {
    /// The format for a file's extension, if there is one.
    pub fn of_extension(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tsv" => Some(Self::Tsv),
            "json" | "jsonl" | "ndjson" => Some(Self::JsonLines),
            _ => None,
        }
    }

    /// The record of a line, without its line end; `None` if the line is empty.
    pub fn parse(self, line: &[u8]) -> Result<Option<Record>, LineError> {
        let unix_line = line.strip_suffix(b"\r").unwrap_or(line);
        match self {
            _ if unix_line.is_empty() => Ok(None),
            Self::Tsv => tsv::parse(unix_line).map(Some),
            Self::RawTsv => tsv::parse_raw(line).map(Some),
            Self::JsonLines => json_lines::parse(unix_line).map(Some),
        }
    }
}

impl OutputFormat {
    /// The format that reads this output.
    pub fn read_by(self) -> Format {
        match self {
            Self::Tsv => Format::Tsv,
            Self::JsonLines => Format::JsonLines,
        }
    }

    /// Appends a record as a line, with its line end.
    pub fn append(self, key: &[u8], value: &[u8], line: &mut Vec<u8>) {
        match self {
            Self::Tsv => tsv::append(key, value, line),
            Self::JsonLines => json_lines::append(key, value, line),
        }
        line.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            key in vec(prop_oneof![Just(b'\\'), Just(b'\t'), Just(b'\n'), any::<u8>()], 0..20),
            value in vec(any::<u8>(), 0..20),
        ) {
            for format in [OutputFormat::Tsv, OutputFormat::JsonLines] {
                let mut line = Vec::new();
                format.append(&key, &value, &mut line);
                let body = line.strip_suffix(b"\n").unwrap();
                prop_assert!(!body.contains(&b'\n'));
                let record = Some((key.clone(), value.clone()));
                prop_assert_eq!(format.read_by().parse(body), Ok(record));
            }
        }

        #[test]
        fn text_is_written_and_read_back(key in ".*", value in ".*") {
            for format in [OutputFormat::Tsv, OutputFormat::JsonLines] {
                let mut line = Vec::new();
                format.append(key.as_bytes(), value.as_bytes(), &mut line);
                line.pop();
                let record = Some((key.clone().into_bytes(), value.clone().into_bytes()));
                prop_assert_eq!(format.read_by().parse(&line), Ok(record));
            }
        }

        #[test]
        fn any_line_is_read_or_refused(line in vec(any::<u8>(), 0..40)) {
            for format in [Format::Tsv, Format::RawTsv, Format::JsonLines] {
                let _ = format.parse(&line);
            }
        }
    }

    #[test]
    fn empty_lines_are_no_records() {
        for format in [Format::Tsv, Format::RawTsv, Format::JsonLines] {
            assert_eq!(format.parse(b""), Ok(None));
            assert_eq!(format.parse(b"\r"), Ok(None));
        }
    }

    #[test]
    fn extensions_tell_the_format() {
        assert_eq!(Format::of_extension(Path::new("a/b.TSV")), Some(Format::Tsv));
        assert_eq!(Format::of_extension(Path::new("b.jsonl")), Some(Format::JsonLines));
        assert_eq!(Format::of_extension(Path::new("b.csv")), None);
        assert_eq!(Format::of_extension(Path::new("tsv")), None);
    }
}
