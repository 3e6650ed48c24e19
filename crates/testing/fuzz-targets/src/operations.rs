//! Operations on a map with small nodes and on a `BTreeMap`, with closes and kills between them.
//!
//! The first byte selects the index and the options of the map. Then each operation takes a byte, a
//! key two, and a value one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;

use pando::{DomainChoice, Error, KeyRange, Map, MapOptions, Order, Pool, PoolOptions, Upserted};

use crate::input::Input;
use crate::scratch::Scratch;

/// Small, so that few records make many nodes, and a pool can become full.
const MAX_BYTES: u64 = 2 << 20;
/// Most operations of one input; the rest is ignored.
const MAX_OPERATIONS: usize = 1_000;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// A map, and its expected content.
struct Subject {
    scratch: Scratch,
    options: PoolOptions,
    /// The number of kills. After each the file has a new name.
    kills: u32,
    open: Option<(Pool, Map)>,
    model: Records,
    /// Whether a full pool may refuse removes, as in Bw-trees and NBTrees.
    removes_need_room: bool,
}

/// Runs the operations in `data`.
pub fn operations(data: &[u8]) {
    let mut input = Input::new(data);
    let mut subject = Subject::new(input.byte());
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        subject.step(&mut input);
    }
    subject.verify();
    subject.close();
    subject.verify();
}

fn key(input: &mut Input<'_>) -> Vec<u8> {
    let index = input.number(2);
    key_of(index)
}

/// Keys of several lengths. Some share prefixes, and some are prefixes of others.
fn key_of(index: u64) -> Vec<u8> {
    let number = index & 0xFF;
    match index >> 8 & 7 {
        0..3 => number.to_be_bytes().to_vec(),
        3 => vec![number as u8],
        4 => format!("a/rather/long/prefix/{number:03}").into_bytes(),
        5 => vec![b'k'; number as usize],
        6 => vec![number as u8; 8 + number as usize % 9],
        // Longer than any node.
        _ => [&[b'g'; 700][..], &[number as u8 % 4]].concat(),
    }
}

fn value(input: &mut Input<'_>) -> Vec<u8> {
    let tag = input.byte();
    let bytes = match tag & 0x0F {
        0 => 0,
        1..10 => 8,
        10..13 => usize::from(tag),
        13 | 14 => 300,
        _ => 3_000,
    };
    vec![tag; bytes]
}

impl Subject {
    fn new(kind: u8) -> Self {
        let options = PoolOptions::new().max_bytes(MAX_BYTES).initial_bytes(0);
        // `adr` differs only by its dirty bits.
        let domain = if kind & 1 == 0 { DomainChoice::Process } else { DomainChoice::Adr };
        let is_odd = kind & 2 != 0;
        // The top bits select the index. Most select a BzTree.
        let map_options = match kind >> 5 {
            7 => MapOptions::new()
                .index("nbtree")
                .set("leaf_slots", if is_odd { 5 } else { 12 })
                .set("inner_children", 4),
            6 => MapOptions::new()
                .index("wbtree")
                .set("leaf", if is_odd { "slot+bitmap" } else { "bitmap-only" })
                .set("node_lines", 4)
                .set("node_versions", 24),
            5 => MapOptions::new()
                .index("skiplist")
                .set("inline_bytes", if is_odd { 64 } else { 0 })
                .set("height_seed", 1),
            4 => MapOptions::new()
                .index("bwtree")
                .set("leaf_bytes", 256)
                .set("inner_bytes", 256)
                .set("merge_bytes", 96)
                .set("inline_bytes", 64)
                .set("chain_deltas", 4)
                .set("delta_bytes", if is_odd { 0 } else { 128 }),
            _ => MapOptions::new()
                .set("leaf_bytes", if kind & 4 == 0 { 256 } else { 512 })
                .set("inner_bytes", 256)
                .set("free_bytes", if kind & 8 == 0 { 64 } else { 128 })
                .set("merge_bytes", 128)
                .set("inline_bytes", 128)
                .set("value_mode", if is_odd { "pointer" } else { "inline" }),
        };
        let removes_need_room = matches!(kind >> 5, 4 | 7);
        let options = options.domain(domain);
        let scratch = Scratch::new();
        let pool = Pool::create(scratch.path("0"), &options).expect("creates");
        let map = pool.map_with("map", &map_options).expect("a map");
        let open = Some((pool, map));
        Self { scratch, options, kills: 0, open, model: Records::new(), removes_need_room }
    }

    fn path(&self) -> PathBuf {
        self.scratch.path(&self.kills.to_string())
    }

    fn map(&self) -> &Map {
        &self.open.as_ref().expect("open").1
    }

    fn reopen(&mut self) {
        let pool = Pool::open(self.path(), &self.options).expect("opens");
        let map = pool.open_map("map").expect("the map");
        self.open = Some((pool, map));
    }

    fn close(&mut self) {
        if let Some((pool, map)) = self.open.take() {
            drop(map);
            pool.close().expect("closes");
        }
        self.reopen();
    }

    /// Continues with a copy of the file, which has the same bytes as after a kill.
    fn kill(&mut self) {
        let before = self.path();
        self.kills += 1;
        // The fuzzer's clock may interrupt it.
        while std::fs::copy(&before, self.path()).is_err_and(|error| {
            assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
            true
        }) {}
        self.open = None;
        std::fs::remove_file(before).expect("removes");
        self.reopen();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0..3 => self.insert(key(input), value(input)),
            3 => self.update(key(input), value(input)),
            4 | 5 => self.upsert(key(input), value(input)),
            6..8 => self.remove(&key(input)),
            8 => {
                let key = key(input);
                let found = self.map().get(&key).expect("reads");
                assert!(found.as_ref() == self.model.get(&key), "a get of {key:?}");
            }
            9 => self.compare_exchange(key(input), value(input), value(input)),
            10 | 11 => self.scan(input),
            // Many neighbouring keys, so that nodes split and merge.
            12 => {
                let (first, value) = (input.number(2), value(input));
                for index in first..first + 24 {
                    self.upsert(key_of(index), value.clone());
                }
            }
            13 => {
                let first = input.number(2);
                for index in first..first + 24 {
                    self.remove(&key_of(index));
                }
            }
            14 => self.close(),
            _ => self.kill(),
        }
    }

    /// Whether the write was done. A full pool may refuse it, and then nothing has changed.
    fn is_done<T>(outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(Error::PoolFull { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn insert(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let is_there = self.model.contains_key(&key);
        match self.map().insert(&key, &value) {
            Err(Error::KeyExists) => assert!(is_there, "an insert of {key:?}"),
            outcome => {
                if Self::is_done(outcome).is_some() {
                    assert!(!is_there, "an insert of {key:?}");
                    self.model.insert(key, value);
                }
            }
        }
    }

    fn update(&mut self, key: Vec<u8>, value: Vec<u8>) {
        let is_there = self.model.contains_key(&key);
        match self.map().update(&key, &value) {
            Err(Error::KeyNotFound) => assert!(!is_there, "an update of {key:?}"),
            outcome => {
                if Self::is_done(outcome).is_some() {
                    assert!(is_there, "an update of {key:?}");
                    self.model.insert(key, value);
                }
            }
        }
    }

    fn upsert(&mut self, key: Vec<u8>, value: Vec<u8>) {
        if let Some(upserted) = Self::is_done(self.map().upsert(&key, &value)) {
            let was_there = upserted == Upserted::Updated;
            assert_eq!(was_there, self.model.insert(key, value).is_some());
        }
    }

    fn remove(&mut self, key: &[u8]) {
        let removed = match self.map().remove(key) {
            Err(Error::PoolFull { .. }) if self.removes_need_room => return,
            // Deletes make room.
            removed => removed.expect("removes"),
        };
        assert_eq!(removed, self.model.remove(key).is_some(), "a remove of {key:?}");
    }

    fn compare_exchange(&mut self, key: Vec<u8>, expected: Vec<u8>, new: Vec<u8>) {
        let found = self.model.get(&key);
        match self.map().compare_exchange(&key, &expected, &new) {
            Err(Error::KeyNotFound) => assert!(found.is_none()),
            Err(Error::ValueMismatch { actual }) => {
                assert!(found == Some(&actual) && actual != expected, "an exchange at {key:?}");
            }
            outcome => {
                if Self::is_done(outcome).is_some() {
                    assert!(found == Some(&expected), "an exchange at {key:?}");
                    self.model.insert(key, new);
                }
            }
        }
    }

    fn scan(&self, input: &mut Input<'_>) {
        let shape = input.byte();
        let mut bound = |shape: u8| match shape % 3 {
            0 => Bound::Unbounded,
            1 => Bound::Included(key(input)),
            _ => Bound::Excluded(key(input)),
        };
        let range = KeyRange { low: bound(shape), high: bound(shape / 3) };
        let order = if shape & 0x80 == 0 { Order::Ascending } else { Order::Descending };
        let mut expected: Vec<_> =
            self.model.iter().filter(|(key, _)| range.contains(key)).collect();
        if order == Order::Descending {
            expected.reverse();
        }
        let mut scan = self.map().range(range);
        for (key, value) in expected {
            let found = scan.next_record_in(order).expect("the next record");
            assert!(found == Some((key.as_slice(), value.as_slice())), "{key:?}: {found:?}");
        }
        assert!(scan.next_record_in(order).expect("the end").is_none());
    }

    fn verify(&self) {
        let (pool, map) = self.open.as_ref().expect("open");
        let report = pool.check().expect("checks");
        assert!(report.is_consistent(), "{:?}", report.problems);
        assert_eq!(report.records, self.model.len() as u64);
        assert_eq!(map.len().expect("counts"), report.records);
        // Scans of everything, forwards and backwards.
        for shape in [0, 0x80 + 7] {
            self.scan(&mut Input::new(&[shape]));
        }
    }
}
