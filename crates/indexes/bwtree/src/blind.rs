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
//! leaves. A write beyond that loads the page: so pages are split. It does so before its decision,
//! which may have consequences. When a partial page is consolidated, its removals stay deltas.
//!
//! An undo of a key that the partial page has never loads the page, which may be damaged on disk.
//! If there is no room beside the base, it makes a partial page of any length, without room for
//! more deltas. The undone value was in the page before, so such pages do not grow.

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::{Blocks, NewBlock};
use pando_tree::context::Context;
use pando_tree::key::{Probe, Target};

use crate::build::{NewPage, base_bytes};
use crate::context::{At, Damaged, Pid, Value, damaged};
use crate::gather::{Gathered, Item};
use crate::layout::{DeltaInfo, HEADER_BYTES, Kind, Link, NO_POSITION, deltas_at};
use crate::page::{Chain, Page};
use crate::prepend::{NewDelta, has_room};
use crate::search::prefetch;
use crate::style::{Replacement, Style};
use crate::tree::BwTree;

/// The least bytes of a partial page's delta space.
pub(crate) const LEAST_ROOM_BYTES: u64 = 256;

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

    /// Whether the pool has nothing of the key's record: the key's leaf is absent, or is a partial
    /// page that does not have the key.
    pub(crate) fn lacks_now(&self, context: Context<'_, D>, probe: Probe<'_>) -> Result<bool> {
        let Some(at) = self.find_leaf_now(context, probe)? else { return Ok(false) };
        if S::missing(at).is_some() {
            return Ok(true);
        }
        match at.link.find(context, probe, (self.options.shortcuts, true)) {
            Err(unread) if unread.unread_pid().is_some() => Ok(true),
            found => Ok(found.map(|_| false)?),
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

    /// Reserves the block of a partial page with one record, whose key and value have so many
    /// bytes. A full pool may have only the blocks of pages that were evicted, which are much
    /// longer.
    pub(crate) fn reserve_partial<'op>(
        &self,
        context: Context<'op, D>,
        (key_bytes, value_bytes): (usize, usize),
        attempts: u32,
    ) -> Result<NewBlock<'op, D>> {
        // As `NewPage` builds it: the record has a slice and a place.
        let base_bytes = HEADER_BYTES + 16 + (key_bytes + value_bytes) as u64;
        let bytes = deltas_at(base_bytes.next_multiple_of(8)) + room_of_one(key_bytes, value_bytes);
        let reserve = || context.reserve(bytes);
        match &self.pages {
            Some(pages) => pages.reserve_fitting(context.guard, attempts, reserve),
            None => reserve(),
        }
    }

    /// Puts a partial page with this record in the place of the absent page, in the block that was
    /// reserved for it; whether the page was still absent.
    pub(crate) fn put_partial<'op>(
        &self,
        context: Context<'op, D>,
        at: At,
        (key, value): (&[u8], &[u8]),
        reserved: NewBlock<'op, D>,
    ) -> Result<bool> {
        let items = [Item::One(key, Value::Inline(value))];
        let page = partial_page(at.pid, &items, room_of_one(key.len(), value.len()));
        let page = page.build_in(context, Some(reserved))?;
        let link = Link::base(page.off(), false);
        let new = Replacement { page, link, freed: &[], values: Blocks::NONE };
        S::replace(context, at, new)
    }

    /// Whether a write of a key that the page has can be done without a load, if the page is a
    /// partial one. The key and the value have so many bytes, or more. An undo takes place in any
    /// case.
    pub(crate) fn takes_known(
        &self,
        context: Context<'_, D>,
        at: At,
        (key_bytes, value_bytes): (usize, usize),
    ) -> Result<bool> {
        if at.link == Link::EMPTY || at.link.is_inner() {
            return Ok(true);
        }
        let base = Page::any_of(context, at.link)?;
        if !base.is_partial() {
            return Ok(true);
        }
        let room = delta_room(key_bytes, value_bytes);
        if has_room(context, &base, at.link, (room, self.chaining()))? || S::is_undoing(self) {
            return Ok(true);
        }
        let gathered = Gathered::any(context, at.link)?;
        // The record has a slice and a place.
        let bytes = base_bytes(&gathered.items(false), false)
            + 16
            + (key_bytes + value_bytes).next_multiple_of(8) as u64;
        let removed_bytes = removals(&gathered).iter().map(NewDelta::room).sum();
        Ok(self.room_of_partial(&gathered, bytes, removed_bytes).is_ok())
    }

    /// The delta space of the partial page that a consolidation makes of records of so many bytes,
    /// and of removals that take `removed_bytes` of it. The page must be loaded first, if it would
    /// be too long. An undo needs no load: it adds no key, and leaves no room to later writes.
    pub(crate) fn room_of_partial(
        &self,
        gathered: &Gathered<'_, D>,
        bytes: u64,
        removed_bytes: u64,
    ) -> Result<u64, Damaged> {
        let removed = gathered.edits.iter().filter(|edit| edit.value.is_none()).count();
        let is_short = bytes + removed_bytes <= self.most_partial_bytes()
            // Otherwise each write would make a base.
            && removed <= self.options.chain_deltas as usize / 2;
        match is_short {
            true => Ok(removed_bytes + bytes.max(LEAST_ROOM_BYTES).min(self.room(0))),
            false if S::is_undoing(self) => Ok(removed_bytes),
            false => Err(Damaged::unread(gathered.right)),
        }
    }
}

/// The removals of a partial page, as deltas.
pub(crate) fn removals<'op, D: Domain>(gathered: &Gathered<'op, D>) -> Vec<NewDelta<'op>> {
    let removed = gathered.edits.iter().filter(|edit| edit.value.is_none());
    removed
        .map(|edit| NewDelta::new(Kind::Delete, edit.key))
        .filter(|_| !mutant!("bw-partial-forgets-removal"))
        .collect()
}

/// Bytes that the delta of a record takes of a delta space.
fn delta_room(key_bytes: usize, value_bytes: usize) -> u64 {
    let delta = DeltaInfo {
        kind: Kind::Insert,
        is_pointer: false,
        is_endless: false,
        is_own: false,
        key_bytes: key_bytes as u16,
        value_bytes: value_bytes as u32,
        position: NO_POSITION,
        deltas: 0,
    };
    delta.room()
}

/// The delta space of a new partial page: for two more records like its first.
fn room_of_one(key_bytes: usize, value_bytes: usize) -> u64 {
    (2 * delta_room(key_bytes, value_bytes)).max(LEAST_ROOM_BYTES)
}

/// The partial page with this PID.
pub(crate) fn partial_page<'page, 'op, D: Domain>(
    pid: Pid,
    items: &'page [Item<'op, D>],
    room: u64,
) -> NewPage<'page, 'op, D> {
    NewPage { level: 0, low: &[], high: None, right: pid, items, room, is_partial: true }
}
