//! Trees for tests: in a pool of any domain, on anonymous memory or in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use pando_index::conformance::Subject;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_nbtree::{NbTree, NbTrees};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool};
use pando_pmwcas::Pmwcas;
use pando_pmwcas::maps::{IndexKind, Settings};

/// The one map of the tests' pools.
const NAME: &str = "tree";

/// Settings under which few records make many nodes.
pub fn small_nodes() -> Settings {
    let mut settings = defaults();
    settings.set("leaf_slots", "6").expect("in range");
    settings.set("inner_children", "4").expect("in range");
    settings
}

pub fn defaults() -> Settings {
    Settings::new(NbTrees::SETTINGS)
}

/// A tree with its pool.
pub struct Planted<D: Domain> {
    // Dropped first: the pool is closed before its folder is removed.
    pub tree: NbTree<D>,
    pub pool: Arc<Pool<D>>,
    _folder: Option<tempfile::TempDir>,
}

/// The pool's tree, created if it is new.
pub fn plant<D: Domain>(pool: Arc<Pool<D>>, settings: &Settings) -> Planted<D> {
    let pmwcas = Arc::new(Pmwcas::open(pool.clone(), &[]).expect("recovers"));
    let tree = pmwcas.find_or_create_index::<NbTrees>(NAME, settings).expect("the map");
    Planted { tree, pool, _folder: None }
}

/// A tree on anonymous memory.
pub fn anonymous<D: Domain>(settings: &Settings) -> Planted<D> {
    let create = CreateOptions { max_bytes: 1 << 32, ..CreateOptions::default() };
    plant(Pool::anonymous(&create).expect("memory"), settings)
}

/// A tree in a new file, in memory if there is a tmpfs.
pub fn in_file<D: Domain>(settings: &Settings) -> Planted<D> {
    let folder = folder();
    let planted = create(&folder.path().join("pool"), 1 << 32, settings);
    Planted { _folder: Some(folder), ..planted }
}

/// A tree in the new file `path`, which may grow to `max_bytes`.
pub fn create<D: Domain>(path: &Path, max_bytes: u64, settings: &Settings) -> Planted<D> {
    let create = CreateOptions { max_bytes, initial_bytes: 0, huge_pages: false };
    plant(Pool::create(path, &create).expect("a pool"), settings)
}

/// Opens the pool that a test left at `path`.
pub fn reopen<D: Domain>(path: &Path) -> Planted<D> {
    plant(Pool::open(path, &OpenPool::default()).expect("opens"), &defaults())
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
pub fn dump<D: Domain>(tree: &NbTree<D>) -> Records {
    let list = |order| {
        let mut records = Vec::new();
        let mut cursor = tree.scan(KeyRange::all(), order).expect("a scan");
        while let Some((key, value)) = cursor.next().expect("the next record") {
            records.push((key.to_vec(), value.to_vec()));
        }
        records
    };
    let ascending = list(Order::Ascending);
    assert!(ascending.is_sorted_by(|left, right| left.0 < right.0), "keys do not ascend");
    let mut descending = list(Order::Descending);
    descending.reverse();
    assert!(ascending == descending, "the scans in both directions differ");
    ascending.into_iter().collect()
}

/// Panics if an invariant of the tree is broken, or a block leaked or is missing.
pub fn check<D: Domain>(planted: &Planted<D>) {
    let guard = planted.pool.pin().expect("a slot");
    let pmwcas = planted.tree.pmwcas();
    let audit = NbTrees::audit(&planted.tree).expect("audits");
    assert_eq!(audit.problems, [], "violated invariants");
    let mut reached: BTreeSet<u64> = BTreeSet::new();
    let headers = pmwcas.maps(&guard).into_iter().map(|entry| entry.header_off);
    for off in audit.blocks.iter().map(|block| block.off).chain(headers) {
        assert!(reached.insert(off), "block {off:#x} is reached twice");
    }
    let mut leaked = Vec::new();
    let mut look = |block: pando_pmem::Block| {
        if !reached.remove(&block.off) {
            leaked.push(block);
        }
        ControlFlow::Continue(())
    };
    planted.pool.visit_active(&mut look).expect("a slot");
    assert_eq!(leaked, [], "allocated, but not reached");
    assert!(reached.is_empty(), "reached, but not allocated: {reached:x?}");
}

impl<D: Domain> Subject for Planted<D> {
    fn index(&self) -> &dyn RangeIndex {
        &self.tree
    }

    fn check(&self) {
        check(self);
    }
}
