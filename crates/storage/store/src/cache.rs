//! The cache: eviction of pages, and the writing of changed ones.
//!
//! The hand of a clock goes over the numbers of pages. A page that was used since the last pass
//! loses its mark and stays. Inner pages stay in the first two passes of a call. A page that has
//! changed is written together with others; then it is evicted, unless it has changed again. A page
//! that was loaded from several parts is written too, whole: the next load needs one read then. If
//! writes take memory, it is not (`Limits::joins_read_parts`). After each turn of the hand, sparse
//! chunks are emptied (`defragment.rs`).
//!
//! If there is a log, a page is written as of its durable LSN (`Pictures`). A page that has a later
//! version stays changed, and in memory, until the log's writer has made that durable.
//!
//! Any thread may do this at any time, several at once: see `captures.rs` of `pando-bwtree`. But a
//! capture ends the captures before it. So a thread that would write waits for those that do, for
//! two seconds at most; the lock is only for that, and a thread that gets no turn goes on without.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use pando_bwtree::{
    BwTree, PageSource, PageState, PageWrite, Picture, Pictured, SourceError, Stored, StoredPage,
    is_too_late,
};
use pando_device::DirectoryLock;
use pando_lss::{Group, MAX_PARTS, NoDelta, PageStore};
use pando_pmem::layout::CHUNK_BYTES;
use pando_pmem::{Domain, mutant};

use crate::error::{Error, Result};

/// Pages that are looked at under one guard.
pub(crate) const SEEN: usize = 256;
/// Pages that are written in one group, beside those of changes of structure.
const GROUP_PAGES: usize = 16;
/// Chunks that are emptied, at least, if one is needed.
const LEAST_CHUNKS: u64 = 8;
/// Passes of the clock, after which a thread gives up.
const PASSES: u32 = 4;
/// How often a capture may come too late.
const MOST_LATE: u32 = 100;
/// Passes in which inner pages stay.
const PASSES_OF_LEAVES: u32 = 2;
/// How long a thread waits for its turn while no group is written.
const TURN: Duration = Duration::from_millis(100);
/// How long it waits at most.
const MOST_TURN: Duration = Duration::from_secs(2);

/// Numbers of the cache; visits, loads, evictions, attempts, groups and retries since it was
/// opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStat {
    /// Bytes of the cache that are in use, an estimate.
    pub used_bytes: u64,
    /// Pages in memory.
    pub pages: u64,
    /// Those of them that the page store does not have in this state.
    pub changed_pages: u64,
    /// How often operations have used a leaf.
    pub visits: u64,
    /// Pages that were loaded.
    pub loads: u64,
    /// Pages that were evicted.
    pub evictions: u64,
    /// How often operations have made room, or have tried to.
    pub room_attempts: u64,
    /// Groups of pages that were written.
    pub groups: u64,
    /// Groups that were captured in vain: because of a change of structure, another capture, or a
    /// page with as many deltas as it may have.
    pub retries: u64,
}

#[derive(Debug, Default)]
struct Counts {
    loads: AtomicU64,
    evictions: AtomicU64,
    room_attempts: AtomicU64,
    groups: AtomicU64,
    retries: AtomicU64,
}

fn count(counter: &AtomicU64) {
    // Relaxed: only the number matters.
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Says how the pages that are written have each record.
pub(crate) trait Pictures: Debug + Send + Sync {
    /// Calls `write` with the function that says it, for pages that are read during the call.
    fn with(&self, write: &mut dyn FnMut(&mut dyn Picture)) -> Result<()>;

    /// The LSN up to which pages have all versions; `None` if there are no later ones.
    fn durable_lsn_if_behind(&self) -> Option<u64>;

    /// Pages had later versions, and wait.
    fn wanted(&self);

    /// As [`PageSource::loaded`].
    fn loaded(&self, key: &[u8], value: &[u8], stored: Option<&[u8]>) -> Result<()>;
}

/// What the owner of a cache sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub memory_bytes: u64,
    pub room_wait: Duration,
    /// As in `StoreOptions`.
    pub joins_read_parts: bool,
}

/// A tree with the store of its pages.
#[derive(Debug)]
pub(crate) struct Cache<D: Domain> {
    pub tree: BwTree<D, Stored>,
    pub pages: PageStore,
    /// Bytes that one call for room evicts.
    room_bytes: u64,
    /// How long an operation makes such calls.
    room_wait: Duration,
    /// About the bytes of a page.
    page_bytes: u64,
    joins_read_parts: bool,
    /// The page at which the clock's hand is.
    hand: AtomicU32,
    turn: Mutex<()>,
    counts: Counts,
    /// Until it is set, pages are written as they are.
    pictures: OnceLock<Weak<dyn Pictures>>,
    /// One more than the durable LSN at which all changed pages had later versions. Only a hint.
    stuck_at: AtomicU64,
    /// The last group of pages could not be written. Only a hint.
    writes_fail: AtomicBool,
    /// Pages that lack commits of the log, and why.
    not_replayed: ArcSwap<BTreeMap<u32, String>>,
    /// Pages are never written as deltas.
    #[cfg(feature = "papers")]
    pub writes_whole_pages: AtomicBool,
    /// Held as long as a handle of any map is.
    pub locks: OnceLock<[DirectoryLock; 2]>,
}

impl<D: Domain> Cache<D> {
    pub fn new(tree: BwTree<D, Stored>, pages: PageStore, limits: Limits) -> Self {
        Self {
            pages,
            room_bytes: (limits.memory_bytes / 64).max(64 << 10),
            room_wait: limits.room_wait,
            page_bytes: u64::from(tree.options.leaf_bytes),
            joins_read_parts: limits.joins_read_parts,
            tree,
            hand: 0.into(),
            turn: Mutex::default(),
            counts: Counts::default(),
            pictures: OnceLock::new(),
            stuck_at: 0.into(),
            writes_fail: false.into(),
            not_replayed: ArcSwap::default(),
            #[cfg(feature = "papers")]
            writes_whole_pages: false.into(),
            locks: OnceLock::new(),
        }
    }

    /// From now on `pictures` says how pages are written. Only the first call counts.
    pub fn connect(&self, pictures: Weak<dyn Pictures>) {
        let _ = self.pictures.set(pictures);
    }

    /// Notes that the page lacks commits of the log: from now on it cannot be loaded.
    pub fn note_not_replayed(&self, page: u32, cause: &str) {
        self.not_replayed.rcu(|pages| {
            let mut pages = pages.as_ref().clone();
            pages.entry(page).or_insert_with(|| cause.to_owned());
            pages
        });
    }

    /// After the replay: forgets what the pool has of the pages that lack commits. Their number.
    pub fn forget_not_replayed(&self) -> Result<u64> {
        let pages = self.not_replayed.load();
        pages.keys().try_for_each(|&page| self.tree.forget_partial(page))?;
        Ok(pages.len() as u64)
    }

    /// Each page that lacks commits of the log, and why, in a sentence.
    pub fn not_replayed(&self) -> Vec<String> {
        let pages = self.not_replayed.load();
        let told =
            pages.iter().map(|(&page, cause)| Error::NotReplayed { page, cause: cause.clone() });
        told.map(|error| error.to_string()).collect()
    }

    /// An error if a page lacks commits of the log.
    pub fn check_replayed(&self) -> Result<()> {
        let pages = self.not_replayed.load();
        let Some((&page, cause)) = pages.first_key_value() else { return Ok(()) };
        Err(Error::NotReplayed { page, cause: cause.clone() })
    }

    fn with_picture<R>(&self, work: impl FnOnce(&mut dyn Picture) -> R) -> Result<R> {
        let Some(pictures) = self.pictures.get() else {
            return Ok(work(&mut |_: &[u8], _: &[u8]| Ok(Pictured::AsItIs)));
        };
        let pictures = pictures.upgrade().ok_or(Error::Closed)?;
        let (mut work, mut result) = (Some(work), None);
        pictures.with(&mut |picture| result = work.take().map(|work| work(picture)))?;
        result.ok_or(Error::Closed)
    }

    /// Whether pages are never written as deltas.
    #[cfg(feature = "papers")]
    fn writes_whole_pages(&self) -> bool {
        // Relaxed: one delta more or less.
        self.writes_whole_pages.load(Ordering::Relaxed)
    }

    #[cfg(not(feature = "papers"))]
    fn writes_whole_pages(&self) -> bool {
        false
    }

    /// Waits for a turn: as long as the threads before write groups, but not for ever.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        // Relaxed: only whether it changes.
        let written = || self.counts.groups.load(Ordering::Relaxed);
        let begin = Instant::now();
        let (mut since, mut before) = (begin, written());
        loop {
            let now = written();
            if now != before {
                (since, before) = (Instant::now(), now);
            }
            match self.turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
                Err(TryLockError::WouldBlock)
                    if since.elapsed() > TURN || begin.elapsed() > MOST_TURN =>
                {
                    return None;
                }
                Err(TryLockError::WouldBlock) => {
                    D::observe_process_memory();
                    thread::sleep(Duration::from_micros(50));
                }
            }
        }
    }

    /// Writes the pages `wanted`, if they have changed, and all changes of structure, in one group,
    /// or in several if they are long.
    fn write(&self, wanted: &[u32]) -> Result<()> {
        let _turn = self.turn();
        self.write_in_turn(wanted.to_vec(), false)?.1.map_or(Ok(()), Err)
    }

    /// Writes the changes of structure.
    fn write_changes(&self) -> Result<()> {
        let _turn = self.turn();
        // Another thread may have written them meanwhile.
        match self.tree.has_unwritten_changes() {
            true => self.write_in_turn(Vec::new(), false)?.1.map_or(Ok(()), Err),
            false => Ok(()),
        }
    }

    /// The same, of a thread that has its turn. `leaves_others`: pages that have versions which may
    /// not be written yet are left out. Returns the pages that have such versions; and an error, if
    /// the parts of a page in the store are needed and cannot be read. Then the other pages are
    /// written.
    fn write_in_turn(
        &self,
        wanted: Vec<u32>,
        leaves_others: bool,
    ) -> Result<(Vec<u32>, Option<Error>)> {
        let written = self.write_groups(wanted, leaves_others);
        if written.is_err() {
            // Relaxed: a hint.
            self.writes_fail.store(true, Ordering::Relaxed);
        }
        written
    }

    fn write_groups(
        &self,
        mut wanted: Vec<u32>,
        leaves_others: bool,
    ) -> Result<(Vec<u32>, Option<Error>)> {
        let (mut waiting, mut late, mut failure) = (Vec::new(), 0, None);
        loop {
            let append = |writes: &mut dyn FnMut() -> Option<Vec<PageWrite>>| {
                self.pages.append_with(|| Ok::<_, Error>(writes().map(group_of)))
            };
            let capture = |picture: &mut dyn Picture| {
                self.tree.capture((&wanted, leaves_others), picture, append)
            };
            let captured = self.with_picture(capture)?;
            if late < MOST_LATE && captured.as_ref().is_err_and(is_too_late) {
                count(&self.counts.retries);
                late += 1;
                continue;
            }
            let (mut captured, appended) = captured?;
            for (_, error) in captured.failed.drain(..) {
                failure.get_or_insert(error.into());
            }
            if let Some(ticket) = appended {
                let Some(ticket) = ticket? else {
                    count(&self.counts.retries);
                    continue;
                };
                if !mutant!("store-marked-before-written") {
                    match self.pages.wait(&ticket) {
                        // A group before it has used up the parts of a page.
                        Err(pando_lss::Error::NeedsBase { why, .. }) if why != NoDelta::NoPage => {
                            count(&self.counts.retries);
                            continue;
                        }
                        waited => waited?,
                    }
                    self.writes_fail.store(false, Ordering::Relaxed);
                }
                count(&self.counts.groups);
            }
            self.tree.mark_written(&captured)?;
            waiting.extend(captured.unmarked);
            if captured.left.is_empty() {
                return Ok((waiting, failure));
            }
            wanted = captured.left;
        }
    }

    /// Writes all pages that have changed.
    pub fn write_all(&self) -> Result<()> {
        let (mut from, mut changed) = (Some(0), Vec::new());
        while let Some(at) = from {
            let (seen, next) = self.tree.pages_from(at, SEEN)?;
            from = next;
            changed.extend(
                seen.iter().filter(|page| page.state == PageState::Changed).map(|page| page.number),
            );
            while changed.len() >= GROUP_PAGES {
                self.write(&changed.split_off(changed.len() - GROUP_PAGES))?;
            }
        }
        // Records may have moved meanwhile, to pages that were passed before: by changes of
        // structure, which this writes.
        self.write(&changed)
    }

    /// Evicts the page; returns its bytes, or zero if it stays.
    pub fn evict(&self, number: u32) -> Result<u64> {
        let bytes = self.tree.evict(number)?;
        if bytes > 0 {
            count(&self.counts.evictions);
        }
        Ok(bytes)
    }

    /// Writes those of the pages that have no version above the durable LSN, and evicts them;
    /// returns their bytes, and how many pages have such a version.
    fn write_and_evict(&self, numbers: Vec<u32>) -> Result<(u64, usize)> {
        let (waiting, failure) = {
            let _turn = self.turn();
            self.write_in_turn(numbers.clone(), true)?
        };
        let mut bytes = 0;
        for number in numbers.iter().filter(|number| !waiting.contains(number)) {
            bytes += self.evict(*number)?;
        }
        match failure {
            Some(error) if bytes == 0 => Err(error),
            _ => Ok((bytes, numbers.iter().filter(|number| waiting.contains(number)).count())),
        }
    }

    /// Whether a page that was only read is to be written whole: it has several parts in the store,
    /// and pages can be written.
    fn is_in_parts(&self, number: u32) -> bool {
        if !self.joins_read_parts {
            return false;
        }
        let extent = self.pages.extent(number);
        let is_one = extent.is_none_or(|extent| extent.parts < 2);
        // Otherwise pages that were only read could not be evicted.
        let can_write = !self.writes_fail.load(Ordering::Relaxed);
        !is_one && (can_write || mutant!("store-read-pages-stay-on-a-full-device"))
    }

    /// Evicts pages until [`room_bytes`](Self::room_bytes) are free, or empties chunks if blocks of
    /// some length are lacking. If pages cannot be written, those that need not be are evicted.
    pub fn make_room(&self) -> Result<()> {
        let pool = self.tree.pool();
        pool.reclaim()?;
        // What was evicted before waits for threads that are pinned. More would wait too.
        if pool.pin()?.waiting() as u64 * self.page_bytes >= self.room_bytes {
            return Ok(());
        }
        if self.tree.take_lacks_length() {
            let most = (self.room_bytes / CHUNK_BYTES).max(LEAST_CHUNKS) as usize;
            if self.empty_chunks(most, |_| true)? > 0 {
                return Ok(());
            }
        }
        let pictures = self.pictures.get().and_then(Weak::upgrade);
        let durable_lsn = pictures.as_ref().and_then(|pictures| pictures.durable_lsn_if_behind());
        // Relaxed, also below: a hint.
        let mut is_stuck =
            durable_lsn.is_some_and(|lsn| self.stuck_at.load(Ordering::Relaxed) > lsn);
        let (mut evicted, mut failure, mut passes) = (0, None, 0);
        // Of this pass, if it is a whole one: how many pages had changed, and how many of these
        // have versions that may not be written yet.
        let mut of_changed = None;
        while evicted < self.room_bytes && passes < PASSES {
            // Relaxed: threads that go the same way evict the same pages, and one of them fails.
            let at = self.hand.load(Ordering::Relaxed);
            if at == 0 {
                of_changed = Some((0, 0));
            }
            let (seen, mut next) = self.tree.pages_from(at, SEEN)?;
            let mut changed = Vec::new();
            for page in seen {
                if evicted >= self.room_bytes || changed.len() == GROUP_PAGES {
                    next = Some(page.number);
                    break;
                }
                let stays = page.state == PageState::Absent
                    || page.is_inner && passes < PASSES_OF_LEAVES
                    || self.tree.take_mark(page.number)?;
                match page.state {
                    _ if stays => {}
                    PageState::Written
                        if failure.is_none()
                            && self.is_in_parts(page.number)
                            && self.tree.unmark(page.number)? =>
                    {
                        changed.push(page.number);
                    }
                    PageState::Written => match self.evict(page.number) {
                        Ok(bytes) => evicted += bytes,
                        Err(error) => failure = Some(error),
                    },
                    _ if failure.is_none() && !is_stuck => changed.push(page.number),
                    _ => {}
                }
            }
            passes += u32::from(next.is_none());
            self.hand.store(next.unwrap_or(0), Ordering::Relaxed);
            if !changed.is_empty() {
                let pages = changed.len();
                match self.write_and_evict(changed) {
                    Ok((bytes, wait)) => {
                        evicted += bytes;
                        of_changed = of_changed.map(|(all, waiting)| (all + pages, waiting + wait));
                    }
                    Err(error) => failure = Some(error),
                }
            }
            if next.is_none() {
                evicted += self.empty_sparse_chunks()?;
            }
            // All of them wait for the log.
            if next.is_none()
                && let (Some((all, waiting)), Some(lsn), None) = (of_changed, durable_lsn, &failure)
                && all > 0
                && all == waiting
            {
                is_stuck = true;
                self.stuck_at.store(lsn + 1, Ordering::Relaxed);
            }
        }
        if let (true, Some(pictures)) = (is_stuck, pictures) {
            pictures.wanted();
        }
        match failure {
            Some(error) if evicted == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes one of the pages that have changed, number `nth` of them counted from zero and over
    /// again, and evicts it; as a full cache does, which leaves pages with versions above the
    /// durable LSN.
    #[cfg(feature = "testing")]
    pub fn evict_changed(&self, nth: usize) -> Result<()> {
        let (mut changed, mut from) = (Vec::<u32>::new(), Some(0));
        while let Some(at) = from {
            let (seen, next) = self.tree.pages_from(at, SEEN)?;
            from = next;
            let seen = seen.iter().filter(|page| page.state == PageState::Changed);
            changed.extend(seen.map(|page| page.number));
        }
        match changed.get(nth % changed.len().max(1)) {
            Some(&number) => self.write_and_evict(vec![number]).map(drop),
            None => Ok(()),
        }
    }

    /// Evicts all pages that have not changed.
    pub fn evict_all(&self) -> Result<()> {
        let mut from = Some(0);
        while let Some(at) = from {
            let (seen, next) = self.tree.pages_from(at, SEEN)?;
            from = next;
            for page in seen.iter().filter(|page| page.state == PageState::Written) {
                self.evict(page.number)?;
            }
        }
        Ok(())
    }

    /// Numbers of the cache.
    pub fn stat(&self) -> Result<CacheStat> {
        let (mut pages, mut changed_pages, mut from) = (0, 0, Some(0));
        while let Some(at) = from {
            let (seen, next) = self.tree.pages_from(at, SEEN)?;
            from = next;
            pages += seen.iter().filter(|page| page.state != PageState::Absent).count() as u64;
            let changed = seen.iter().filter(|page| page.state == PageState::Changed);
            changed_pages += changed.count() as u64;
        }
        // Relaxed: only the numbers matter.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(CacheStat {
            used_bytes: self.tree.pool().used_bytes(),
            pages,
            changed_pages,
            visits: self.tree.visits(),
            loads: read(&self.counts.loads),
            evictions: read(&self.counts.evictions),
            room_attempts: read(&self.counts.room_attempts),
            groups: read(&self.counts.groups),
            retries: read(&self.counts.retries),
        })
    }
}

fn group_of(writes: Vec<PageWrite>) -> Group {
    writes.into_iter().fold(Group::new(), |group, write| match write {
        PageWrite::Image(page, image) => group.base(page, image),
        PageWrite::Delta(page, delta) => group.delta(page, delta),
        PageWrite::Free(page) => group.free(page),
    })
}

/// The cache, for its tree: the tree does not keep the cache alive.
#[derive(Debug)]
pub(crate) struct Source<D: Domain>(pub Weak<Cache<D>>);

impl<D: Domain> Source<D> {
    fn with<R>(&self, call: impl FnOnce(&Cache<D>) -> Result<R>) -> Result<R, SourceError> {
        let cache = self.0.upgrade().ok_or(Error::Closed)?;
        Ok(call(&cache)?)
    }
}

impl<D: Domain> PageSource for Source<D> {
    fn most_group_bytes(&self) -> usize {
        self.0.upgrade().map_or(0, |cache| cache.pages.most_group_bytes())
    }

    fn read(&self, page: u32) -> Result<Option<Vec<Vec<u8>>>, SourceError> {
        self.with(|cache| {
            if let Some(cause) = cache.not_replayed.load().get(&page) {
                return Err(Error::NotReplayed { page, cause: cause.clone() });
            }
            count(&cache.counts.loads);
            Ok(cache.pages.read(page)?)
        })
    }

    fn stored(&self, page: u32) -> Option<StoredPage> {
        let cache = self.0.upgrade()?;
        // The place first: if it is the same later, so were the parts.
        let version = cache.pages.place(page)?;
        let extent = cache.pages.extent(page)?;
        let takes_delta = extent.parts < MAX_PARTS && !cache.writes_whole_pages();
        Some(StoredPage { bytes: extent.bytes, takes_delta, version })
    }

    fn loaded(&self, key: &[u8], value: &[u8], stored: Option<&[u8]>) -> Result<(), SourceError> {
        self.with(|cache| match cache.pictures.get() {
            Some(pictures) => pictures.upgrade().ok_or(Error::Closed)?.loaded(key, value, stored),
            None => Ok(()),
        })
    }

    fn most_wait(&self) -> Duration {
        self.0.upgrade().map_or(Duration::ZERO, |cache| cache.room_wait)
    }

    fn make_room(&self) -> Result<(), SourceError> {
        self.with(|cache| {
            count(&cache.counts.room_attempts);
            cache.make_room()
        })
    }

    fn write_changes(&self) -> Result<(), SourceError> {
        self.with(Cache::write_changes)
    }
}
