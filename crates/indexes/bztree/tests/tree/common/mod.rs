//! BzTrees for tests.

pub mod scenario;
pub use pando_pmem::testing::watchdog;
pub use pando_tree::testing::{
    NAME, Records, abandon, check, dump, folder, folder_and_pool, take_all,
};

use std::sync::Arc;

use pando_bztree::{BzTrees, Numbers, Options};
use pando_pmem::testing::{Arena, Lines, reach_medium};
use pando_pmem::{Domain, Pool};

/// A tree with its pool.
pub type Fixture<D> = pando_tree::testing::Fixture<D, BzTrees>;

/// A new tree in a pool whose memory a test reads and writes.
pub fn in_arena<D: Domain>(bytes: u64) -> (Arena, Arc<Fixture<D>>) {
    let arena = Arena::new(bytes).expect("memory");
    let pool = Pool::create_in(&arena).expect("a pool");
    let fixture = Arc::new(Fixture::of(pool, Options::default()));
    (arena, fixture)
}

/// Options under which few records make many nodes.
pub fn small_nodes() -> Options {
    Options {
        leaf_bytes: 512,
        inner_bytes: 256,
        free_bytes: 128,
        merge_bytes: 128,
        inline_bytes: 128,
        numbers: Numbers::Sorted,
        ..Options::default()
    }
}

/// Small nodes, with range leaves.
pub fn small_ranges() -> Options {
    Options { numbers: Numbers::Ranged, ..small_nodes() }
}

/// The pool as a power cut may leave it: a line that a thread has written back has the content of
/// that time, and every other line has its content in `before`.
pub fn power_cut(arena: &Arena, before: &[u8], written_back: &Lines) -> Arena {
    let cut = Arena::new(arena.bytes()).expect("memory");
    cut.write(0, before);
    reach_medium(&cut, arena, written_back);
    cut
}
