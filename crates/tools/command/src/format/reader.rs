//! Records of any format, one after the other.

use std::io::{self, Read};

use super::csv::{Columns, CsvRecords};
use super::input::Input;
use super::lines::Lines;
use super::record::{LineError, Record};
use super::{Format, LineParser};

/// The records of a reader.
pub enum Records<R> {
    /// A record on each line.
    Lines(Lines<R>, LineParser),
    /// Records of CSV.
    Csv(CsvRecords<R>),
}

impl<R: Read> Records<R> {
    /// The records of `reader`. A line, or a record of CSV, of more than `max_line_bytes` is
    /// skipped with an error. The header of CSV is read at once; an error of it is that of line 1.
    pub fn new(
        reader: R,
        format: Format,
        columns: &Columns,
        max_line_bytes: usize,
    ) -> io::Result<Result<Self, LineError>> {
        Ok(match format.line_parser() {
            Some(parse) => Ok(Self::Lines(Lines::new(reader, max_line_bytes), parse)),
            None => CsvRecords::new(reader, columns, max_line_bytes)?.map(Self::Csv),
        })
    }

    /// The line of the last record, or the first of its lines; the first of all is 1.
    pub fn number(&self) -> u64 {
        match self {
            Self::Lines(lines, _) => lines.number(),
            Self::Csv(records) => records.number(),
        }
    }

    /// The number of bytes that were read.
    pub fn position_bytes(&self) -> u64 {
        self.input().position_bytes()
    }

    /// Whether the next record may not be buffered yet.
    pub fn may_wait(&self) -> bool {
        self.input().may_wait()
    }

    fn input(&self) -> &Input<R> {
        match self {
            Self::Lines(lines, _) => lines.input(),
            Self::Csv(records) => records.input(),
        }
    }

    /// The next record; `None` at the end. An empty line is no record: the caller may have
    /// something to do before the next one is there.
    pub fn next_record(&mut self) -> io::Result<Option<Result<Option<Record>, LineError>>> {
        match self {
            Self::Csv(records) => Ok(records.next_record()?.map(|record| record.map(Some))),
            Self::Lines(lines, parse) => Ok(lines.next_line()?.map(|line| line.and_then(*parse))),
        }
    }
}
