//! Persistent words. All stores into a pool go through a word, except those into a
//! [`Reservation`](crate::Reservation): a block that no other thread can see yet.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};

use crate::damage;
use crate::domain::Domain;
use crate::prefetch;

/// An aligned 8-byte word of a pool, under the persistence domain `D`.
///
/// Words are little-endian on media; the supported targets are little-endian.
#[derive(Debug)]
pub struct Word<'pool, D> {
    word: &'pool AtomicU64,
    domain: PhantomData<D>,
}

impl<D> Clone for Word<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Word<'_, D> {}

const _: () = assert!(cfg!(target_endian = "little"), "pool words are little-endian");

/// A full barrier between a read-modify-write that this thread has just done and all its later
/// loads. On x86-64 the locked instruction already is that barrier. Elsewhere, and in the language,
/// a sequentially consistent read-modify-write does not order later loads that are weaker.
#[inline(always)]
pub(crate) fn barrier_after_swap() {
    if cfg!(target_arch = "x86_64") {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

impl<'pool, D: Domain> Word<'pool, D> {
    pub(crate) fn new(word: &'pool AtomicU64) -> Self {
        Self { word, domain: PhantomData }
    }

    pub(crate) fn address(self) -> usize {
        self.as_ptr() as usize
    }

    pub(crate) fn as_ptr(self) -> *const AtomicU64 {
        self.word
    }

    /// Loads the word.
    #[inline(always)]
    pub fn load(self, order: Ordering) -> u64 {
        D::observe_load(self.address(), 8);
        self.word.load(order)
    }

    /// Stores the word. Durable after [`flush`](Self::flush) and [`Domain::fence`].
    #[inline(always)]
    pub fn store(self, value: u64, order: Ordering) {
        if D::admit_store(self.address(), 8) {
            self.word.store(value, order);
        }
    }

    /// Replaces `current` by `new`; returns the former value, as `Ok` if it was `current`.
    ///
    /// Sequentially consistent, also when it fails. Suppose that two threads each change one word
    /// and then read the other's word, by this function or by a sequentially consistent load. Then
    /// one of them sees the other's change (a decided status and a late reference;
    /// `crates/testing/models/src/late.rs`). A success is a release of this thread's earlier
    /// writes. Both results acquire what the writer of the found value has released.
    #[inline(always)]
    pub fn compare_exchange(self, current: u64, new: u64) -> Result<u64, u64> {
        if D::admit_swap(self.address()) {
            self.word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
        } else {
            // The destructors of a killed thread see a success, so that they finish.
            Ok(current)
        }
    }

    /// Like [`compare_exchange`](Self::compare_exchange), for a word that recovery never reads (a
    /// lease), so it does not count as a cost of durability. The full barrier orders a success
    /// before all later loads of this thread.
    #[inline(always)]
    pub(crate) fn compare_exchange_transient(self, current: u64, new: u64) -> Result<u64, u64> {
        if !D::admit_transient_store(self.address()) {
            return Ok(current);
        }
        let found = self.word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed);
        barrier_after_swap();
        found
    }

    /// Loads a word, relaxed, if only this thread changes the word now, or if an old value is good
    /// enough. Tests do not observe it.
    #[inline(always)]
    pub(crate) fn load_unobserved(self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// Stores a word that recovery never reads, after all earlier loads and stores of this thread.
    #[inline(always)]
    pub(crate) fn store_transient(self, value: u64) {
        if D::admit_transient_store(self.address()) {
            self.word.store(value, Ordering::Release);
        }
    }

    /// Adds `number`, wrapping around, and returns the former value; acquire and release.
    #[inline(always)]
    pub fn fetch_add(self, number: u64) -> u64 {
        self.change(|word| word.fetch_add(number, Ordering::AcqRel))
    }

    /// Clears the bits that `mask` lacks and returns the former value; acquire and release.
    #[inline]
    pub fn fetch_and(self, mask: u64) -> u64 {
        self.change(|word| word.fetch_and(mask, Ordering::AcqRel))
    }

    /// Sets the bits of `mask` and returns the former value; acquire and release.
    #[inline]
    pub fn fetch_or(self, mask: u64) -> u64 {
        self.change(|word| word.fetch_or(mask, Ordering::AcqRel))
    }

    /// Changes the word, unless a test has killed the thread; returns the former value.
    #[inline(always)]
    fn change(self, change: impl FnOnce(&AtomicU64) -> u64) -> u64 {
        if D::admit_swap(self.address()) {
            change(self.word)
        } else {
            self.word.load(Ordering::Acquire)
        }
    }

    /// Starts the write-back of the word's line; [`Domain::fence`] completes it.
    #[inline(always)]
    #[track_caller]
    pub fn flush(self) {
        // SAFETY: the word is a live reference, so its line is mapped.
        unsafe { D::write_back(std::ptr::from_ref(self.word).cast()) }
    }

    /// Prefetches the word's line for a write.
    #[inline(always)]
    pub fn prefetch_for_write(self) {
        prefetch::for_write(std::ptr::from_ref(self.word).cast());
    }

    /// Whether both words lie in one cache line, so that one flush serves both.
    #[inline(always)]
    pub fn same_line(self, other: Self) -> bool {
        (self.address() ^ other.address()) < crate::write_back::LINE_BYTES as usize
    }
}

/// Bytes of [`Words::nothing`].
pub const NOTHING_BYTES: u64 = 4096;
static NOTHING: [AtomicU64; NOTHING_BYTES as usize / 8] =
    [const { AtomicU64::new(0) }; NOTHING_BYTES as usize / 8];

/// The number of words before the one at `off`. If `off` is no multiple of 8, a larger number than
/// any pool has.
#[inline(always)]
pub fn word_index(off: u64) -> u64 {
    off.rotate_right(3)
}

/// Neighbouring words of a pool. It is checked once that they lie in the pool.
#[derive(Debug)]
pub struct Words<'pool, D> {
    words: &'pool [AtomicU64],
    domain: PhantomData<D>,
}

impl<D> Clone for Words<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Words<'_, D> {}

impl<'pool, D: Domain> Words<'pool, D> {
    #[inline(always)]
    pub(crate) fn new(words: &'pool [AtomicU64]) -> Self {
        Self { words, domain: PhantomData }
    }

    /// Zeros, in place of a node at a damaged offset.
    #[inline(always)]
    pub fn nothing() -> Self {
        Self::new(&NOTHING)
    }

    /// Each word, for a copy.
    #[inline(always)]
    pub(crate) fn each(self) -> impl Iterator<Item = Word<'pool, D>> {
        self.words.iter().map(Word::new)
    }

    /// Loads word `index`. An index beyond the end comes from damaged data: then the result is
    /// zero, and the calling thread's [`Guard::damage`](crate::Guard::damage) has the offset of
    /// these words.
    #[inline(always)]
    pub fn load(self, index: u64, order: Ordering) -> u64 {
        let Some(word) = self.words.get(index as usize) else {
            damage::note_behind(self.words);
            return 0;
        };
        D::observe_load(std::ptr::from_ref(word) as usize, 8);
        word.load(order)
    }

    /// Loads word `index`. The caller knows that it exists: from the options of the index, or by
    /// [`reach`](Self::reach). Panics beyond the end, like a slice.
    #[inline(always)]
    pub fn at(self, index: u64, order: Ordering) -> u64 {
        let word = &self.words[index as usize];
        D::observe_load(std::ptr::from_ref(word) as usize, 8);
        word.load(order)
    }

    /// Whether there are at least `count` words. A larger `count` comes from damaged data, which is
    /// noted.
    #[inline(always)]
    pub fn reach(self, count: u64) -> bool {
        let reach = count <= self.words.len() as u64;
        if !reach {
            damage::note_behind(self.words);
        }
        reach
    }

    /// The `N` words from word `first` on. `None` if they do not all exist: then the index comes
    /// from damaged data, and damage is noted, as by [`load`](Self::load).
    #[inline(always)]
    pub fn part<const N: usize>(self, first: u64) -> Option<Part<'pool, D, N>> {
        let part = self.chunk(first);
        if part.is_none() {
            damage::note_behind(self.words);
        }
        part
    }

    /// Like [`part`](Self::part), for a caller that reads again in another way: notes nothing.
    #[inline(always)]
    pub fn chunk<const N: usize>(self, first: u64) -> Option<Part<'pool, D, N>> {
        // The end is checked once.
        let first = first as usize;
        let words = self.words.get(first..first.checked_add(N)?)?.as_array()?;
        Some(Part { words, domain: PhantomData })
    }

    /// Prefetches the line of word `index`, which may be any.
    #[inline(always)]
    pub fn prefetch(self, index: u64) {
        let address = self.words.as_ptr().wrapping_add(index as usize).cast::<u8>();
        D::observe_prefetch(address as usize);
        prefetch::for_read(address);
    }

    /// The words from word `first` on; `None` beyond the end. Notes nothing.
    #[inline(always)]
    pub fn skip(self, first: u64) -> Option<Self> {
        self.words.get(first as usize..).map(Self::new)
    }

    /// The first `count` words; `None` if there are fewer. Notes nothing.
    #[inline(always)]
    pub fn take(self, count: u64) -> Option<Self> {
        self.words.get(..count as usize).map(Self::new)
    }

    /// Loads the eight words from word `first` on. If they do not all exist, the result is zeros,
    /// and damage is noted, as by [`load`](Self::load).
    #[inline(always)]
    pub fn load_eight(self, first: u64, order: Ordering) -> [u64; 8] {
        self.part::<8>(first)
            .map_or([0; 8], |part| std::array::from_fn(|at| part.load(at as u64, order)))
    }

    /// Loads word `index`; `None` beyond the end.
    #[inline(always)]
    pub fn get(self, index: u64, order: Ordering) -> Option<u64> {
        let word = self.words.get(index as usize)?;
        D::observe_load(std::ptr::from_ref(word) as usize, 8);
        Some(word.load(order))
    }

    /// Folds every `STEP`-th word from word `first` on, the last one first: `steps` words, or as
    /// many as there are whole steps. Folds nothing if there is no word `first`.
    #[inline(always)]
    pub fn fold_every<const STEP: usize, R>(
        &self,
        first: u64,
        steps: usize,
        order: Ordering,
        start: R,
        mut fold: impl FnMut(R, u64) -> R,
    ) -> R {
        let mut result = start;
        let words = self.words.get(first as usize..).unwrap_or(&[]);
        let words = &words[..words.len().min(steps * STEP)];
        for step in words.chunks_exact(STEP).rev() {
            D::observe_load(std::ptr::from_ref(&step[0]) as usize, 8);
            result = fold(result, step[0].load(order));
        }
        result
    }
}

/// `N` neighbouring words. A load is not checked if the compiler sees that its index is below `N`.
#[derive(Debug)]
pub struct Part<'pool, D, const N: usize> {
    words: &'pool [AtomicU64; N],
    domain: PhantomData<D>,
}

impl<D, const N: usize> Clone for Part<'_, D, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D, const N: usize> Copy for Part<'_, D, N> {}

impl<D: Domain, const N: usize> Part<'_, D, N> {
    /// Loads word `index`. Panics beyond the end, like an array.
    #[inline(always)]
    pub fn load(&self, index: u64, order: Ordering) -> u64 {
        let word = &self.words[index as usize];
        D::observe_load(std::ptr::from_ref(word) as usize, 8);
        word.load(order)
    }
}
