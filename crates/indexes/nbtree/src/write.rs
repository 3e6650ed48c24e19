//! Inserts, updates and deletes (paper 3.2, 4.1, 5.1, 5.2).
//!
//! # Insert
//!
//! | step | deciding word | helper | a crash leaves |
//! | --- | --- | --- | --- |
//! | search: no slot of the bitmap is live | | | |
//! | claim a free slot, in the home line if it has one: CAS of its fingerprint | `fingerprints` | | a slot that is empty |
//! | store the slot's class, key and value word, *pending* | | | pending: not live |
//! | decide: CAS of `control` to the slot's bit, as long as no slot was decided since that holds the key | `control` | | pending: not live |
//! | complete: CAS of the value word from pending to plain; write back, fence | value word | any thread that meets it | live |
//!
//! So at most one slot of a key is live. Two steps of the paper do not ensure this: it claims a
//! slot blindly, and sets a bit without a check of the other decided slots. And a slot that is live
//! on the medium was decided, which its key word alone does not say. If the thread of a slot stops
//! before it has decided, other threads cannot use the slot until the leaf is replaced, and this is
//! its only cost. If the leaf is closed meanwhile, or another slot has the key, the slot is
//! abandoned as it is: while it is pending, it does not count.
//!
//! One line of the pool is written, and written back once, with one fence. If no slot is free, or
//! the leaf is closed, the leaf is replaced, and the record is carried along (`smo.rs`).
//!
//! # Update, delete
//!
//! One CAS of the value word, to the new value or to *deleted*, which is final; write back, fence.
//! The CAS fails if the word was closed. Then the leaf is replaced, and the change is carried along
//! (`smo.rs`), or another thread has replaced it and the search starts again there (sync-on-write:
//! paper 4.2, in which the writer changes both leaves). The copies of an open value word are not
//! final, so a change of it is never lost.
//!
//! # Records in blocks of their own
//!
//! The same, but `pando_pmem::Exchange` writes the block's name into the word and exchanges the
//! block: the log of the thread exists until the value word is durable, or abandoned. For recovery,
//! a pending word names no block. A leaf is replaced only after the changes of such words by other
//! threads: the thread that replaces it writes back each line with a change that may not be durable
//! (`smo.rs`). An unlinked leaf keeps its words as long as a thread that could have a log of them
//! holds its guard.

use std::sync::atomic::Ordering;

use pando_index::{Change as Modify, Error, Intent, Result, Upserted};
use pando_pmem::{Domain, Guard, mutant};
use pando_tree::blocks::NewBlock;
use pando_tree::checked::undamaged;
use pando_tree::key::{Probe, Side};
use pando_tree::room::{Tries, nothing_to_give};

use crate::layout::{
    Content, DELETED, LIMITS, RECORD, RECORD_TAG, STABLE_BITS, class_of, class_shift, classes_at,
    content, is_closed, key_at, pending, value_at,
};
use crate::record::Record;
use crate::separator::fingerprint;
use crate::smo::Change;
use crate::tree::{Found, NbTree};
use crate::volatile::leaf::Control;
use crate::volatile::node::LeafRef;

/// The leaf has changed: search again.
struct Again;

/// Why a record was not inserted into a leaf.
enum NotInserted {
    /// The leaf has changed: search again.
    Again,
    /// No slot is free.
    Full,
}

impl<D: Domain> NbTree<D> {
    /// Writes the record, if the key's state is as `intent` requires.
    #[inline]
    pub(crate) fn put(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        LIMITS.check_key(key)?;
        LIMITS.check_value(value)?;
        let record = Record::new(key, value);
        self.layers.check()?;
        self.until_done(Tries::Few, nothing_to_give, |guard| {
            guard.without_reserve(|| self.write_pinned(guard, &record, intent))
        })
    }

    /// One attempt; `None` means that the leaf has changed.
    #[inline(always)]
    fn write_pinned(
        &self,
        guard: &Guard<'_, D>,
        record: &Record<'_>,
        intent: Intent<'_>,
    ) -> Result<Option<Upserted>> {
        let Record { probe, fingerprint, .. } = *record;
        let leaf = self.find_leaf(guard, &probe, Side::Holding, fingerprint);
        undamaged(guard)?;
        let control = leaf.control::<D>();
        if matches!(intent, Intent::Insert)
            && let Some(slot) = leaf.slot_to_take(fingerprint, self.slots())
        {
            // The key is probably absent, and this slot its place.
            guard.pool().word(leaf.block_off + value_at(slot)).prefetch_for_write();
        }
        let found = self.search(guard, leaf, control.bitmap(), &probe, fingerprint);
        match (&found, intent) {
            (None, Intent::Update | Intent::Exchange { .. }) => return Err(Error::KeyNotFound),
            (&Some(found), Intent::Insert) => {
                self.make_durable(guard, leaf, found.slot);
                return Err(Error::KeyExists);
            }
            (&Some(found), Intent::Exchange { expected })
                if !self.lend(guard, leaf, found, |value| value == expected) =>
            {
                self.make_durable(guard, leaf, found.slot);
                return Err(Error::ValueMismatch);
            }
            _ => {}
        }
        self.write_found(guard, (leaf, control), found, record)
    }

    /// Writes the record where a search of the leaf has found its key, or has not, with `control`;
    /// `None` means that the leaf, or the found record, has changed.
    #[inline(always)]
    fn write_found(
        &self,
        guard: &Guard<'_, D>,
        (leaf, control): (LeafRef<'_>, Control),
        found: Option<Found>,
        record: &Record<'_>,
    ) -> Result<Option<Upserted>> {
        let Some(found) = found else {
            let inserted = if control.is_closed() {
                Err(NotInserted::Full)
            } else {
                self.insert_into(guard, leaf, control, record)?
            };
            let is_inserted = match inserted {
                Ok(()) => true,
                Err(NotInserted::Full) => {
                    self.replace_with(guard, leaf, Some(Change::Insert(record)))?
                }
                Err(NotInserted::Again) => false,
            };
            return Ok(is_inserted.then_some(Upserted::Inserted));
        };
        let is_updated = if is_closed(found.word) {
            self.replace_with(guard, leaf, Some(Change::Update(found, record)))?
        } else {
            self.update_slot(guard, leaf, found, record)?.is_ok()
        };
        Ok(is_updated.then_some(Upserted::Updated))
    }

    /// Replaces the value of `key` by the one that `change` computes; `None` if it is to stay. The
    /// tree is searched once for the look and the write.
    pub(crate) fn read_modify_write(
        &self,
        key: &[u8],
        change: &mut Modify<'_>,
    ) -> Result<Option<Upserted>> {
        LIMITS.check_key(key)?;
        let probe = Probe::new(key);
        let fingerprint = fingerprint(&probe);
        self.layers.check()?;
        let mut new = Vec::new();
        self.until_done(Tries::Few, nothing_to_give, |guard| {
            let leaf = self.find_leaf(guard, &probe, Side::Holding, fingerprint);
            let control = leaf.control::<D>();
            let found = self.search(guard, leaf, control.bitmap(), &probe, fingerprint);
            undamaged(guard)?;
            new.clear();
            let changes = match found {
                None => change(None, &mut new),
                Some(found) => {
                    // `change` may act upon the value.
                    self.make_durable(guard, leaf, found.slot);
                    self.lend(guard, leaf, found, |value| change(Some(value), &mut new))
                }
            };
            if !changes {
                return Ok(Some(None));
            }
            LIMITS.check_value(&new)?;
            let record = Record::new(key, &new);
            let written =
                guard.without_reserve(|| self.write_found(guard, (leaf, control), found, &record));
            Ok(written?.map(Some))
        })
    }

    /// A block with the record.
    pub(crate) fn reserve<'guard>(
        &'guard self,
        guard: &'guard Guard<'_, D>,
        record: &Record<'_>,
    ) -> Result<NewBlock<'guard, D>> {
        RECORD
            .reserve(self.context(guard), record.probe.bytes, record.value)
            .map_err(Error::storage)
    }

    /// Inserts the record into the leaf, in which `control` had no slot of its key.
    #[inline(always)]
    fn insert_into(
        &self,
        guard: &Guard<'_, D>,
        leaf: LeafRef<'_>,
        control: Control,
        record: &Record<'_>,
    ) -> Result<Result<(), NotInserted>> {
        let Record { probe, fingerprint, .. } = *record;
        let pool = guard.pool();
        // No block is made in vain.
        if record.inline.is_none() && leaf.slot_to_take(fingerprint, self.slots()).is_none() {
            return Ok(Err(NotInserted::Full));
        }
        // Before the claim: an error must not cost a slot.
        let block = match record.inline {
            Some(_) => None,
            None => Some(self.reserve(guard, record)?),
        };
        let Some(slot) = leaf.claim::<D>(fingerprint, self.slots()) else {
            return Ok(Err(NotInserted::Full));
        };
        let value = pool.word(leaf.block_off + value_at(slot));
        let exchange = block.map(|block| {
            let new = Some((block, RECORD_TAG));
            guard.begin_exchange(leaf.block_off + value_at(slot), STABLE_BITS, 0, new)
        });
        let word = match (record.inline, &exchange) {
            (Some((class, word)), _) => {
                if class != 0 {
                    let classes = pool.word(leaf.block_off + classes_at(slot));
                    classes.fetch_or(class << class_shift(slot));
                }
                word
            }
            (None, Some(exchange)) => exchange.new_name(),
            (None, None) => 0,
        };
        // Relaxed, and in order on their line: the value word, which makes the others count, is
        // last. Readers see them when they see the bit in `control`.
        pool.word(leaf.block_off + key_at(slot)).store(probe.slice, Ordering::Relaxed);
        let first = if mutant!("nbtree-live-before-decided") { word } else { pending(word) };
        value.store(first, Ordering::Release);
        leaf.begin_change::<D>(slot);
        let mut seen = control;
        while let Err(found) = leaf.change::<D>(seen, seen.decided(slot)) {
            let fresh = found.bitmap() & !seen.bitmap();
            let has_key = || self.search(guard, leaf, fresh, &probe, fingerprint).is_some();
            if found.is_closed() || (!mutant!("nbtree-blind-decision") && has_key()) {
                leaf.end_change::<D>(slot);
                if let Some(exchange) = exchange {
                    exchange.failed();
                }
                return Ok(Err(NotInserted::Again));
            }
            seen = found;
        }
        // Another thread that met it may have completed it.
        let _ = value.compare_exchange(pending(word), word);
        if !mutant!("nbtree-undurable-insert") {
            value.flush();
        }
        match exchange {
            Some(exchange) => {
                exchange.succeeded();
            }
            None => D::fence(),
        }
        leaf.end_change::<D>(slot);
        Ok(Ok(()))
    }

    /// Replaces the value of the found record.
    #[inline(always)]
    fn update_slot(
        &self,
        guard: &Guard<'_, D>,
        leaf: LeafRef<'_>,
        found: Found,
        record: &Record<'_>,
    ) -> Result<Result<(), Again>> {
        let classes = guard.pool().word(leaf.block_off + classes_at(found.slot));
        // Relaxed: stored before the slot was decided.
        let class = class_of(classes.load(Ordering::Relaxed), found.slot);
        let new = record.inline.filter(|&(of_value, _)| of_value == class).map(|(_, word)| word);
        match (content(found.word), new) {
            (Content::Value, Some(word)) => Ok(self.change_word(guard, leaf, found, word)),
            (_, Some(word)) => Ok(self.exchange(guard, leaf, found, Ok(word))),
            (_, None) => {
                let block = self.reserve(guard, record)?;
                Ok(self.exchange(guard, leaf, found, Err(block)))
            }
        }
    }

    /// Changes the found value word, which names no block, to another one that names none.
    #[inline(always)]
    fn change_word(
        &self,
        guard: &Guard<'_, D>,
        leaf: LeafRef<'_>,
        found: Found,
        new: u64,
    ) -> Result<(), Again> {
        let value = guard.pool().word(leaf.block_off + value_at(found.slot));
        leaf.begin_change::<D>(found.slot);
        let changed = value.compare_exchange(found.word, new).is_ok();
        if changed {
            value.flush();
            D::fence();
        }
        leaf.end_change::<D>(found.slot);
        if changed { Ok(()) } else { Err(Again) }
    }

    /// Changes the found value word to a word that names no block, or to the name of a block.
    fn exchange<'guard>(
        &self,
        guard: &'guard Guard<'_, D>,
        leaf: LeafRef<'_>,
        found: Found,
        new: Result<u64, NewBlock<'guard, D>>,
    ) -> Result<(), Again> {
        let off = leaf.block_off + value_at(found.slot);
        let old = if content(found.word) == Content::Value { 0 } else { found.word };
        let (word, block) = match new {
            Ok(word) => (Some(word), None),
            Err(block) => (None, Some((block, RECORD_TAG))),
        };
        let exchange = guard.begin_exchange(off, STABLE_BITS, old, block);
        let word = word.unwrap_or(exchange.new_name());
        let value = guard.pool().word(off);
        leaf.begin_change::<D>(found.slot);
        let changed = value.compare_exchange(found.word, word).is_ok();
        if changed {
            value.flush();
            exchange.succeeded();
        } else {
            exchange.failed();
        }
        leaf.end_change::<D>(found.slot);
        if changed { Ok(()) } else { Err(Again) }
    }

    /// Removes the record; returns whether it was present. If `expected` is given, a record with
    /// another value is an error.
    #[inline]
    pub(crate) fn delete(&self, key: &[u8], expected: Option<&[u8]>) -> Result<bool> {
        LIMITS.check_key(key)?;
        let probe = Probe::new(key);
        self.layers.check()?;
        self.until_done(Tries::Many, nothing_to_give, |guard| {
            self.delete_pinned(guard, &probe, expected)
        })
    }

    /// One attempt; `None` means that the leaf has changed.
    #[inline(always)]
    fn delete_pinned(
        &self,
        guard: &Guard<'_, D>,
        probe: &Probe<'_>,
        expected: Option<&[u8]>,
    ) -> Result<Option<bool>> {
        let fingerprint = fingerprint(probe);
        let leaf = self.find_leaf(guard, probe, Side::Holding, fingerprint);
        let control = leaf.control::<D>();
        let found = self.search(guard, leaf, control.bitmap(), probe, fingerprint);
        undamaged(guard)?;
        let Some(found) = found else { return Ok(Some(false)) };
        if let Some(expected) = expected
            && !self.lend(guard, leaf, found, |value| value == expected)
        {
            self.make_durable(guard, leaf, found.slot);
            return Err(Error::ValueMismatch);
        }
        if is_closed(found.word) {
            let deleted = Some(Change::Delete(found));
            let is_deleted = guard.with_reserve(|| self.replace_with(guard, leaf, deleted))?;
            return Ok(is_deleted.then_some(true));
        }
        let deleted = match content(found.word) {
            Content::Value => self.change_word(guard, leaf, found, DELETED),
            _ => self.exchange(guard, leaf, found, Ok(DELETED)),
        };
        if deleted.is_err() {
            return Ok(None);
        }
        if leaf.note_deleted() && !leaf.low.is_lowest() {
            // The record is removed, whether its leaf can be dropped now or not.
            let _ = guard.with_reserve(|| self.replace(guard, leaf));
        }
        Ok(Some(true))
    }
}
