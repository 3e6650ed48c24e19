//! Small undamaged pools of one kind of index, as bytes, with the places of their metadata.

use std::collections::HashSet;
use std::ops::ControlFlow;

use pando::{DomainChoice, Map, MapOptions, Pool, PoolOptions};
use pando_pmem::layout::{
    CATALOG_OFF, CATALOG_SLOTS, CHUNK_BYTES, CHUNK_TABLE_OFF, CONTROL_OFF, DESCRIPTORS_OFF,
    Geometry, PAGE_BYTES, PARTICIPANTS_OFF,
};
use pando_pmem::{OpenPool, Process};
use pando_tree::maps::slots::{DROPPED_MARK, slot_word};

use crate::usage::Scratch;

/// Largest size of the pools.
const MAX_BYTES: u64 = 2 << 20;
/// Bytes from the start of a block that are taken to be its header.
const HEADER_BYTES: u64 = 64;

/// The name of a kind: a transactional map.
pub const TRANSACTIONAL: &str = "transactional";

/// A BzTree with range leaves.
pub const RANGED: &str = "bztree-ranged";

/// An undamaged pool.
pub struct Image {
    pub bytes: Vec<u8>,
    /// The present keys, in order.
    pub keys: Vec<Vec<u8>>,
    /// Offsets of all words in blocks and tables that are in use.
    pub live: Vec<u64>,
    /// Offsets of the metadata among them: tables, headers of slabs and blocks, words that name a
    /// block.
    pub metadata: Vec<u64>,
    /// Offset of the map's slot in the catalog, and its word after the map is dropped.
    pub slot_off: u64,
    pub dropped_word: u64,
}

/// The pools of a kind: with small records of one length, with records of mixed lengths, and after
/// many changes.
pub fn build(kind: &str) -> Vec<Image> {
    [alike, mixed, changed]
        .into_iter()
        .enumerate()
        .map(|(shape, fill)| image(kind, shape, fill))
        .collect()
}

/// Settings that make nodes small, so that a few hundred records make several levels.
fn options(kind: &str, shape: usize) -> MapOptions {
    let settings: &[(&str, &str)] = match (kind, shape) {
        ("bztree", 2) => &[
            ("leaf_bytes", "512"),
            ("inner_bytes", "256"),
            ("merge_bytes", "200"),
            ("value_mode", "pointer"),
        ],
        ("bztree", 0) => &[
            ("leaf_bytes", "512"),
            ("inner_bytes", "256"),
            ("inline_bytes", "128"),
            ("numbers", "sorted"),
        ],
        ("bztree" | TRANSACTIONAL, _) => {
            &[("leaf_bytes", "512"), ("inner_bytes", "256"), ("inline_bytes", "128")]
        }
        (RANGED, _) => &[("leaf_bytes", "512"), ("inner_bytes", "256")],
        ("nbtree", _) => &[("leaf_slots", "6"), ("inner_children", "4")],
        ("wbtree", 0) => &[("records", "fixed"), ("leaf", "slot-only")],
        ("wbtree", 1) => &[("node_lines", "4")],
        ("wbtree", _) => &[("node_lines", "4"), ("node_versions", "24"), ("leaf", "bitmap-only")],
        ("skiplist", _) => &[("inline_bytes", "64"), ("height_seed", "1")],
        ("bwtree", _) => &[
            ("leaf_bytes", "512"),
            ("inner_bytes", "256"),
            ("merge_bytes", "128"),
            ("inline_bytes", "64"),
        ],
        _ => panic!("no kind is called {kind}"),
    };
    let set = |options: MapOptions, &(name, word): &(&str, &str)| options.set(name, word);
    let options = match kind {
        TRANSACTIONAL => MapOptions::new().index("bztree").transactional(true),
        RANGED => MapOptions::new().index("bztree"),
        kind => MapOptions::new().index(kind),
    };
    settings.iter().fold(options, set)
}

fn image(kind: &str, shape: usize, fill: fn(&Map)) -> Image {
    let scratch = Scratch::new();
    let pool_options = PoolOptions::new()
        .max_bytes(MAX_BYTES)
        .initial_bytes(MAX_BYTES)
        .domain(DomainChoice::Process);
    let pool = Pool::create(&scratch.path, &pool_options).expect("creates");
    let map = pool.map_with("map", &options(kind, shape)).expect("a map");
    fill(&map);
    let keys = map.range(..).map(|record| record.expect("a record").0).collect();
    drop(map);
    let report = pool.check().expect("checks");
    assert!(report.is_consistent(), "{:?}", report.problems);
    pool.close().expect("closes");
    let bytes = std::fs::read(&scratch.path).expect("reads");
    let (live, metadata) = places(&scratch, &bytes);
    let word = |off: u64| {
        let bytes = &bytes[off as usize..off as usize + 8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    };
    let slot_off = (CATALOG_OFF..).step_by(8).find(|&off| word(off) != 0).expect("a map");
    let dropped_word = slot_word(DROPPED_MARK, word(slot_off) & ((1 << 48) - 1));
    Image { bytes, keys, live, metadata, slot_off, dropped_word }
}

fn alike(map: &Map) {
    for number in 0..700_u64 {
        let key = (number * 389 % 700 * 1_000_003).to_be_bytes();
        map.insert(key, number.to_le_bytes()).expect("room");
    }
}

/// A key of 1 to 40 bytes, and a value of none to some thousand.
fn odd(number: u64) -> (Vec<u8>, Vec<u8>) {
    let key = format!("{:02}/{}/{number}", number % 17, "x".repeat(number as usize % 29));
    let bytes = match number % 40 {
        7 => 3_000,
        11 => 500,
        few => few as usize * 4,
    };
    (key.into_bytes(), vec![number as u8; bytes])
}

fn mixed(map: &Map) {
    for number in 0..300 {
        let (key, value) = odd(number);
        map.insert(&key, &value).expect("room");
    }
    map.insert(b"a span of chunks", vec![7; 100_000]).expect("room");
}

fn changed(map: &Map) {
    for number in 0..400_u64 {
        let key = (number * 7_919 % 400).to_be_bytes();
        map.insert(key, [number as u8; 8]).expect("room");
    }
    for number in (0..400_u64).filter(|number| number % 50 > 20) {
        map.remove(number.to_be_bytes()).expect("removes");
    }
    for number in (0..400_u64).filter(|number| number % 3 == 0) {
        map.upsert(number.to_be_bytes(), [9; 8]).expect("room");
    }
}

/// The words that are in use, and those of them that are metadata.
fn places(scratch: &Scratch, bytes: &[u8]) -> (Vec<u64>, Vec<u64>) {
    let pool =
        pando_pmem::Pool::<Process>::open(&scratch.path, &OpenPool::default()).expect("opens");
    let geometry = Geometry::new(MAX_BYTES);
    let frontier = pool.usage().expect("a figure").chunks;
    let mut blocks = Vec::new();
    pool.visit_active(&mut |block| {
        blocks.push(block);
        ControlFlow::Continue(())
    })
    .expect("visits");
    let word = |off: u64| {
        let bytes = &bytes[off as usize..off as usize + 8];
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    };
    let words = |off: u64, bytes: u64| (off..off + bytes).step_by(8);
    let mut metadata: Vec<u64> = Vec::new();
    metadata.extend(words(CONTROL_OFF, PAGE_BYTES).filter(|&off| word(off) != 0));
    metadata.extend(words(PARTICIPANTS_OFF, 256));
    metadata.extend(words(CATALOG_OFF, CATALOG_SLOTS as u64 * 8).filter(|&off| word(off) != 0));
    metadata.extend(words(DESCRIPTORS_OFF, 512));
    metadata.extend(words(CHUNK_TABLE_OFF, frontier * 8));
    // The first 192 bytes of each chunk. In a slab they are its header.
    for chunk in 0..frontier {
        metadata.extend(words(geometry.chunk_off(chunk), 192).filter(|&off| word(off) != 0));
    }
    assert!(frontier * CHUNK_BYTES <= bytes.len() as u64);
    let mut live = metadata.clone();
    let starts: HashSet<u64> = blocks.iter().map(|block| block.off).collect();
    let low_bits = (1 << 48) - 1;
    for block in &blocks {
        // Behind the first page a block has only bytes of a value.
        let bytes = block.bytes.min(4096);
        live.extend(words(block.off, bytes));
        let leads =
            |off: u64| off < block.off + HEADER_BYTES || starts.contains(&(word(off) & low_bits));
        metadata.extend(words(block.off, bytes).filter(|&off| leads(off)));
    }
    (live, metadata)
}
