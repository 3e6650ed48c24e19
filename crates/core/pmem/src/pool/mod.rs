//! A pool: one mapping, and the access to what lies in it.
//!
//! How it comes to be, is opened, trusted and closed is in [`open`]; the room that its file has, in
//! [`room`].

mod open;
mod room;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use self::open::{Compacted, CreateOptions, OpenPool};
use crate::alloc::Cache;
use crate::damage;
use crate::domain::Domain;
use crate::error::Error;
use crate::exclusive::Exclusive;
use crate::layout::{CONTROL_OFF, Geometry, SEGMENT_COUNT};
use crate::limbo::Limbo;
use crate::medium::{Guarantee, Medium};
use crate::mutant;
use crate::per_slot::PerSlot;
use crate::prefetch;
use crate::slots::Slots;
use crate::superblock;
use crate::sys::{LockedFile, Mapping};
use crate::word::{Word, Words};
use crate::write_back::LINE_BYTES;

/// A memory-mapped pool under the persistence domain `D`.
#[derive(Debug)]
pub struct Pool<D: Domain> {
    mapping: Mapping,
    file: Option<LockedFile>,
    path: PathBuf,
    geometry: Geometry,
    medium: Medium,
    pool_id: u128,
    generation: u32,
    was_clean: bool,
    /// What the state says of writes.
    survives_power: bool,
    /// Open for salvage, so never to be marked as closed in order.
    salvaged: bool,
    /// The drop has nothing to mark: the pool was closed, or is left as a crash would leave it.
    left: AtomicBool,
    uid: u64,
    pub(crate) slots: Arc<Slots>,
    /// Offsets of the participant table's further segments, as far as they are known.
    pub(crate) segments: [AtomicU64; SEGMENT_COUNT],
    #[cfg(feature = "testing")]
    first_slots: usize,
    pub(crate) cache: Cache,
    pub(crate) limbo: Limbo,
    /// Whether blocks were read without a pin ([`Pool::optimistic_read`]).
    had_optimistic_reads: AtomicBool,
    /// The pool lies in memory of a test, where room for chunks is emulated.
    #[cfg(feature = "testing")]
    emulates_room: bool,
    /// Words of the part of the pool that is there: of its size, or a little more while it grows.
    end_words: AtomicU64,
    /// The word of those whom damage has led out of the pool.
    nowhere: AtomicU64,
    /// Whether someone has said that it recovers what lies in the pool.
    recovery_begun: AtomicBool,
    /// Does what threads have left to be done before the epoch is raised.
    pub(crate) deferred_work: OnceLock<fn(&Self, u64)>,
    domain: PhantomData<D>,
}

/// How many words lie before the one at `off`; more than any pool has, if there is none.
#[inline(always)]
fn word_index(off: u64) -> u64 {
    off.rotate_right(3)
}

impl<D: Domain> Pool<D> {
    /// The word at `off`, which must be a multiple of 8 in the used part of the pool.
    ///
    /// Only damage leads elsewhere. Then the answer is a word that holds zero and is nobody's, and
    /// the calling thread's [`Guard::damage`](crate::Guard::damage) names the offset.
    #[inline(always)]
    pub fn word(&self, off: u64) -> Word<'_, D> {
        let index = word_index(off);
        // Relaxed, here and below: who leads to a block beyond the former end has stored this
        // before.
        if index >= self.end_words.load(Ordering::Relaxed) {
            return Word::new(self.nowhere(off));
        }
        // SAFETY: in the mapping, as just checked, and aligned; words are only accessed atomically,
        // and the mapping lives as long as the pool.
        Word::new(unsafe { AtomicU64::from_ptr(self.mapping.base().add(off as usize).cast()) })
    }

    /// Whether a word that may change lies at `off`; for an offset of which only damage may lead
    /// elsewhere.
    pub fn is_word(&self, off: u64) -> bool {
        off.is_multiple_of(8) && (CONTROL_OFF..self.size_bytes()).contains(&off)
    }

    /// The `count` words from `off`, which must be a multiple of 8, all in the used part of the
    /// pool. Only damage leads elsewhere: then there are zeros instead ([`Words::nothing`]), and a
    /// note, as [`word`](Self::word) says.
    #[inline(always)]
    pub fn words(&self, off: u64, count: u64) -> Words<'_, D> {
        self.words_within(off, count).unwrap_or(Words::nothing())
    }

    /// As [`words`](Self::words); none in the place of zeros.
    #[inline(always)]
    pub fn words_within(&self, off: u64, count: u64) -> Option<Words<'_, D>> {
        let (index, end) = (word_index(off), self.end_words.load(Ordering::Relaxed));
        if index > end || count > end - index {
            self.note_damage(off);
            return None;
        }
        // SAFETY: in the mapping, as just checked, and aligned; words are only accessed atomically,
        // and the mapping lives as long as the pool.
        Some(Words::new(unsafe {
            let first = self.mapping.base().add(off as usize).cast();
            std::slice::from_raw_parts(first, count as usize)
        }))
    }

    /// Where `bytes` bytes at `off` are, if they lie in the part of the pool that is there: a file
    /// ends before the range that is mapped for it does, and a load behind its end is a signal.
    #[inline(always)]
    fn address(&self, off: u64, bytes: u64) -> Option<*mut u8> {
        let end = self.end_words.load(Ordering::Relaxed) * 8;
        if !mutant!("damage-leads-anywhere") && (off > end || bytes > end - off) {
            return None;
        }
        // SAFETY: just checked to lie in the mapping.
        Some(unsafe { self.mapping.base().add(off as usize) })
    }

    /// A word for who was led to `off` by damage.
    #[inline(always)]
    fn nowhere(&self, off: u64) -> &AtomicU64 {
        self.note_damage(off);
        // Whatever others have put there on their way to finding out.
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

    /// `bytes` bytes at `off`. Only damage leads out of the used part of the pool: then there are
    /// none, as [`word`](Self::word) says.
    ///
    /// # Safety
    /// The range lies in memory that was allocated from this pool, nobody writes into it while
    /// the slice lives, and it is not freed meanwhile (the caller holds a [`Guard`](crate::Guard)
    /// since it found the block reachable).
    #[inline(always)]
    pub unsafe fn bytes(&self, off: u64, bytes: u64) -> &[u8] {
        let Some(address) = self.address(off, bytes) else {
            self.nowhere(off);
            return &[];
        };
        D::observe_load(address as usize, bytes as usize);
        // SAFETY: in the mapping; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(address, bytes as usize) }
    }

    /// `bytes` bytes at `off`, which the caller alone is to see, to be written; `None` for a thread
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
        // SAFETY: in the mapping and aligned; words are only accessed atomically, but by who may
        // read a block that does not change, and the mapping lives as long as the pool.
        let words = unsafe { std::slice::from_raw_parts(address.cast(), count as usize) };
        Some(Exclusive::new(words, skipped as usize))
    }

    /// Copies `bytes` bytes at `off`, word by word: of a block that changes meanwhile, the words
    /// are of different moments, and each is whole. The range must lie in the pool, as it does in a
    /// block that was found reachable while a [`Guard`](crate::Guard) was held; of one that does
    /// not there are none.
    pub fn load_bytes(&self, off: u64, bytes: u64) -> Vec<u8> {
        if self.address(off, bytes).is_none() {
            self.nowhere(off);
            return Vec::new();
        }
        let (skipped, first) = (off % 8, off / 8 * 8);
        let count = (skipped + bytes).div_ceil(8);
        let words = self.words(first, count);
        let mut found = Vec::with_capacity((bytes + 16) as usize);
        for index in 0..count {
            // Relaxed: who published the place did so by a release that the caller has acquired.
            found.extend_from_slice(&words.load(index, Ordering::Relaxed).to_le_bytes());
        }
        found.truncate((skipped + bytes) as usize);
        found.drain(..skipped as usize);
        found
    }

    /// Copies `source` to `off`, a multiple of 8, by words; the last word is padded with zeros.
    ///
    /// For a place in a shared block that the caller has claimed and nobody reads yet. Word by
    /// word, so that even a reader that comes too early is no data race.
    #[inline]
    pub fn store_bytes(&self, off: u64, source: &[u8]) {
        let (words, rest) = source.as_chunks::<8>();
        let mut at = off;
        for word in words {
            // Relaxed: whoever publishes the place does so by a later release.
            self.word(at).store(u64::from_le_bytes(*word), Ordering::Relaxed);
            at += 8;
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(at).store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
    }

    /// Starts the write-back of every line of the range.
    #[inline]
    #[track_caller]
    pub fn flush(&self, off: u64, bytes: u64) {
        if !D::WRITE_BACK || bytes == 0 {
            return;
        }
        let mut at = off / LINE_BYTES * LINE_BYTES;
        while at < off + bytes {
            let Some(address) = self.address(at, 1) else { return };
            // SAFETY: `address` checked that it is mapped.
            unsafe { D::write_back(address) };
            at += LINE_BYTES;
        }
    }

    /// Asks for the line at `off` ahead of its use; any offset will do.
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

    /// For each slot of the participant table, a value in process memory.
    pub fn per_slot<T: Default>(&self) -> PerSlot<T> {
        PerSlot::new(self.first_slots())
    }

    pub(crate) fn uid(&self) -> u64 {
        self.uid
    }

    /// Where things lie.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The file, or a description of anonymous memory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the pool lies on.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// What a returned write survives.
    pub fn guarantee(&self) -> Guarantee {
        self.medium.guarantee(D::KIND)
    }

    /// Tells this pool from every other; zero on anonymous memory.
    pub fn pool_id(&self) -> u128 {
        self.pool_id
    }

    /// Raised by one whenever the pool is opened: tells what was begun before a crash.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether the pool was new, or had been closed in order, when it was opened.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// Bytes from the base to the end of the file.
    pub fn size_bytes(&self) -> u64 {
        superblock::size_of_word(self.word(superblock::SIZE_OFF).load(Ordering::Acquire))
    }

    /// To be asked once by who recovers, in this generation, what an earlier one has left in
    /// descriptors: false if another has asked already, and may be using them.
    pub fn begin_recovery(&self) -> bool {
        !self.recovery_begun.swap(true, Ordering::AcqRel)
    }
}

fn io_error(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Io { path, action, source }
}
