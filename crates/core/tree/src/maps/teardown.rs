//! The drop of a map: one step removes it from the catalog, and then its blocks are freed, without
//! an allocation.
//!
//! # Protocol
//!
//! | step | what is written | what a crash leaves |
//! | --- | --- | --- |
//! | 1. the map is dropped | one PMwCAS: the mark of its slot, from *live* to *dropped*, and the catalog's version | the map, or a dropped map |
//! | 2. its units are freed | one PMwCAS or several for each, see below | a dropped map with fewer units |
//! | 3. the header is forgotten | zeros over the magic of both copies | a dropped map without a root |
//! | 4. the slot is free | one PMwCAS: slot to zero, header freed, the catalog's version | a dropped map without a root, or nothing |
//!
//! The slot's word decides. From step 1 on the name is free and no thread finds the map; it has no
//! open handle. So any thread that finds a dropped map may continue with it, at any time, and
//! several threads at once: the thread that dropped it, a thread that finds the pool full, a thread
//! that opens the pool.
//!
//! A *unit* is the part that is freed at once: a leaf, an inner node without children, some nodes
//! of a list. An index only says which unit is next ([`Unit`]). This follows from the words of the
//! map, so nothing must be remembered. One PMwCAS changes the word that names the unit and frees
//! its blocks. If a leaf owns more blocks (values) than one operation can free, earlier operations
//! free these, in the order in which the index lists them, and count them in the *progress* word of
//! the map's header:
//!
//! ```text
//! progress   59 .. 48  47 .. 6   5 .. 0
//!            count     block     count      the count's upper and lower bits; the block that names the unit
//! ```
//!
//! Each of them also expects the unchanged word that names the unit, and such a word never has an
//! old value again. So if two threads free the same unit, one fails and looks again, and a thread
//! that was stopped frees nothing later.
//!
//! A block is freed only by the operation that removes the last word or place that leads to it. So
//! a map that is freed further after a crash never frees a block that belongs to another map by
//! then.
//!
//! The freeing of a damaged map ends too. Anything that does not look like a unit is skipped: the
//! word that leads there becomes zero, and the blocks behind it stay allocated, which `check`
//! reports as leaked. Each operation removes something, so their number is bounded by the words of
//! the map.

use std::sync::atomic::Ordering;

use pando_pmem::layout::CATALOG_VERSION_OFF;
use pando_pmem::{Domain, Guard, mutant};
use pando_pmwcas::{BLOCK_MASK, CONTROL_BITS, HINT_SHIFT, MAX_WORDS, Policy};

use super::catalog::{Catalog, MAX_ATTEMPTS, MapError, next_version};
use super::kind::IndexKind;
use super::options::OptionValues;
use super::slots::{DROPPED_MARK, MapEntry, PROGRESS_AT, slot_word};
use super::unit::{Change, KnownKind, Unit};
use crate::context::Context;

/// Operations under one guard. The blocks that they free can be reused when the guard is dropped.
const STEPS_A_GUARD: usize = 32;
/// Bits of the progress word's count that stand below the block.
const LOW_COUNT_BITS: u32 = 6;
/// The most blocks that are counted: there are twelve bits above the block.
const MAX_BLOCKS: usize = 1 << (LOW_COUNT_BITS + 12);

/// The progress word: so many blocks of the unit with that block are freed.
fn progress(count: usize, block: u64) -> u64 {
    let count = count as u64;
    let low = count & ((1 << LOW_COUNT_BITS) - 1);
    (count >> LOW_COUNT_BITS) << HINT_SHIFT | block & BLOCK_MASK | low
}

fn progress_of(word: u64, block: u64) -> usize {
    let low = word & ((1 << LOW_COUNT_BITS) - 1);
    let count = (word >> HINT_SHIFT << LOW_COUNT_BITS | low) as usize;
    if word == progress(count, block) { count } else { 0 }
}

impl<D: Domain> Catalog<D> {
    /// Removes the map `entry` from the catalog, durably: step 1. It must have no open handle. This
    /// allocates nothing, so it succeeds in a full pool. Returns the dropped map, for
    /// [`free_map`](Self::free_map).
    pub fn unlist_map(&self, entry: &MapEntry) -> Result<MapEntry, MapError> {
        let word = if mutant!("map-name-free-first") {
            0
        } else {
            slot_word(DROPPED_MARK, entry.header_off)
        };
        let version_off = CATALOG_VERSION_OFF;
        for _ in 0..MAX_ATTEMPTS {
            let guard = self.pool().pin()?;
            let version = self.catalog_version(&guard);
            if self.read(&guard, entry.slot_off()) != entry.word {
                let name = entry.header.as_ref().map(|header| header.name.clone());
                return Err(MapError::Dropped { name: name.unwrap_or_default() });
            }
            let mut operation = self.allocate(&guard)?;
            operation.add_word(entry.slot_off(), entry.word, word)?;
            operation.add_word(version_off, version, next_version(version))?;
            if operation.execute() {
                self.forget_shared_state(entry.root_off());
                return Ok(MapEntry { word, ..entry.clone() });
            }
        }
        Err(MapError::DamagedWord { off: version_off })
    }

    /// The dropped maps that are not freed yet.
    pub fn dropped_maps(&self, guard: &Guard<'_, D>) -> Vec<MapEntry> {
        self.slots().dropped_maps(guard, &|off| self.read(guard, off))
    }

    /// Drops the map `entry` with the index `K`, of which no handle is open, and frees its blocks.
    /// When it returns, the map is dropped durably. A crash leaves the map as it was, or a dropped
    /// map whose blocks are freed later.
    pub fn drop_index<K: IndexKind>(&self, entry: &MapEntry) -> Result<(), MapError> {
        let dropped = self.unlist_map(entry)?;
        self.free_map(&KnownKind::of::<K>(), &dropped, &|| false)
    }

    /// Frees the dropped map `entry`, unless `is_enough` stops it earlier: steps 2 to 4.
    pub fn free_map(
        &self,
        kind: &KnownKind<D>,
        entry: &MapEntry,
        is_enough: &dyn Fn() -> bool,
    ) -> Result<(), MapError> {
        let header = entry.header.as_ref();
        let options = header.map(|header| header.options).unwrap_or_default();
        let options = OptionValues::decode(kind.options, options)?;
        let mut failures = 0;
        loop {
            let guard = self.pool().pin()?;
            // What a guard has read from its slot does not change under the guard. Without one,
            // another map may have taken slot and header.
            let found = self.slots().entry_in(&guard, entry.slot, &|off| self.read(&guard, off));
            let Some(found) = found.filter(|found| found.word == entry.word) else { return Ok(()) };
            let is_erased = found.header.is_err() && self.read(&guard, entry.root_off()) == 0;
            if found.header != entry.header && !is_erased {
                return Ok(());
            }
            for _ in 0..STEPS_A_GUARD {
                if is_enough() || self.is_free(&guard, entry) {
                    return Ok(());
                }
                let has_changed = match self.read(&guard, entry.root_off()) {
                    0 => self.forget_map(&guard, entry)?,
                    _ => {
                        let context = Context::new(self, &guard);
                        let unit = (kind.next_unit)(context, entry.root_off(), &options);
                        // It has checked everything that it has read.
                        guard.forget_damage();
                        self.free_unit(&guard, entry, &unit)?
                    }
                };
                failures = if has_changed { 0 } else { failures + 1 };
                if failures > MAX_ATTEMPTS {
                    return Err(MapError::DamagedWord { off: entry.root_off() });
                }
            }
        }
    }

    /// Frees the rest of dropped maps whose indexes and options are [known](Self::with_kinds),
    /// until `is_enough` stops it. Returns whether there were any. For threads that open a pool, or
    /// find it full.
    pub fn free_dropped(&self, is_enough: &dyn Fn() -> bool) -> Result<bool, MapError> {
        let dropped = {
            let guard = self.pool().pin()?;
            self.dropped_maps(&guard)
        };
        let mut found_any = false;
        for entry in dropped {
            let Ok(header) = &entry.header else {
                // Only the header is left, or the map waits for a program that knows its index.
                let guard = self.pool().pin()?;
                if !self.is_free(&guard, &entry) && self.read(&guard, entry.root_off()) == 0 {
                    self.forget_map(&guard, &entry)?;
                }
                continue;
            };
            let Some(kind) = self.kinds.iter().find(|kind| kind.number == header.kind) else {
                continue;
            };
            match self.free_map(kind, &entry, is_enough) {
                Ok(()) => found_any = true,
                // It waits for a version that knows its options, or is damaged. It does not block
                // other maps.
                Err(MapError::Option(_) | MapError::DamagedWord { .. }) => continue,
                Err(error) => return Err(error),
            }
            if is_enough() {
                break;
            }
        }
        Ok(found_any)
    }

    fn is_free(&self, guard: &Guard<'_, D>, entry: &MapEntry) -> bool {
        self.read(guard, entry.slot_off()) != entry.word
    }

    /// Frees a unit, or some of the blocks that it owns; returns whether anything has changed.
    fn free_unit(
        &self,
        guard: &Guard<'_, D>,
        entry: &MapEntry,
        unit: &Unit,
    ) -> Result<bool, MapError> {
        let own = &unit.own[..unit.own.len().min(MAX_WORDS - unit.changes().count())];
        let owned = &unit.owned[..unit.owned.len().min(MAX_BLOCKS - 1)];
        let progress_off = entry.header_off + PROGRESS_AT;
        let found = self.read(guard, progress_off);
        let done = own.first().map_or(0, |&block| progress_of(found, block));
        let left = owned.get(done..).unwrap_or_default();
        let mut operation = self.allocate(guard)?;
        if left.len() + own.len() + unit.changes().count() <= MAX_WORDS {
            for Change { off, old, new } in unit.changes() {
                let left = if mutant!("map-unit-freed-first") { old } else { new & !CONTROL_BITS };
                operation.add_word(off, old, left)?;
            }
            for &block in left.iter().chain(own) {
                operation.own_block(named(block), Policy::FreeOldOnSuccess)?;
            }
        } else {
            let Change { off, old, .. } = unit.leading;
            let next = &left[..left.len().min(MAX_WORDS - 2)];
            let block = own.first().copied().unwrap_or_default();
            operation.add_word(off, old, old)?;
            let counted = if mutant!("map-progress-not-kept") {
                found
            } else {
                progress(done + next.len(), block)
            };
            operation.add_word(progress_off, found, counted)?;
            for &block in next {
                operation.own_block(named(block), Policy::FreeOldOnSuccess)?;
            }
        }
        let has_changed = operation.execute();
        if !has_changed {
            self.mend(guard, unit.changes().map(|change| (change.off, change.new)));
            self.mend(guard, [(progress_off, 0)].into_iter());
        }
        Ok(has_changed)
    }

    /// Rewrites words that refer to operations that do not exist, which no operation can change.
    fn mend(&self, guard: &Guard<'_, D>, words: impl Iterator<Item = (u64, u64)>) {
        for (off, new) in words {
            let word = self.pool().word(off);
            let found = word.load(Ordering::Acquire);
            // By a CAS: another thread may have done it, and continued from there.
            if self.is_damaged(guard, off)
                && word.compare_exchange(found, new & !CONTROL_BITS).is_ok()
            {
                word.flush();
                D::fence();
            }
        }
    }

    /// Frees the header and the slot: steps 3 and 4; returns whether this thread has.
    fn forget_map(&self, guard: &Guard<'_, D>, entry: &MapEntry) -> Result<bool, MapError> {
        self.slots().erase_header(entry.header_off);
        let version_off = CATALOG_VERSION_OFF;
        let version = self.catalog_version(guard);
        let mut operation = self.allocate(guard)?;
        operation.reserve_entry(entry.slot_off(), entry.word, Policy::FreeOldOnSuccess)?;
        operation.add_word(version_off, version, next_version(version))?;
        Ok(operation.execute())
    }
}

/// The block, if an operation can name it; otherwise zero.
fn named(block: u64) -> u64 {
    if block <= BLOCK_MASK { block } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_of_one_unit() {
        for (count, block) in
            [(0, 0x1_0040), (1, 64), (63, 64), (64, 64), (MAX_BLOCKS - 1, 0xFFFF_FFFF_FFC0)]
        {
            let word = progress(count, block);
            assert_eq!(word & CONTROL_BITS, 0);
            assert_eq!(progress_of(word, block), count);
            assert_eq!(progress_of(word, 128), 0);
        }
        assert_eq!(progress(0x1041, 0x1_0040), 0x0041_0000_0001_0041);
    }
}
