//! Blind writes: a write of a record whose page is in the store alone, without a read of the page
//! (LLAMA, and section V of the Bw-tree paper).
//!
//! The first such write puts a *partial page* in the place of the absent page: a base page with the
//! new record alone (`layout.rs`). Later ones are deltas on it, and a consolidation makes a larger
//! partial page of both. The state of the page is the store's, with the partial page's records on
//! top. (LLAMA's partial pages have the newest deltas of a page in memory too.)
//!
//! | step | deciding word | afterwards |
//! | --- | --- | --- |
//! | first blind write | the page's, from absent to a partial page | a partial page |
//! | blind write | the page's, from its link to a delta, or to a longer partial page | a partial page |
//! | write of another kind, read, of a key that the partial page has | as in any other page | a partial page |
//! | load | the page's, from its link to a whole page with the same records on top | a whole page |
//! | capture, mark | as of any other page; it is written as a delta, or joined with the store's parts | the same |
//! | evict | the page's, from written to absent with a new stamp | absent |
//!
//! Each step is one CAS or PMwCAS of one word, so no helping is needed, and a thread that stops, or
//! a kill, leaves nothing else.
//!
//! # Why the key belongs to the page
//!
//! A partial page does not know its range. The range of a page is that of its entry in the parent,
//! and both change in one PMwCAS (`multi_word.rs`). So a blind write reads the parent's word, then
//! the page's, and then the parent's again: if that is the same, the entry was right when the
//! page's word was read. The write succeeds only if the page's word is still the same. The range of
//! a page changes only while it is whole: splits and merges read all of its records.
//!
//! # Reads
//!
//! A partial page answers for the keys that it has. For all others, and for everything that needs
//! the page's range, it is an error that names the page ([`Damaged::unread`]); the operation loads
//! the page and begins again, as at an absent page.
//!
//! # Loads
//!
//! The thread asks the store for the page's version, reads its parts, pins, reads the page's word,
//! and asks for the version again. If it is the same, the parts are those below the partial page: a
//! partial page loses records only by an eviction, and that comes after a write that has changed
//! the version. The partial page's records become deltas on the loaded page, whose link says that
//! the store has it. So the next write of the page is a delta again.
//!
//! # Writes into the store
//!
//! A partial page is written as a delta. If the store takes no more deltas of the page, its parts
//! are read before the capture, and the page is written whole, from these parts and the partial
//! page, without room in the pool. That is right if the version is still the same after the words
//! were captured: see "Loads". If not, the page is left to another group.
//!
//! # Limits
//!
//! A partial page has at most half the bytes of a leaf, and stands on a page of at most three
//! leaves. A write beyond that loads the page: so pages are split. A partial page does not forget
//! removed records when it is consolidated; it is loaded instead.

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::Blocks;
use pando_tree::context::Context;
use pando_tree::key::{Probe, Target};

use crate::build::NewPage;
use crate::context::{At, Damaged, Pid, Value, damaged};
use crate::gather::{Gathered, Item};
use crate::layout::{HEADER_BYTES, Kind, Link};
use crate::page::{Chain, Page};
use crate::prepend::NewDelta;
use crate::search::prefetch;
use crate::style::{Replacement, Style};
use crate::tree::BwTree;

/// A block is wasted if it is so many times as long as needed.
const MOST_WASTE: u64 = 3;
/// The least bytes of a partial page's delta space.
const LEAST_ROOM_BYTES: u64 = 256;

impl<D: Domain, S: Style<D>> BwTree<D, S> {
    /// The leaf whose range has the key, as its word is now; it may be absent, or a partial page.
    /// `None` if the only leaf is the root.
    pub(crate) fn find_leaf_now(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
    ) -> Result<Option<At>> {
        let target = Target::Holding(probe);
        loop {
            let Some((parent, pid)) = self.find_inner(context, target, 1)? else { return Ok(None) };
            let at = At::now(context, pid);
            prefetch(context, at.link);
            let is_same = Link::at(context, parent.pid) == parent.link;
            if !is_same && !mutant!("bw-blind-parent-not-read-again") {
                continue;
            }
            let is_there = at.link != Link::EMPTY && !at.link.is_removed();
            if !is_there && S::missing(at).is_none() {
                return Err(damaged(at));
            }
            S::touch(self, at);
            return Ok(Some(at));
        }
    }

    /// The most bytes of a partial page, without room for deltas.
    fn most_partial_bytes(&self) -> u64 {
        self.max_bytes(0) / 2
    }

    /// Whether a record of so many bytes may be added to the partial page, or to the absent page.
    pub(crate) fn takes_blind(
        &self,
        context: Context<'_, D>,
        at: At,
        record_bytes: usize,
    ) -> Result<bool> {
        let (mut chain, mut bytes) = (Chain::new(at.link), record_bytes as u64);
        if S::missing(at).is_none() {
            while let Some(delta) = chain.next(context)? {
                bytes += delta.info.bytes();
            }
            bytes += Page::any_of(context, chain.link)?.body_bytes();
        }
        Ok(bytes <= self.most_partial_bytes() && S::may_write_blind(self, context, at.pid))
    }

    /// Whether there is room for a partial page with one record of so many bytes. A full pool has
    /// only the blocks of pages that were evicted, which are much larger; then `refuses` is asked.
    /// If that refuses, more pages are evicted, until chunks of the pool are free.
    pub(crate) fn look_for_room(
        &self,
        context: Context<'_, D>,
        record_bytes: usize,
        refuses: impl FnOnce() -> bool,
    ) -> Result<()> {
        let record_bytes = record_bytes as u64;
        let room = (2 * (record_bytes + 64)).max(LEAST_ROOM_BYTES);
        let requested_bytes = HEADER_BYTES + record_bytes + 64 + room;
        let found_bytes = context.reserve(requested_bytes)?.bytes();
        if found_bytes > MOST_WASTE * requested_bytes && refuses() {
            let max_bytes = context.pool().geometry().max_bytes;
            let full = pando_pmem::Error::PoolFull { requested_bytes, max_bytes };
            return Err(Error::storage(full));
        }
        Ok(())
    }

    /// Puts a partial page with this record in the place of the absent page; whether it was still
    /// absent.
    pub(crate) fn put_partial(
        &self,
        context: Context<'_, D>,
        at: At,
        (key, value, lsn): (&[u8], &[u8], u64),
    ) -> Result<bool> {
        let delta = NewDelta { value: [value, &[], &[], &[]], ..NewDelta::new(Kind::Insert, key) };
        let items = [Item::One(key, Value::Inline(value))];
        let page = partial_page((at.pid, lsn), &items, (2 * delta.room()).max(LEAST_ROOM_BYTES));
        let page = page.build(context)?;
        let new = Replacement { page, is_inner: false, freed: &[], values: Blocks::NONE };
        S::replace(context, at, new)
    }

    /// The delta space of the partial page that a consolidation makes. The page must be loaded
    /// first, if it is too long, or if it would forget a removed record.
    pub(crate) fn room_of_partial(
        &self,
        gathered: &Gathered<'_, D>,
        bytes: u64,
    ) -> Result<u64, Damaged> {
        let forgets = gathered.edits.iter().any(|edit| edit.value.is_none())
            && !mutant!("bw-partial-forgets-removal");
        match forgets || bytes > self.most_partial_bytes() {
            true => Err(Damaged::unread(gathered.right)),
            false => Ok(bytes.max(LEAST_ROOM_BYTES).min(self.room(0))),
        }
    }
}

/// The partial page with this PID, and the highest LSN in it.
pub(crate) fn partial_page<'page, 'op, D: Domain>(
    (pid, lsn): (Pid, u64),
    items: &'page [Item<'op, D>],
    room: u64,
) -> NewPage<'page, 'op, D> {
    NewPage { level: 0, low: &[], high: None, right: pid, lsn, items, room, is_partial: true }
}
