//! The maps of a store, which are all in one tree.
//!
//! A record of the map with number `n` has the key
//!
//! ```text
//! byte 0                  1        1 + bytes
//!      bytes of n (1..8)  n        the user's key
//! ```
//!
//! with the bytes of `n` in big-endian order, and no leading zero. So the records of a map lie
//! together, and the maps in the order of their numbers.

use std::collections::BTreeMap;
use std::ops::{Bound, Deref};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use pando_index::{
    BlindChange, Change, Cursor, Intent, KeyRange, Limits, Order, RangeIndex, Record, Result,
    Upserted, scanned_len,
};
use pando_pmem::{Domain, Process, mutant};
use pando_tc::Maps;

use crate::cache::Cache;

const MAX_PREFIX_BYTES: usize = 9;
/// Keys up to this length are put together on the stack.
const SHORT_BYTES: usize = 128;

/// What the keys of a map begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    bytes: [u8; MAX_PREFIX_BYTES],
    length: usize,
}

impl Prefix {
    pub fn of(number: u64) -> Self {
        let zeros = (number.leading_zeros() as usize / 8).min(7);
        let (mut bytes, number) = ([0; MAX_PREFIX_BYTES], number.to_be_bytes());
        let length = MAX_PREFIX_BYTES - zeros;
        bytes[0] = length as u8 - 1;
        bytes[1..length].copy_from_slice(&number[zeros..]);
        Self { bytes, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Calls `work` with the key in the tree.
    fn with<R>(&self, key: &[u8], work: impl FnOnce(&[u8]) -> R) -> R {
        let bytes = self.length + key.len();
        if bytes > SHORT_BYTES {
            return work(&[self.bytes(), key].concat());
        }
        let mut short = [0; SHORT_BYTES];
        short[..self.length].copy_from_slice(self.bytes());
        short[self.length..bytes].copy_from_slice(key);
        work(&short[..bytes])
    }

    pub fn owned(&self, key: &[u8]) -> Vec<u8> {
        [self.bytes(), key].concat()
    }
}

/// The map and the user's key of a key in the tree; `None` if it is none.
pub(crate) fn split(key: &[u8]) -> Option<(u64, &[u8])> {
    let (&bytes, rest) = key.split_first()?;
    let (number, key) = rest.split_at_checked(bytes.into())?;
    if number.len() > 8 || number.first().is_none_or(|&first| first == 0) {
        return None;
    }
    let number = number.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    Some((number, key))
}

/// A commit may change pages of one part of this many of the memory.
const COMMITS_PER_MEMORY: u64 = 8;
/// Each record in the tail of the log may keep a page from being evicted. A record takes 100 bytes
/// or more, so with pages of 8 KiB they are a third of the memory.
const MEMORY_PER_TAIL: u64 = 256;

/// The numbers, and this one, ascending.
fn with(numbers: &[u64], number: u64) -> Vec<u64> {
    let mut numbers = numbers.to_vec();
    if let Err(at) = numbers.binary_search(&number) {
        numbers.insert(at, number);
    }
    numbers
}

/// Values that blind writes have replaced, by the LSN of the commit, until that is durable. Only of
/// pages that were loaded since; the store has those of the others.
#[derive(Debug, Default)]
pub(crate) struct Replaced(Mutex<BTreeMap<u64, Option<Vec<u8>>>>);

impl Replaced {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<u64, Option<Vec<u8>>>> {
        // Each change is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the values that commits up to the durable LSN have replaced.
    pub fn forget(&self, durable_lsn: u64) {
        let mut replaced = self.locked();
        while replaced.first_entry().is_some_and(|first| *first.key() <= durable_lsn) {
            replaced.pop_first();
        }
    }

    /// The commit `lsn` has replaced this value of the store, or none.
    pub fn note(&self, lsn: u64, stored: Option<&[u8]>) {
        let mut replaced = self.locked();
        if !mutant!("store-replaced-not-kept") {
            replaced.insert(lsn, stored.map(<[u8]>::to_vec));
        }
    }

    /// The value that the commit `lsn` has replaced, if any; `None` if it was not noted, or was
    /// forgotten.
    pub fn of(&self, lsn: u64) -> Option<Option<Vec<u8>>> {
        self.locked().get(&lsn).cloned()
    }
}

/// The maps of a store, for the transaction component. The map with number 1 is the store's
/// catalog.
#[derive(Debug)]
pub struct StoreMaps<D: Domain = Process> {
    pub(crate) cache: Arc<Cache<D>>,
    /// Values that blind writes have replaced, and that the store must keep for now.
    pub(crate) replaced: Replaced,
    /// Numbers of the maps, ascending.
    live: ArcSwap<Vec<u64>>,
    /// Numbers of maps that were dropped, and that no thread can use, ascending.
    gone: ArcSwap<Vec<u64>>,
    /// Bytes of pages that a commit may change.
    most_bytes: usize,
    /// Bytes of the log's tail, before commits wait for it; `u64::MAX` until a thread writes the
    /// log.
    most_tail_bytes: AtomicU64,
    /// The bytes of a page without long values.
    page_bytes: usize,
}

impl<D: Domain> StoreMaps<D> {
    pub(crate) fn new(cache: Arc<Cache<D>>, memory_bytes: u64) -> Self {
        let page_bytes = cache.tree.options.leaf_bytes as usize;
        let most_bytes = (memory_bytes / COMMITS_PER_MEMORY) as usize;
        let (replaced, live, gone) = Default::default();
        let most_tail_bytes = u64::MAX.into();
        Self { cache, replaced, live, gone, most_bytes, most_tail_bytes, page_bytes }
    }

    /// From now on commits wait for a tail that keeps too many pages.
    pub(crate) fn wait_for_tail(&self, memory_bytes: u64) {
        // Relaxed, also below: no other memory depends on it.
        self.most_tail_bytes.store(memory_bytes / MEMORY_PER_TAIL, Ordering::Relaxed);
    }

    /// Bytes of the log's tail, before commits wait for it.
    pub(crate) fn most_tail_bytes(&self) -> u64 {
        self.most_tail_bytes.load(Ordering::Relaxed)
    }

    /// Threads find this map from now on.
    pub(crate) fn add(&self, number: u64) {
        self.live.rcu(|live| with(live, number));
    }

    /// No thread finds this map from now on.
    pub(crate) fn take_out(&self, number: u64) {
        self.gone.rcu(|gone| with(gone, number));
        self.live.rcu(|live| live.iter().copied().filter(|&n| n != number).collect::<Vec<_>>());
    }

    /// The index of a map, with the versions of the transaction component, whether or not the map
    /// exists.
    pub fn index(&self, number: u64) -> Arc<dyn RangeIndex> {
        Arc::new(MapIndex { cache: self.cache.clone(), prefix: Prefix::of(number) })
    }
}

/// An index, lent for an operation.
#[derive(Debug)]
pub struct Lent<'maps, D: Domain = Process>(MapIndex<&'maps Cache<D>>);

impl<'maps, D: Domain> Deref for Lent<'maps, D> {
    type Target = dyn RangeIndex + 'maps;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<D: Domain> Maps for StoreMaps<D> {
    type Lent<'maps> = Lent<'maps, D>;

    const MAY_BE_STORED: bool = true;

    fn map(&self, number: u64) -> Option<Lent<'_, D>> {
        let is_there = self.live.load().binary_search(&number).is_ok();
        let index = || MapIndex { cache: &*self.cache, prefix: Prefix::of(number) };
        is_there.then(|| Lent(index()))
    }

    fn is_gone(&self, number: u64) -> bool {
        self.gone.load().binary_search(&number).is_ok()
    }

    fn most_tail_bytes(&self) -> u64 {
        self.most_tail_bytes.load(Ordering::Relaxed)
    }

    /// Until a commit is undone, none of its pages can be evicted.
    fn check_size(&self, writes: usize, bytes: usize) -> pando_tc::Result<()> {
        let (found_bytes, max_bytes) = (writes * self.page_bytes + bytes, self.most_bytes);
        match found_bytes <= max_bytes {
            true => Ok(()),
            false => Err(pando_tc::Error::TooManyWrites { found_bytes, max_bytes }),
        }
    }
}

/// The index of a map. An operation that needs a page, or room in a full cache, waits for the
/// device, and then for other threads that write pages: see `cache.rs`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapIndex<R> {
    pub cache: R,
    pub prefix: Prefix,
}

impl<D: Domain, R: Deref<Target = Cache<D>> + Send + Sync> MapIndex<R> {
    fn tree(&self) -> &dyn RangeIndex {
        &self.cache.tree
    }

    /// The range of the tree.
    fn range(&self, range: KeyRange) -> KeyRange {
        let whole = KeyRange::prefix(self.prefix.bytes());
        let of = |bound, open| match bound {
            Bound::Included(key) => Bound::Included(self.prefix.owned(key)),
            Bound::Excluded(key) => Bound::Excluded(self.prefix.owned(key)),
            Bound::Unbounded => open,
        };
        let KeyRange { low, high } = range;
        let (low, high) = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        KeyRange { low: of(low, whole.low), high: of(high, whole.high) }
    }
}

impl<D: Domain, R: Deref<Target = Cache<D>> + Send + Sync> RangeIndex for MapIndex<R> {
    fn limits(&self) -> Limits {
        let limits = self.tree().limits();
        Limits { max_key_bytes: limits.max_key_bytes - MAX_PREFIX_BYTES, ..limits }
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        self.limits().check_key(key)?;
        self.prefix.with(key, |key| self.tree().write(key, value, intent))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.limits().check_key(key)?;
        self.prefix.with(key, |key| self.tree().put(key, value))
    }

    fn write_blind(
        &self,
        key: &[u8],
        value_bytes: usize,
        change: &mut BlindChange<'_>,
    ) -> Result<bool> {
        self.limits().check_key(key)?;
        self.prefix.with(key, |key| self.tree().write_blind(key, value_bytes, change))
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.limits().check_key(key) {
            Ok(()) => self.prefix.with(key, |key| self.tree().read(key, visit)),
            // As the tree: no such key can be there.
            Err(_) => Ok(false),
        }
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        match self.limits().check_key(key) {
            Ok(()) => self.prefix.with(key, |key| self.tree().remove(key)),
            Err(_) => Ok(false),
        }
    }

    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> Result<()> {
        self.limits().check_key(key)?;
        self.prefix.with(key, |key| self.tree().compare_remove(key, expected))
    }

    fn modify(&self, key: &[u8], change: &mut Change<'_>) -> Result<Option<Upserted>> {
        self.limits().check_key(key)?;
        self.prefix.with(key, |key| self.tree().modify(key, change))
    }

    fn is_only_stored(&self, key: &[u8]) -> Result<bool> {
        self.limits().check_key(key)?;
        self.prefix.with(key, |key| self.tree().is_only_stored(key))
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>> {
        let cursor = self.tree().scan(self.range(range), order)?;
        Ok(Box::new(MapCursor { cursor, prefix_bytes: self.prefix.length }))
    }

    /// Reads all records of the map.
    fn len(&self) -> Result<u64> {
        scanned_len(self)
    }
}

/// A cursor over the records of a map.
struct MapCursor<'index> {
    cursor: Box<dyn Cursor + 'index>,
    prefix_bytes: usize,
}

impl Cursor for MapCursor<'_> {
    fn expect(&mut self, records: usize) {
        self.cursor.expect(records);
    }

    fn next(&mut self) -> Result<Option<Record<'_>>> {
        let prefix_bytes = self.prefix_bytes;
        Ok(self.cursor.next()?.map(|(key, value)| (&key[prefix_bytes..], value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_prefixes() {
        assert_eq!(Prefix::of(1).bytes(), [1, 1]);
        assert_eq!(Prefix::of(255).bytes(), [1, 255]);
        assert_eq!(Prefix::of(256).bytes(), [2, 1, 0]);
        assert_eq!(Prefix::of(u64::MAX).bytes(), [8, 255, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test]
    fn prefixes_are_in_the_order_of_numbers_and_none_begins_with_another() {
        let numbers = [1, 2, 254, 255, 256, 257, 65_535, 65_536, 1 << 40, u64::MAX - 1, u64::MAX];
        for pair in numbers.windows(2) {
            let (left, right) = (Prefix::of(pair[0]), Prefix::of(pair[1]));
            assert!(left.bytes() < right.bytes());
            assert!(!right.bytes().starts_with(left.bytes()));
        }
        for number in numbers {
            for key in [&b""[..], b"key", &[7; 200]] {
                assert_eq!(split(&Prefix::of(number).owned(key)), Some((number, key)));
                Prefix::of(number).with(key, |all| assert_eq!(all, Prefix::of(number).owned(key)));
            }
        }
    }

    #[test]
    fn keys_without_a_number_are_told() {
        for key in [&b""[..], &[0], &[0, 1], &[1], &[1, 0], &[2, 0, 1], &[9; 20]] {
            assert_eq!(split(key), None, "{key:?}");
        }
    }
}
