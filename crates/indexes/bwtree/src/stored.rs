//! A tree whose pages are in a store, and of which the pool has only some (Bw-tree paper, section
//! V; the paper calls the pool's part the cache). The store is any [`PageSource`]; the tree knows
//! its pages by number (`pages.rs`) and as images (`image.rs`).
//!
//! The pool is process memory that ends with the process. So the pool is never recovered: after a
//! crash the tree is the content of the store.
//!
//! # States of a page
//!
//! The mapping word has the state (`layout.rs`). The *state* of a page is the content of its chain.
//!
//! | word | the page | the store has |
//! | --- | --- | --- |
//! | absent, with a stamp | is in the store alone | this state |
//! | a link to a partial page, with any flag | is in the store, with later records in the pool (`blind.rs`) | as below |
//! | a link | is in the pool | an earlier state, or none; perhaps this one |
//! | a link, captured | is in the pool; a thread is writing this state | an earlier state, or this one |
//! | a link, written | is in the pool | this state |
//!
//! | step | deciding word | by | afterwards |
//! | --- | --- | --- | --- |
//! | load | the page's, from absent to a base; then to the same link, written | any thread that needs the page | written; if the thread stops in between, a link without a flag |
//! | change | the page's, from its link to another one | a write, a consolidation, a change of structure | a link without a flag |
//! | capture | the page's, from a link to the same link, captured | a thread that writes pages | captured |
//! | mark | the page's, from captured to written | the thread that has written it | written |
//! | unmark | the page's, from written to the same link without a flag | a thread that wants it written again, with fewer parts | a link without a flag |
//! | evict | the page's, from written to absent with a new stamp; frees the chain | any thread that needs room | absent |
//!
//! Each change of a word is one CAS or PMwCAS, so no helping is needed. A thread that stops
//! between two steps leaves a word from which each other thread goes on. A kill leaves nothing: the
//! store has the groups that were written. `load.rs` has the steps of loads, `captures.rs` those of
//! captures and marks.
//!
//! # Where this differs from the paper
//!
//! | paper | here | reason |
//! | --- | --- | --- |
//! | the mapping word has the page's flash offset | it says only that the page is absent | the store has a table of its own, and moves pages without a look at the cache |
//! | a flush delta is prepended with the new offset | a flag of the link | no room, and no longer chain |
//! | a split is flushed by its own thread, as a system transaction | changes of structure gather, and the next group has all of them | many splits of one parent are written once |
//! | unstable log records limit consolidation, and what is flushed | no limit; an image has the version before | a page that is always written can be flushed at any time |
//!
//! # Limits
//!
//! * Values have at most 16 KiB, and are in their page.
//! * A page is merged with a neighbour only if both are in the pool. An empty page whose neighbours
//!   are absent stays.
//! * `len` reads all records.
//! * A thread that stays pinned, for example because it was stopped, keeps evicted pages from being
//!   used again. When the room that was free is used up, each operation that needs room fails. So
//!   the function that `modify` gets must not use the tree.
//! * The mapping table is in the pool, and stays there: 8 bytes for each number up to the highest.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use pando_index::{Error, Limits, Result};
use pando_pmem::{Domain, Guard, ReserveAccess, block_bytes, mutant};
use pando_pmwcas::Descriptor;
use pando_tree::context::Context;
use pando_tree::index_kind;
use pando_tree::room::{Attempts, GivenBack, Refusal};

use crate::blind::LEAST_ROOM_BYTES;
use crate::context::{At, Pid};
use crate::gather::Gathered;
use crate::image::MAX_IMAGE_BYTES;
use crate::layout::{BEGUN_AT, CHANGES_AT, Kind, LIMITS, Link, MAX_INLINE_BYTES, MAX_KEY_BYTES};
use crate::multi_word::{ByPmwcas, add_freed};
use crate::options::{MAX_LEAF_BYTES, Options};
use crate::page::{Chain, Page};
use crate::pages::{
    AccessOf, ChangedPages, PageError, PageSource, Pages, absent, absent_pid, is_too_long,
    next_number,
};
use crate::residence::{Noted, Residence};
use crate::tree::BwTree;

/// The longest record.
const RECORD_BYTES: usize = MAX_KEY_BYTES + MAX_INLINE_BYTES as usize + 64;
/// A blind write loads a page that has more bytes in the store than so many leaves: perhaps it must
/// be split.
const MOST_LEAVES_BELOW_PARTIAL: usize = 3;
const _: () = assert!(
    (MOST_LEAVES_BELOW_PARTIAL + 1) * MAX_LEAF_BYTES < MAX_IMAGE_BYTES,
    "a partial page and what it stands on are a page that can be written"
);
/// How often an operation makes room in a full pool before it is refused ([`PageSource::most_wait`]
/// says for how long). After the first of them it gives other threads time to let go of what was
/// evicted. If it has loaded pages as often, because other threads evict each before it comes to
/// it, it is refused after that time.
const MOST_ATTEMPTS: u32 = 1000;
const FAST_ATTEMPTS: u32 = 16;
/// That time, after each attempt.
const PAUSE: Duration = Duration::from_millis(1);

/// Pages change by PMwCAS, and may be absent from the pool.
#[derive(Clone, Copy, Debug)]
pub enum Stored {}

index_kind! {
    /// Bw-trees whose pages are in a store: for a pool that is the cache of the store, and ends
    /// with the process.
    pub enum StoredBwTrees = 0xFFFF_0004, "bwtree-stored",
    "a Bw-tree whose pages are in a store", BwTree<D, Stored>, Options;
}

impl ByPmwcas for Stored {}

impl Residence for Stored {
    const LIMITS: Limits = Limits { max_value_bytes: MAX_INLINE_BYTES as usize, ..LIMITS };

    const MAY_BE_ABSENT: bool = true;

    fn missing(at: At) -> Option<Error> {
        at.link.is_absent().then(|| absent(at))
    }

    #[inline(always)]
    fn touch<D: Domain>(tree: &BwTree<D, Self>, at: At) {
        if let Some(pages) = &tree.pages {
            pages.touch(at.pid);
            if !at.link.is_inner() {
                pages.visits.add();
            }
        }
    }

    #[cold]
    fn after_failure<D: Domain>(
        tree: &BwTree<D, Self>,
        error: Error,
        attempts: &mut Attempts,
    ) -> Result<()> {
        if let Some(pid) = absent_pid(&error) {
            if !attempts.may_try(MOST_ATTEMPTS, tree.pages()?.source()?.most_wait()) {
                let max_bytes = tree.pool().geometry().max_bytes;
                let requested_bytes = tree.options.leaf_bytes.into();
                let full = pando_pmem::Error::PoolFull { requested_bytes, max_bytes };
                return Err(Error::storage(PageError::CacheFull { source: full.into() }));
            }
            return tree.load(pid, attempts);
        }
        if is_too_long(&error) {
            let source = tree.pages()?.source()?;
            if attempts.may_try(MOST_ATTEMPTS, source.most_wait()) {
                return source.write_changes().map_err(Error::Storage);
            }
        }
        tree.after_refusal(error, attempts)
    }

    fn may_write_blind<D: Domain>(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        pid: Pid,
    ) -> bool {
        let Some(pages) = &tree.pages else { return false };
        let number = pages.number_of(context, tree.anchor(context), pid);
        let source = pages.source().ok();
        let stored = number.and_then(|number| source?.stored(number));
        let most_bytes = MOST_LEAVES_BELOW_PARTIAL * tree.options.leaf_bytes as usize;
        stored.is_some_and(|stored| stored.bytes <= most_bytes)
    }

    fn is_undoing<D: Domain>(tree: &BwTree<D, Self>) -> bool {
        let access_of = tree.pages.as_ref().and_then(|pages| pages.access_of.get());
        access_of.is_some_and(|access_of| access_of() == ReserveAccess::Undo)
    }

    fn give_back<D: Domain>(tree: &BwTree<D, Self>, attempts: &mut Attempts) -> GivenBack {
        match tree.try_to_make_room(attempts) {
            Ok(true) => GivenBack::Some,
            Ok(false) | Err(_) => GivenBack::Nothing,
        }
    }

    fn in_room<D: Domain, R>(
        tree: &BwTree<D, Self>,
        guard: &Guard<'_, D>,
        work: impl FnOnce() -> R,
    ) -> R {
        match tree.pages.as_ref().and_then(|pages| pages.access_of.get()) {
            Some(access_of) => {
                guard.with_reserve_access(access_of(), || guard.without_reserve(work))
            }
            None => guard.without_reserve(work),
        }
    }

    #[inline(always)]
    fn after_write<D: Domain>(tree: &BwTree<D, Self>) {
        if let Some(pages) = &tree.pages
            && pages.are_many()
            && let Ok(source) = pages.source()
        {
            // The write has taken place. The thread that makes room, or syncs, gets the error.
            let _ = source.write_changes();
        }
    }

    #[inline(always)]
    fn may_change<D: Domain>(tree: &BwTree<D, Self>) -> bool {
        tree.pages.as_ref().is_some_and(|pages| pages.have_room())
    }

    fn note<D: Domain>(
        tree: &BwTree<D, Self>,
        context: Context<'_, D>,
        operation: &mut Descriptor<'_, '_, D>,
        pids: &[Pid],
    ) -> pando_pmwcas::Result<Option<Noted>> {
        let (Some(pages), anchor) = (&tree.pages, tree.anchor(context)) else { return Ok(None) };
        // They may grow before they are written: each by one record beyond the length at which it
        // is split. Beyond that, they are in another change.
        let bytes = pids.iter().map(|&pid| {
            let bytes = 2 * bytes_of(context, Link::at(context, pid));
            bytes.max(tree.max_bytes(0) as usize) + RECORD_BYTES
        });
        let bytes = bytes.sum();
        if !pages.take_room(bytes) {
            return Ok(None);
        }
        let changes = anchor + CHANGES_AT;
        let before = context.read(changes);
        if let Err(error) = operation.add_word(changes, before, before + 1) {
            pages.give_room(bytes);
            return Err(error);
        }
        if mutant!("bw-change-not-listed") {
            pages.give_room(bytes);
            return Ok(Some(Noted(None)));
        }
        let numbers = pids.iter().filter_map(|&pid| pages.number_of(context, anchor, pid));
        let listed = ChangedPages { numbers: numbers.collect(), bytes };
        D::observe_process_memory();
        Ok(Some(Noted(Some(pages.list(before + 1, listed)))))
    }

    fn forget<D: Domain>(tree: &BwTree<D, Self>, noted: Noted) {
        if let (Some(pages), Noted(Some(place))) = (&tree.pages, noted) {
            pages.unlist_one(place);
        }
    }
}

/// The most bytes of the image of the page that `link` leads to.
pub(crate) fn bytes_of<D: Domain>(context: Context<'_, D>, link: Link) -> usize {
    if link == Link::EMPTY || link.is_removed() {
        return 0;
    }
    let (mut chain, mut bytes) = (Chain::new(link), 0);
    // Damage is told when the page is used.
    while let Ok(Some(delta)) = chain.next(context) {
        bytes += if delta.info.is_own { delta.info.bytes() } else { 0 };
        if delta.info.kind == Kind::NodeMerge
            && let Ok(page) = Page::of(context, Link(delta.value_word()))
        {
            bytes += page.end();
        }
    }
    (bytes + Page::any_of(context, chain.link).map_or(0, |page| page.end())) as usize
}

/// Whether only a partial page is there (`blind.rs`).
pub(crate) fn is_partial<D: Domain>(context: Context<'_, D>, link: Link) -> bool {
    let may_be = link != Link::EMPTY && !link.is_removed() && !link.is_inner();
    may_be && Page::any_of(context, link).is_ok_and(|page| page.is_partial())
}

/// The state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// It is in the store alone.
    Absent,
    /// It is in the pool, and the store has this state of it.
    Written,
    /// It is in the pool, and the store has an earlier state, or none.
    Changed,
}

/// A page, as [`BwTree::pages_from`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSeen {
    /// Its number.
    pub number: u32,
    /// Its state.
    pub state: PageState,
    /// It is an inner page. Only for a page in the pool.
    pub is_inner: bool,
}

/// Where a page is in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// The offset of its block.
    pub off: u64,
    /// The length of the block that it would get now.
    pub needed_bytes: u64,
    /// It was used since [`BwTree::take_mark`].
    pub is_used: bool,
}

impl<D: Domain> BwTree<D, Stored> {
    /// Connects the tree with the store of its pages. Only the first call counts.
    pub fn connect(&self, source: Box<dyn PageSource>) -> Result<()> {
        self.pages().map(|pages| pages.connect(source))
    }

    /// From now on the owner says what room of the pool a thread may use: its commits leave some,
    /// so that they can be undone. Only the first call counts.
    pub fn leave_room_to_undo(&self, access_of: AccessOf) -> Result<()> {
        let _ = self.pages()?.access_of.set(access_of);
        Ok(())
    }

    pub(crate) fn pages(&self) -> Result<&Arc<Pages>> {
        self.pages.as_ref().ok_or_else(|| Error::storage(PageError::NoSource))
    }

    /// Tells a tree in a new pool, which has no other user yet, the pages that the store has. All
    /// are absent.
    pub fn restore(&self, numbers: impl IntoIterator<Item = u32>) -> Result<()> {
        let pages = self.pages()?;
        let guard = self.pin()?;
        let context = self.context(&guard);
        let anchor = self.anchor(context);
        let (mut any, mut has_root) = (None, false);
        for number in numbers {
            while pages.end(context, anchor) <= u64::from(number) {
                self.add_segment(context)?;
            }
            let pid = pages.pid_of(context, anchor, number);
            let pid = pid.ok_or_else(|| Error::storage(PageError::NotThere { page: number }))?;
            context.pool().word(pid).store(Link::absent(0).0, Ordering::Release);
            has_root |= number == 0;
            any = Some(number);
        }
        if let (Some(_), false) = (any, has_root) {
            return Err(Error::storage(PageError::NotThere { page: 0 }));
        }
        let begun = u64::from(has_root);
        context.pool().word(anchor + BEGUN_AT).store(begun, Ordering::Release);
        Ok(())
    }

    /// Up to `most` pages from the number `from` on, and the number at which the next ones begin;
    /// `None` behind the last page.
    pub fn pages_from(&self, from: u32, most: usize) -> Result<(Vec<PageSeen>, Option<u32>)> {
        let pages = self.pages()?;
        let guard = self.pin()?;
        let context = self.context(&guard);
        let anchor = self.anchor(context);
        let end = pages.end(context, anchor);
        let mut seen = Vec::with_capacity(most);
        let mut next = match from {
            0 => 0,
            from => next_number(u64::from(from) - 1),
        };
        let mut last = None;
        for _ in 0..most {
            if next >= end {
                return Ok((seen, None));
            }
            let number = next as u32;
            let pid = match last {
                // In the same segment: between segments, numbers are left out.
                Some((before, pid)) if before + 1 == next => Some(pid + 8),
                _ => pages.pid_of(context, anchor, number),
            };
            if let Some(pid) = pid {
                last = Some((next, pid));
                let link = Link::at(context, pid);
                let state = match link {
                    Link::EMPTY => None,
                    _ if link.is_removed() => link.is_absent().then_some(PageState::Absent),
                    _ if link.is_written() => Some(PageState::Written),
                    _ => Some(PageState::Changed),
                };
                let is_inner = link.is_inner();
                seen.extend(state.map(|state| PageSeen { number, state, is_inner }));
            }
            next = next_number(next);
        }
        Ok((seen, Some(next as u32)))
    }

    /// Takes the mark that the page was used; returns whether it had one.
    pub fn take_mark(&self, number: u32) -> Result<bool> {
        let (pages, guard) = (self.pages()?, self.pin()?);
        let context = self.context(&guard);
        let pid = pages.pid_of(context, self.anchor(context), number);
        Ok(pid.is_some_and(|pid| pages.take_mark(pid)))
    }

    /// Where the page is; `None` if it is not in the pool, has changed, or has several blocks.
    pub fn place_of(&self, number: u32) -> Result<Option<PagePlace>> {
        let (pages, guard) = (self.pages()?, self.pin()?);
        let context = self.context(&guard);
        let Some(pid) = pages.pid_of(context, self.anchor(context), number) else {
            return Ok(None);
        };
        let link = Link::at(context, pid);
        let base = link.base_off().filter(|_| !link.is_removed() && link.is_written());
        let Some(off) = base.filter(|&off| off > 0) else { return Ok(None) };
        let page = Page::any_of(context, Link::base(off, link.is_inner()))?;
        let room = if page.is_partial() { LEAST_ROOM_BYTES } else { self.room(0) };
        let bytes = page.deltas_at() + room;
        let (needed_bytes, is_used) = (block_bytes(bytes), pages.has_mark(pid));
        Ok(Some(PagePlace { off, needed_bytes, is_used }))
    }

    /// Whether a thread has found no block of the length that it needs, since the last call.
    pub fn take_lacks_length(&self) -> bool {
        self.pages.as_ref().is_some_and(|pages| pages.take_lacks_length())
    }

    /// How often operations have used leaves, through any handle of the tree.
    pub fn visits(&self) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.visits.count())
    }

    /// Whether changes of structure are not written.
    pub fn has_unwritten_changes(&self) -> bool {
        self.pages.as_ref().is_some_and(|pages| !pages.changes.is_empty())
    }

    /// Lets the page count as changed, so that a capture writes it whole. Returns false if the
    /// store does not have its state, or the page has deltas in the pool, or only a part of it is
    /// there.
    pub fn unmark(&self, number: u32) -> Result<bool> {
        let (pages, guard) = (self.pages()?, self.pin()?);
        let context = self.context(&guard);
        let Some(pid) = pages.pid_of(context, self.anchor(context), number) else {
            return Ok(false);
        };
        let link = Link::at(context, pid);
        let is_base = link != Link::EMPTY && !link.is_removed() && link.is_base();
        if !is_base || !link.is_written() || is_partial(context, link) {
            return Ok(false);
        }
        let new = link.content();
        let swap = context.pmwcas.compare_exchange_undurable(&guard, pid, link.0, new.0);
        Ok(swap.is_ok())
    }

    /// Evicts the page, if the store has its state. Returns its bytes in the pool, or zero if it
    /// stays. The root always stays.
    pub fn evict(&self, number: u32) -> Result<u64> {
        let pages = self.pages()?;
        let guard = self.pin()?;
        let context = self.context(&guard);
        let pid = pages.pid_of(context, self.anchor(context), number);
        let Some(pid) = pid.filter(|_| number != 0) else { return Ok(0) };
        let link = Link::at(context, pid);
        let may_go = link.is_written() || mutant!("bw-evicted-unwritten");
        if link == Link::EMPTY || link.is_removed() || !may_go {
            return Ok(0);
        }
        let bytes = bytes_of(context, link) as u64;
        Ok(if self.make_absent(context, At { pid, link })? { bytes } else { 0 })
    }

    /// Forgets the records that only the pool has of the page, if that is all that it has of it.
    pub fn forget_partial(&self, number: u32) -> Result<()> {
        let pages = self.pages()?;
        loop {
            let guard = self.pin()?;
            let context = self.context(&guard);
            let Some(pid) = pages.pid_of(context, self.anchor(context), number) else {
                return Ok(());
            };
            let link = Link::at(context, pid);
            if !is_partial(context, link) || self.make_absent(context, At { pid, link })? {
                return Ok(());
            }
        }
    }

    /// Takes the page out of the pool; whether it was still the same.
    fn make_absent(&self, context: Context<'_, D>, at: At) -> Result<bool> {
        let gathered = Gathered::any(context, at.link)?;
        // Relaxed: only different from all others.
        let stamp = self.pages()?.stamps.fetch_add(1, Ordering::Relaxed) + 1;
        let stamp = if mutant!("bw-absent-without-stamp") { 1 } else { stamp };
        context.publish(|operation| {
            operation.add_word(at.pid, at.link.0, Link::absent(stamp).0)?;
            add_freed(operation, &gathered.blocks)?;
            Ok(true)
        })
    }

    /// Makes room for an operation, and waits; false if it has tried often or long enough.
    fn try_to_make_room(&self, attempts: &mut Attempts) -> Result<bool> {
        let pages = self.pages()?;
        if !attempts.may_make_room(MOST_ATTEMPTS, pages.source()?.most_wait()) {
            return Ok(false);
        }
        pages.make_room().map_err(Error::Storage)?;
        if attempts.count() > FAST_ATTEMPTS {
            // Threads that are pinned, and do not run, delay what was evicted.
            thread::sleep(PAUSE);
        }
        Ok(true)
    }

    /// After an operation was refused: makes room, so that it can be tried again.
    pub(crate) fn after_refusal(&self, error: Error, attempts: &mut Attempts) -> Result<()> {
        if !error.is_full() {
            return Err(error);
        }
        if self.try_to_make_room(attempts)? {
            return self.pool().reclaim().map_err(Error::storage);
        }
        Err(match error {
            Error::Storage(source) if source.downcast_ref::<PageError>().is_none() => {
                Error::storage(PageError::CacheFull { source })
            }
            error => error,
        })
    }
}
