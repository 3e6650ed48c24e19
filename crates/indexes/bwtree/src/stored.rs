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
//! | evict | the page's, from written to absent with a new stamp; frees the chain | any thread that needs room | absent |
//!
//! Each change of a word is one CAS or PMwCAS, so no helping is needed. A thread that stops
//! between two steps leaves a word from which each other thread goes on. A kill leaves nothing: the
//! store has the groups that were written.
//!
//! # Loads
//!
//! An operation that comes to an absent page ends with an error that names the page, drops its
//! guard, loads the page and begins again. So no guard is held while a thread waits for the store.
//! The loaded state is the newest: while the word is absent with this stamp, no other state of the
//! page is written. Each eviction has another stamp, so a load that was overtaken by a load, a
//! change and an eviction fails.
//!
//! # Captures
//!
//! A thread writes a group of pages:
//!
//! 1. It pins, and then takes the next number of a capture. This ends all captures before it.
//! 2. It reads the count of changes of structure, and then the words of the pages: those that it
//!    was asked for, and those of all changes of structure that are not written. It marks the words
//!    as captured. If a mark fails, the page has changed; the state that was read is written all
//!    the same, and the page stays unmarked.
//! 3. It makes the images from the links. The tree's owner says how an image has each record: a
//!    record that may not reach the store yet is there as it was before, or not at all. Such a page
//!    is not marked as written later; it stays changed.
//! 4. It has a place in the order of groups reserved. Then it checks that its capture is still the
//!    last one, and that the count of changes is the same. If so, it fills the place with the
//!    images. If not, the place stays empty, and its caller starts again. It unpins.
//! 5. It waits until the group is written. It pins; and for each word that is still as it was
//!    marked, and if its capture is still the last one, it marks the word as written.
//!
//! A page may change at any time meanwhile. Its state that was captured is immutable as long as the
//! thread is pinned, and its new link has no flag.
//!
//! Why a later state is never overwritten by an earlier one: let a capture A come before B. If A
//! has passed its check, B's number was taken later, so B's place is behind A's, and B's words were
//! read after A's. If A has not passed it, A fills no place.
//!
//! Why each written group leaves a sound tree: each change of structure changes the count with the
//! same PMwCAS, and its pages were listed before. The words were read while the count was the same.
//! So they have all changes up to that count, of which the list has the pages, and none behind it.
//! Changes leave the list when a group is written whose capture had them, or a later count. Pages
//! that a change has removed are freed in that group.
//!
//! Why a mark is of the state that was written: the thread sees the captured word after it has
//! pinned, and after that its capture is still the last. So no later capture has set the flag. An
//! earlier one sets it only while it is pinned, since before its own number was taken; so no block
//! that was freed after that is used again under the same link. And from its pin on, no link comes
//! back either.
//!
//! # Where this differs from the paper
//!
//! | paper | here | reason |
//! | --- | --- | --- |
//! | the mapping word has the page's flash offset | it says only that the page is absent | the store has a table of its own, and moves pages without a look at the cache |
//! | a flush delta is prepended with the new offset | a flag of the link | no room, and no longer chain |
//! | a page is flushed as deltas where that is possible | as a whole | one read gets a page; deltas come later |
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

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::Duration;

use pando_index::{Error, Limits, Result};
use pando_pmem::{Domain, Guard, ReserveAccess, mutant};
use pando_pmwcas::Descriptor;
use pando_tree::context::Context;
use pando_tree::index_kind;
use pando_tree::room::{GivenBack, Refusal, Tries, with_room};

use crate::build::{NewPage, each_record};
use crate::context::{At, Damaged, Pid, Value};
use crate::gather::{Gathered, Item};
use crate::image::{Image, MAX_IMAGE_BYTES};
use crate::layout::{BEGUN_AT, CHANGES_AT, Kind, LIMITS, Link, MAX_INLINE_BYTES, MAX_KEY_BYTES};
use crate::multi_word::{ByPmwcas, add_block, add_freed};
use crate::options::Options;
use crate::page::{Chain, Page};
use crate::pages::{
    AccessOf, ChangedPages, PageError, PageSource, Pages, absent, absent_pid, is_too_long,
    next_number, too_long,
};
use crate::residence::{Noted, Residence};
use crate::tree::BwTree;

/// The longest record.
const RECORD_BYTES: usize = MAX_KEY_BYTES + MAX_INLINE_BYTES as usize + 64;
/// What a write of a group takes beside the image, in bytes, at most.
const WRITE_BYTES: usize = 256;
/// How often an operation loads a page, or makes room in a full pool, before it is refused. After
/// the first of them it gives other threads time to let go of what was evicted.
const MOST_FAILURES: u32 = 1000;
const FAST_FAILURES: u32 = 16;

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
        }
    }

    #[cold]
    fn after_failure<D: Domain>(
        tree: &BwTree<D, Self>,
        error: Error,
        failures: &mut u32,
    ) -> Result<()> {
        if let Some(pid) = absent_pid(&error) {
            if *failures >= MOST_FAILURES {
                let max_bytes = tree.pool().geometry().max_bytes;
                let requested_bytes = tree.options.leaf_bytes.into();
                let full = pando_pmem::Error::PoolFull { requested_bytes, max_bytes };
                return Err(Error::storage(PageError::CacheFull { source: full.into() }));
            }
            *failures += 1;
            return tree.load(pid);
        }
        if is_too_long(&error) && *failures < MOST_FAILURES {
            *failures += 1;
            return tree.pages()?.source()?.write_changes().map_err(Error::Storage);
        }
        tree.after_refusal(error, failures)
    }

    fn give_back<D: Domain>(tree: &BwTree<D, Self>) -> GivenBack {
        let source = tree.pages().and_then(|pages| pages.source());
        match source.is_ok_and(|source| source.make_room().is_ok()) {
            true => GivenBack::Some,
            false => GivenBack::Nothing,
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
            // The write has taken place. Who makes room, or syncs, gets the error.
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
fn bytes_of<D: Domain>(context: Context<'_, D>, link: Link) -> usize {
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
    (bytes + Page::of(context, chain.link).map_or(0, |page| page.end())) as usize
}

/// A page to be written into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageWrite {
    /// The page consists of this image.
    Image(u32, Vec<u8>),
    /// The page exists no longer.
    Free(u32),
}

/// How the image of a page has a record of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pictured {
    /// As the page has it.
    AsItIs,
    /// Not at all.
    Absent,
    /// With this value.
    With(Vec<u8>),
}

/// Says how the image of a page has the record with this key and value.
pub type Picture<'call> = dyn FnMut(&[u8], &[u8]) -> Result<Pictured> + 'call;

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

/// Pages whose states were captured, to be written as one group.
#[derive(Debug)]
pub struct Captured {
    capture: u64,
    changes: u64,
    pages: Vec<(u32, At)>,
    removed: Vec<u32>,
    /// Pages whose images have some records in another way. They stay changed.
    pub unmarked: Vec<u32>,
    /// Pages that were wanted, and for which the group has no room.
    pub left: Vec<u32>,
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

    fn pages(&self) -> Result<&Arc<Pages>> {
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
        for _ in 0..most {
            if next >= end {
                return Ok((seen, None));
            }
            let number = next as u32;
            if let Some(pid) = pages.pid_of(context, anchor, number) {
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

    /// Whether changes of structure are not written.
    pub fn has_unwritten_changes(&self) -> bool {
        self.pages.as_ref().is_some_and(|pages| !pages.changes.is_empty())
    }

    /// Captures the pages of all changes of structure that are not written, and those of the pages
    /// `wanted` that have changed, as many as there is room for in a group, one at least. `append`
    /// puts them into the order of groups: it reserves a place, calls the function that it gets for
    /// the writes, and fills the place. If the function returns `None`, the capture is out of date
    /// and the place stays empty. If there is nothing to write, `append` is not called.
    ///
    /// `picture` is asked for each record of a leaf. A page of which an image has a record in
    /// another way stays changed; if it is one of `wanted` and not of a change of structure,
    /// `leaves_others` leaves it out.
    ///
    /// When the group is written, call [`mark_written`](Self::mark_written).
    pub fn capture<T>(
        &self,
        (wanted, leaves_others): (&[u32], bool),
        picture: &mut Picture<'_>,
        append: impl FnOnce(&mut dyn FnMut() -> Option<Vec<PageWrite>>) -> T,
    ) -> Result<(Captured, Option<T>)> {
        let pages = self.pages()?;
        // Pinned before the number is taken: see "Why a mark ..".
        let guard = self.pin()?;
        let context = self.context(&guard);
        let anchor = self.anchor(context);
        let (mut captured, of_changes) = self.capture_words(&guard, wanted)?;
        let left = if leaves_others { of_changes } else { usize::MAX };
        let writes = self.writes_of(context, anchor, &mut captured, (of_changes, left), picture)?;
        if writes.is_empty() {
            return Ok((captured, None));
        }
        let mut writes = Some(writes);
        let mut checked = || {
            D::observe_process_memory();
            let is_last = pages.captures.load(Ordering::SeqCst) == captured.capture;
            let is_same = context.read(anchor + CHANGES_AT) == captured.changes;
            if !(is_last || mutant!("bw-capture-not-last")) {
                return None;
            }
            if !(is_same || mutant!("bw-capture-of-another-count")) {
                return None;
            }
            writes.take()
        };
        let appended = append(&mut checked);
        Ok((captured, Some(appended)))
    }

    /// Takes the number of a capture and marks the words of the pages; how many of these, the first
    /// ones, are of changes of structure.
    fn capture_words(&self, guard: &Guard<'_, D>, wanted: &[u32]) -> Result<(Captured, usize)> {
        let (pages, context) = (self.pages()?, self.context(guard));
        let anchor = self.anchor(context);
        // Sequentially consistent, with the checks: a capture that sees its own number there came
        // before the next one.
        D::observe_process_memory();
        let capture = pages.captures.fetch_add(1, Ordering::SeqCst) + 1;
        // The words are read behind this; the language does not order them behind the number alone
        // (model `capture`).
        fence(Ordering::SeqCst);
        let changes = context.read(anchor + CHANGES_AT);
        let listed = pages.changes.range(..=(changes, u64::MAX));
        let listed: BTreeSet<u32> =
            listed.flat_map(|entry| entry.value().numbers.clone()).collect();
        let others = wanted.iter().filter(|number| !listed.contains(number));
        let all = listed.iter().map(|number| (number, true));
        let all = all.chain(others.map(|number| (number, false)));
        let (pages_of, removed, unmarked, left) = Default::default();
        let mut captured = Captured { capture, changes, pages: pages_of, removed, unmarked, left };
        let (mut room, mut of_changes) = (pages.most_group_bytes() / 4, 0);
        for (&number, is_listed) in all {
            if room == 0 && !is_listed {
                captured.left.push(number);
                continue;
            }
            let Some(pid) = pages.pid_of(context, anchor, number) else { continue };
            let link = Link::at(context, pid);
            if link == Link::EMPTY || link.is_absent() || !link.is_removed() && link.is_written() {
                continue;
            }
            if link.is_removed() {
                captured.removed.extend(is_listed.then_some(number));
                continue;
            }
            // If this fails, the page has changed, and stays so.
            let new = link.captured();
            let _ = context.pmwcas.compare_exchange_undurable(guard, pid, link.0, new.0);
            captured.pages.push((number, At { pid, link: new }));
            match is_listed {
                true => of_changes += 1,
                false => room = room.saturating_sub(bytes_of(context, link)),
            }
        }
        Ok((captured, of_changes))
    }

    /// The writes of the captured pages. Pages behind the first `of_changes` are left out if they
    /// are too long for the group; those from `leaves_from` on, if the image has a record in
    /// another way.
    fn writes_of(
        &self,
        context: Context<'_, D>,
        anchor: u64,
        captured: &mut Captured,
        (of_changes, leaves_from): (usize, usize),
        picture: &mut Picture<'_>,
    ) -> Result<Vec<PageWrite>> {
        let most_bytes = self.pages()?.most_group_bytes();
        let (mut writes, mut bytes, mut other) = (Vec::new(), 0, Vec::new());
        for (index, &(number, at)) in captured.pages.iter().enumerate() {
            let may_leave = index >= leaves_from;
            let imaged = self.image_of(context, anchor, at.link, (picture, may_leave))?;
            let Some((image, is_same)) = imaged else {
                other.push(number);
                continue;
            };
            other.extend((!is_same).then_some(number));
            bytes += image.len() + WRITE_BYTES;
            if bytes > most_bytes && index >= of_changes.max(1) {
                let left = captured.pages.split_off(index);
                captured.left.extend(left.into_iter().map(|(number, _)| number));
                break;
            }
            writes.push(PageWrite::Image(number, image));
        }
        if !mutant!("bw-marked-with-another-picture") {
            captured.pages.retain(|(number, _)| !other.contains(number));
        }
        captured.unmarked = other;
        writes.extend(captured.removed.iter().map(|&number| PageWrite::Free(number)));
        Ok(writes)
    }

    /// The page that `link` leads to, as an image; whether that has each record as the page has it.
    /// `None` if it has not, and the page may be left out.
    fn image_of(
        &self,
        context: Context<'_, D>,
        anchor: u64,
        link: Link,
        (picture, may_leave): (&mut Picture<'_>, bool),
    ) -> Result<Option<(Vec<u8>, bool)>> {
        let pages = self.pages()?;
        let gathered = Gathered::new(context, link)?;
        let number_of = |pid: Pid| {
            let number = pages.number_of(context, anchor, pid);
            number.ok_or_else(|| Error::from(Damaged { off: pid }))
        };
        let items = gathered.items(false);
        let (mut records, mut children) = (Vec::new(), Vec::new());
        let (mut pictured, mut is_same) = (Vec::new(), true);
        if gathered.level > 0 {
            let mut pids = Vec::new();
            each_record(&items, |key, value| pids.push((key, value.child())));
            for (_, pid) in &pids {
                children.push(number_of(*pid)?.to_le_bytes());
            }
            let keys = pids.iter().map(|&(key, _)| key);
            records.extend(keys.zip(children.iter().map(<[u8; 4]>::as_slice)));
        } else {
            let mut is_whole = true;
            each_record(&items, |key, value| match value {
                Value::Inline(bytes) => records.push((key, bytes)),
                Value::Block(_) => is_whole = false,
            });
            if !is_whole {
                return Err(Damaged { off: link.off() }.into());
            }
            for (key, value) in &records {
                pictured.push(picture(key, value)?);
                is_same &= pictured.last() == Some(&Pictured::AsItIs);
                if !is_same && may_leave {
                    return Ok(None);
                }
            }
        }
        if !is_same {
            let mut pictured = pictured.iter();
            records.retain_mut(|(_, value)| match pictured.next() {
                Some(Pictured::Absent) => false,
                Some(Pictured::With(other)) => {
                    *value = other;
                    true
                }
                _ => true,
            });
        }
        let right = match gathered.right {
            0 => 0,
            right => number_of(right)?,
        };
        let (level, low, high, lsn) = (gathered.level, gathered.low, gathered.high, gathered.lsn);
        let image = Image { lsn, level, low, high, right, records }.encode();
        match image.len() <= MAX_IMAGE_BYTES {
            true => Ok(Some((image, is_same))),
            false => Err(too_long(image.len() as u64)),
        }
    }

    /// Called when the group of a capture is written. Returns how many of its pages have not
    /// changed meanwhile, and can be evicted.
    pub fn mark_written(&self, captured: &Captured) -> Result<usize> {
        let pages = self.pages()?;
        let guard = self.pin()?;
        let context = self.context(&guard);
        let mut marked = 0;
        for &(_, At { pid, link }) in &captured.pages {
            if Link::at(context, pid) != link {
                continue;
            }
            // After the word was read: see "Why a mark ..".
            D::observe_process_memory();
            let is_last = pages.captures.load(Ordering::SeqCst) == captured.capture;
            if !(is_last || mutant!("bw-marked-by-an-earlier-capture")) {
                break;
            }
            let new = link.written();
            let swap = context.pmwcas.compare_exchange_undurable(&guard, pid, link.0, new.0);
            marked += usize::from(swap.is_ok());
        }
        D::observe_process_memory();
        pages.unlist(captured.changes);
        Ok(marked)
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
        let gathered = Gathered::new(context, link)?;
        // Relaxed: only different from all others.
        let stamp = pages.stamps.fetch_add(1, Ordering::Relaxed) + 1;
        let stamp = if mutant!("bw-absent-without-stamp") { 1 } else { stamp };
        let is_done = context.publish(|operation| {
            operation.add_word(pid, link.0, Link::absent(stamp).0)?;
            add_freed(operation, &gathered.blocks)?;
            Ok(true)
        })?;
        Ok(if is_done { bytes } else { 0 })
    }

    /// Loads the page, if it is absent.
    fn load(&self, pid: Pid) -> Result<()> {
        let pages = self.pages()?;
        let (link, number) = {
            let guard = self.pin()?;
            let context = self.context(&guard);
            (Link::at(context, pid), pages.number_of(context, self.anchor(context), pid))
        };
        if !link.is_absent() {
            return Ok(());
        }
        let number = number.ok_or(Damaged { off: pid })?;
        let image = pages.source()?.read(number).map_err(Error::Storage)?;
        let Some(image) = image else {
            let guard = self.pin()?;
            // If the word has changed, the page was loaded, and perhaps removed.
            return match Link::at(self.context(&guard), pid) == link {
                true => Err(Error::storage(PageError::NotThere { page: number })),
                false => Ok(()),
            };
        };
        let image = Image::decode(&image)
            .map_err(|what| Error::storage(PageError::Damaged { page: number, what }))?;
        let mut failures = 0;
        loop {
            let done = with_room(
                &self.catalog,
                Tries::Few,
                || Stored::give_back(self),
                || {
                    let guard = self.pin()?;
                    let at = At { pid, link };
                    let access = match pages.access_of.get().map(|access_of| access_of()) {
                        None | Some(ReserveAccess::Undo | ReserveAccess::Without) => {
                            ReserveAccess::Without
                        }
                        Some(ReserveAccess::With) => ReserveAccess::With,
                        // The page may be changed next, and then it must stay.
                        Some(_) => ReserveAccess::Revocable,
                    };
                    guard.with_reserve_access(access, || self.install(&guard, number, at, &image))
                },
            );
            match done {
                Err(error) => self.after_refusal(error, &mut failures)?,
                done => return done,
            }
        }
    }

    /// Puts the page `at`, which is absent, into the pool.
    fn install(&self, guard: &Guard<'_, D>, number: u32, at: At, image: &Image<'_>) -> Result<()> {
        let (pages, context) = (self.pages()?, self.context(guard));
        let anchor = self.anchor(context);
        let pid_of = |named: u32| {
            let pid = pages.pid_of(context, anchor, named);
            let what = "it names a page that cannot be";
            pid.ok_or_else(|| Error::storage(PageError::Damaged { page: number, what }))
        };
        let mut children = Vec::new();
        if image.level > 0 {
            for (_, child) in &image.records {
                let child = child.first_chunk().map_or(0, |child| u32::from_le_bytes(*child));
                children.push(pid_of(child)?.to_le_bytes());
            }
        }
        let mut values = children.iter().map(<[u8; 8]>::as_slice);
        let items: Vec<Item<'_, D>> = (image.records.iter())
            .map(|&(key, value)| Item::One(key, Value::Inline(values.next().unwrap_or(value))))
            .collect();
        let right = match image.right {
            0 => 0,
            right => pid_of(right)?,
        };
        let page = NewPage {
            level: image.level,
            low: image.low,
            high: image.high,
            right,
            lsn: image.lsn,
            items: &items,
            room: self.room(0),
        };
        let block = page.build(context)?;
        let link = Link::base(block.off(), image.level > 0);
        let is_there = context.publish(|operation| {
            add_block(operation, at.pid, at.link.0, link, block)?;
            Ok(true)
        })?;
        if is_there {
            // If this fails, the page has changed.
            let written = link.written().0;
            let _ = context.pmwcas.compare_exchange_undurable(guard, at.pid, link.0, written);
        }
        Ok(())
    }

    /// After an operation was refused: makes room and waits, so that it can be tried again.
    fn after_refusal(&self, error: Error, failures: &mut u32) -> Result<()> {
        if !error.is_full() {
            return Err(error);
        }
        if *failures >= MOST_FAILURES {
            return Err(match error {
                Error::Storage(source) if source.downcast_ref::<PageError>().is_none() => {
                    Error::storage(PageError::CacheFull { source })
                }
                error => error,
            });
        }
        *failures += 1;
        self.pages()?.source()?.make_room().map_err(Error::Storage)?;
        if *failures > FAST_FAILURES {
            // Threads that are pinned, and do not run, delay what was evicted.
            thread::sleep(Duration::from_millis(1));
        }
        self.pool().reclaim().map_err(Error::storage)
    }
}
