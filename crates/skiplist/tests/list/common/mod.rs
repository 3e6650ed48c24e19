//! Lists for tests: in a pool of any domain, on anonymous memory or in a file.

pub use pando_pmem::testing::watchdog;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use pando_index::conformance::Subject;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool};
use pando_pmwcas::Pmwcas;
use pando_pmwcas::maps::IndexKind;
use pando_skiplist::{Options, SkipLists};

/// The one map of the tests' pools.
const NAME: &str = "list";

/// Options under which values of all kinds are met, and high nodes among few; the same ones in each run.
pub fn small_values() -> Options {
    Options { inline_bytes: 32, levels_at_once: 2, height_seed: 1, even_gaps: false }
}

/// A list of kind `K` with its pool.
pub struct Planted<D: Domain, K: IndexKind = SkipLists> {
    pub pool: Arc<Pool<D>>,
    pub pmwcas: Arc<Pmwcas<D>>,
    pub list: K::Index<D>,
    _folder: Option<tempfile::TempDir>,
}

/// The pool's list, created if it is new.
pub fn plant<D: Domain, K: IndexKind>(pool: Arc<Pool<D>>, options: Options) -> Planted<D, K> {
    let pmwcas = Arc::new(Pmwcas::open(pool.clone(), &[]).expect("recovers"));
    let settings = options.settings().expect("options in range");
    let list = pmwcas.find_or_create_index::<K>(NAME, &settings).expect("the map");
    Planted { pool, pmwcas, list, _folder: None }
}

/// One more handle of the pool's list, as another thread may have it.
pub fn another_handle<D: Domain, K: IndexKind>(
    planted: &Planted<D, K>,
    options: Options,
) -> K::Index<D> {
    let settings = options.settings().expect("options in range");
    planted.pmwcas.find_or_create_index::<K>(NAME, &settings).expect("the map")
}

/// A list on anonymous memory.
pub fn anonymous<D: Domain, K: IndexKind>(options: Options) -> Planted<D, K> {
    let create = CreateOptions { max_bytes: 1 << 32, ..CreateOptions::default() };
    plant(Pool::anonymous(&create).expect("memory"), options)
}

/// A list in a new file, in memory if there is a tmpfs.
pub fn in_file<D: Domain>(options: Options) -> Planted<D> {
    let folder = folder();
    let create = CreateOptions { max_bytes: 1 << 32, ..CreateOptions::default() };
    let pool = Pool::create(&folder.path().join("pool"), &create).expect("a pool");
    Planted { _folder: Some(folder), ..plant(pool, options) }
}

/// A list in the new file `path`, which may grow to `max_bytes`.
pub fn create<D: Domain>(path: &Path, max_bytes: u64, options: Options) -> Planted<D> {
    let create = CreateOptions { max_bytes, initial_bytes: 0, huge_pages: false };
    plant(Pool::create(path, &create).expect("a pool"), options)
}

/// Drops the list as a crash would: its pool stays marked as in use.
pub fn abandon<D: Domain, K: IndexKind>(planted: Planted<D, K>) {
    planted.pool.clone().abandon();
}

/// Opens the pool that a test left at `path`.
pub fn reopen<D: Domain>(path: &Path) -> Planted<D> {
    plant(Pool::open(path, &OpenPool::default()).expect("opens"), Options::default())
}

pub fn folder() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.expect("a temporary folder")
}

/// What a list holds.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// All records, as a scan finds them; panics if a scan finds one out of order, or if the scans in
/// both directions differ.
pub fn dump(list: &dyn RangeIndex) -> Records {
    let visit = |order| {
        let mut records = Vec::new();
        let mut cursor = list.scan(KeyRange::all(), order).expect("a scan");
        while let Some((key, value)) = cursor.next().expect("the next record") {
            records.push((key.to_vec(), value.to_vec()));
        }
        records
    };
    let ascending = visit(Order::Ascending);
    assert!(ascending.is_sorted_by(|left, right| left.0 < right.0), "keys do not ascend");
    let mut descending = visit(Order::Descending);
    descending.reverse();
    assert!(ascending == descending, "the scans in both directions differ");
    ascending.into_iter().collect()
}

/// Panics if an invariant of the pool's list is broken, or a block leaked or is missing.
pub fn check<D: Domain, K: IndexKind>(planted: &Planted<D, K>) {
    let guard = planted.pool.pin().expect("a slot");
    let mut reached: BTreeSet<u64> = BTreeSet::new();
    for entry in planted.pmwcas.maps(&guard) {
        reached.insert(entry.header_off);
        let list = planted.pmwcas.open_entry::<K>(&entry).expect("a sound map");
        let audit = K::audit(&list).expect("audits");
        assert_eq!(audit.problems, [], "violated invariants");
        for block in &audit.blocks {
            assert!(reached.insert(block.off), "block {:#x} is reached twice", block.off);
        }
    }
    let mut leaked = Vec::new();
    planted
        .pool
        .visit_active(&mut |block| {
            if !reached.remove(&block.off) {
                leaked.push(block);
            }
            ControlFlow::Continue(())
        })
        .expect("a slot");
    assert_eq!(leaked, [], "allocated, but not reached");
    assert!(reached.is_empty(), "reached, but not allocated: {reached:x?}");
}

impl<D: Domain, K: IndexKind> Subject for Planted<D, K> {
    fn index(&self) -> &dyn RangeIndex {
        &self.list
    }

    fn check(&self) {
        check(self);
    }

    /// There is no page to be filled before something happens.
    fn scale(&self) -> f64 {
        0.4
    }
}
