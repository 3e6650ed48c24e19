//! Whole pools as bytes, to be damaged: one that was closed in order, and some that were killed
//! amid an operation, so that participants, descriptors and logs hold something.

use std::sync::{Arc, OnceLock};

use pando_bztree::{BzTree, BzTrees, Options};
use pando_index::RangeIndex;
use pando_pmem::testing::{CutShort, kill_after};
use pando_pmem::{CreateOptions, Pool};
use pando_pmwcas::Pmwcas;

use crate::scratch::Scratch;

/// The writes after which pools are killed: amid a split, an update, a value's block, ...
const KILLS: [u64; 7] = [1_000, 1_013, 1_026, 2_039, 2_052, 4_065, 4_078];
/// How far the pools may grow.
const MAX_BYTES: u64 = 4 << 20;

/// The pools: closed first, then killed.
pub(crate) fn images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let kills = KILLS.into_iter().map(Some);
        std::iter::once(None).chain(kills).map(build).collect()
    })
}

/// A pool with two trees of small nodes, closed, or killed after so many writes.
fn build(kill: Option<u64>) -> Vec<u8> {
    let scratch = Scratch::new();
    let path = scratch.path("image");
    let options = CreateOptions { max_bytes: MAX_BYTES, initial_bytes: 0, huge_pages: false };
    let pool = Pool::<CutShort>::create(&path, &options).expect("creates");
    let pmwcas = Arc::new(Pmwcas::open(pool.clone(), &[]).expect("opens"));
    let trees = ["oak", "ash"].map(|name| tree(&pmwcas, name));
    match kill {
        None => fill(&trees),
        Some(writes) => drop(kill_after(writes, || fill(&trees))),
    }
    drop((trees, pmwcas));
    match kill {
        None => drop(pool),
        Some(_) => pool.abandon(),
    }
    std::fs::read(path).expect("reads")
}

fn tree(pmwcas: &Arc<Pmwcas<CutShort>>, name: &str) -> BzTree<CutShort> {
    let options = Options {
        leaf_bytes: 512,
        inner_bytes: 256,
        free_bytes: 128,
        merge_bytes: 128,
        inline_bytes: 128,
        ..Options::default()
    };
    let settings = options.settings().expect("options in range");
    pmwcas.find_or_create_index::<BzTrees>(name, &settings).expect("a map")
}

fn fill([oak, ash]: &[BzTree<CutShort>; 2]) {
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
