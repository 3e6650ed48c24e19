//! One node: its version word, its search, and the changes that its lock allows.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Records of a node of 4 KiB.
pub const PAGE_CAPACITY: usize = 254;

const _: () = assert!(size_of::<Node<PAGE_CAPACITY>>() == 4096);

/// The index that no node has.
pub const NO_NODE: u64 = u64::MAX;

/// The bit of a version that is set while a thread changes the node.
const LOCKED: u64 = 1;

/// A node with room for `CAPACITY` records; see the page of the module for its words.
///
/// The methods that read it may see a mixture of two states. The result is right only if
/// [`is_at`](Self::is_at) holds afterwards, for a version that was read before.
#[repr(C, align(4096))]
pub struct Node<const CAPACITY: usize> {
    version: AtomicU64,
    low: AtomicU64,
    next: AtomicU64,
    count: AtomicU32,
    level: AtomicU32,
    keys: [AtomicU64; CAPACITY],
    values: [AtomicU64; CAPACITY],
}

impl<const CAPACITY: usize> Default for Node<CAPACITY> {
    /// An empty leaf for all keys, without a next leaf.
    fn default() -> Self {
        Self {
            version: AtomicU64::new(0),
            low: AtomicU64::new(0),
            next: AtomicU64::new(NO_NODE),
            count: AtomicU32::new(0),
            level: AtomicU32::new(0),
            keys: [const { AtomicU64::new(0) }; CAPACITY],
            values: [const { AtomicU64::new(0) }; CAPACITY],
        }
    }
}

/// The number of words at the start of sorted `words` for which `is_before` holds. The loop has no
/// branch on a key.
#[inline]
fn partition_point(words: &[AtomicU64], is_before: impl Fn(u64) -> bool) -> usize {
    let is_before = |at: usize| is_before(words[at].load(Ordering::Relaxed));
    let (mut base, mut left) = (0, words.len());
    while left > 1 {
        let half = left / 2;
        base = std::hint::select_unpredictable(is_before(base + half - 1), base + half, base);
        left -= half;
    }
    base + usize::from(left == 1 && is_before(base))
}

/// Inserts `word` at `at`; the last of `words` is overwritten.
#[inline]
fn shift_in(words: &[AtomicU64], at: usize, word: u64) {
    for place in (at + 1..words.len()).rev() {
        words[place].store(words[place - 1].load(Ordering::Relaxed), Ordering::Relaxed);
    }
    words[at].store(word, Ordering::Relaxed);
}

/// Removes the word at `at`; the last of `words` stays where it is.
#[inline]
fn shift_out(words: &[AtomicU64], at: usize) {
    for place in at + 1..words.len() {
        words[place - 1].store(words[place].load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

// The words below the header, and the header's other words, are read and written with `Relaxed`.
// The version orders them: `version` and `is_at` on one side, `lock` and the drop of `Locked` on
// the other.
impl<const CAPACITY: usize> Node<CAPACITY> {
    /// The version, if no thread changes the node.
    #[inline]
    pub fn version(&self) -> Option<u64> {
        // Acquire: pairs with the Release store in the drop of `Locked`. The reads that follow see
        // this version's words or newer ones.
        let version = self.version.load(Ordering::Acquire);
        (version & LOCKED == 0).then_some(version)
    }

    /// Whether the node has not changed since `version` was read, so that all that was read from it
    /// in between is of this version.
    #[inline]
    pub fn is_at(&self, version: u64) -> bool {
        // Pairs with the Release fence in `lock`. If one of the reads before this fence saw a word
        // of a writer, then the load sees that writer's lock or a later version.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Locks the node if it still has `version`.
    #[inline]
    pub fn lock(&self, version: u64) -> Option<Locked<'_, CAPACITY>> {
        // Acquire: pairs with the Release store in the drop of `Locked`. The words that this thread
        // shifts are those of `version`.
        let (held, order) = (version | LOCKED, Ordering::Acquire);
        self.version.compare_exchange(version, held, order, Ordering::Relaxed).ok()?;
        // Pairs with the Acquire fence in `is_at`: no word of this writer is seen before its lock.
        fence(Ordering::Release);
        Some(Locked { node: self, version })
    }

    /// The least key that the node may have.
    #[inline]
    pub fn low(&self) -> u64 {
        self.low.load(Ordering::Relaxed)
    }

    /// The index of the next leaf.
    #[inline]
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// The number of records or children; never more than `CAPACITY`.
    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    /// The levels below it.
    #[inline]
    pub fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Whether it has no room for a further record.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.count() == CAPACITY
    }

    /// The number of keys below `key`: the place of `key`.
    #[inline]
    pub fn place(&self, key: u64) -> usize {
        partition_point(&self.keys[..self.count()], |word| word < key)
    }

    /// The number of keys up to `key`, included.
    #[inline]
    pub fn place_after(&self, key: u64) -> usize {
        partition_point(&self.keys[..self.count()], |word| word <= key)
    }

    /// Whether `place`, which is the place of `key`, has this key.
    #[inline]
    pub fn has(&self, place: usize, key: u64) -> bool {
        place < self.count() && self.keys[place].load(Ordering::Relaxed) == key
    }

    /// The key at `place`.
    pub fn key(&self, place: usize) -> u64 {
        self.keys[place].load(Ordering::Relaxed)
    }

    /// The value at `place`.
    #[inline]
    pub fn value(&self, place: usize) -> u64 {
        self.values[place].load(Ordering::Relaxed)
    }

    /// The index of the child for `key`, in an inner node.
    #[inline]
    pub fn child(&self, key: u64) -> u64 {
        // An inner node has a key that is not above `key`, but a mixture of two states may not.
        self.value(self.place_after(key).saturating_sub(1))
    }

    /// Copies the records from `place` on, as many as there are and as `records` has room for;
    /// returns how many.
    #[inline]
    pub fn copy(&self, place: usize, records: &mut [(u64, u64)]) -> usize {
        let copied = records.len().min(self.count().saturating_sub(place));
        let (keys, values) = (&self.keys[place..][..copied], &self.values[place..][..copied]);
        for (record, (key, value)) in records.iter_mut().zip(keys.iter().zip(values)) {
            *record = (key.load(Ordering::Relaxed), value.load(Ordering::Relaxed));
        }
        copied
    }
}

/// A node that this thread has locked; the drop unlocks it, with a new version.
pub struct Locked<'a, const CAPACITY: usize> {
    node: &'a Node<CAPACITY>,
    version: u64,
}

impl<const CAPACITY: usize> Deref for Locked<'_, CAPACITY> {
    type Target = Node<CAPACITY>;

    fn deref(&self) -> &Node<CAPACITY> {
        self.node
    }
}

impl<const CAPACITY: usize> Drop for Locked<'_, CAPACITY> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire load in `version` and the compare-and-swap in `lock`.
        // A thread that sees the new version sees the words of this writer.
        self.node.version.store(self.version.wrapping_add(LOCKED + 1), Ordering::Release);
    }
}

impl<const CAPACITY: usize> Locked<'_, CAPACITY> {
    fn set_count(&self, count: usize) {
        // At most `CAPACITY`, which is far below the limit of the type.
        self.node.count.store(count as u32, Ordering::Relaxed);
    }

    /// Replaces the value at `place`.
    #[inline]
    pub fn set_value(&self, place: usize, value: u64) {
        self.node.values[place].store(value, Ordering::Relaxed);
    }

    /// Inserts a record at `place`. The node must not be full.
    #[inline]
    pub fn insert(&self, place: usize, key: u64, value: u64) {
        let count = self.count() + 1;
        shift_in(&self.node.keys[..count], place, key);
        shift_in(&self.node.values[..count], place, value);
        self.set_count(count);
    }

    /// Removes the record at `place`.
    #[inline]
    pub fn remove(&self, place: usize) {
        let count = self.count();
        shift_out(&self.node.keys[..count], place);
        shift_out(&self.node.values[..count], place);
        self.set_count(count - 1);
    }

    /// Makes a new node the one for `low` and the keys above it, with the records of `source` from
    /// `from` to `to`, excluded.
    pub fn fill(&self, low: u64, source: &Node<CAPACITY>, from: usize, to: usize) {
        self.node.low.store(low, Ordering::Relaxed);
        self.node.level.store(source.level(), Ordering::Relaxed);
        self.node.next.store(source.next(), Ordering::Relaxed);
        for (own, place) in (from..to).enumerate() {
            self.node.keys[own].store(source.key(place), Ordering::Relaxed);
            self.set_value(own, source.value(place));
        }
        self.set_count(to - from);
    }

    /// Sets the index of the next leaf.
    pub fn set_next(&self, next: u64) {
        self.node.next.store(next, Ordering::Relaxed);
    }

    /// Removes the records from `count` on.
    pub fn truncate(&self, count: usize) {
        self.set_count(count);
    }

    /// Makes it an inner node, one level higher, with these two children by their least keys.
    pub fn raise(&self, children: [(u64, u64); 2]) {
        self.node.level.store(self.level() + 1, Ordering::Relaxed);
        self.set_next(NO_NODE);
        self.set_count(0);
        for (place, (low, child)) in children.into_iter().enumerate() {
            self.insert(place, low, child);
        }
    }
}
