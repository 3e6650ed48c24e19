//! A pool: one mapping, and the access to its content.
//!
//! [`create`] creates pools; [`open`] opens, checks and closes them; [`room`] makes room in the
//! file; [`log`] replaces the name of the pool's log.

mod create;
mod log;
mod open;
mod room;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use self::create::{CreateOptions, Unpublished, draw_id, remove_unfinished};
pub use self::open::{Compacted, OpenPool};
use crate::alloc::Cache;
use crate::damage;
use crate::domain::Domain;
use crate::exclusive::Exclusive;
use crate::layout::{CONTROL_OFF, Geometry, SEGMENT_COUNT};
use crate::limbo::Limbo;
use crate::medium::{Guarantee, Medium};
use crate::mutant;
use crate::per_slot::PerSlot;
use crate::prefetch;
use crate::sharing::Sharing;
use crate::slots::Slots;
use crate::superblock;
use crate::sys::{LockedFile, Mapping};
use crate::word::{Word, Words, word_index};
use crate::write_back::LINE_BYTES;

/// A memory-mapped pool under the persistence domain `D`.
#[derive(Debug)]
pub struct Pool<D: Domain> {
    mapping: Mapping,
    pub(crate) file: Option<LockedFile>,
    /// How this process shares the pool; none if it has it alone.
    pub(crate) sharing: Option<Sharing>,
    pub(crate) path: PathBuf,
    geometry: Geometry,
    medium: Medium,
    pool_id: u128,
    generation: u32,
    was_clean: bool,
    /// Whether writes survive power loss, as the state says.
    survives_power: bool,
    /// Open for salvage, so the pool is never marked as closed cleanly.
    salvaged: bool,
    /// The drop does not mark the pool as closed: it is closed already, or stays marked as in use.
    keeps_state: AtomicBool,
    uid: u64,
    pub(crate) slots: Arc<Slots>,
    /// Offsets of the further segments of the participant table; zero if not known yet.
    pub(crate) segments: [AtomicU64; SEGMENT_COUNT],
    #[cfg(feature = "testing")]
    first_slots: usize,
    pub(crate) cache: Cache,
    pub(crate) limbo: Limbo,
    /// Whether blocks were read without a pin ([`Pool::optimistic_read`]).
    had_optimistic_reads: AtomicBool,
    /// Bytes that the system has kept of holes although they were punched again. Only a hint.
    kept_bytes_left: AtomicU64,
    /// The pool lies in a test's memory, which emulates the room of chunks.
    #[cfg(feature = "testing")]
    emulates_room: bool,
    /// Words of the pool that may be accessed: its size, or a little more while it grows.
    end_words: AtomicU64,
    /// The word for accesses at damaged offsets, outside the pool.
    nowhere: AtomicU64,
    /// Whether the recovery of descriptors has begun.
    recovery_begun: AtomicBool,
    /// Does the work that threads have deferred, before the epoch is raised.
    pub(crate) deferred_work: OnceLock<fn(&Self, u64)>,
    domain: PhantomData<D>,
}

impl<D: Domain> Pool<D> {
    /// The word at `off`, which must be a multiple of 8 in the used part of the pool.
    ///
    /// Another offset comes from damaged data. Then the result is a word that holds zero and
    /// belongs to no part of the pool, and the calling thread's
    /// [`Guard::damage`](crate::Guard::damage) has the offset.
    #[inline(always)]
    pub fn word(&self, off: u64) -> Word<'_, D> {
        let index = word_index(off);
        // Relaxed, here and below: the thread that published an offset beyond the former end has
        // stored the new end before.
        if index >= self.end_words.load(Ordering::Relaxed) {
            return Word::new(self.word_beyond(off));
        }
        // SAFETY: just checked to lie in the mapping, and aligned. Words are only accessed
        // atomically, and the mapping lives as long as the pool.
        Word::new(unsafe { AtomicU64::from_ptr(self.mapping.base().add(off as usize).cast()) })
    }

    /// The word at `off`, beyond the end that this process knows: another process may have grown
    /// the pool.
    #[cold]
    #[inline(never)]
    fn word_beyond(&self, off: u64) -> &AtomicU64 {
        if !off.is_multiple_of(8) || !self.has_grown_to(off, 8) {
            return self.nowhere(off);
        }
        // SAFETY: as above; `has_grown_to` has checked it.
        unsafe { AtomicU64::from_ptr(self.mapping.base().add(off as usize).cast()) }
    }

    /// Whether another process has grown the pool, so that `bytes` bytes at `off` lie in it now.
    fn has_grown_to(&self, off: u64, bytes: u64) -> bool {
        if !self.is_shared() {
            return false;
        }
        // Acquire, in `size_bytes`: pairs with the CAS of the growing thread. It came before the
        // offset was published, so this thread sees it.
        let end = self.size_bytes().min(self.mapping.bytes());
        self.end_words.fetch_max(end / 8, Ordering::Relaxed);
        off <= end && bytes <= end - off
    }

    /// Whether `off` is the offset of a word of the pool, behind the superblock: a check of offsets
    /// that may be damaged.
    pub fn is_word(&self, off: u64) -> bool {
        off.is_multiple_of(8) && (CONTROL_OFF..self.size_bytes()).contains(&off)
    }

    /// The `count` words from `off`, which must be a multiple of 8, all in the used part of the
    /// pool. Another range comes from damaged data: then the result is zeros
    /// ([`Words::nothing`]), and the damage is noted, as by [`word`](Self::word).
    #[inline(always)]
    pub fn words(&self, off: u64, count: u64) -> Words<'_, D> {
        self.words_within(off, count).unwrap_or(Words::nothing())
    }

    /// Like [`words`](Self::words), but returns `None` instead of zeros.
    #[inline(always)]
    pub fn words_within(&self, off: u64, count: u64) -> Option<Words<'_, D>> {
        let (index, end) = (word_index(off), self.end_words.load(Ordering::Relaxed));
        if (index > end || count > end - index) && !self.has_words_beyond(off, count) {
            return None;
        }
        // SAFETY: just checked to lie in the mapping, and aligned. Words are only accessed
        // atomically, and the mapping lives as long as the pool.
        Some(Words::new(unsafe {
            let first = self.mapping.base().add(off as usize).cast();
            std::slice::from_raw_parts(first, count as usize)
        }))
    }

    /// All words of the pool, as far as this process knows: another process may have grown it.
    #[inline(always)]
    pub fn all_words(&self) -> Words<'_, D> {
        // Relaxed: a thread that has read an offset has acquired the end behind it (`grow`).
        let count = self.end_words.load(Ordering::Relaxed);
        // SAFETY: these words lie in the mapping. Words are only accessed atomically, and the
        // mapping lives as long as the pool.
        Words::new(unsafe {
            std::slice::from_raw_parts(self.mapping.base().cast(), count as usize)
        })
    }

    /// Whether the words are in the pool, beyond the end that this process knows; notes the damage
    /// if they are not.
    #[cold]
    #[inline(never)]
    fn has_words_beyond(&self, off: u64, count: u64) -> bool {
        let has = off.is_multiple_of(8) && self.has_grown_to(off, count.saturating_mul(8));
        if !has {
            self.note_damage(off);
        }
        has
    }

    /// The address of `bytes` bytes at `off`, if they lie in the pool. A file ends before its
    /// mapping does, and a load behind the end of the file is a signal.
    #[inline(always)]
    fn address(&self, off: u64, bytes: u64) -> Option<*mut u8> {
        let end = self.end_words.load(Ordering::Relaxed) * 8;
        if !mutant!("damage-leads-anywhere") && (off > end || bytes > end - off) {
            return self.address_beyond(off, bytes);
        }
        // SAFETY: just checked to lie in the mapping.
        Some(unsafe { self.mapping.base().add(off as usize) })
    }

    /// The same for bytes beyond the end that this process knows.
    #[cold]
    #[inline(never)]
    fn address_beyond(&self, off: u64, bytes: u64) -> Option<*mut u8> {
        // SAFETY: `has_grown_to` has checked it.
        self.has_grown_to(off, bytes).then(|| unsafe { self.mapping.base().add(off as usize) })
    }

    /// A word for an access at `off`, which comes from damaged data.
    fn nowhere(&self, off: u64) -> &AtomicU64 {
        self.note_damage(off);
        // Another thread may have stored there, before it found the damage.
        self.nowhere.store(0, Ordering::Relaxed);
        &self.nowhere
    }

    /// Notes that the calling thread has found damage at `off`.
    #[inline(always)]
    pub(crate) fn note_damage(&self, off: u64) {
        damage::note(self.mapping.base(), off);
    }

    /// The note of the calling thread, if it is of this pool.
    #[cold]
    pub(crate) fn take_damage(&self) -> Option<u64> {
        damage::take(self.mapping.base(), self.mapping.bytes())
    }

    /// `bytes` bytes at `off`. A range outside the used part of the pool comes from damaged data:
    /// then the result is empty, and the damage is noted, as by [`word`](Self::word).
    ///
    /// # Safety
    /// The range lies in memory that was allocated from this pool. While the slice lives, no thread
    /// writes into the range, and it is not freed (the caller holds the [`Guard`](crate::Guard) of
    /// the time when it found the block reachable).
    #[inline(always)]
    pub unsafe fn bytes(&self, off: u64, bytes: u64) -> &[u8] {
        let Some(address) = self.address(off, bytes) else {
            self.nowhere(off);
            return &[];
        };
        D::observe_load(address as usize, bytes as usize);
        // SAFETY: in the mapping; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts(address, bytes as usize) }
    }

    /// `bytes` bytes at `off`, to be written; only the caller may own them. `None` for a thread
    /// that a test has killed.
    #[inline(always)]
    pub(crate) fn exclusive(&self, off: u64, bytes: u64) -> Option<Exclusive<'_>> {
        #[cfg(feature = "testing")]
        self.check_room(off);
        let skipped = off % 8;
        let count = (skipped + bytes).div_ceil(8);
        let address = self.address(off - skipped, count * 8)?;
        if !D::admit_exclusive_store(address as usize + skipped as usize, bytes as usize) {
            return None;
        }
        // SAFETY: in the mapping and aligned. Words are only accessed atomically, except by readers
        // of a block that does not change. The mapping lives as long as the pool.
        let words = unsafe { std::slice::from_raw_parts(address.cast(), count as usize) };
        Some(Exclusive::new(words, skipped as usize))
    }

    /// Copies `bytes` bytes at `off`, word by word. If the block changes meanwhile, the words may
    /// be of different points in time, but each word is whole. The range must lie in the pool, as
    /// in a block that was found reachable while a [`Guard`](crate::Guard) was held; otherwise the
    /// result is empty.
    pub fn load_bytes(&self, off: u64, bytes: u64) -> Vec<u8> {
        if self.address(off, bytes).is_none() {
            self.nowhere(off);
            return Vec::new();
        }
        let (skipped, first) = (off % 8, off / 8 * 8);
        let count = (skipped + bytes).div_ceil(8);
        let mut found = vec![0; (count * 8) as usize];
        let (copies, _) = found.as_chunks_mut::<8>();
        for (copy, word) in copies.iter_mut().zip(self.words(first, count).each()) {
            // Relaxed: the bytes were published by a release that the caller has acquired.
            *copy = word.load(Ordering::Relaxed).to_le_bytes();
        }
        found.truncate((skipped + bytes) as usize);
        found.drain(..skipped as usize);
        found
    }

    /// Copies `source` to `off`, a multiple of 8, by words; the last word is padded with zeros.
    ///
    /// For a place in a shared block that the caller has claimed and that no thread reads yet. Word
    /// by word, so that an early reader is no data race.
    #[inline]
    pub fn store_bytes(&self, off: u64, source: &[u8]) {
        let (words, rest) = source.as_chunks::<8>();
        let places = self.words_within(off, source.len().div_ceil(8) as u64);
        // Only damage leads to no place.
        let Some(mut places) = places.map(Words::each) else { return };
        for (word, place) in words.iter().zip(&mut places) {
            // Relaxed: the place is published by a later release.
            place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        if let Some(place) = places.next() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            place.store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
    }

    /// Starts the write-back of every line of the range.
    #[inline]
    #[track_caller]
    pub fn flush(&self, off: u64, bytes: u64) {
        if !D::needs_write_back() || bytes == 0 {
            return;
        }
        let mut at = off / LINE_BYTES * LINE_BYTES;
        while at < off + bytes {
            let Some(address) = self.address(at, 1) else { return };
            // SAFETY: `address` has checked that the line is mapped.
            unsafe { D::write_back(address) };
            at += LINE_BYTES;
        }
    }

    /// Prefetches the line at `off`; the offset may be any.
    #[inline(always)]
    pub fn prefetch(&self, off: u64) {
        let address = self.mapping.base().wrapping_add(off as usize);
        D::observe_prefetch(address as usize);
        prefetch::for_read(address);
    }

    /// Slots in the first segment of the participant table.
    #[inline(always)]
    pub fn first_slots(&self) -> usize {
        #[cfg(feature = "testing")]
        return self.first_slots;
        #[cfg(not(feature = "testing"))]
        crate::layout::FIRST_PARTICIPANTS
    }

    /// Values in process memory, one for each slot of the participant table.
    pub fn per_slot<T: Default>(&self) -> PerSlot<T> {
        PerSlot::new(self.first_slots())
    }

    pub(crate) fn uid(&self) -> u64 {
        self.uid
    }

    /// The layout.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The file, or a description of anonymous memory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The addresses of the pool, up to its end, in this process.
    pub fn addresses(&self) -> std::ops::Range<u64> {
        let base = self.mapping.base().addr() as u64;
        base..base + self.size_bytes()
    }

    /// The medium of the pool.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// What a write survives after it has returned.
    pub fn guarantee(&self) -> Guarantee {
        self.medium.guarantee(D::needs_write_back())
    }

    /// A number that no other pool has; zero on anonymous memory.
    pub fn pool_id(&self) -> u128 {
        self.pool_id
    }

    /// The generation: raised by one whenever the pool is opened, so that data of an earlier
    /// opening is known.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// A word that has a value in this generation, and zero in every other one.
    #[inline]
    pub(crate) fn word_now(&self, value: u32) -> u64 {
        u64::from(self.generation) << 32 | u64::from(value)
    }

    /// The value that such a word has now.
    #[inline]
    pub(crate) fn value_now(&self, word: u64) -> u32 {
        if (word >> 32) as u32 == self.generation { word as u32 } else { 0 }
    }

    /// Whether the pool was new, or was closed cleanly before it was opened.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Bytes of the pool, from its base to its end.
    pub fn size_bytes(&self) -> u64 {
        superblock::size_of_word(self.word(superblock::SIZE_OFF).load(Ordering::Acquire))
    }

    /// Begins the recovery of descriptors of earlier generations. False if it was begun before in
    /// this generation: then descriptors may be in use.
    pub fn begin_recovery(&self) -> bool {
        !self.recovery_begun.swap(true, Ordering::AcqRel)
    }
}
