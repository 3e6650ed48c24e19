//! A page store on a simulated directory, and a model of what it must hold.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pando_device::simulated::Simulated;
use pando_index::random::Random;
use pando_lss::{Found, Group, MAX_PARTS, PageStore, PageStoreOptions, Result};

/// Segments so small that a test fills many.
pub const SMALL: PageStoreOptions = PageStoreOptions {
    segment_bytes: 64 << 10,
    ceiling_percent: 200,
    max_bytes: u64::MAX,
    checkpoint_bytes: 256 << 10,
};

/// The pages of a store: of each the number of its pieces, and a digest of them.
pub type Pages = BTreeMap<u32, (usize, u64)>;

pub fn create(directory: &Simulated, options: PageStoreOptions) -> PageStore {
    PageStore::create(Arc::new(directory.clone()), 42, options).expect("an empty directory")
}

/// A new store with small segments, and its directory.
pub fn small() -> (Simulated, PageStore) {
    let directory = Simulated::new();
    let store = create(&directory, SMALL);
    (directory, store)
}

pub fn open(directory: &Simulated) -> Result<(PageStore, Found)> {
    PageStore::open(Arc::new(directory.clone()), SMALL)
}

pub fn digest(pieces: &[Vec<u8>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    pieces.hash(&mut hasher);
    hasher.finish()
}

/// What the store has.
pub fn pages_of(store: &PageStore) -> Pages {
    let read = |pid| store.read(pid).expect("no damage").map(|pieces| (pid, pieces));
    let pages = store.pids().filter_map(read);
    pages.map(|(pid, pieces)| (pid, (pieces.len(), digest(&pieces)))).collect()
}

/// Random bytes.
pub fn bytes(random: &mut Random, count: u64) -> Vec<u8> {
    let words = (0..count.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes());
    words.take(count as usize).collect()
}

/// The pages as a model.
#[derive(Clone, Debug, Default)]
pub struct Model(pub BTreeMap<u32, Vec<Vec<u8>>>);

impl Model {
    /// A random group of up to three writes of up to `most_bytes` bytes, which it applies.
    pub fn group(&mut self, random: &mut Random, pids: u64, most_bytes: u64) -> Group {
        let mut group = Group::new();
        for _ in 0..1 + random.below(3) {
            let pid = random.below(pids) as u32;
            let count = random.below(most_bytes);
            let bytes = bytes(random, count);
            let takes_delta = self.0.get(&pid).is_some_and(|pieces| pieces.len() < MAX_PARTS);
            group = match random.below(10) {
                0 => {
                    self.0.remove(&pid);
                    group.free(pid)
                }
                1..=5 if takes_delta => {
                    self.0.entry(pid).or_default().push(bytes.clone());
                    group.delta(pid, bytes)
                }
                _ => {
                    self.0.insert(pid, vec![bytes.clone()]);
                    group.base(pid, bytes)
                }
            };
        }
        group
    }

    pub fn pages(&self) -> Pages {
        let pages = self.0.iter();
        pages.map(|(&pid, pieces)| (pid, (pieces.len(), digest(pieces)))).collect()
    }
}
