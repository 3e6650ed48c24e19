//! Scans, forwards and backwards.
//!
//! A cursor copies a batch of one leaf's records while it is pinned, and lends them when it is not.
//! Where it goes on is decided by the leaf's range, not by the last key that it returned: an empty
//! leaf has a range, too. A leaf that has been split is left by its side link's range, one that was
//! removed is found again by the range that is still to come. Backwards, a descent to what is
//! before the leaf's lowest key.
//!
//! Before each record it looks whether the leaf's mapping word still is what it was when the batch
//! was copied. If not, what was not returned yet is copied anew (section III.C of the paper): a
//! scan returns a record as it was when it was asked for. That is more than the contract asks,
//! which is some instant of the scan; so the records of one leaf may be of different instants.
//!
//! The cursor is not pinned then, so the word may be what it was, and lead to another content: the
//! block was freed and reused at the same place. That takes three epochs, so a batch is copied anew
//! also if the epoch is three above what it was before the leaf was looked for. The word is read
//! first: whoever put a reused block there had seen that epoch.

use std::ops::{Bound, Range};
use std::sync::atomic::Ordering;

use pando_index::{Cursor, Error, KeyRange, Order, Record};
use pando_pmem::Domain;
use pando_tree::batch::ThreadsBatch;

use crate::context::{Context, Probe, Target, Value, compare_keys};
use crate::gather::{Gathered, Item};
use crate::page::{Located, Page};
use crate::search::{At, damaged};
use crate::style::Style;
use crate::tree::{BwTree, Damaged};

/// Records of the first batch: short scans copy little. Later batches double up to whole leaves.
const FIRST_BATCH: usize = 10;

/// A scan of a tree.
#[derive(Debug)]
pub(crate) struct TreeCursor<'index, D: Domain, S: Style> {
    tree: &'index BwTree<D, S>,
    /// What is left, behind the batch.
    range: KeyRange,
    order: Order,
    /// Records of the next batch.
    most: usize,
    batch: ThreadsBatch,
    is_over: bool,
    /// What kept the batch from having a record.
    damage: Option<Damaged>,
    /// The leaf that the batch is of, as it was; and the epoch before it was looked for.
    source: Option<(At, u64)>,
}

impl<'index, D: Domain, S: Style> TreeCursor<'index, D, S> {
    pub fn new(tree: &'index BwTree<D, S>, range: KeyRange, order: Order) -> Self {
        Self {
            tree,
            range,
            order,
            most: FIRST_BATCH,
            batch: ThreadsBatch::default(),
            is_over: false,
            damage: None,
            source: None,
        }
    }

    /// Whether the leaf has changed since the batch was copied.
    #[inline(always)]
    fn is_outdated(&self) -> bool {
        self.source.is_some_and(|(source, epoch)| {
            let pool = self.tree.catalog().pool();
            // Acquire: what is copied anew is at least as new as what is found here; and with the
            // swap that put the word there, the epoch is at least the one in which its block was
            // reused.
            let word = pool.word(source.pid).load(Ordering::Acquire);
            word != source.link.0 || pool.may_be_reused_since(epoch)
        })
    }

    #[cold]
    fn fill(&mut self) -> Result<(), Error> {
        self.batch.clear();
        self.source = None;
        while self.batch.is_empty() && !self.is_over {
            let tree = self.tree;
            let guard = tree.pin()?;
            self.fill_from_leaf(tree.context(&guard))?;
        }
        Ok(())
    }

    /// Takes the batch's records that were not returned back into the range.
    #[cold]
    fn refill(&mut self) -> Result<(), Error> {
        if let Some(last) = self.batch.lent_key() {
            let key = last.to_vec();
            self.go_on_behind(key);
        } else if let Some(first) = self.batch.first_key() {
            let key = first.to_vec();
            match self.order {
                Order::Ascending => self.range.low = Bound::Included(key),
                Order::Descending => self.range.high = Bound::Included(key),
            }
        }
        self.is_over = false;
        self.most = FIRST_BATCH;
        self.fill()
    }

    fn go_on_behind(&mut self, key: Vec<u8>) {
        match self.order {
            Order::Ascending => self.range.low = Bound::Excluded(key),
            Order::Descending => self.range.high = Bound::Excluded(key),
        }
    }

    /// Copies a batch of the leaf that is next, and takes what it covers off the range.
    fn fill_from_leaf(&mut self, context: Context<'_, '_, D>) -> Result<(), Error> {
        let tree = self.tree;
        let epoch = context.pool().epoch();
        let target = match (self.order, &self.range.low, &self.range.high) {
            (Order::Ascending, Bound::Unbounded, _) => Target::Holding(Probe::new(&[])),
            (Order::Ascending, Bound::Included(key) | Bound::Excluded(key), _)
            | (Order::Descending, _, Bound::Included(key)) => Target::Holding(Probe::new(key)),
            (Order::Descending, _, Bound::Excluded(key)) => Target::Before(Probe::new(key)),
            (Order::Descending, _, Bound::Unbounded) => Target::Last,
        };
        let at = tree.find_holder(context, target)?;
        let gathered = Gathered::new(context, at.link)?;
        // Else a page that is another's, or none, would cut the scan short, or lead it in circles.
        let is_there = match target {
            Target::Holding(probe) => gathered.holds(probe.bytes),
            Target::Before(probe) => gathered.holds_before(probe.bytes),
            Target::Last => gathered.high.is_none(),
        };
        if !is_there {
            return Err(damaged(at));
        }
        let is_full = self.copy(context, &gathered);
        if let Some(damage) = self.damage.take() {
            return Err(damage.into());
        }
        self.most = self.most.saturating_mul(2);
        self.source = Some((at, epoch));
        if is_full && let Some(last) = self.batch.last_key() {
            let key = last.to_vec();
            self.go_on_behind(key);
            return Ok(());
        }
        let end = match self.order {
            Order::Ascending => gathered.high.map(<[u8]>::to_vec),
            Order::Descending => Some(gathered.low.to_vec()).filter(|low| !low.is_empty()),
        };
        match end {
            Some(key) if !self.is_beyond(&key) => match self.order {
                Order::Ascending => self.range.low = Bound::Included(key),
                Order::Descending => self.range.high = Bound::Excluded(key),
            },
            _ => self.is_over = true,
        }
        Ok(())
    }

    /// Whether nothing of the range is at that key or behind it (forwards), or before it.
    fn is_beyond(&self, key: &[u8]) -> bool {
        match self.order {
            Order::Ascending => match &self.range.high {
                Bound::Unbounded => false,
                Bound::Included(high) => key > high.as_slice(),
                Bound::Excluded(high) => key >= high.as_slice(),
            },
            Order::Descending => match &self.range.low {
                Bound::Unbounded => false,
                Bound::Included(low) | Bound::Excluded(low) => key <= low.as_slice(),
            },
        }
    }

    /// Copies a batch of the leaf's records in range; whether there may be more.
    fn copy(&mut self, context: Context<'_, '_, D>, gathered: &Gathered<'_, '_, D>) -> bool {
        let items = gathered.items(false);
        // If the range goes on behind the leaf, no record need be asked whether it is past the end.
        let is_bounded = match (self.order, gathered.high) {
            (Order::Ascending, Some(high)) => !self.ends_behind(high),
            (Order::Ascending, None) => self.range.high != Bound::Unbounded,
            (Order::Descending, _) => !self.ends_behind(gathered.low),
        };
        let order = self.order;
        let copy = |item: &Item<'_, '_, D>| self.copy_item(context, item, is_bounded);
        match order {
            Order::Ascending => items.iter().any(copy),
            Order::Descending => items.iter().rev().any(copy),
        }
    }

    /// Whether the end to which the scan goes is at that key or behind it.
    fn ends_behind(&self, key: &[u8]) -> bool {
        match self.order {
            Order::Ascending => match &self.range.high {
                Bound::Unbounded => true,
                Bound::Included(high) | Bound::Excluded(high) => key <= high.as_slice(),
            },
            Order::Descending => match &self.range.low {
                Bound::Unbounded => true,
                Bound::Included(low) => key >= low.as_slice(),
                Bound::Excluded(low) => key > low.as_slice(),
            },
        }
    }

    /// Copies an item's records; whether the batch is full.
    fn copy_item(
        &mut self,
        context: Context<'_, '_, D>,
        item: &Item<'_, '_, D>,
        is_bounded: bool,
    ) -> bool {
        match item {
            Item::One(key, value) => {
                self.has_begun(key)
                    && !(is_bounded && self.is_past(key))
                    && self.copy_record(context, key, *value)
            }
            Item::Run(page, range) => {
                let range = self.begun(page, range.clone());
                let order = self.order;
                let copy = |index| {
                    let key = page.key(index);
                    !(is_bounded && self.is_past(key))
                        && self.copy_record(context, key, page.value(index))
                };
                match order {
                    Order::Ascending => range.into_iter().any(copy),
                    Order::Descending => range.into_iter().rev().any(copy),
                }
            }
        }
    }

    /// Those of the records that are not before the start of the scan.
    fn begun(&self, page: &Page<'_, '_, D>, range: Range<usize>) -> Range<usize> {
        let located = |key: &[u8]| page.locate_in(range.clone(), Probe::new(key));
        match (self.order, &self.range.low, &self.range.high) {
            (Order::Ascending, Bound::Included(key), _) => located(key).position()..range.end,
            (Order::Ascending, Bound::Excluded(key), _) => match located(key) {
                Located::At(at) => at + 1..range.end,
                Located::Before(before) => before..range.end,
            },
            (Order::Descending, _, Bound::Included(key)) => match located(key) {
                Located::At(at) => range.start..at + 1,
                Located::Before(before) => range.start..before,
            },
            (Order::Descending, _, Bound::Excluded(key)) => range.start..located(key).position(),
            _ => range,
        }
    }

    /// Whether the scan's start is not behind the key.
    #[inline(always)]
    fn has_begun(&self, key: &[u8]) -> bool {
        match (self.order, &self.range.low, &self.range.high) {
            (Order::Ascending, Bound::Included(low), _) => compare_keys(key, low).is_ge(),
            (Order::Ascending, Bound::Excluded(low), _) => compare_keys(key, low).is_gt(),
            (Order::Descending, _, Bound::Included(high)) => compare_keys(key, high).is_le(),
            (Order::Descending, _, Bound::Excluded(high)) => compare_keys(key, high).is_lt(),
            _ => true,
        }
    }

    /// Whether the key is behind the end of the scan.
    #[inline(always)]
    fn is_past(&self, key: &[u8]) -> bool {
        match (self.order, &self.range.low, &self.range.high) {
            (Order::Ascending, _, Bound::Included(high)) => compare_keys(key, high).is_gt(),
            (Order::Ascending, _, Bound::Excluded(high)) => compare_keys(key, high).is_ge(),
            (Order::Descending, Bound::Included(low), _) => compare_keys(key, low).is_lt(),
            (Order::Descending, Bound::Excluded(low), _) => compare_keys(key, low).is_le(),
            _ => false,
        }
    }

    /// Copies the record; whether the batch is full.
    #[inline(always)]
    fn copy_record(&mut self, context: Context<'_, '_, D>, key: &[u8], value: Value<'_>) -> bool {
        let value = match context.value(value) {
            Ok(value) => value,
            // Those before it are returned first.
            Err(damage) => {
                self.damage = self.batch.is_empty().then_some(damage);
                return true;
            }
        };
        self.batch.push(key, value);
        self.batch.is_full(self.most)
    }
}

impl<D: Domain, S: Style> Cursor for TreeCursor<'_, D, S> {
    #[inline]
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if self.batch.is_used_up() {
            self.fill()?;
        } else if self.is_outdated() {
            self.refill()?;
        }
        Ok(self.batch.lend())
    }
}

impl<D: Domain, S: Style> BwTree<D, S> {
    /// Counts the records of the leaf that holds `from`, and says from which key on the others are.
    pub(crate) fn count_leaf(&self, from: &[u8]) -> Result<(u64, Option<Vec<u8>>), Error> {
        let guard = self.pin()?;
        let gathered = self.gather_leaf(self.context(&guard), from)?;
        let mut records = 0;
        for item in gathered.items(false) {
            // The leaf may have been merged with those before it, which are counted.
            let probe = Probe::new(from);
            records += match item {
                Item::Run(_, range) if gathered.low >= from => range.len(),
                Item::Run(page, range) => {
                    range.len() - (page.locate_in(range.clone(), probe).position() - range.start)
                }
                Item::One(key, _) => usize::from(key >= from),
            } as u64;
        }
        Ok((records, gathered.high.map(<[u8]>::to_vec)))
    }

    /// The highest log sequence number of the leaf that holds `key`.
    pub(crate) fn lsn_of(&self, key: &[u8]) -> Result<u64, Error> {
        let guard = self.pin()?;
        Ok(self.gather_leaf(self.context(&guard), key)?.lsn)
    }

    fn gather_leaf<'op, 'pool>(
        &self,
        context: Context<'op, 'pool, D>,
        key: &[u8],
    ) -> Result<Gathered<'op, 'pool, D>, Error> {
        let at = self.find_holder(context, Target::Holding(Probe::new(key)))?;
        let gathered = Gathered::new(context, at.link)?;
        if gathered.holds(key) { Ok(gathered) } else { Err(damaged(at)) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_index::RangeIndex;
    use pando_pmem::{CreateOptions, Pool, Volatile};
    use pando_tree::maps::Catalog;

    use pando_tree::batch::FULL_BYTES;

    use super::*;
    use crate::BwTrees;

    fn tree() -> BwTree<Volatile> {
        let create = CreateOptions { max_bytes: 1 << 30, ..CreateOptions::default() };
        let pool = Pool::<Volatile>::anonymous(&create).expect("memory");
        let catalog = Arc::new(Catalog::open(pool).expect("opens"));
        catalog.find_or_create_index::<BwTrees>("tree", crate::Options::default()).expect("a tree")
    }

    /// A mapping word that is again what it was, while the cursor was not pinned: the block was
    /// reused.
    #[test]
    fn a_link_that_comes_back_leads_to_what_is_new() {
        let tree = tree();
        for number in 0..100_u8 {
            tree.upsert(&[number % 20], b"the same").expect("an upsert");
        }
        for order in [Order::Ascending, Order::Descending] {
            let mut cursor = TreeCursor::new(&tree, KeyRange::all(), order);
            cursor.next().expect("a record");
            let (source, _) = cursor.source.expect("a leaf");
            let word = || tree.catalog().pool().word(source.pid).load(Ordering::Relaxed);
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
        let tree = tree();
        let value = vec![7; FULL_BYTES];
        for number in 0..20_u8 {
            tree.insert(&[number], &value).expect("an insert");
        }
        for order in [Order::Ascending, Order::Descending] {
            let mut cursor = TreeCursor::new(&tree, KeyRange::all(), order);
            let mut records = 0;
            while let Some((key, found)) = cursor.next().expect("a record") {
                let number = if order == Order::Ascending { records } else { 19 - records };
                assert!(key == [number] && found == value, "{order:?}");
                let bytes = cursor.batch.bytes();
                assert!(bytes <= 2 * FULL_BYTES, "{bytes}");
                records += 1;
            }
            assert_eq!(records, 20, "{order:?}");
        }
    }
}
