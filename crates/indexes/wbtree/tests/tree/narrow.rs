//! The conformance suite on trees whose keys and values have eight bytes, as far as its keys can be
//! encoded.
//!
//! [`Narrow`] lets such a tree take other keys: each is encoded in eight bytes, in order. It can
//! encode keys of at most six bytes, and four zeros followed by at most six bytes, so that small
//! numbers of eight bytes are included. So the suite gets `LONGEST` as the longest key, six or
//! eight bytes, and runs the cases whose keys can be encoded. Bounds of scans may be longer, and
//! are encoded in more bytes. A value is kept in the test's memory, and its number in the tree.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};

use pando_index::conformance::{Subject, run_case};
use pando_index::{Cursor, Error, Intent, KeyRange, Limits, Order, RangeIndex, Record, Upserted};
use pando_pmem::{Adr, Domain};
use pando_wbtree::NodeKind;

use crate::common::{Fixture, check, small_fixed};

/// Bytes behind the first of an encoded key, before its length.
const ROOM: usize = 6;
const ZEROS: [u8; 4] = [0; 4];
const MAX_VALUE_BYTES: usize = 1 << 16;

/// Values, and the number of each.
#[derive(Default)]
struct Values {
    all: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, u64>,
}

impl Values {
    fn number(&mut self, value: &[u8]) -> [u8; 8] {
        let next = self.all.len() as u64;
        let number = *self.numbers.entry(value.to_vec()).or_insert(next);
        if number == next {
            self.all.push(value.to_vec());
        }
        number.to_le_bytes()
    }

    fn value(&self, number: &[u8]) -> Vec<u8> {
        let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
        self.all[number as usize].clone()
    }
}

/// A tree with fixed records that is used as one with keys of up to `LONGEST` bytes.
struct Narrow<D: Domain, const LONGEST: usize> {
    fixture: Fixture<D>,
    values: Mutex<Values>,
}

/// The key, in order, in eight bytes; in more bytes if it is too long for a key.
fn encode(key: &[u8]) -> Vec<u8> {
    let is_zeros = key.len() < ZEROS.len() && key.iter().all(|&byte| byte == 0);
    let (class, rest) = match key.strip_prefix(&ZEROS) {
        _ if is_zeros => (0, key),
        Some(rest) => (1, rest),
        None => (2, key),
    };
    let (fitting, beyond) = rest.split_at(rest.len().min(ROOM));
    let mut encoded = vec![class; 1];
    encoded.extend_from_slice(fitting);
    encoded.resize(1 + ROOM, 0);
    encoded.push((fitting.len() + usize::from(!beyond.is_empty())) as u8);
    encoded.extend_from_slice(beyond);
    encoded
}

fn decode(encoded: &[u8]) -> Vec<u8> {
    let rest = &encoded[1..1 + usize::from(encoded[1 + ROOM])];
    match encoded[0] {
        1 => [&ZEROS, rest].concat(),
        _ => rest.to_vec(),
    }
}

impl<D: Domain, const LONGEST: usize> Narrow<D, LONGEST> {
    fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().expect("no thread panicked")
    }

    fn key(key: &[u8]) -> Result<Vec<u8>, Error> {
        if key.len() > LONGEST {
            return Err(Error::KeyTooLong { found_bytes: key.len(), max_bytes: LONGEST });
        }
        let encoded = encode(key);
        assert_eq!(encoded.len(), 8, "a case whose keys cannot be had: {key:02x?}");
        Ok(encoded)
    }

    fn value(&self, value: &[u8]) -> Result<[u8; 8], Error> {
        if value.len() > MAX_VALUE_BYTES {
            let max_bytes = MAX_VALUE_BYTES;
            return Err(Error::ValueTooLong { found_bytes: value.len(), max_bytes });
        }
        Ok(self.values().number(value))
    }
}

impl<D: Domain, const LONGEST: usize> RangeIndex for Narrow<D, LONGEST> {
    fn limits(&self) -> Limits {
        Limits { max_key_bytes: LONGEST, max_value_bytes: MAX_VALUE_BYTES }
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted, Error> {
        let number;
        let intent = match intent {
            Intent::Exchange { expected } => {
                number = self.values().number(expected);
                Intent::Exchange { expected: &number }
            }
            other => other,
        };
        self.fixture.index.write(&Self::key(key)?, &self.value(value)?, intent)
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        let found = self.fixture.index.get(&Self::key(key)?)?;
        let value = found.map(|number| self.values().value(&number));
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        self.fixture.index.remove(&Self::key(key)?)
    }

    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> Result<(), Error> {
        let number = self.values().number(expected);
        self.fixture.index.compare_remove(&Self::key(key)?, &number)
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error> {
        let bound = |bound: Bound<Vec<u8>>| bound.map(|key| encode(&key));
        let range = KeyRange { low: bound(range.low), high: bound(range.high) };
        let cursor = self.fixture.index.scan(range, order)?;
        Ok(Box::new(Decoding { index: self, cursor, record: Default::default() }))
    }

    fn len(&self) -> Result<u64, Error> {
        self.fixture.index.len()
    }
}

struct Decoding<'index, D: Domain, const LONGEST: usize> {
    index: &'index Narrow<D, LONGEST>,
    cursor: Box<dyn Cursor + 'index>,
    record: (Vec<u8>, Vec<u8>),
}

impl<D: Domain, const LONGEST: usize> Cursor for Decoding<'_, D, LONGEST> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        let Some((key, number)) = self.cursor.next()? else { return Ok(None) };
        self.record = (decode(key), self.index.values().value(number));
        Ok(Some((&self.record.0, &self.record.1)))
    }
}

impl<D: Domain, const LONGEST: usize> Subject for Narrow<D, LONGEST> {
    fn index(&self) -> &dyn RangeIndex {
        self
    }

    fn check(&self) {
        check(&self.fixture);
    }

    fn scale(&self) -> f64 {
        0.4
    }
}

fn run<const LONGEST: usize>(cases: &[&str]) {
    for leaf in [NodeKind::SlotBitmap, NodeKind::BitmapOnly, NodeKind::SlotOnly] {
        let make = || Narrow::<Adr, LONGEST> {
            fixture: Fixture::anonymous(small_fixed(leaf)),
            values: Mutex::default(),
        };
        cases.iter().for_each(|case| run_case(case, &make));
    }
}

#[test]
fn the_suite_on_fixed_records_of_short_keys() {
    run::<ROOM>(&[
        "empty_key",
        "empty_value",
        "longest_key",
        "key_too_long",
        "one_giant_record",
        "model_few_keys",
        "model_adversarial_bytes",
        "model_integers",
        "model_long_prefixes",
        "model_mixed_keys",
        "long_bounds",
        "race_insert_and_remove",
        "race_counters",
        "race_counters_of_all_sizes",
        "linearizable_histories",
    ]);
}

#[test]
fn the_suite_on_fixed_records_of_numbers() {
    run::<8>(&[
        "refusals_change_nothing",
        "filled_and_emptied",
        "scans_over_an_emptied_index",
        "cursors_across_changes",
        "many_open_cursors",
        "race_disjoint_inserts",
        "race_same_inserts",
        "race_same_removes",
        "race_private_models",
        "ranges_under_writers",
    ]);
}

#[test]
fn encoded_keys_are_in_order() {
    let mut keys: Vec<Vec<u8>> = (0..9).map(|length| vec![0; length]).collect();
    for number in [1_u64, 255, 256, 1 << 20] {
        keys.push(number.to_be_bytes().to_vec());
        keys.push(number.to_be_bytes()[2..].to_vec());
        keys.extend([&number.to_le_bytes()[..3], &number.to_le_bytes()[..6]].map(<[u8]>::to_vec));
    }
    keys.extend(
        [&b"k"[..], b"k\0", b"kkkkkk", b"kkkkkkk", b"kkkkkkk\0", b"\xff"].map(<[u8]>::to_vec),
    );
    for left in &keys {
        for right in &keys {
            assert_eq!(encode(left).cmp(&encode(right)), left.cmp(right), "{left:?} {right:?}");
        }
        if encode(left).len() == 8 {
            assert_eq!(&decode(&encode(left)), left);
        }
    }
}
