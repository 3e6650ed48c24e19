//! Trees for tests: in a pool of any domain, on anonymous memory or in a file.

pub use pando_pmem::testing::watchdog;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use pando_bwtree::{BwTrees, Options};
use pando_index::conformance::Subject;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool};
use pando_pmwcas::Pmwcas;
use pando_pmwcas::maps::IndexKind;

/// The one map of the tests' pools.
const NAME: &str = "tree";

/// Options under which pages are split and merged, and values leave them, soon.
pub fn small() -> Options {
    Options {
        leaf_bytes: 256,
        inner_bytes: 256,
        merge_bytes: 112,
        inline_bytes: 32,
        chain_deltas: 5,
        delta_bytes: 160,
        ..Options::default()
    }
}

/// The same in the paper's design.
pub fn small_plain() -> Options {
    Options {
        chain_deltas: 3,
        ..Options {
            leaf_bytes: 256,
            inner_bytes: 256,
            merge_bytes: 112,
            inline_bytes: 32,
            ..Options::plain()
        }
    }
}

/// The key of a number.
pub fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Values of both kinds: in the page, and in blocks.
pub fn value(number: u64) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(5) { 40 } else { 8 }]
}

/// A tree of kind `K` with its pool.
pub struct Planted<D: Domain, K: IndexKind = BwTrees> {
    pub pool: Arc<Pool<D>>,
    pub pmwcas: Arc<Pmwcas<D>>,
    pub tree: K::Index<D>,
    _folder: Option<tempfile::TempDir>,
}

/// The pool's tree, created if it is new.
pub fn plant<D: Domain, K: IndexKind>(pool: Arc<Pool<D>>, options: Options) -> Planted<D, K> {
    let pmwcas = Arc::new(Pmwcas::open(pool.clone(), &[]).expect("recovers"));
    let settings = options.settings().expect("options in range");
    let tree = pmwcas.find_or_create_index::<K>(NAME, &settings).expect("the map");
    Planted { pool, pmwcas, tree, _folder: None }
}

/// A tree on anonymous memory.
pub fn anonymous<D: Domain, K: IndexKind>(options: Options) -> Planted<D, K> {
    let create = CreateOptions { max_bytes: 1 << 32, ..CreateOptions::default() };
    plant(Pool::anonymous(&create).expect("memory"), options)
}

/// A tree in a new file, in memory if there is a tmpfs.
pub fn in_file<D: Domain>(options: Options) -> Planted<D> {
    let folder = folder();
    let create = CreateOptions { max_bytes: 1 << 32, ..CreateOptions::default() };
    let pool = Pool::create(&folder.path().join("pool"), &create).expect("a pool");
    Planted { _folder: Some(folder), ..plant(pool, options) }
}

/// A tree in the new file `path`, which may grow to `max_bytes`.
pub fn create<D: Domain>(path: &Path, max_bytes: u64, options: Options) -> Planted<D> {
    let create = CreateOptions { max_bytes, initial_bytes: 0, huge_pages: false };
    plant(Pool::create(path, &create).expect("a pool"), options)
}

/// Drops the tree as a crash would: its pool stays marked as in use.
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

/// What a tree holds.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// All records, as a scan finds them; panics if a scan finds one out of order, or if the scans in
/// both directions differ.
pub fn dump(tree: &dyn RangeIndex) -> Records {
    let visit = |order| {
        let mut records = Vec::new();
        let mut cursor = tree.scan(KeyRange::all(), order).expect("a scan");
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

/// Panics if an invariant of the pool's tree is broken, or a block leaked or is missing.
pub fn check<D: Domain, K: IndexKind>(planted: &Planted<D, K>) {
    let guard = planted.pool.pin().expect("a slot");
    let mut reached: BTreeSet<u64> = BTreeSet::new();
    for entry in planted.pmwcas.maps(&guard) {
        reached.insert(entry.header_off);
        let tree = planted.pmwcas.open_entry::<K>(&entry).expect("a sound map");
        let audit = K::audit(&tree).expect("audits");
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
        &self.tree
    }

    fn check(&self) {
        check(self);
    }

    /// Pages are small, so little is needed before something happens.
    fn scale(&self) -> f64 {
        0.4
    }
}
