//! Scans, forwards and backwards.
//!
//! A cursor copies a batch of one leaf's records while it is pinned, and lends them while it is
//! not. The range of the leaf decides where it continues, not the last key that it returned,
//! because an empty leaf has a range too. After a split, the side link leads on. If a leaf was
//! removed, a descent with the rest of the range finds the next one. Backwards, the cursor descends
//! to the keys right before the leaf's lowest key.
//!
//! Before each record it compares the leaf's mapping word with the word at the time of the copy. If
//! they differ, the records that were not returned yet are copied again (section III.C of the
//! paper). So a scan returns a record as it is when the caller requests it. The contract requires
//! only some instant of the scan. So the records of one leaf may be of different instants.
//!
//! At that comparison the cursor is not pinned. So the word may be the same and lead to another
//! content, if the block was freed and reused at the same place. That takes three epochs. Therefore
//! a batch is also copied again if the epoch is three above what it was before the search for the
//! leaf. The word is read first, and the thread that published the reused block had seen that
//! epoch.

use std::cmp::Ordering as Compare;
use std::ops::{Bound, Deref, DerefMut, Range};
use std::sync::atomic::Ordering;

use pando_index::{Error, Order, Result};
use pando_pmem::{Domain, Guard};
use pando_tree::batch::{Batch, ThreadsBatch};
use pando_tree::context::Context;
use pando_tree::cursor::{Fill, Scan};
use pando_tree::handle::Counted;
use pando_tree::key::{self, Probe, Target};
use pando_tree::room::Attempts;

use crate::context::{At, Damaged, Value, damaged};
use crate::gather::{Gathered, Item};
use crate::page::{Located, Page};
use crate::style::Style;
use crate::tree::BwTree;

/// Records of the first batch: short scans copy little. Later batches double, up to whole leaves.
const FIRST_BATCH: usize = 10;

/// A batch of a leaf's records.
#[derive(Debug, Default)]
pub struct LeafBatch {
    batch: ThreadsBatch,
    /// The leaf of the batch as it was read, and the epoch before the search for it.
    source: Option<(At, u64)>,
}

impl Deref for LeafBatch {
    type Target = Batch;

    #[inline(always)]
    fn deref(&self) -> &Batch {
        &self.batch
    }
}

impl DerefMut for LeafBatch {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Batch {
        &mut self.batch
    }
}

impl<D: Domain, S: Style<D>> Fill for BwTree<D, S> {
    type Batch = LeafBatch;

    const FIRST_BATCH: usize = FIRST_BATCH;

    fn after_failure(&self, error: Error, attempts: &mut Attempts) -> Result<()> {
        S::after_failure(self, error, attempts)
    }

    /// Whether the leaf has changed since the batch was copied.
    #[inline(always)]
    fn is_outdated(&self, batch: &LeafBatch) -> bool {
        batch.source.is_some_and(|(source, epoch)| {
            let pool = self.pool();
            // Acquire: a new copy is at least as new as the word read here. Pairs with the swap
            // that published the word: the epoch is at least the one in which its block was reused.
            let word = pool.word(source.pid).load(Ordering::Acquire);
            word != source.link.0 || pool.may_be_reused_since(epoch)
        })
    }

    #[cold]
    fn fill(&self, guard: &Guard<'_, D>, scan: &mut Scan, batch: &mut LeafBatch) -> Result<()> {
        batch.source = None;
        let context = self.context(guard);
        let epoch = context.pool().epoch();
        let target = scan.target();
        let at = self.find_holder(context, target)?;
        let gathered = Gathered::new(context, at.link)?;
        // Otherwise the page of another range, or a removed one, would end the scan early.
        let is_there = match target {
            Target::Holding(probe) => gathered.holds(probe.bytes),
            Target::Before(probe) => gathered.holds_before(probe.bytes),
            Target::Last => gathered.high.is_none(),
        };
        if !is_there {
            return Err(damaged(at));
        }
        let is_full = Copier { context, scan, batch }.copy(&gathered)?;
        batch.source = Some((at, epoch));
        if is_full && let Some(last) = batch.last_key() {
            return scan.go_behind(at.pid, last);
        }
        let edge = match scan.order() {
            Order::Ascending => gathered.high,
            Order::Descending => Some(gathered.low).filter(|low| !low.is_empty()),
        };
        scan.leave(at.pid, edge)
    }
}

/// The copying of a leaf's records.
struct Copier<'fill, 'op, D: Domain> {
    context: Context<'op, D>,
    scan: &'fill Scan,
    batch: &'fill mut Batch,
}

impl<D: Domain> Copier<'_, '_, D> {
    /// Copies a batch of the leaf's records in range; returns whether there may be more.
    fn copy(&mut self, gathered: &Gathered<'_, D>) -> Result<bool, Damaged> {
        let items = gathered.items(false);
        // If the range continues behind the leaf, no record needs a comparison with its end.
        let is_bounded = match (self.scan.order(), gathered.high) {
            (Order::Ascending, Some(high)) => !self.ends_behind(high),
            (Order::Ascending, None) => self.scan.end() != Bound::Unbounded,
            (Order::Descending, _) => !self.ends_behind(gathered.low),
        };
        let mut items = items.iter();
        loop {
            let item = match self.scan.order() {
                Order::Ascending => items.next(),
                Order::Descending => items.next_back(),
            };
            let Some(item) = item else { return Ok(false) };
            if self.copy_item(item, is_bounded)? {
                return Ok(true);
            }
        }
    }

    /// Whether the scan ends at `key` or behind it.
    fn ends_behind(&self, key: &[u8]) -> bool {
        match (self.scan.order(), self.scan.end()) {
            (_, Bound::Unbounded) => true,
            (Order::Ascending, Bound::Included(high) | Bound::Excluded(high)) => key <= high,
            (Order::Descending, Bound::Included(low)) => key >= low,
            (Order::Descending, Bound::Excluded(low)) => key > low,
        }
    }

    /// Copies an item's records; returns whether the batch is full.
    fn copy_item(&mut self, item: &Item<'_, D>, is_bounded: bool) -> Result<bool, Damaged> {
        match item {
            Item::One(key, value) => {
                let is_wanted = self.scan.has_begun(|start| key::compare(key, start))
                    && !(is_bounded && self.is_past(key));
                Ok(is_wanted && self.copy_record(key, *value)?)
            }
            Item::Run(page, range) => {
                let mut range = self.begun(page, range.clone());
                loop {
                    let index = match self.scan.order() {
                        Order::Ascending => range.next(),
                        Order::Descending => range.next_back(),
                    };
                    let Some(index) = index else { return Ok(false) };
                    let key = page.key(index);
                    if is_bounded && self.is_past(key) {
                        return Ok(false);
                    }
                    if self.copy_record(key, page.value(index))? {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// The records that are not before the start of the scan.
    fn begun(&self, page: &Page<'_, D>, range: Range<usize>) -> Range<usize> {
        let (Bound::Included(key) | Bound::Excluded(key)) = self.scan.start() else {
            return range;
        };
        let (before, behind) = match page.locate_in(range.clone(), Probe::new(key)) {
            Located::At(at) if self.scan.is_ahead(Compare::Equal) => (at + 1, at),
            Located::At(at) => (at, at + 1),
            Located::Before(before) => (before, before),
        };
        match self.scan.order() {
            Order::Ascending => behind..range.end,
            Order::Descending => range.start..before,
        }
    }

    /// Whether the key is behind the end of the scan.
    #[inline(always)]
    fn is_past(&self, key: &[u8]) -> bool {
        self.scan.is_past(|end| key::compare(key, end))
    }

    /// Copies the record; returns whether the batch is full.
    #[inline(always)]
    fn copy_record(&mut self, key: &[u8], value: Value<'_>) -> Result<bool, Damaged> {
        match value.bytes(self.context) {
            Ok(value) => self.batch.push(key, value),
            Err(damage) if self.batch.is_empty() => return Err(damage),
            // The records before it are returned first.
            Err(_) => return Ok(true),
        }
        Ok(self.batch.is_full(self.scan.most()))
    }
}

impl<D: Domain, S: Style<D>> BwTree<D, S> {
    /// Counts the records of the leaf that holds `from`, from that key on.
    pub(crate) fn count_leaf(&self, context: Context<'_, D>, from: &[u8]) -> Result<Counted> {
        let gathered = self.gather_leaf(context, from)?;
        let mut records = 0;
        for item in gathered.items(false) {
            // The leaf may have been merged with leaves before it, which are counted already.
            records += match item {
                Item::Run(_, range) if gathered.low >= from => range.len(),
                Item::Run(page, range) => {
                    let position = page.locate_in(range.clone(), Probe::new(from)).position();
                    range.len() - (position - range.start)
                }
                Item::One(key, _) => usize::from(key >= from),
            } as u64;
        }
        Ok((records, gathered.high.map(<[u8]>::to_vec)))
    }

    fn gather_leaf<'op>(&self, context: Context<'op, D>, key: &[u8]) -> Result<Gathered<'op, D>> {
        let at = self.find_holder(context, Target::Holding(Probe::new(key)))?;
        let gathered = Gathered::new(context, at.link)?;
        if gathered.holds(key) { Ok(gathered) } else { Err(damaged(at)) }
    }
}

#[cfg(test)]
mod tests {
    use pando_index::{Cursor as _, KeyRange, RangeIndex};
    use pando_pmem::Process;
    use pando_tree::cursor::BatchCursor;
    use pando_tree::testing::{Fixture, check_batches};

    use super::*;
    use crate::{BwTrees, Options};

    fn tree() -> BwTree<Process> {
        Fixture::<Process, BwTrees>::anonymous(Options::default()).index
    }

    /// A mapping word that holds its old value again while the cursor was not pinned: the block was
    /// reused.
    #[test]
    fn a_link_that_comes_back_leads_to_what_is_new() {
        let tree = tree();
        for number in 0..100_u8 {
            tree.upsert(&[number % 20], b"the same").expect("an upsert");
        }
        for order in [Order::Ascending, Order::Descending] {
            let mut cursor = BatchCursor::new(&tree, KeyRange::all(), order);
            cursor.next().expect("a record");
            let (source, _) = cursor.batch().source.expect("a leaf");
            let word = || tree.catalog.pool().word(source.pid).load(Ordering::Relaxed);
            let mut round = 0_u64;
            let last = loop {
                round += 1;
                assert!(round < 100_000, "no block is reused");
                for number in 0..20 {
                    tree.upsert(&[number], &round.to_le_bytes()).expect("an upsert");
                    if word() == source.link.0 {
                        break;
                    }
                }
                if word() == source.link.0 {
                    break round;
                }
            };
            let read = |key: &[u8]| tree.get(key).expect("a read").expect("a record");
            let mut records = 1;
            while let Some((key, value)) = cursor.next().expect("a record") {
                assert_eq!(value, read(key), "{order:?}, key {key:?}, round {last}");
                records += 1;
            }
            assert_eq!(records, 20);
        }
    }

    #[test]
    fn a_batch_is_bounded_in_bytes() {
        check_batches(&tree());
    }
}
