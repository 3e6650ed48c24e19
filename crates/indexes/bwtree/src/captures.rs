//! Writing pages of a tree into its store, in groups: captures and marks (`stored.rs` has the
//! states of a page).
//!
//! A thread writes a group of pages:
//!
//! 1. It pins, and then takes the next number of a capture. This ends all captures before it. Then
//!    the tree's owner fixes the time as of which it says how the store gets records.
//! 2. It reads the count of changes of structure, and then the words of the pages: those that it
//!    was asked for, and those of all changes of structure that are not written. It marks the words
//!    as captured. If a mark fails, the page has changed; the state that was read is written all
//!    the same, and the page stays unmarked.
//! 3. It makes the images and deltas from the links (`marshal.rs`). The tree's owner says how they
//!    have each record: a record that may not reach the store yet is there as it was before, or not
//!    at all. Such a page is not marked as written later; it stays changed.
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
//! read after A's. If A has not passed it, A fills no place. For the same reason B's records are as
//! of a later time than A's.
//!
//! Why each written group leaves a consistent tree: each change of structure changes the count with
//! the same PMwCAS, and its pages were listed before. The words were read while the count was the
//! same. So they have all changes up to that count, of which the list has the pages, and none
//! behind it. Changes leave the list when a group is written whose capture had them, or a later
//! count. Pages that a change has removed are freed in that group.
//!
//! Why a mark is of the state that was written: the thread sees the captured word after it has
//! pinned, and after that its capture is still the last. So no later capture has set the flag. An
//! earlier one sets it only while it is pinned, since before its own number was taken; so no block
//! that was freed after that is used again under the same link. And from its pin on, no link comes
//! back either.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{Ordering, fence};

use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard, mutant};
use pando_tree::context::Context;

use crate::context::At;
use crate::layout::{CHANGES_AT, Link};
use crate::marshal::{Marshalled, PageWrite, Picture, ReadAhead};
use crate::stored::{Stored, bytes_of};
use crate::tree::BwTree;

/// What a write of a group takes beside its bytes, at most.
const WRITE_BYTES: usize = 256;

/// Pages whose states were captured, to be written as one group.
#[derive(Debug)]
pub struct Captured {
    capture: u64,
    changes: u64,
    pages: Vec<(u32, At)>,
    removed: Vec<u32>,
    /// Pages whose images have some records in another way. They stay changed.
    pub unmarked: Vec<u32>,
    /// Pages whose parts in the store cannot be read, but are needed. They stay changed.
    pub failed: Vec<(u32, Error)>,
    /// Pages that were wanted, and for which the group has no room.
    pub left: Vec<u32>,
}

impl<D: Domain> BwTree<D, Stored> {
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
        picture: &mut dyn Picture,
        append: impl FnOnce(&mut dyn FnMut() -> Option<Vec<PageWrite>>) -> T,
    ) -> Result<(Captured, Option<T>)> {
        let pages = self.pages()?;
        let mut failed = Vec::new();
        let read = self.read_ahead(wanted, &mut failed)?;
        let wanted: Vec<u32> = (wanted.iter().copied())
            .filter(|number| failed.iter().all(|(of_failed, _)| of_failed != number))
            .collect();
        // Pinned before the number is taken: see "Why a mark ..".
        let guard = self.pin()?;
        let context = self.context(&guard);
        let anchor = self.anchor(context);
        let (mut captured, of_changes) = self.capture_words(&guard, &wanted, picture)?;
        captured.failed = failed;
        let left = if leaves_others { of_changes } else { usize::MAX };
        let writes = self.writes_of(context, &mut captured, (of_changes, left), picture, &read)?;
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
    fn capture_words(
        &self,
        guard: &Guard<'_, D>,
        wanted: &[u32],
        picture: &mut dyn Picture,
    ) -> Result<(Captured, usize)> {
        let (pages, context) = (self.pages()?, self.context(guard));
        let anchor = self.anchor(context);
        // Sequentially consistent, with the checks: a capture that sees its own number there came
        // before the next one.
        D::observe_process_memory();
        let is_early = mutant!("bw-picture-before-number");
        if is_early {
            picture.begin();
        }
        let capture = pages.captures.fetch_add(1, Ordering::SeqCst) + 1;
        // The words are read behind this; the language does not order them behind the number alone
        // (model `capture`).
        fence(Ordering::SeqCst);
        if !is_early {
            picture.begin();
        }
        let changes = context.read(anchor + CHANGES_AT);
        let listed = pages.listed(changes);
        let listed: BTreeSet<u32> =
            listed.flat_map(|entry| entry.value().numbers.clone()).collect();
        let others = wanted.iter().filter(|number| !listed.contains(number));
        let all = listed.iter().map(|number| (number, true));
        let all = all.chain(others.map(|number| (number, false)));
        let (pages_of, removed, unmarked, failed, left) = Default::default();
        let mut captured =
            Captured { capture, changes, pages: pages_of, removed, unmarked, failed, left };
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
        captured: &mut Captured,
        (of_changes, leaves_from): (usize, usize),
        picture: &mut dyn Picture,
        read: &HashMap<u32, ReadAhead>,
    ) -> Result<Vec<PageWrite>> {
        let most_bytes = self.pages()?.most_group_bytes();
        let (mut writes, mut bytes) = (Vec::new(), 0);
        let (mut other, mut unread) = (Vec::new(), Vec::new());
        for (index, &(number, at)) in captured.pages.iter().enumerate() {
            let may_leave = index >= leaves_from;
            let page = (number, at.link);
            let marshalled =
                self.marshal(context, page, (picture, may_leave), read.get(&number))?;
            let (write, is_same) = match marshalled {
                Marshalled::Write(write, is_same) => (write, is_same),
                Marshalled::Other => {
                    other.push(number);
                    continue;
                }
                // The store has its structure, since it was evicted.
                Marshalled::Unread => {
                    unread.push(number);
                    continue;
                }
            };
            other.extend((!is_same).then_some(number));
            bytes += write.bytes() + WRITE_BYTES;
            if bytes > most_bytes && index >= of_changes.max(1) {
                let left = captured.pages.split_off(index);
                captured.left.extend(left.into_iter().map(|(number, _)| number));
                break;
            }
            writes.push(write);
        }
        if !mutant!("bw-marked-with-another-picture") {
            captured.pages.retain(|(number, _)| !other.contains(number));
        }
        captured.pages.retain(|(number, _)| !unread.contains(number));
        captured.left.extend(unread);
        captured.unmarked = other;
        writes.extend(captured.removed.iter().map(|&number| PageWrite::Free(number)));
        Ok(writes)
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
}
