//! The formats of `pando load` and `pando dump`.

use std::collections::BTreeMap;

use pando_command::format::csv::Columns;
use pando_command::format::reader::Records as Reader;
use pando_command::format::{Format, OutputFormat};

const FORMATS: [Format; 4] = [Format::Tsv, Format::RawTsv, Format::JsonLines, Format::Csv];
/// Longest line that is accepted. Some lines of the fuzzer are longer.
const MAX_LINE_BYTES: usize = 256;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// The first byte selects the format of the rest, a text to be loaded. The loaded records are
/// dumped, and the dump must load to the same records.
pub fn load_formats(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else { return };
    let format = FORMATS[usize::from(first) % FORMATS.len()];
    let (records, _) = load(format, text, MAX_LINE_BYTES);
    for format in [OutputFormat::Tsv, OutputFormat::JsonLines, OutputFormat::Csv] {
        let mut dump = format.header().to_vec();
        for (key, value) in &records {
            format.append(key, value, &mut dump);
        }
        let (again, refused) = load(format.read_by(), &dump, usize::MAX);
        assert_eq!(refused, 0, "{format:?} refuses a line of its own");
        assert!(again == records, "{format:?}: {} records of {}", again.len(), records.len());
    }
}

/// The records of `text`, the last of each key, and how many lines were refused.
fn load(format: Format, text: &[u8], max_line_bytes: usize) -> (Records, u64) {
    let (mut records, mut refused) = (Records::new(), 0);
    let reader = Reader::new(text, format, &Columns::default(), max_line_bytes);
    let mut reader = match reader.expect("a slice is read") {
        Ok(reader) => reader,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return (records, 1);
        }
    };
    while let Some(record) = reader.next_record().expect("a slice is read") {
        match record {
            Ok(None) => {}
            Ok(Some((key, value))) => drop(records.insert(key, value)),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert_eq!(reader.position_bytes(), text.len() as u64);
    (records, refused)
}
