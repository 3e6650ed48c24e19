//! Shared by the tests: pools, words, seeded random numbers, a watchdog.

use std::path::Path;
use std::sync::Arc;

use pando_index::random::Random;
use pando_pmem::layout::CATALOG_OFF;
use pando_pmem::testing::give_to;
pub use pando_pmem::testing::watchdog::within_bounds;
pub use pando_pmem::testing::{folder, folder_and_pool, holds, room, stamped};
use pando_pmem::{CreateOptions, Domain, Error, OpenPool, Pool};
use pando_pmwcas::Pmwcas;

/// Calls the test, a function of the domain, in the domain without write-backs and in the one with
/// them.
macro_rules! in_each_domain {
    ($test:ident) => {
        $test::<pando_pmem::Process>();
        $test::<pando_pmem::Adr>();
    };
}
pub(super) use in_each_domain;

pub fn options() -> CreateOptions {
    CreateOptions { max_bytes: 1 << 20, initial_bytes: 0 }
}

/// PMwCAS over `pool`, by the algorithm that these tests run.
pub fn over<D: Domain>(pool: Arc<Pool<D>>) -> Pmwcas<D> {
    Pmwcas::open(pool).unwrap().with_algorithm(super::ALGORITHM)
}

/// A pool of `mib` MiB in anonymous memory.
pub fn in_memory<D: Domain>(mib: u64) -> Arc<Pmwcas<D>> {
    let pool = Pool::anonymous(&CreateOptions { max_bytes: mib << 20, ..options() }).unwrap();
    Arc::new(over(pool))
}

pub fn create<D: Domain>(path: &Path) -> Pmwcas<D> {
    over(Pool::create(path, &options()).unwrap())
}

pub fn open<D: Domain>(path: &Path) -> Pmwcas<D> {
    over(Pool::open(path, &OpenPool::default()).unwrap())
}

/// Drops the handle and leaves the pool marked as in use, like a crash.
pub fn crash<D: Domain>(pmwcas: Pmwcas<D>) {
    pmwcas.into_pool().abandon();
}

/// The offset of word number `index` for tests: a word of the catalog, zero in a new pool.
pub const fn word(index: u64) -> u64 {
    CATALOG_OFF + index * 8
}

pub fn read<D: Domain>(pmwcas: &Pmwcas<D>, index: u64) -> u64 {
    pmwcas.read(&pmwcas.pool().pin().unwrap(), word(index))
}

/// The content of the word, with its control bits.
pub fn raw<D: Domain>(pmwcas: &Pmwcas<D>, index: u64) -> u64 {
    pmwcas.pool().word(word(index)).load(std::sync::atomic::Ordering::Acquire)
}

/// The content of the word after all pending clean-up, which each new epoch does.
pub fn settled<D: Domain>(pmwcas: &Pmwcas<D>, index: u64) -> u64 {
    pmwcas.pool().pin().unwrap().collect();
    raw(pmwcas, index)
}

/// Executes one operation: (word, expected, new) for each word.
pub fn change<D: Domain>(pmwcas: &Pmwcas<D>, words: &[(u64, u64, u64)]) -> bool {
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    for &(index, expected, new) in words {
        operation.add_word(word(index), expected, new).unwrap();
    }
    operation.execute()
}

/// Gives word `index`, which holds zero, a block of `bytes` full of `stamp`; returns the block's
/// offset.
pub fn give<D: Domain>(pmwcas: &Pmwcas<D>, index: u64, bytes: u64, stamp: u8) -> u64 {
    let guard = pmwcas.pool().pin().unwrap();
    let block = stamped(&guard, bytes, stamp);
    give_to(&guard, word(index), block)
}

/// Offsets of the active blocks, in order.
pub fn active<D: Domain>(pool: &Pool<D>) -> Vec<u64> {
    pando_pmem::testing::active(pool).iter().map(|block| block.off).collect()
}

/// A stream of random numbers. Its seed is printed, and the same seed gives the same numbers.
pub fn random(seed: u64) -> Random {
    println!("seed {seed:#x}");
    Random::new(seed)
}

/// `count` different numbers below `bound`.
pub fn distinct(random: &mut Random, count: usize, bound: u64) -> Vec<u64> {
    let mut drawn = Vec::with_capacity(count);
    while drawn.len() < count {
        let next = random.below(bound);
        if !drawn.contains(&next) {
            drawn.push(next);
        }
    }
    drawn
}

/// Whether `error` says that the pool has no room now.
pub fn is_full(error: &Error) -> bool {
    matches!(error, Error::PoolFull { .. })
}
