//! The formats in which records are read and written.
//!
//! * `tsv`: one record on each line, key TAB value, both escaped ([`escape`]). A further TAB
//!   belongs to the value.
//! * `raw-tsv`: the same without escapes: bytes as they are, for files that have backslashes of
//!   their own. It cannot hold every record, so it is only read.
//! * `json-lines`: one object on each line; see [`json_lines`].
//! * `csv`: fields parted by commas, and a header; see [`csv`].
//!
//! Empty lines are skipped in each, and so is a byte order mark of UTF-8 at the beginning. A file
//! may be compressed ([`compression`]).

pub mod compression;
pub mod csv;
pub mod escape;
mod input;
pub mod json_lines;
pub mod lines;
pub mod reader;
pub mod record;
pub mod tsv;

use std::path::Path;

use clap::ValueEnum;

use compression::Compression;

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
    /// Comma-separated fields, with a header; --key-column and --value-column name the columns
    Csv,
}

/// The format of records that are written; each is a [`Format`] that reads them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Key TAB value, with \t \n \r \\ \xNN for what has no other form
    Tsv,
    /// {"key": ..., "value": ...}; key_hex and value_hex for bytes that are not text
    #[value(alias = "json", alias = "jsonl")]
    JsonLines,
    /// Comma-separated fields, with the header key,value
    Csv,
}

impl Format {
    /// The format for a file's extension, if there is one. That of a compression may follow it.
    pub fn of_extension(path: &Path) -> Option<Self> {
        let name =
            Compression::of_extension(path).map_or(Some(path), |_| path.file_stem().map(Path::new));
        match name?.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tsv" => Some(Self::Tsv),
            "json" | "jsonl" | "ndjson" => Some(Self::JsonLines),
            "csv" => Some(Self::Csv),
            _ => None,
        }
    }

    /// The parser of a line, without its line end; `None` for CSV, whose records are not lines.
    pub fn line_parser(self) -> Option<LineParser> {
        match self {
            Self::Tsv => Some(|line| parsed(without_return(line), tsv::parse)),
            Self::RawTsv => Some(|line| match without_return(line) {
                b"" => Ok(None),
                _ => parsed(line, tsv::parse_raw),
            }),
            Self::JsonLines => Some(|line| parsed(without_return(line), json_lines::parse)),
            Self::Csv => None,
        }
    }
}

/// Reads a line, without its line end; no record if the line is empty.
pub type LineParser = fn(&[u8]) -> Result<Option<Record>, LineError>;

fn parsed(
    line: &[u8],
    parse: fn(&[u8]) -> Result<Record, LineError>,
) -> Result<Option<Record>, LineError> {
    if line.is_empty() { Ok(None) } else { parse(line).map(Some) }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl OutputFormat {
    /// The format that reads this output.
    pub fn read_by(self) -> Format {
        match self {
            Self::Tsv => Format::Tsv,
            Self::JsonLines => Format::JsonLines,
            Self::Csv => Format::Csv,
        }
    }

    /// What a file has before its first record.
    pub fn header(self) -> &'static [u8] {
        match self {
            Self::Tsv | Self::JsonLines => b"",
            Self::Csv => csv::HEADER,
        }
    }

    /// What a list of keys has before its first key.
    pub fn key_header(self) -> &'static [u8] {
        match self {
            Self::Tsv | Self::JsonLines => b"",
            Self::Csv => csv::KEY_HEADER,
        }
    }

    /// Appends a record as a line, with its line end.
    pub fn append(self, key: &[u8], value: &[u8], line: &mut Vec<u8>) {
        match self {
            Self::Tsv => tsv::append(key, value, line),
            Self::JsonLines => json_lines::append(key, value, line),
            Self::Csv => csv::append(&[key, value], line),
        }
        line.push(b'\n');
    }

    /// Appends a key alone as a line, with its line end.
    pub fn append_key(self, key: &[u8], line: &mut Vec<u8>) {
        match self {
            Self::Tsv => escape::append(key, line),
            Self::JsonLines => json_lines::append_key(key, line),
            Self::Csv => csv::append(&[key], line),
        }
        line.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parse(format: Format, line: &[u8]) -> Result<Option<Record>, LineError> {
        format.line_parser().unwrap()(line)
    }

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
                prop_assert_eq!(parse(format.read_by(), body), Ok(record));
            }
        }

        #[test]
        fn text_is_written_and_read_back(key in ".*", value in ".*") {
            for format in [OutputFormat::Tsv, OutputFormat::JsonLines] {
                let mut line = Vec::new();
                format.append(key.as_bytes(), value.as_bytes(), &mut line);
                line.pop();
                let record = Some((key.clone().into_bytes(), value.clone().into_bytes()));
                prop_assert_eq!(parse(format.read_by(), &line), Ok(record));
            }
        }

        #[test]
        fn any_line_is_read_or_refused(line in vec(any::<u8>(), 0..40)) {
            for format in [Format::Tsv, Format::RawTsv, Format::JsonLines] {
                let _ = parse(format, &line);
            }
        }
    }

    #[test]
    fn empty_lines_are_no_records() {
        for format in [Format::Tsv, Format::RawTsv, Format::JsonLines] {
            assert_eq!(parse(format, b""), Ok(None));
            assert_eq!(parse(format, b"\r"), Ok(None));
        }
    }

    #[test]
    fn extensions_tell_the_format() {
        assert_eq!(Format::of_extension(Path::new("a/b.TSV")), Some(Format::Tsv));
        assert_eq!(Format::of_extension(Path::new("b.jsonl")), Some(Format::JsonLines));
        assert_eq!(Format::of_extension(Path::new("b.csv.gz")), Some(Format::Csv));
        assert_eq!(Format::of_extension(Path::new("b.TSV.ZST")), Some(Format::Tsv));
        assert_eq!(Format::of_extension(Path::new("b.gz")), None);
        assert_eq!(Format::of_extension(Path::new("b.xml")), None);
        assert_eq!(Format::of_extension(Path::new("tsv")), None);
    }
}
