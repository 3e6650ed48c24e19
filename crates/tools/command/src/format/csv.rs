//! Records as CSV (RFC 4180): fields parted by commas, and quoted where needed. A quoted field may
//! have several lines.
//!
//! The first record is the header. It names the columns; two of them are the key and the value. A
//! dump writes the header `key,value`. A field holds any bytes, so each record has a form.

use std::io::{self, Read};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use super::input::{BYTE_ORDER_MARK, Input, is_utf16};
use super::record::{LineError, Record};

/// The header of a dump.
pub const HEADER: &[u8] = b"key,value\n";
/// The header of a list of keys.
pub const KEY_HEADER: &[u8] = b"key\n";

/// The names of the columns with the key and the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The column of the key.
    pub key: String,
    /// The column of the value.
    pub value: String,
}

impl Default for Columns {
    fn default() -> Self {
        Self { key: "key".to_owned(), value: "value".to_owned() }
    }
}

/// The places of two columns, and the number of all columns.
#[derive(Clone, Copy, Debug)]
struct Places {
    key: usize,
    value: usize,
    columns: usize,
}

/// Where a byte of a record stands. The parser takes quotes anywhere, and merges what is around
/// them; this finds those that are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quoting {
    /// At the beginning of a field.
    Begin,
    /// In a field without quotes.
    Unquoted,
    /// Between quotes.
    Quoted,
    /// Behind a quote that ends the field, or is the first of two.
    Closed,
    /// Behind a carriage return, which only the end of the line may follow.
    Return,
}

impl Quoting {
    /// The place behind `byte`, and the error if `byte` is wrong here.
    fn behind(self, byte: u8) -> (Self, Option<LineError>) {
        match (self, byte) {
            (Self::Quoted, b'"') => (Self::Closed, None),
            (Self::Quoted, _) => (Self::Quoted, None),
            (_, b'\n') => (Self::Begin, None),
            (Self::Return, _) => (Self::Unquoted, Some(LineError::LoneReturn)),
            (Self::Begin | Self::Closed, b'"') => (Self::Quoted, None),
            (_, b',') => (Self::Begin, None),
            (_, b'\r') => (Self::Return, None),
            (Self::Begin, _) => (Self::Unquoted, None),
            (Self::Unquoted, b'"') => (Self::Unquoted, Some(LineError::WrongQuote)),
            (Self::Unquoted, _) => (Self::Unquoted, None),
            (Self::Closed, _) => (Self::Unquoted, Some(LineError::WrongQuote)),
        }
    }
}

/// The records of a reader.
pub struct CsvRecords<R> {
    input: Input<R>,
    parser: Box<Reader>,
    /// The bytes of the fields of the last record, and where each ends.
    fields: Vec<u8>,
    ends: Vec<usize>,
    places: Places,
    max_record_bytes: usize,
    /// Whether the parser has got anything.
    has_parsed: bool,
    /// Line ends that were read.
    line_ends: u64,
    /// The line in which the last record begins.
    number: u64,
}

impl<R: Read> CsvRecords<R> {
    /// Reads the header. A record of more than `max_record_bytes` is skipped with an error.
    pub fn new(
        reader: R,
        columns: &Columns,
        max_record_bytes: usize,
    ) -> io::Result<Result<Self, LineError>> {
        let places = Places { key: 0, value: 0, columns: 0 };
        let mut records = Self {
            input: Input::new(reader),
            // A carriage return before it is taken off here: the parser would end a line there.
            parser: Box::new(ReaderBuilder::new().terminator(Terminator::Any(b'\n')).build()),
            fields: vec![0; 1024],
            ends: vec![0; 16],
            places,
            max_record_bytes,
            has_parsed: false,
            line_ends: 0,
            number: 1,
        };
        let found = match records.read_record()? {
            None => 0,
            Some(Err(error)) => return Ok(Err(error)),
            Some(Ok(found)) => found,
        };
        Ok(records.places_of(columns, found).map(|places| Self { places, ..records }))
    }

    /// The line in which the last record begins; the first is 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The bytes that the records are read from.
    pub(super) fn input(&self) -> &Input<R> {
        &self.input
    }

    /// The next record; `None` at the end.
    pub fn next_record(&mut self) -> io::Result<Option<Result<Record, LineError>>> {
        let found = match self.read_record()? {
            None => return Ok(None),
            Some(Err(error)) => return Ok(Some(Err(error))),
            Some(Ok(found)) => found,
        };
        let Places { key, value, columns } = self.places;
        if found != columns {
            return Ok(Some(Err(LineError::FieldCount { found, columns })));
        }
        Ok(Some(Ok((self.field(key).to_vec(), self.field(value).to_vec()))))
    }

    fn places_of(&self, columns: &Columns, found: usize) -> Result<Places, LineError> {
        if is_utf16(&self.fields) {
            return Err(LineError::Utf16);
        }
        let names: Vec<&[u8]> = (0..found).map(|at| self.field(at)).collect();
        let listed = || {
            let text = |name: &&[u8]| format!("{:?}", String::from_utf8_lossy(name));
            let names: Vec<_> = names.iter().map(text).collect();
            if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
        };
        let place = |name: &str| {
            let mut places =
                names.iter().enumerate().filter(|(_, found)| **found == name.as_bytes());
            match (places.next(), places.next()) {
                (Some((at, _)), None) => Ok(at),
                (None, _) => Err(LineError::NoColumn { name: name.to_owned(), found: listed() }),
                (Some(_), Some(_)) => Err(LineError::ColumnTwice { name: name.to_owned() }),
            }
        };
        let (key, value) = (place(&columns.key)?, place(&columns.value)?);
        // Columns that nobody has named are not dropped silently.
        if found > 2 && *columns == Columns::default() {
            return Err(LineError::MoreColumns { found: listed() });
        }
        Ok(Places { key, value, columns: found })
    }

    fn field(&self, at: usize) -> &[u8] {
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.fields[begin..self.ends[at]]
    }

    /// Reads a record; the number of its fields.
    fn read_record(&mut self) -> io::Result<Option<Result<usize, LineError>>> {
        self.skip_line_ends()?;
        self.number = self.line_ends + 1;
        let (mut bytes, mut fields) = (0, 0);
        let (mut quoting, mut wrong) = (Quoting::Begin, None);
        let (mut is_too_long, mut has_return) = (false, false);
        loop {
            let input = self.input.fill()?;
            let is_at_end = input.is_empty();
            let (result, read, written, ended) =
                self.parser.read_record(input, &mut self.fields[bytes..], &mut self.ends[fields..]);
            // The parser skips the mark where it is the first that it gets.
            let is_marked = !self.has_parsed && input.starts_with(BYTE_ORDER_MARK);
            self.has_parsed = true;
            for &byte in &input[if is_marked { BYTE_ORDER_MARK.len() } else { 0 }..read] {
                has_return = quoting == Quoting::Return;
                let (behind, error) = quoting.behind(byte);
                quoting = behind;
                wrong = wrong.or(error);
                self.line_ends += u64::from(byte == b'\n');
            }
            self.input.consume(read);
            bytes += written;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if bytes >= self.max_record_bytes => {
                    // The rest is read and dropped.
                    is_too_long = true;
                    bytes = 0;
                }
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull if fields >= self.max_record_bytes => {
                    is_too_long = true;
                    fields = 0;
                }
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::End => return Ok(None),
                ReadRecordResult::Record => {
                    // At the end of the file, the line feed may be missing.
                    let has_return = has_return || quoting == Quoting::Return;
                    if has_return && !is_too_long && bytes > 0 {
                        bytes -= 1;
                        self.ends[fields - 1] = bytes;
                    }
                    let max_bytes = self.max_record_bytes;
                    let is_too_long = is_too_long || bytes > max_bytes;
                    if is_too_long {
                        self.fields = vec![0; 1024];
                    }
                    return Ok(Some(if is_at_end && quoting == Quoting::Quoted {
                        Err(LineError::OpenQuote)
                    } else if is_too_long {
                        Err(LineError::RecordTooLong { max_bytes })
                    } else {
                        wrong.map_or(Ok(fields), Err)
                    }));
                }
            }
        }
    }

    /// Skips the line ends before a record, so that the number of its line is right.
    fn skip_line_ends(&mut self) -> io::Result<()> {
        loop {
            let input = self.input.fill()?;
            let end = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
            let skipped = end.unwrap_or(input.len());
            let line_ends = input[..skipped].iter().filter(|&&byte| byte == b'\n').count();
            let is_done = end.is_some() || input.is_empty();
            self.line_ends += line_ends as u64;
            self.input.consume(skipped);
            if is_done {
                return Ok(());
            }
        }
    }
}

/// Appends fields, without a line end.
pub fn append(fields: &[&[u8]], line: &mut Vec<u8>) {
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            line.push(b',');
        }
        append_field(field, line);
    }
}

fn append_field(field: &[u8], line: &mut Vec<u8>) {
    let is_special = |byte| matches!(byte, &b',' | b'"' | b'\r' | b'\n');
    // Without quotes a line with one empty field would be an empty line.
    if !field.is_empty() && !field.iter().any(is_special) {
        line.extend_from_slice(field);
        return;
    }
    line.push(b'"');
    for &byte in field {
        if byte == b'"' {
            line.push(b'"');
        }
        line.push(byte);
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    type Read = (u64, Result<Record, LineError>);

    fn all(text: &[u8], columns: &Columns, max_bytes: usize) -> Result<Vec<Read>, LineError> {
        let mut records = CsvRecords::new(text, columns, max_bytes).unwrap()?;
        let mut found = Vec::new();
        while let Some(record) = records.next_record().unwrap() {
            found.push((records.number(), record));
        }
        assert_eq!(records.input().position_bytes(), text.len() as u64);
        Ok(found)
    }

    fn record(number: u64, key: &str, value: &str) -> Read {
        (number, Ok((key.into(), value.into())))
    }

    #[test]
    fn quoted_fields_and_all_line_ends_are_read() {
        let text = b"key,value\na,1\r\n\n\"b,\"\"\n\",\"2\n3\"\nc,\"\"";
        let found = all(text, &Columns::default(), 100).unwrap();
        assert_eq!(found, [record(2, "a", "1"), record(4, "b,\"\n", "2\n3"), record(7, "c", "")]);
    }

    #[test]
    fn a_carriage_return_within_a_line_is_refused() {
        let text = b"key,value\r\na,1\rb,2\n\"c\rd\",\"3\"\r\ne,4\r";
        let found = all(text, &Columns::default(), 100).unwrap();
        let wrong = (2, Err(LineError::LoneReturn));
        assert_eq!(found, [wrong, record(3, "c\rd", "3"), record(4, "e", "4")]);
    }

    #[test]
    fn columns_are_found_by_name() {
        let columns = Columns { key: "id".to_owned(), value: "name".to_owned() };
        let found = all(b"\xEF\xBB\xBFname,x,id\noak,?,7\n", &columns, 100).unwrap();
        assert_eq!(found, [record(2, "7", "oak")]);
    }

    #[test]
    fn what_is_wrong_with_a_header_is_named() {
        let refused = |text: &[u8], reason: &str| {
            let error = all(text, &Columns::default(), 100).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        };
        refused(b"", "no column \"key\": it has nothing");
        refused(b"id,name\n", "no column \"key\": it has \"id\", \"name\"");
        refused(b"key,key,value\n", "twice");
        refused(b"key,value,more\na,b,c\n", "\"key\", \"value\", \"more\"");
        refused(b"\xFF\xFEk\0", "UTF-16");
    }

    #[test]
    fn a_wrong_record_is_refused_and_the_next_one_is_read() {
        let text = b"key,value\na\nb,2\nlooooong,value\nc,3\nd,\"4";
        let found = all(text, &Columns::default(), 9).unwrap();
        assert_eq!(found[0], (2, Err(LineError::FieldCount { found: 1, columns: 2 })));
        assert_eq!(found[1], record(3, "b", "2"));
        assert_eq!(found[2], (4, Err(LineError::RecordTooLong { max_bytes: 9 })));
        assert_eq!(found[3], record(5, "c", "3"));
        assert_eq!(found[4], (6, Err(LineError::OpenQuote)));
    }

    #[test]
    fn a_quote_that_is_neither_around_a_field_nor_doubled_is_refused() {
        let text = b"key,value\na\"b,1\n\"a\"b,1\n\"a\" ,1\n\"b\",\"2\"\r\nc,3\"";
        let found = all(text, &Columns::default(), 100).unwrap();
        let wrong = |number| (number, Err(LineError::WrongQuote));
        assert_eq!(found, [wrong(2), wrong(3), wrong(4), record(5, "b", "2"), wrong(6)]);
    }

    #[test]
    fn a_quoted_header_may_stand_behind_a_byte_order_mark() {
        let text = b"\xEF\xBB\xBF\"key\",\"value\"\na,1\n";
        assert_eq!(all(text, &Columns::default(), 100).unwrap(), [record(2, "a", "1")]);
    }

    #[test]
    fn an_open_quote_is_named_also_if_the_rest_of_the_file_is_too_long() {
        let text = [b"key,value\n\"a,1\n", &b"b,2\n".repeat(100)[..]].concat();
        let found = all(&text, &Columns::default(), 100).unwrap();
        assert_eq!(found, [(2, Err(LineError::OpenQuote))]);
    }

    #[test]
    fn a_record_of_many_empty_fields_takes_no_memory() {
        let text = [b"key,value\n", &b",".repeat(100_000)[..], b"\nb,2\n"].concat();
        let found = all(&text, &Columns::default(), 10_000).unwrap();
        assert_eq!(found[0], (2, Err(LineError::RecordTooLong { max_bytes: 10_000 })));
        assert_eq!(found[1], record(3, "b", "2"));
    }

    #[test]
    fn a_record_far_longer_than_the_limit_takes_no_memory() {
        let text = [b"key,value\n", &b"x".repeat(100_000)[..], b",1\nb,2\n"].concat();
        let found = all(&text, &Columns::default(), 10_000).unwrap();
        assert_eq!(found[0], (2, Err(LineError::RecordTooLong { max_bytes: 10_000 })));
        assert_eq!(found[1], record(3, "b", "2"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            records in vec((field(), field()), 0..5),
        ) {
            let mut text = HEADER.to_vec();
            for (key, value) in &records {
                append(&[key, value], &mut text);
                text.push(b'\n');
            }
            let found = all(&text, &Columns::default(), 1_000).unwrap();
            let found: Vec<_> = found.into_iter().map(|(_, record)| record.unwrap()).collect();
            prop_assert_eq!(found, records);
        }

        #[test]
        fn any_text_is_read_or_refused(text in vec(field(), 0..10)) {
            let text = [HEADER, &text.concat()].concat();
            all(&text, &Columns::default(), 30).unwrap();
        }
    }

    fn field() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(b'"'), Just(b','), Just(b'\n'), Just(b'\r'), any::<u8>()];
        vec(byte, 0..12)
    }
}
