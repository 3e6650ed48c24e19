//! Whole pools as bytes, to be damaged: one that was closed cleanly, and some that were killed
//! during an operation, so that participants, descriptors and logs are in use.

use std::sync::{Arc, OnceLock};

use pando_bwtree::BwTrees;
use pando_bztree::BzTrees;
use pando_index::RangeIndex;
use pando_nbtree::NbTrees;
use pando_pmem::testing::{CutShort, kill_after};
use pando_pmem::{CreateOptions, Pool};
use pando_skiplist::SkipLists;
use pando_tree::maps::{Catalog, IndexKind, IndexOptions};
use pando_wbtree::WbTrees;

use crate::log;
use crate::scratch::Scratch;

/// The number of writes before each kill: during a split, an update, a value's block, ...
const KILLS: [u64; 7] = [1_000, 1_013, 1_026, 2_039, 2_052, 4_065, 4_078];
/// The number of writes before the kill of pools with other indexes; `None`: closed cleanly.
const CLOSED_AND_KILLED: [Option<u64>; 3] = [None, Some(1_013), Some(2_052)];
/// Largest size of the pools.
const MAX_BYTES: u64 = 4 << 20;

/// The first byte that selects a pool with NBTrees, wB+-Trees or skip lists.
const OTHERS: u8 = 200;
/// The first byte that selects a pool with Bw-trees. Bytes below `OTHERS` select BzTrees.
const BW_TREES: u8 = 245;

/// The bytes that select a pool with a log: without and with a proposal to replace the log.
const WITH_LOG: std::ops::RangeInclusive<u8> = 253..=254;

/// Whether the pool that a byte selects has a log ([`log::write_files`]).
pub(crate) fn has_log(byte: u8) -> bool {
    WITH_LOG.contains(&byte)
}

/// The pool that a byte selects. The corpora depend on it.
pub(crate) fn pick(byte: u8) -> &'static [u8] {
    if has_log(byte) {
        return &log::pools()[usize::from(byte - WITH_LOG.start())];
    }
    let (trees, others) = images().split_at(1 + KILLS.len());
    let (others, bw_trees) = others.split_at(3 * CLOSED_AND_KILLED.len());
    let one =
        |pools: &'static [Vec<u8>], byte: u8| pools[usize::from(byte) % pools.len()].as_slice();
    match byte {
        BW_TREES.. => one(bw_trees, byte - BW_TREES),
        OTHERS.. => one(others, byte - OTHERS),
        _ => one(trees, byte),
    }
}

/// The pools: first with BzTrees, closed and then killed; then with each other index, closed and
/// killed.
pub(crate) fn images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let trees: [(&str, &str); 5] = [
            ("leaf_bytes", "512"),
            ("inner_bytes", "256"),
            ("free_bytes", "128"),
            ("merge_bytes", "128"),
            ("inline_bytes", "128"),
        ];
        let kills = KILLS.into_iter().map(Some);
        let of_trees =
            std::iter::once(None).chain(kills).map(|kill| build::<BzTrees>(&trees, kill));
        let of_others = CLOSED_AND_KILLED.into_iter().flat_map(|kill| {
            [
                build::<NbTrees>(&[("leaf_slots", "6"), ("inner_children", "4")], kill),
                build::<WbTrees>(&[("node_lines", "4"), ("node_versions", "24")], kill),
                build::<SkipLists>(&[("inline_bytes", "64"), ("height_seed", "1")], kill),
            ]
        });
        let pages = [
            ("leaf_bytes", "256"),
            ("inner_bytes", "256"),
            ("merge_bytes", "96"),
            ("inline_bytes", "64"),
            ("delta_bytes", "128"),
        ];
        let of_bw_trees = CLOSED_AND_KILLED.into_iter().map(|kill| build::<BwTrees>(&pages, kill));
        of_trees.chain(of_others).chain(of_bw_trees).collect()
    })
}

/// A pool with two maps of small nodes, closed, or killed after `kill` writes.
fn build<K: IndexKind>(words: &[(&str, &str)], kill: Option<u64>) -> Vec<u8> {
    let scratch = Scratch::new();
    let path = scratch.path("image");
    let options = CreateOptions { max_bytes: MAX_BYTES, initial_bytes: 0 };
    let pool = Pool::<CutShort>::create(&path, &options).expect("creates");
    let catalog = Arc::new(Catalog::open(pool.clone()).expect("opens"));
    let options = K::Options::parse(words).expect("in range");
    let map = |name| catalog.find_or_create_index::<K>(name, options).expect("a map");
    let maps = ["oak", "ash"].map(map);
    match kill {
        None => fill(&maps),
        Some(writes) => drop(kill_after(writes, || fill(&maps))),
    }
    drop((maps, catalog));
    match kill {
        None => drop(pool),
        Some(_) => pool.abandon(),
    }
    std::fs::read(path).expect("reads")
}

fn fill<I: RangeIndex>([oak, ash]: &[I; 2]) {
    for index in 0..120_u64 {
        let long = format!("key/{index:04}/{}", "x".repeat(index as usize % 11));
        oak.upsert(&index.to_be_bytes(), &index.to_le_bytes()).expect("writes");
        ash.upsert(long.as_bytes(), &vec![index as u8; 8 + index as usize % 3 * 150])
            .expect("writes");
        if index % 4 == 3 {
            oak.remove(&(index / 2).to_be_bytes()).expect("removes");
            ash.upsert(long.as_bytes(), b"short").expect("writes");
        }
    }
    // A value that takes a span of chunks.
    ash.upsert(b"span", &vec![7; 100_000]).expect("writes");
}
