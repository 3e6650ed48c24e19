//! The records of a tour, sorted by key, each key once.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

use crate::failure::Failure;

/// The map that the tour fills.
pub const MAP: &str = "tour";

/// The place of a record among the bytes.
#[derive(Clone, Copy)]
struct Span {
    begin: usize,
    key_bytes: u32,
    value_bytes: u32,
}

/// Records in any order.
#[derive(Default)]
pub struct Builder {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// Records sorted by key, each key once. A record's number is its place in that order.
pub struct DataSet {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Builder {
    /// Adds a record. Returns false, without adding it, if its key or value has 4 GiB or more.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        let (Ok(key_bytes), Ok(value_bytes)) = (key.len().try_into(), value.len().try_into())
        else {
            return false;
        };
        self.spans.push(Span { begin: self.bytes.len(), key_bytes, value_bytes });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        true
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// The records' values, in the order in which they were added.
    pub fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|span| record(&self.bytes, span).1)
    }

    /// Sorts the records; of several records with one key the last one is kept.
    pub fn finish(mut self) -> DataSet {
        self.spans.reverse();
        self.spans.sort_by_key(|span| record(&self.bytes, span).0);
        self.spans.dedup_by_key(|span| record(&self.bytes, span).0);
        DataSet { bytes: self.bytes, spans: self.spans }
    }
}

impl DataSet {
    /// How many records there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Bytes of all keys and values.
    pub fn size_bytes(&self) -> u64 {
        let size_bytes = |span: &Span| u64::from(span.key_bytes) + u64::from(span.value_bytes);
        self.spans.iter().map(size_bytes).sum()
    }

    /// Key and value of the record at `index`.
    pub fn record(&self, index: usize) -> (&[u8], &[u8]) {
        record(&self.bytes, &self.spans[index])
    }

    /// All records by key.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|span| record(&self.bytes, span))
    }

    /// Writes the data set into a new file: for each record its two lengths, key and value.
    pub fn write_to(&self, path: &Path) -> Result<(), Failure> {
        let write = || {
            let mut writer = BufWriter::new(File::create_new(path)?);
            for (span, (key, value)) in self.spans.iter().zip(self.records()) {
                writer.write_all(&span.key_bytes.to_le_bytes())?;
                writer.write_all(&span.value_bytes.to_le_bytes())?;
                writer.write_all(key)?;
                writer.write_all(value)?;
            }
            writer.flush()
        };
        write().map_err(Failure::file("write", path))
    }

    /// Reads a file that [`write_to`](Self::write_to) has written.
    pub fn read_from(path: &Path) -> Result<Self, Failure> {
        let read = || {
            let mut reader = BufReader::new(File::open(path)?);
            let mut builder = Builder::default();
            let mut lengths = [0; 8];
            let mut record = Vec::new();
            while reader.read(&mut lengths[..1])? == 1 {
                reader.read_exact(&mut lengths[1..])?;
                let [a, b, c, d, e, f, g, h] = lengths;
                let key_bytes = u32::from_le_bytes([a, b, c, d]);
                let value_bytes = u32::from_le_bytes([e, f, g, h]);
                let record_bytes = u64::from(key_bytes) + u64::from(value_bytes);
                record.clear();
                reader.by_ref().take(record_bytes).read_to_end(&mut record)?;
                let (key, value) = record
                    .split_at_checked(key_bytes as usize)
                    .filter(|_| record.len() as u64 == record_bytes)
                    .ok_or(ErrorKind::UnexpectedEof)?;
                builder.add(key, value);
            }
            Ok(builder.finish())
        };
        read().map_err(Failure::file("read", path))
    }
}

fn record<'bytes>(bytes: &'bytes [u8], span: &Span) -> (&'bytes [u8], &'bytes [u8]) {
    let end = span.begin + span.key_bytes as usize + span.value_bytes as usize;
    bytes[span.begin..end].split_at(span.key_bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_sorted_and_the_last_of_a_key_stays() {
        let mut builder = Builder::default();
        for (key, value) in [("b", "1"), ("a", "22"), ("b", "3"), ("", "")] {
            assert!(builder.add(key.as_bytes(), value.as_bytes()));
        }
        let data = builder.finish();
        let records: Vec<_> = data.records().collect();
        let expected: [(&[u8], &[u8]); 3] = [(b"", b""), (b"a", b"22"), (b"b", b"3")];
        assert_eq!(records, expected);
        assert_eq!((data.len(), data.size_bytes()), (3, 5));
        assert_eq!(data.record(1), expected[1]);
    }

    #[test]
    fn what_is_written_is_read_back_and_a_cut_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let mut builder = Builder::default();
        builder.add(b"key", b"value");
        builder.add(b"", b"\0\xff");
        let data = builder.finish();
        data.write_to(&path).unwrap();
        let read = DataSet::read_from(&path).unwrap();
        assert!(read.records().eq(data.records()));
        assert!(data.write_to(&path).is_err());

        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(DataSet::read_from(&path).is_err());
    }
}
