//! What the handles of a tree share of pages that may be absent from its pool (`stored.rs`): where
//! the pages are, their numbers, and the changes of structure that are not written yet.
//!
//! A page's *number* names it outside of the pool. It follows from the place of its mapping word:
//!
//! ```text
//! 0                     the root
//! 8 .. 63               the other words of the anchor
//! 64 + 512 s + i        word i (8 .. 511) of the segment with number s
//! ```

use std::fmt::{self, Debug, Formatter};
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry;
use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard, ReserveAccess, mutant};
use pando_tree::context::Context;
use pando_tree::room::Refusal;

use crate::context::{Absent, At, Pid};
use crate::image::MAX_IMAGE_BYTES;
use crate::layout::{
    ANCHOR_BYTES, MAX_INLINE_BYTES, MAX_KEY_BYTES, NEXT_SEGMENT_AT, NUMBER_AT, SEGMENT_BYTES,
    SEGMENTS_AT, WORDS_AT,
};
use crate::options::MAX_BLOCK_DELTAS;
use crate::visits::Visits;

const FIRST_INDEX: u64 = WORDS_AT / 8;
const ANCHOR_WORDS: u64 = ANCHOR_BYTES / 8;
const SEGMENT_WORDS: u64 = SEGMENT_BYTES / 8;
/// So many changes of structure may wait to be written, before the thread that has made one writes
/// them all.
const MOST_CHANGES: usize = 64;
/// So often an operation makes room for a block that fits, before it takes a longer one; and so
/// often before other lengths are to give up chunks.
const FITTING_ATTEMPTS: u32 = 6;
const SCATTERED_ATTEMPTS: u32 = 2;
/// Marks of pages that were used: a power of two.
const MARKS: usize = 1 << 18;

/// An error of a tree's store.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// A page, as the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPage {
    /// Bytes of all its parts.
    pub bytes: usize,
    /// It takes one more delta.
    pub takes_delta: bool,
    /// Another one after each write of the page, and perhaps after a move.
    pub version: u64,
}

/// The store of a tree's pages.
///
/// No function is called by a thread that holds a guard of the pool, but
/// [`most_group_bytes`](Self::most_group_bytes), [`stored`](Self::stored) and
/// [`loaded`](Self::loaded).
pub trait PageSource: Debug + Send + Sync {
    /// The most bytes of all images of a group.
    fn most_group_bytes(&self) -> usize;

    /// The parts of a page, oldest first: the image that was written last, and the deltas behind
    /// it. `None` if there are none.
    fn read(&self, page: u32) -> Result<Option<Vec<Vec<u8>>>, SourceError>;

    /// The page in the store; `None` if it is not there. Waits for nothing. The answer may be out
    /// of date; then the store refuses the group.
    fn stored(&self, page: u32) -> Option<StoredPage>;

    /// A page is loaded on which a record stands that was written blindly, perhaps: its key, its
    /// value, and the value that the page in the store has, if it has any.
    fn loaded(&self, key: &[u8], value: &[u8], stored: Option<&[u8]>) -> Result<(), SourceError>;

    /// How long an operation tries to make room, from its first attempt on; looked at before each
    /// attempt. It makes 1,000 attempts at most.
    fn most_wait(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Called when the pool has no room: evicts some pages.
    fn make_room(&self) -> Result<(), SourceError>;

    /// Writes the changes of structure that are not written yet. Called when they are many, or when
    /// an operation cannot go on without one more.
    fn write_changes(&self) -> Result<(), SourceError>;
}

/// Why an operation failed on a tree whose pages are in a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// The image of a page is not one that a tree has written.
    #[error("page {page} is damaged: {what}; restore the store from a backup")]
    Damaged {
        /// Its number.
        page: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// A page leads to one that does not exist, or the root does not exist and other pages do.
    #[error("page {page} does not exist, and others lead to it; restore the store from a backup")]
    NotThere {
        /// Its number.
        page: u32,
    },
    /// The records of a page are too long for it, and it could not be split.
    #[error(
        "a page has {found_bytes} bytes and could not be split; try again, and if that fails, make \
         room on the store's device"
    )]
    TooLong {
        /// Its bytes, or those that it would have.
        found_bytes: u64,
    },
    /// Only the pages in the pool could be walked.
    #[error("the tree's pages are in a store; its own check reads them all")]
    NotWalked,
    /// The pool has no room for the pages of an operation, and could not give any up.
    #[error(
        "the cache has no room for the pages of an operation: the others were changed and cannot be \
         written, or wait for the log, or are held by threads that do not run; try again, or give \
         the store more memory"
    )]
    CacheFull {
        /// The pool's answer.
        source: SourceError,
    },
    /// The tree is not connected with its store.
    #[error("the tree's pages are in a store, and it was opened without one")]
    NoSource,
    /// The records of a page are to be written as of a time that is over. The capture must be made
    /// again.
    #[error("a page was captured too late; try again")]
    CapturedTooLate,
}

impl PageError {
    /// The error of a page in the store that is damaged.
    pub(crate) fn damaged(page: u32, what: &'static str) -> Error {
        Error::storage(Self::Damaged { page, what })
    }
}

/// A record is added to a page of a store only if the page then has at most so many bytes, without
/// the keys of its range. Otherwise the page is split before.
const MAX_PAGE_BYTES: u64 = 128 << 10;

/// The longest inner page: one that may get entries, with as many as its chain can have, each with
/// a key, and with its range.
const _: () = assert!(
    MAX_PAGE_BYTES as usize / 2
        + (MAX_BLOCK_DELTAS as usize + 2) * MAX_KEY_BYTES
        + MAX_INLINE_BYTES as usize
        + 1024
        < MAX_IMAGE_BYTES
);
const _: () = assert!(MAX_PAGE_BYTES as usize + 2 * MAX_KEY_BYTES + 1024 < MAX_IMAGE_BYTES);

/// Refuses a page of a store that has too many bytes.
pub(crate) fn check_storable(found_bytes: u64) -> Result<()> {
    match found_bytes <= MAX_PAGE_BYTES {
        true => Ok(()),
        false => Err(too_long(found_bytes)),
    }
}

#[cold]
pub(crate) fn too_long(found_bytes: u64) -> Error {
    Error::storage(PageError::TooLong { found_bytes })
}

/// The PID of the page that must be loaded first, if `error` says so.
pub(crate) fn absent_pid(error: &Error) -> Option<Pid> {
    let Error::Storage(source) = error else { return None };
    source.downcast_ref::<Absent>().map(|absent| absent.pid)
}

/// Whether the capture is to be made again.
pub fn is_too_late(error: &Error) -> bool {
    let Error::Storage(source) = error else { return false };
    matches!(source.downcast_ref(), Some(PageError::CapturedTooLate))
}

/// Whether the page must be split before the operation is tried again.
#[cold]
pub(crate) fn is_too_long(error: &Error) -> bool {
    let Error::Storage(source) = error else { return false };
    matches!(source.downcast_ref(), Some(PageError::TooLong { .. }))
}

/// The error of an operation that must load a page first.
#[cold]
pub(crate) fn absent(at: At) -> Error {
    Error::storage(Absent { pid: at.pid })
}

/// The segments of the table, as far as they were seen.
#[derive(Debug, Default)]
struct Segments {
    /// Offsets by number.
    by_number: Vec<u64>,
    /// Ascending.
    by_off: Vec<(u64, u64)>,
}

/// A change in the list.
type Listed<'list> = Entry<'list, (u64, u64), ChangedPages>;

/// The pages of a change of structure.
#[derive(Debug)]
pub(crate) struct ChangedPages {
    /// Their numbers.
    pub numbers: Vec<u32>,
    /// About their bytes.
    pub bytes: usize,
}

/// Says whether the thread may use the reserve of the tree's pool, when it makes a write that
/// others may undo, or an undo.
pub type AccessOf = Box<dyn Fn() -> ReserveAccess + Send + Sync>;

/// See [the module](self).
pub(crate) struct Pages {
    source: OnceLock<Box<dyn PageSource>>,
    /// None of a tree without an owner whose commits are undone.
    pub access_of: OnceLock<AccessOf>,
    segments: ArcSwap<Segments>,
    /// Changes of structure that were begun and may not be written: the count of changes that each
    /// leads to, a number of its own; its pages.
    pub changes: SkipMap<(u64, u64), ChangedPages>,
    pub serial: AtomicU64,
    /// Bytes of the pages of all changes.
    changed_bytes: AtomicUsize,
    /// A change found no room, and none was given back since.
    is_refused: AtomicBool,
    /// The last stamp of an absent page.
    pub stamps: AtomicU64,
    /// The last capture that was begun.
    pub captures: AtomicU64,
    /// By the PID's hash: whether the page was used since the mark was taken.
    marks: Box<[AtomicU8]>,
    /// A thread has found no block of the length that it needs. Only a hint, as the next one.
    lacks_length: AtomicBool,
    /// No page could be evicted lately, so longer blocks are taken too.
    nothing_goes: AtomicBool,
    pub visits: Visits,
}

impl Debug for Pages {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pages").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            source: OnceLock::new(),
            access_of: OnceLock::new(),
            segments: ArcSwap::default(),
            changes: SkipMap::new(),
            serial: 0.into(),
            changed_bytes: 0.into(),
            is_refused: false.into(),
            stamps: 0.into(),
            captures: 0.into(),
            marks: (0..MARKS).map(|_| AtomicU8::new(0)).collect(),
            lacks_length: AtomicBool::new(false),
            nothing_goes: AtomicBool::new(false),
            visits: Visits::default(),
        }
    }
}

impl Pages {
    /// Sets where the pages are. Only the first call counts.
    pub fn connect(&self, source: Box<dyn PageSource>) {
        // It is set before the tree is used.
        let _ = self.source.set(source);
    }

    pub fn source(&self) -> Result<&dyn PageSource> {
        let source = self.source.get().ok_or_else(|| Error::storage(PageError::NoSource))?;
        Ok(source.as_ref())
    }

    /// Takes room for the pages of a change of structure: of all that are listed, seven eighths of
    /// what a group can have. If no other is listed, there is room in any case. Returns whether
    /// there is room.
    pub fn take_room(&self, bytes: usize) -> bool {
        // Relaxed, here and below: counts that no other memory depends on.
        let before = self.changed_bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before == 0 || before + bytes <= self.most_group_bytes() / 8 * 7;
        if !has_room {
            self.give_room(bytes);
            self.is_refused.store(true, Ordering::Relaxed);
        }
        has_room
    }

    pub fn give_room(&self, bytes: usize) {
        self.changed_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.is_refused.store(false, Ordering::Relaxed);
    }

    /// Lists a change of structure that leads to the count `changes`, for whose pages there is
    /// room. Returns its place.
    pub fn list(&self, changes: u64, pages: ChangedPages) -> (u64, u64) {
        // Relaxed: only different from all others.
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        self.changes.insert((changes, serial), pages);
        (changes, serial)
    }

    /// Removes the change at this place from the list, unless another thread does.
    pub fn unlist_one(&self, place: (u64, u64)) {
        // `SkipMap::remove` of crossbeam-skiplist 0.1.3 does not tell who has removed it.
        if let Some(entry) = self.changes.get(&place)
            && entry.remove()
        {
            self.give_room(entry.value().bytes);
        }
    }

    /// The changes of the list up to the count `changes`. (A `range` of crossbeam-skiplist 0.1.3
    /// keeps each entry that it passes for ever.)
    pub fn listed(&self, changes: u64) -> impl Iterator<Item = Listed<'_>> {
        let all = iter::successors(self.changes.front(), Listed::next);
        all.take_while(move |entry| entry.key().0 <= changes)
    }

    /// Removes the changes up to the count `changes` from the list.
    pub fn unlist(&self, changes: u64) {
        for entry in self.listed(changes) {
            if entry.remove() {
                self.give_room(entry.value().bytes);
            }
        }
    }

    /// Whether so many changes are listed that they should be written: half of what a group can
    /// have.
    pub fn are_many(&self) -> bool {
        let changed_bytes = self.changed_bytes.load(Ordering::Relaxed);
        changed_bytes > 0
            && (self.changes.len() >= MOST_CHANGES
                || changed_bytes > self.most_group_bytes() / 2
                || self.is_refused.load(Ordering::Relaxed))
    }

    /// Whether there may be room for one more change.
    pub fn have_room(&self) -> bool {
        self.changed_bytes.load(Ordering::Relaxed) == 0 || !self.is_refused.load(Ordering::Relaxed)
    }

    pub fn most_group_bytes(&self) -> usize {
        self.source.get().map_or(0, |source| source.most_group_bytes())
    }

    fn mark(&self, pid: Pid) -> &AtomicU8 {
        &self.marks[pid as usize / 8 % MARKS]
    }

    /// Notes that the page is used.
    #[inline(always)]
    pub fn touch(&self, pid: Pid) {
        let mark = self.mark(pid);
        // Relaxed: a hint. Read first, so that the line is rarely written.
        if mark.load(Ordering::Relaxed) == 0 {
            mark.store(1, Ordering::Relaxed);
        }
    }

    /// Takes the page's mark; returns whether it had one.
    pub fn take_mark(&self, pid: Pid) -> bool {
        // Relaxed: a hint.
        self.mark(pid).swap(0, Ordering::Relaxed) != 0
    }

    /// Whether the page has a mark.
    pub fn has_mark(&self, pid: Pid) -> bool {
        self.mark(pid).load(Ordering::Relaxed) != 0
    }

    /// Reserves a block by `reserve`. So long as `attempts` are few, and pages can be evicted, it
    /// must fit: otherwise pages are evicted, and in the end whole chunks of the pool.
    pub fn reserve_fitting<D: Domain, R>(
        &self,
        guard: &Guard<'_, D>,
        attempts: u32,
        reserve: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        // The reserve would be taken before a longer block.
        let gives_room = guard.reserve_access() == ReserveAccess::With;
        let nothing_goes = self.nothing_goes.load(Ordering::Relaxed);
        let is_last = attempts > FITTING_ATTEMPTS
            || nothing_goes && !mutant!("bw-long-blocks-refused-in-a-stuck-cache");
        if gives_room || is_last || mutant!("bw-long-blocks-for-short-pages") {
            return reserve();
        }
        let reserved = guard.fitting(reserve);
        if attempts > SCATTERED_ATTEMPTS && reserved.as_ref().is_err_and(Refusal::is_full) {
            // Relaxed: a hint.
            self.lacks_length.store(true, Ordering::Relaxed);
        }
        reserved
    }

    /// Makes room. If no page can be evicted, it succeeds the first time: the operation then tries
    /// longer blocks.
    ///
    /// # Errors
    ///
    /// That of the store, from the second time on.
    pub fn make_room(&self) -> Result<(), SourceError> {
        let source = self.source.get().ok_or(PageError::NoSource)?;
        let made = source.make_room();
        // Relaxed: a hint.
        let was_so = self.nothing_goes.swap(made.is_err(), Ordering::Relaxed);
        match made {
            // Once more, for any block that is long enough.
            Err(_) if !was_so => Ok(()),
            made => made,
        }
    }

    /// Whether a thread has found no block of its length since the last call.
    pub fn take_lacks_length(&self) -> bool {
        self.lacks_length.swap(false, Ordering::Relaxed)
    }

    /// Reads the list of segments again.
    fn look_again<D: Domain>(&self, context: Context<'_, D>, anchor: u64) -> Arc<Segments> {
        let newest = context.read(anchor + SEGMENTS_AT);
        let mut segments = Segments::default();
        let mut at = newest;
        while at != 0 {
            segments.by_number.push(at);
            segments.by_off.push((at, context.fixed(at + NUMBER_AT)));
            at = context.read(at + NEXT_SEGMENT_AT);
        }
        segments.by_number.reverse();
        segments.by_off.sort_unstable();
        let segments = Arc::new(segments);
        let there = self.segments.load();
        // An older list would only be read again.
        if there.by_number.len() < segments.by_number.len() {
            self.segments.store(segments.clone());
        }
        segments
    }

    /// The number behind the last one that a page may have now.
    pub fn end<D: Domain>(&self, context: Context<'_, D>, anchor: u64) -> u64 {
        let newest = context.read(anchor + SEGMENTS_AT);
        let segments = if newest == 0 { 0 } else { context.fixed(newest + NUMBER_AT) + 1 };
        ANCHOR_WORDS + segments * SEGMENT_WORDS
    }

    /// The PID of the page with this number; `None` if there is no such word.
    pub fn pid_of<D: Domain>(
        &self,
        context: Context<'_, D>,
        anchor: u64,
        number: u32,
    ) -> Option<Pid> {
        let number = u64::from(number);
        let (segment, index) = match number.checked_sub(ANCHOR_WORDS) {
            None => (anchor, number),
            Some(behind) => {
                let (segment, index) = ((behind / SEGMENT_WORDS) as usize, behind % SEGMENT_WORDS);
                let known = self.segments.load().by_number.get(segment).copied();
                let find = || self.look_again(context, anchor).by_number.get(segment).copied();
                (known.or_else(find)?, index)
            }
        };
        (number == 0 || index >= FIRST_INDEX).then_some(segment + index * 8)
    }

    /// The number of the page; `None` if the PID is no word of the table.
    pub fn number_of<D: Domain>(
        &self,
        context: Context<'_, D>,
        anchor: u64,
        pid: Pid,
    ) -> Option<u32> {
        if (anchor..anchor + ANCHOR_BYTES).contains(&pid) {
            return Some(((pid - anchor) / 8) as u32);
        }
        let find = |segments: &Segments| {
            let behind = segments.by_off.partition_point(|&(off, _)| off <= pid);
            let &(off, number) = segments.by_off.get(behind.checked_sub(1)?)?;
            let index = (pid - off) / 8;
            (index < SEGMENT_WORDS).then_some(ANCHOR_WORDS + number * SEGMENT_WORDS + index)
        };
        let known = find(&self.segments.load());
        let number = known.or_else(|| find(&self.look_again(context, anchor)))?;
        u32::try_from(number).ok()
    }
}

/// The number behind `number` that a page may have.
pub(crate) fn next_number(number: u64) -> u64 {
    let next = number + 1;
    match next {
        1..FIRST_INDEX => FIRST_INDEX,
        FIRST_INDEX..ANCHOR_WORDS => next,
        _ if (next - ANCHOR_WORDS).is_multiple_of(SEGMENT_WORDS) => next + FIRST_INDEX,
        _ => next,
    }
}

#[cfg(test)]
mod tests {
    use pando_pmem::{CreateOptions, Pool, Process};

    use super::*;

    #[test]
    fn numbers_pass_over_words_that_are_none() {
        let numbers: Vec<u64> = std::iter::successors(Some(0), |&number| Some(next_number(number)))
            .take_while(|&number| number < 64 + 2 * 512 + 10)
            .collect();
        assert_eq!(numbers.len(), 1 + 56 + 504 + 504 + 2);
        assert!(numbers.contains(&8) && numbers.contains(&63) && !numbers.contains(&64));
        assert!(!numbers.contains(&71) && numbers.contains(&72) && numbers.contains(&575));
        assert!(!numbers.contains(&576) && numbers.contains(&(576 + 8)));
    }

    /// Changes that are written take no memory. (Each has 1 MiB here.)
    #[test]
    fn changes_that_are_unlisted_are_freed() {
        let resident_bytes = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
            let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
            pages.expect("a number of pages") * 4096
        };
        let (pages, before) = (Pages::default(), resident_bytes());
        for changes in 1..=1_500 {
            pages.list(changes, ChangedPages { numbers: vec![7; 1 << 18], bytes: 0 });
            if changes % 4 == 0 {
                assert_eq!(pages.listed(changes).count(), 4);
                pages.unlist(changes);
            }
        }
        assert!(pages.changes.is_empty());
        let grown_bytes = resident_bytes().saturating_sub(before);
        assert!(grown_bytes < 1 << 30, "{grown_bytes} bytes for 1,500 MiB of changes");
    }

    /// Two threads remove the same changes: each gives its room back once.
    #[test]
    fn room_is_given_back_once() {
        const CHANGES: u64 = 1_000;
        let pages = Pages::default();
        for _ in 0..200 {
            // Relaxed: the threads begin later.
            pages.changed_bytes.store(CHANGES as usize, Ordering::Relaxed);
            let change = || ChangedPages { numbers: Vec::new(), bytes: 1 };
            let places: Vec<_> =
                (1..=CHANGES).map(|changes| pages.list(changes, change())).collect();
            let barrier = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    pages.unlist(CHANGES);
                });
                barrier.wait();
                places.into_iter().for_each(|place| pages.unlist_one(place));
            });
            assert_eq!(pages.changed_bytes.load(Ordering::Relaxed), 0);
        }
    }

    /// A store of which no page can be evicted.
    #[derive(Debug)]
    struct Stuck;

    impl PageSource for Stuck {
        fn most_group_bytes(&self) -> usize {
            0
        }

        fn read(&self, _: u32) -> Result<Option<Vec<Vec<u8>>>, SourceError> {
            Ok(None)
        }

        fn stored(&self, _: u32) -> Option<StoredPage> {
            None
        }

        fn loaded(&self, _: &[u8], _: &[u8], _: Option<&[u8]>) -> Result<(), SourceError> {
            Ok(())
        }

        fn make_room(&self) -> Result<(), SourceError> {
            Err("no page can be evicted".into())
        }

        fn write_changes(&self) -> Result<(), SourceError> {
            Ok(())
        }
    }

    #[test]
    fn a_short_page_gets_a_long_block_if_no_page_can_be_evicted() {
        let create = CreateOptions { max_bytes: 1 << 20, initial_bytes: 0 };
        let pool = Pool::<Process>::anonymous(&create).expect("memory");
        let guard = pool.pin().expect("a slot");
        let mut blocks: Vec<_> = std::iter::from_fn(|| guard.reserve(10_000).ok()).collect();
        blocks.pop().expect("there was room");
        let pages = Pages::default();
        pages.connect(Box::new(Stuck));
        let reserve = || guard.reserve(4_000).map(|block| block.bytes()).map_err(Error::storage);
        let reserved = |attempts| pages.reserve_fitting(&guard, attempts, reserve);
        assert!(reserved(SCATTERED_ATTEMPTS).expect_err("it does not fit").is_full());
        assert!(!pages.take_lacks_length(), "pages are evicted first");
        assert!(reserved(FITTING_ATTEMPTS).expect_err("it does not fit").is_full());
        assert!(pages.take_lacks_length());
        assert_eq!(reserved(FITTING_ATTEMPTS + 1).expect("a long block"), 10_816);
        pages.make_room().expect("longer blocks are tried now");
        assert_eq!(reserved(1).expect("a long block"), 10_816);
        pages.make_room().expect_err("no page can be evicted");
    }
}
