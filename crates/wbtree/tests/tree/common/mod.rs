//! Trees for tests: in a pool of any domain, on anonymous memory or in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use pando_index::conformance::Subject;
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool};
use pando_pmwcas::Pmwcas;
use pando_wbtree::{NodeKind, Options, WbTree, WbTrees};

/// The one map of the tests' pools.
pub const NAME: &str = "tree";

/// Options under which few records make many nodes, and few changes a copy.
pub fn small_nodes(leaf: NodeKind) -> Options {
    Options { leaf, node_lines: 4, node_versions: 24, ..Options::default() }
}

/// The same, for records of eight bytes.
pub fn small_fixed(leaf: NodeKind) -> Options {
    Options { is_variable: false, node_lines: 3, ..small_nodes(leaf) }
}

/// A tree with its pool.
pub struct Planted<D: Domain> {
    pub pool: Arc<Pool<D>>,
    pub tree: WbTree<D>,
    _folder: Option<tempfile::TempDir>,
}

/// The pool's tree, created if it is new.
pub fn plant<D: Domain>(pool: Arc<Pool<D>>, options: Options) -> Planted<D> {
    let pmwcas = Arc::new(Pmwcas::open(pool.clone(), &[]).expect("recovers"));
    let settings = options.settings().expect("options in range");
    let tree = pmwcas.find_or_create_index::<WbTrees>(NAME, &settings).expect("the map");
    Planted { pool, tree, _folder: None }
}

/// A tree on anonymous memory.
pub fn anonymous<D: Domain>(options: Options) -> Planted<D> {
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
pub fn abandon<D: Domain>(planted: Planted<D>) {
    planted.pool.clone().abandon();
}

pub fn folder() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.expect("a temporary folder")
}

/// Opens the pool that a test left at `path`.
pub fn reopen<D: Domain>(path: &Path) -> Planted<D> {
    let pool = Pool::open(path, &OpenPool::default()).expect("opens");
    plant(pool, Options::default())
}

/// What a tree holds.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// All records, as a scan finds them; panics if a scan finds one out of order, or if the scans in
/// both directions differ.
pub fn dump<D: Domain>(tree: &WbTree<D>) -> Records {
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

/// Panics if an invariant of a tree of the pool is broken, or a block leaked or is missing.
pub fn check<D: Domain>(planted: &Planted<D>) {
    use pando_pmwcas::maps::IndexKind;
    let guard = planted.pool.pin().expect("a slot");
    let pmwcas = planted.tree.pmwcas();
    let mut reached: BTreeSet<u64> = BTreeSet::new();
    for entry in pmwcas.maps(&guard) {
        reached.insert(entry.header_off);
        let tree = pmwcas.open_entry::<WbTrees>(&entry).expect("a sound map");
        let audit = WbTrees::audit(&tree).expect("audits");
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

impl<D: Domain> Subject for Planted<D> {
    fn index(&self) -> &dyn RangeIndex {
        &self.tree
    }

    fn check(&self) {
        check(self);
    }
}
