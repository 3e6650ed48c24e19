//! Search, and writes in place.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_index::Error;
use pando_pmem::{Domain, Pool, Words};

use super::log::{LOG_BYTES, Log};
use super::scheme::{Leaves, Scheme};

/// Bytes of a cache line.
const LINE_BYTES: u64 = 64;

const NUMBER: u64 = 0;
pub(super) const FIRST: u64 = 1;
const ENTRIES: u64 = 2;
/// Bytes of a span that nodes are cut from, or strings.
const SPAN_BYTES: u64 = 1 << 20;

/// A B+-tree with one writer. It is not [`Sync`]. Its keys are words; or, if they are `STRINGS`,
/// the words are offsets of strings, which are compared (paper 4.6).
pub struct Baseline<D: Domain, const STRINGS: bool = false> {
    pub(super) pool: Arc<Pool<D>>,
    pub(super) leaves: Leaves,
    pub(super) scheme: Scheme,
    node_bytes: u64,
    /// Entries of a node, the paper's n.
    pub(super) most: u64,
    pub(super) log: Log,
    /// Where the words lie that name the root and the first leaf.
    roots_off: u64,
    height: Cell<u64>,
    spans: RefCell<Vec<u64>>,
    free: RefCell<Vec<u64>>,
    left_in_span: Cell<u64>,
    nodes: Cell<u64>,
    /// Where the next string can be, and how many bytes are left there.
    strings: Cell<(u64, u64)>,
}

/// A key that is looked for: its word, or its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<'key> {
    Word(u64),
    Bytes(&'key [u8]),
}

impl<D: Domain, const STRINGS: bool> fmt::Debug for Baseline<D, STRINGS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} leaves, {:?}", self.leaves, self.scheme)
    }
}

/// A step of the way down: the inner node, and the place of the child in it (0: the first).
pub(super) type Path = Vec<(u64, u64)>;

impl<D: Domain, const STRINGS: bool> Baseline<D, STRINGS> {
    /// An empty tree with nodes of `node_lines` lines, in room of the pool that is free.
    pub fn new(
        pool: Arc<Pool<D>>,
        leaves: Leaves,
        scheme: Scheme,
        node_lines: u64,
    ) -> Result<Self, Error> {
        let node_bytes = node_lines.clamp(2, 16) * LINE_BYTES;
        let span = span_of(&pool, LOG_BYTES + LINE_BYTES)?;
        let tree = Self {
            leaves,
            scheme,
            node_bytes,
            most: (node_bytes / 8 - ENTRIES) / 2,
            log: Log::new(span),
            roots_off: span + LOG_BYTES,
            height: Cell::new(0),
            spans: RefCell::new(vec![span]),
            free: RefCell::default(),
            left_in_span: Cell::new(0),
            nodes: Cell::new(0),
            strings: Cell::new((0, 0)),
            pool,
        };
        let root = tree.new_node()?;
        tree.set(root, NUMBER, 0);
        tree.set(root, FIRST, 0);
        for word in [0, 1] {
            tree.pool.word(tree.roots_off + word * 8).store(root, Ordering::Relaxed);
        }
        Ok(tree)
    }

    /// Entries that a node holds: the paper's n.
    pub fn entries(&self) -> u64 {
        self.most
    }

    /// Nodes that the tree has.
    pub fn nodes(&self) -> u64 {
        self.nodes.get()
    }

    pub(super) fn root(&self) -> u64 {
        self.pool.word(self.roots_off).load(Ordering::Relaxed)
    }

    /// A node whose content is anything; logged, if the scheme logs.
    pub(super) fn new_node(&self) -> Result<u64, Error> {
        let off = match self.free.borrow_mut().pop() {
            Some(off) => off,
            None => {
                if self.left_in_span.get() < self.node_bytes {
                    let span = span_of(&self.pool, SPAN_BYTES)?;
                    self.spans.borrow_mut().push(span);
                    self.left_in_span.set(SPAN_BYTES);
                }
                let left = self.left_in_span.get();
                self.left_in_span.set(left - self.node_bytes);
                self.spans.borrow().last().copied().unwrap_or(0) + SPAN_BYTES - left
            }
        };
        if self.scheme != Scheme::Volatile {
            self.log.allocated(&self.pool, off);
        }
        self.nodes.set(self.nodes.get() + 1);
        Ok(off)
    }

    pub(super) fn free_node(&self, off: u64) {
        self.free.borrow_mut().push(off);
        self.nodes.set(self.nodes.get() - 1);
    }

    #[inline(always)]
    fn words(&self, node: u64) -> Words<'_, D> {
        let mut line = 0;
        while line < self.node_bytes {
            self.pool.prefetch(node + line);
            line += LINE_BYTES;
        }
        self.pool.words(node, self.node_bytes / 8)
    }

    #[inline(always)]
    pub(super) fn get_word(&self, node: u64, word: u64) -> u64 {
        self.pool.word(node + word * 8).load(Ordering::Relaxed)
    }

    /// Writes a word of a node that no other thread sees yet.
    pub(super) fn set(&self, node: u64, word: u64, value: u64) {
        self.pool.word(node + word * 8).store(value, Ordering::Relaxed);
    }

    /// Overwrites a word in place.
    fn overwrite(&self, node: u64, word: u64, value: u64) {
        match self.scheme {
            Scheme::UndoRedo => self.log.write_undo_redo(&self.pool, node + word * 8, value),
            Scheme::Volatile | Scheme::Shadow => self.set(node, word, value),
        }
    }

    /// Writes a word that was not used before.
    fn write_new(&self, node: u64, word: u64, value: u64) {
        match self.scheme {
            Scheme::UndoRedo => self.log.new_redo(&self.pool, node + word * 8, value),
            Scheme::Volatile | Scheme::Shadow => self.set(node, word, value),
        }
    }

    fn commit_new(&self) {
        if self.scheme == Scheme::UndoRedo {
            self.log.commit_new_redo(&self.pool);
        }
    }

    /// The place among the sorted entries of the first key that `is_before` is false of.
    #[inline(always)]
    fn place(words: Words<'_, D>, number: u64, is_before: impl Fn(u64) -> bool) -> u64 {
        let (mut low, mut high) = (0, number);
        while low < high {
            let middle = (low + high) / 2;
            if is_before(words.load(ENTRIES + 2 * middle, Ordering::Relaxed)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The leaf of the key; the way is noted in `path` if it is wanted.
    #[inline(always)]
    pub(super) fn leaf(&self, key: Key<'_>, mut path: Option<&mut Path>) -> u64 {
        let mut node = self.root();
        for _ in 0..self.height.get() {
            let words = self.words(node);
            let number = words.load(NUMBER, Ordering::Relaxed);
            let place = Self::place(words, number, |found| self.compare(found, key).is_le());
            if let Some(path) = path.as_mut() {
                path.push((node, place));
            }
            node = words.load(Self::child_word(place), Ordering::Relaxed);
        }
        node
    }

    /// The word of the child at a place of an inner node.
    #[inline(always)]
    pub(super) fn child_word(place: u64) -> u64 {
        if place == 0 { FIRST } else { ENTRIES + 2 * place - 1 }
    }

    /// Where in a leaf the key is.
    #[inline(always)]
    fn find(&self, words: Words<'_, D>, key: Key<'_>) -> Option<u64> {
        let number = words.load(NUMBER, Ordering::Relaxed);
        let is_at =
            |at: u64| self.compare(words.load(ENTRIES + 2 * at, Ordering::Relaxed), key).is_eq();
        match self.leaves {
            Leaves::Sorted => {
                let place = Self::place(words, number, |found| self.compare(found, key).is_lt());
                (place < number && is_at(place)).then_some(place)
            }
            Leaves::Unsorted => (0..number).find(|&at| is_at(at)),
            Leaves::Bitmap => {
                let mut live = number;
                while live != 0 {
                    let at = u64::from(live.trailing_zeros());
                    if is_at(at) {
                        return Some(at);
                    }
                    live &= live - 1;
                }
                None
            }
        }
    }

    #[inline(always)]
    fn get_key(&self, key: Key<'_>) -> Option<u64> {
        let words = self.words(self.leaf(key, None));
        let at = self.find(words, key)?;
        Some(words.load(ENTRIES + 2 * at + 1, Ordering::Relaxed))
    }

    /// Adds a record, if the key is not there; its word is made then.
    // Always: of which sort a key is, is known where this is called.
    #[inline(always)]
    fn insert_key(
        &self,
        key: Key<'_>,
        word: impl FnOnce() -> Result<u64, Error>,
        value: u64,
    ) -> Result<bool, Error> {
        let mut path = Path::new();
        let leaf = self.leaf(key, Some(&mut path));
        if self.find(self.words(leaf), key).is_some() {
            return Ok(false);
        }
        let key = word()?;
        if self.scheme == Scheme::Shadow {
            self.insert_shadow(leaf, path, key, value)?;
        } else if self.count(leaf, true) < self.most {
            self.insert_in(leaf, self.leaves, key, value);
        } else {
            self.split(leaf, path, key, value)?;
        }
        Ok(true)
    }

    /// Removes a record; the word of its key, if it was there.
    // Always: of which sort a key is, is known where this is called.
    #[inline(always)]
    fn remove_key(&self, key: Key<'_>) -> Result<Option<u64>, Error> {
        let mut path = Path::new();
        let leaf = self.leaf(key, Some(&mut path));
        let Some(at) = self.find(self.words(leaf), key) else { return Ok(None) };
        let word = self.get_word(leaf, ENTRIES + 2 * at);
        if self.scheme == Scheme::Shadow {
            self.remove_shadow(leaf, path, word)?;
            return Ok(Some(word));
        }
        let number = self.get_word(leaf, NUMBER);
        match self.leaves {
            Leaves::Sorted => {
                for from in at + 1..number {
                    self.move_entry(leaf, from, from - 1);
                }
                self.overwrite(leaf, NUMBER, number - 1);
            }
            Leaves::Unsorted => {
                self.move_entry(leaf, number - 1, at);
                self.overwrite(leaf, NUMBER, number - 1);
            }
            Leaves::Bitmap => self.overwrite(leaf, NUMBER, number & !(1 << at)),
        }
        Ok(Some(word))
    }

    fn move_entry(&self, node: u64, from: u64, to: u64) {
        for word in [0, 1] {
            let value = self.get_word(node, ENTRIES + 2 * from + word);
            self.overwrite(node, ENTRIES + 2 * to + word, value);
        }
    }

    /// Entries of a node.
    pub(super) fn count(&self, node: u64, is_leaf: bool) -> u64 {
        let number = self.get_word(node, NUMBER);
        if is_leaf && self.leaves == Leaves::Bitmap {
            u64::from(number.count_ones())
        } else {
            number
        }
    }

    /// Adds an entry to a node that has room.
    fn insert_in(&self, node: u64, leaves: Leaves, key: u64, value: u64) {
        let number = self.get_word(node, NUMBER);
        match leaves {
            Leaves::Sorted => {
                let of = self.stored(key);
                let is_before = |found| self.compare(found, of).is_lt();
                let place = Self::place(self.words(node), number, is_before);
                for from in (place..number).rev() {
                    self.move_entry(node, from, from + 1);
                }
                self.overwrite(node, ENTRIES + 2 * place, key);
                self.overwrite(node, ENTRIES + 2 * place + 1, value);
                self.overwrite(node, NUMBER, number + 1);
            }
            Leaves::Unsorted | Leaves::Bitmap => {
                let is_bitmap = leaves == Leaves::Bitmap;
                let at = if is_bitmap { u64::from((!number).trailing_zeros()) } else { number };
                self.write_new(node, ENTRIES + 2 * at, key);
                self.write_new(node, ENTRIES + 2 * at + 1, value);
                self.commit_new();
                let number = if is_bitmap { number | 1 << at } else { number + 1 };
                self.overwrite(node, NUMBER, number);
            }
        }
    }

    /// The entries of a node in order of their keys, and where each is.
    pub(super) fn ordered(&self, node: u64, is_leaf: bool) -> Vec<(u64, u64, u64)> {
        let number = self.get_word(node, NUMBER);
        let entry = |at| {
            (self.get_word(node, ENTRIES + 2 * at), self.get_word(node, ENTRIES + 2 * at + 1), at)
        };
        let mut entries: Vec<_> = if is_leaf && self.leaves == Leaves::Bitmap {
            (0..self.most).filter(|at| number >> at & 1 != 0).map(entry).collect()
        } else {
            (0..number).map(entry).collect()
        };
        if is_leaf && self.leaves != Leaves::Sorted {
            entries.sort_unstable_by(|left, right| self.compare(left.0, self.stored(right.0)));
        }
        entries
    }

    /// Splits a full leaf, and what is full above it, and adds the entry.
    fn split(&self, leaf: u64, mut path: Path, key: u64, value: u64) -> Result<(), Error> {
        let (mut node, mut is_leaf, mut key, mut value) = (leaf, true, key, value);
        loop {
            let leaves = if is_leaf { self.leaves } else { Leaves::Sorted };
            if self.count(node, is_leaf) < self.most {
                self.insert_in(node, leaves, key, value);
                return Ok(());
            }
            let right = self.new_node()?;
            let entries = self.ordered(node, is_leaf);
            let kept = entries.len() / 2;
            let mut moved: Vec<(u64, u64)> =
                entries[kept..].iter().map(|&(key, value, _)| (key, value)).collect();
            let goes_right = self.compare(key, self.stored(moved[0].0)).is_ge();
            if goes_right {
                let of = self.stored(key);
                let place = moved.partition_point(|entry| self.compare(entry.0, of).is_lt());
                moved.insert(place, (key, value));
            }
            // The middle key of an inner node goes up, and its child becomes the first of the new
            // node.
            let separator = moved[0].0;
            let first = if is_leaf { self.get_word(node, FIRST) } else { moved.remove(0).1 };
            for (at, &(key, value)) in moved.iter().enumerate() {
                self.write_new(right, ENTRIES + 2 * at as u64, key);
                self.write_new(right, ENTRIES + 2 * at as u64 + 1, value);
            }
            let count = moved.len() as u64;
            let is_bitmap = leaves == Leaves::Bitmap;
            self.write_new(right, NUMBER, if is_bitmap { (1 << count) - 1 } else { count });
            self.write_new(right, FIRST, first);
            self.commit_new();
            match leaves {
                Leaves::Bitmap => {
                    let live = entries[..kept].iter().fold(0, |live, entry| live | 1 << entry.2);
                    self.overwrite(node, NUMBER, live);
                }
                Leaves::Sorted => self.overwrite(node, NUMBER, kept as u64),
                Leaves::Unsorted => {
                    for (at, &(key, value, was)) in entries[..kept].iter().enumerate() {
                        if was != at as u64 {
                            self.overwrite(node, ENTRIES + 2 * at as u64, key);
                            self.overwrite(node, ENTRIES + 2 * at as u64 + 1, value);
                        }
                    }
                    self.overwrite(node, NUMBER, kept as u64);
                }
            }
            if is_leaf {
                self.overwrite(node, FIRST, right);
            }
            if !goes_right {
                self.insert_in(node, leaves, key, value);
            }
            (key, value, is_leaf) = (separator, right, false);
            match path.pop() {
                Some((parent, _)) => node = parent,
                None => {
                    return self.grow(node, separator, right, &|off, new| {
                        self.overwrite(off, 0, new);
                    });
                }
            }
        }
    }

    /// Puts a root above `left` and `right`.
    pub(super) fn grow(
        &self,
        left: u64,
        separator: u64,
        right: u64,
        set_root: &dyn Fn(u64, u64),
    ) -> Result<(), Error> {
        let root = self.new_node()?;
        let words = [(NUMBER, 1), (FIRST, left), (ENTRIES, separator), (ENTRIES + 1, right)];
        for (word, value) in words {
            self.write_new(root, word, value);
        }
        if self.scheme == Scheme::UndoRedo {
            self.commit_new();
        }
        self.pool.flush(root, words.len() as u64 * 8 * u64::from(self.scheme == Scheme::Shadow));
        set_root(self.roots_off, root);
        self.height.set(self.height.get() + 1);
        Ok(())
    }

    /// Where the root's name, or the first leaf's, is written.
    pub(super) fn root_word(&self, is_first_leaf: bool) -> u64 {
        self.roots_off + 8 * u64::from(is_first_leaf)
    }

    /// Writes a whole node that no other thread sees yet, packed.
    pub(super) fn fill(&self, node: u64, is_leaf: bool, first: u64, entries: &[(u64, u64)]) {
        let count = entries.len() as u64;
        let is_bitmap = is_leaf && self.leaves == Leaves::Bitmap;
        self.set(node, NUMBER, if is_bitmap { (1 << count) - 1 } else { count });
        self.set(node, FIRST, first);
        for (at, &(key, value)) in entries.iter().enumerate() {
            self.set(node, ENTRIES + 2 * at as u64, key);
            self.set(node, ENTRIES + 2 * at as u64 + 1, value);
        }
        self.pool.flush(node, (ENTRIES + 2 * count) * 8);
    }

    /// The key of a word that an entry has, or is to have.
    #[inline(always)]
    pub(super) fn stored(&self, word: u64) -> Key<'_> {
        if STRINGS { Key::Bytes(self.string(word)) } else { Key::Word(word) }
    }

    /// How the key of an entry's word compares with a key.
    #[inline(always)]
    pub(super) fn compare(&self, word: u64, key: Key<'_>) -> std::cmp::Ordering {
        match key {
            Key::Word(key) => word.cmp(&key),
            Key::Bytes(bytes) => self.string(word).cmp(bytes),
        }
    }

    /// The string at `off`: its length, and behind that its bytes.
    #[inline(always)]
    fn string(&self, off: u64) -> &[u8] {
        let length = self.pool.word(off).load(Ordering::Relaxed);
        // SAFETY: a string's bytes lie in a span of the tree's, are written before their offset is
        // an entry's, and not again.
        unsafe { self.pool.bytes(off + 8, length) }
    }

    /// Calls `visit` for the records in order of their keys.
    pub fn for_each(&self, visit: &mut dyn FnMut(u64, u64)) {
        let mut leaf = self.pool.word(self.root_word(true)).load(Ordering::Relaxed);
        while leaf != 0 {
            self.ordered(leaf, true).iter().for_each(|&(key, value, _)| visit(key, value));
            leaf = self.get_word(leaf, FIRST);
        }
    }
}

impl<D: Domain> Baseline<D> {
    /// The value of the key.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        self.get_key(Key::Word(key))
    }

    /// Adds a record; false if the key is there.
    pub fn insert(&self, key: u64, value: u64) -> Result<bool, Error> {
        self.insert_key(Key::Word(key), || Ok(key), value)
    }

    /// Removes a record; false if the key is not there.
    pub fn remove(&self, key: u64) -> Result<bool, Error> {
        Ok(self.remove_key(Key::Word(key))?.is_some())
    }
}

impl<D: Domain> Baseline<D, true> {
    /// The value of the key.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        self.get_key(Key::Bytes(key))
    }

    /// Adds a record; false if the key is there. The key's bytes are on the medium, if the tree is
    /// durable, when its entry is.
    pub fn insert(&self, key: &[u8], value: u64) -> Result<bool, Error> {
        self.insert_key(Key::Bytes(key), || self.write_string(key), value)
    }

    /// Removes a record; false if the key is not there. Its string stays, since an inner node may
    /// name it.
    pub fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.remove_key(Key::Bytes(key))?.is_some())
    }

    /// Writes a string where there is room, and starts its write-back, which the tree's own first
    /// fence completes.
    fn write_string(&self, key: &[u8]) -> Result<u64, Error> {
        let bytes = (key.len() as u64 + 8).next_multiple_of(8);
        if self.strings.get().1 < bytes {
            let span = span_of(&self.pool, SPAN_BYTES.max(bytes))?;
            // The last is that which nodes are cut from.
            self.spans.borrow_mut().insert(0, span);
            self.strings.set((span, SPAN_BYTES.max(bytes)));
        }
        let (off, left) = self.strings.get();
        self.strings.set((off + bytes, left - bytes));
        self.pool.word(off).store(key.len() as u64, Ordering::Relaxed);
        self.pool.store_bytes(off + 8, key);
        if self.scheme != Scheme::Volatile {
            self.pool.flush(off, key.len() as u64 + 8);
        }
        Ok(off)
    }
}

/// A span of the pool that only this process knows of.
fn span_of<D: Domain>(pool: &Pool<D>, bytes: u64) -> Result<u64, Error> {
    let guard = pool.pin().map_err(Error::storage)?;
    // Never active: a crash, or the end of the process, gives it back.
    Ok(guard.reserve(bytes).map_err(Error::storage)?.into_logged())
}

impl<D: Domain, const STRINGS: bool> Drop for Baseline<D, STRINGS> {
    fn drop(&mut self) {
        if let Ok(guard) = self.pool.pin() {
            for span in self.spans.take() {
                self.pool.reuse(&guard, span);
            }
        }
    }
}
