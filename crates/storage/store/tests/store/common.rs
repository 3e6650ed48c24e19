//! Stores of small pages on a simulated directory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use pando_device::simulated::Simulated;
use pando_index::conformance::Subject;
use pando_index::random::Random;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_lss::PageStoreOptions;
use pando_store::{DataComponent, StoreOptions, TreeOptions};

/// Options under which pages are soon split and merged.
fn small() -> TreeOptions {
    TreeOptions {
        leaf_bytes: 256,
        inner_bytes: 256,
        merge_bytes: 112,
        chain_deltas: 5,
        delta_bytes: 160,
        ..TreeOptions::default()
    }
}

/// A small cache, small pages, and segments that are soon full.
pub fn options() -> StoreOptions {
    let pages = PageStoreOptions {
        segment_bytes: 4 << 20,
        checkpoint_bytes: 1 << 20,
        ..PageStoreOptions::default()
    };
    let (memory_bytes, checkpoint_log_bytes) = (4 << 20, 1 << 20);
    StoreOptions {
        memory_bytes,
        pages,
        tree: small(),
        checkpoint_log_bytes,
        ..StoreOptions::default()
    }
}

/// The same with pages of the usual size.
pub fn large_pages() -> StoreOptions {
    StoreOptions { tree: StoreOptions::default().tree, ..options() }
}

pub fn open(directory: &Simulated) -> DataComponent {
    open_with(directory, &options())
}

pub fn open_with(directory: &Simulated, options: &StoreOptions) -> DataComponent {
    DataComponent::open(Arc::new(directory.clone()), options).expect("opens")
}

pub fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// All records.
pub fn dump(store: &DataComponent) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = store.records().scan(KeyRange::all(), Order::Ascending).expect("a scan");
    let mut records = Vec::new();
    while let Some((key, value)) = cursor.next().expect("a record") {
        records.push((key.to_vec(), value.to_vec()));
    }
    records
}

#[track_caller]
pub fn check(store: &DataComponent) {
    let problems = store.check().expect("written");
    assert!(problems.is_empty(), "{problems:#?}");
}

/// A store whose cache is emptied all the time.
pub struct Emptied {
    pub store: Arc<DataComponent>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Emptied {
    pub fn new() -> Self {
        let store = Arc::new(open(&Simulated::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = spawn({
            let (store, is_over) = (store.clone(), is_over.clone());
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    store.empty_cache().expect("written");
                    sleep(Duration::from_micros(20));
                }
            }
        });
        Self { store, is_over, thread: Some(thread) }
    }

    fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Emptied {
    fn drop(&mut self) {
        self.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("a thread").expect("it did not panic");
        }
    }
}

impl Subject for Emptied {
    fn index(&self) -> &dyn RangeIndex {
        self.store.records()
    }

    fn check(&self) {
        check(&self.store);
        let (records, length) = (dump(&self.store).len(), self.store.records().len());
        assert_eq!(length.expect("reads"), records as u64);
    }

    fn scale(&self) -> f64 {
        0.2
    }
}

/// What each key may have after a crash: the values since the last sync.
#[derive(Clone, Debug, Default)]
pub struct History(BTreeMap<u64, Vec<Option<Vec<u8>>>>);

impl History {
    /// The record will be written.
    pub fn may_become(&mut self, key: u64, value: Option<Vec<u8>>) {
        self.0.entry(key).or_insert_with(|| vec![None]).push(value);
    }

    /// All writes are durable.
    pub fn synced(&mut self) {
        for values in self.0.values_mut() {
            values.drain(..values.len() - 1);
        }
    }

    pub fn check(&self, records: &[(Vec<u8>, Vec<u8>)], what: &str) {
        let found: BTreeMap<&[u8], &Vec<u8>> =
            records.iter().map(|(key, value)| (key.as_slice(), value)).collect();
        let mut there = 0;
        for (&number, values) in &self.0 {
            let found = found.get(key(number).as_slice()).copied();
            there += usize::from(found.is_some());
            let may_be = values.iter().any(|value| value.as_ref() == found);
            assert!(may_be, "{what}: key {number} has {found:?}, and may have {values:?}");
        }
        assert_eq!(there, records.len(), "{what}: records of keys that were never written");
    }
}

/// Random changes of records.
pub struct Records(Random);

impl Records {
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// The number of a key, and its value in step `step`; `None`: it is to be removed. In turn more
    /// keys are written and more are removed.
    pub fn draw(&mut self, keys: u64, step: u64) -> (u64, Option<Vec<u8>>) {
        let (key, length) = (self.0.below(keys), self.0.below(40) as usize);
        let removes = if (step / 500).is_multiple_of(2) { 2 } else { 8 };
        let value = (self.0.below(10) >= removes)
            .then(|| [&step.to_le_bytes()[..], &vec![7; length]].concat());
        (key, value)
    }

    pub fn apply(
        &self,
        records: &dyn RangeIndex,
        number: u64,
        value: Option<&[u8]>,
    ) -> pando_index::Result<()> {
        match value {
            Some(value) if number.is_multiple_of(2) => records.put(&key(number), value),
            Some(value) => records.upsert(&key(number), value).map(drop),
            None => records.remove(&key(number)).map(drop),
        }
    }
}
