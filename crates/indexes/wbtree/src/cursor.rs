//! Scans, forwards and backwards.
//!
//! A cursor copies a batch of records while it is pinned, leaf after leaf, each under one state,
//! and lends them when it is not. The state is what makes the copy one of records that were there:
//! a cell is used again under a later one. The records of one leaf may be of different instants,
//! since they may lie in two batches. It goes from leaf to leaf by their sibling pointers, as the
//! paper's scans do: forwards by fences, backwards by the leaves' pointers to the left, and comes
//! from the root only for the next batch.
//!
//! Forwards, the next leaf begins where the fence says, in whatever state it is found. Backwards,
//! the leaf to the left has to end where the last one begins: so it is read in the state in which
//! its fence was seen to lead there ([`Node::left`]), and if it is split or merged meanwhile, the
//! cursor comes from the root again.
//!
//! Where a cursor goes on is decided by the leaf's range, not by the last key that it returned: an
//! empty leaf has a range too. If a batch did not exhaust the leaf, it goes on behind the batch's
//! last key, in whatever leaf that lies by then.
//!
//! Fixed keys are told apart by their eight bytes, bounds may be longer. So a bound that goes on
//! behind a key's eight bytes is looked for as if it were that key, and each record is compared
//! with the whole of it.

use std::ops::Bound;

use pando_index::{Cursor, Error, KeyRange, Order, Record};
use pando_pmem::{Domain, mutant};
use pando_tree::batch::ThreadsBatch;
use pando_tree::checked::{Steps, sound};

use crate::layout::{Cell, FIXED_BYTES};
use crate::node::{Changed, Context, Node, Probe, Seek};
use crate::state::State;
use crate::tree::{Damaged, Found, WbTree};
use crate::write::with_value;

/// Records of the first batch: short scans copy little. Later batches double up to the last.
const FIRST_BATCH: usize = 12;
const LAST_BATCH: usize = 96;

/// From where the next batch is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing is left.
    End,
    /// From the last leaf on, backwards.
    Last,
    /// From the cursor's key on. The key itself only if it is included.
    Key { included: bool },
}

/// A leaf that another led to, and the state in which it is to be read.
type Sibling<'op, D> = Option<(Node<'op, D>, State)>;

/// A scan of a tree.
#[derive(Debug)]
pub(crate) struct TreeCursor<'index, D: Domain> {
    tree: &'index WbTree<D>,
    /// The end that the scan goes to.
    end: Bound<Vec<u8>>,
    order: Order,
    next: Next,
    /// The key of [`Next::Key`].
    key: Vec<u8>,
    /// Records of the next batch.
    most: usize,
    batch: ThreadsBatch,
}

impl<'index, D: Domain> TreeCursor<'index, D> {
    pub fn new(tree: &'index WbTree<D>, range: KeyRange, order: Order) -> Self {
        let (start, end) = match order {
            Order::Ascending => (range.low, range.high),
            Order::Descending => (range.high, range.low),
        };
        let (next, key) = match (start, order) {
            (Bound::Unbounded, Order::Descending) => (Next::Last, Vec::new()),
            (Bound::Unbounded, Order::Ascending) => (Next::Key { included: true }, Vec::new()),
            (Bound::Included(key), _) => (Next::Key { included: true }, key),
            (Bound::Excluded(key), _) => (Next::Key { included: false }, key),
        };
        let batch = ThreadsBatch::default();
        Self { tree, end, order, next, key, most: FIRST_BATCH, batch }
    }

    /// Whether `key` lies between where the cursor is and its end; `Err` if it lies beyond the end.
    fn wants(&self, key: &[u8]) -> Result<bool, ()> {
        let ascending = self.order == Order::Ascending;
        let is_within = match (&self.end, ascending) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(end), true) => key <= end.as_slice(),
            (Bound::Excluded(end), true) => key < end.as_slice(),
            (Bound::Included(end), false) => key >= end.as_slice(),
            (Bound::Excluded(end), false) => key > end.as_slice(),
        };
        if !is_within {
            return Err(());
        }
        Ok(match (self.next, ascending) {
            (Next::Key { included: true }, true) => key >= self.key.as_slice(),
            (Next::Key { included: false }, true) => key > self.key.as_slice(),
            (Next::Key { included: true }, false) => key <= self.key.as_slice(),
            (Next::Key { included: false }, false) => key < self.key.as_slice(),
            (Next::Last | Next::End, _) => true,
        })
    }

    fn push(&mut self, context: Context<'_, '_, D>, record: &Cell, key: &[u8]) {
        self.batch.push_with(
            |bytes| bytes.extend_from_slice(key),
            |bytes| with_value(context, record, |value| bytes.extend_from_slice(value)),
        );
    }

    /// Copies the next batch; none is left if it is empty.
    fn fill(&mut self) -> Result<(), Error> {
        self.batch.clear();
        let tree = self.tree;
        let guard = tree.pin()?;
        let context = tree.context(&guard);
        // The next leaf, where the last one led to it.
        let mut sibling: Sibling<'_, D> = None;
        let mut steps = Steps::of_attempts();
        while !self.batch.is_full(self.most) && self.next != Next::End {
            steps.take(&guard, tree.root_off())?;
            let (leaf, state, low) = match sibling.take() {
                Some((leaf, _)) if mutant!("wbtree-left-in-another-state") => {
                    (leaf, leaf.state(context), None)
                }
                Some((leaf, state)) => (leaf, state, None),
                None => {
                    let Some(found) = self.seek(context)? else { continue };
                    (found.node, found.state, Some(found.low))
                }
            };
            if state.is_dead() {
                continue;
            }
            let Ok((order, cells)) = leaf.contents(context, state) else { continue };
            let (records, fence) = cells.split_at(order.len());
            if !self.copy(context, records) {
                break;
            }
            sibling = match self.order {
                Order::Ascending => self.go_right(context, &fence[0]),
                Order::Descending => self.go_left(context, &leaf, low, records.first()),
            };
        }
        self.most = (self.most * 2).min(LAST_BATCH);
        sound(&guard)
    }

    /// Looks for the next leaf from the root.
    fn seek<'op>(&self, context: Context<'op, '_, D>) -> Result<Option<Found<'op, D>>, Damaged> {
        let probe = Probe::new(&self.key);
        let seek = match (self.next, self.order) {
            (Next::Key { included: false }, Order::Descending)
                if !self.key.is_empty()
                    && (self.tree.shape().is_variable || self.key.len() <= FIXED_BYTES) =>
            {
                Seek::Below(probe)
            }
            (Next::Last, _) => Seek::Last,
            _ => Seek::Holding(probe),
        };
        self.tree.seek(context, seek, 0)
    }

    /// Copies the wanted records of a leaf, up to the batch's size; false if the scan is to go on
    /// in the leaf, or is at its end.
    fn copy(&mut self, context: Context<'_, '_, D>, records: &[Cell]) -> bool {
        let mut key = Vec::new();
        let count = records.len();
        for index in 0..count {
            let record = match self.order {
                Order::Ascending => &records[index],
                Order::Descending => &records[count - 1 - index],
            };
            context.copy_key(record, &mut key);
            match self.wants(&key) {
                Err(()) => {
                    self.next = Next::End;
                    return false;
                }
                Ok(false) => {}
                Ok(true) => {
                    self.push(context, record, &key);
                    if self.batch.is_full(self.most) && index + 1 < count {
                        self.next = Next::Key { included: false };
                        self.key = key;
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Goes on behind a leaf with this fence; the leaf there, if it is to be looked at now.
    fn go_right<'op>(&mut self, context: Context<'op, '_, D>, fence: &Cell) -> Sibling<'op, D> {
        if fence.link == 0 {
            self.next = Next::End;
            return None;
        }
        context.copy_key(fence, &mut self.key);
        self.next = Next::Key { included: true };
        // Nothing there can be wanted: a short scan need not look.
        if self.wants(&self.key) == Err(()) {
            self.next = Next::End;
        }
        if self.next == Next::End || self.batch.is_full(self.most) {
            return None;
        }
        let right = context.node(fence.link);
        Some((right, right.state(context)))
    }

    /// Goes on below a leaf whose lowest record this is; the leaf there, if it is to be looked at
    /// now. Where the leaf begins is `low`, known of one that was found from the root; else the
    /// leaf to the left says so.
    fn go_left<'op>(
        &mut self,
        context: Context<'op, '_, D>,
        leaf: &Node<'op, D>,
        low: Option<Cell>,
        lowest: Option<&Cell>,
    ) -> Sibling<'op, D> {
        if let Some(low) = &low {
            self.go_below(context, low);
            if self.next == Next::End || self.batch.is_full(self.most) {
                return None;
            }
        }
        match leaf.left(context) {
            Ok(None) => {
                self.next = Next::End;
                None
            }
            Ok(Some((left, state, fence))) => {
                self.go_below(context, &fence);
                (self.next != Next::End).then_some((left, state))
            }
            Err(Changed) => {
                // Nothing else is known of where the leaf begins; one without records is looked for
                // again.
                if let (None, Some(lowest)) = (low, lowest) {
                    self.go_below(context, lowest);
                }
                None
            }
        }
    }

    /// Goes on below the key of `bound`, with which a leaf begins; its words are zero for the
    /// smallest.
    fn go_below(&mut self, context: Context<'_, '_, D>, bound: &Cell) {
        context.copy_key(bound, &mut self.key);
        let is_smallest = bound.slice == 0 && bound.block == 0;
        let is_behind = match &self.end {
            Bound::Unbounded => false,
            Bound::Included(end) | Bound::Excluded(end) => self.key <= *end,
        };
        self.next =
            if is_smallest || is_behind { Next::End } else { Next::Key { included: false } };
    }
}

impl<D: Domain> Cursor for TreeCursor<'_, D> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if self.batch.is_used_up() {
            if self.next == Next::End {
                return Ok(None);
            }
            self.fill()?;
        }
        Ok(self.batch.lend())
    }
}

#[cfg(test)]
mod tests {
    use pando_index::RangeIndex;
    use pando_pmem::{CreateOptions, Pool, Volatile};
    use pando_tree::batch::FULL_BYTES;
    use pando_tree::maps::Catalog;

    use super::*;
    use crate::{Options, WbTrees};

    #[test]
    fn a_batch_is_bounded_in_bytes() {
        let create = CreateOptions { max_bytes: 1 << 30, ..CreateOptions::default() };
        let pool = Pool::<Volatile>::anonymous(&create).expect("memory");
        let catalog = std::sync::Arc::new(Catalog::open(pool).expect("opens"));
        let tree =
            catalog.find_or_create_index::<WbTrees>("tree", Options::default()).expect("a tree");
        let value = vec![7; FULL_BYTES];
        for number in 0..20_u8 {
            tree.insert(&[number], &value).expect("an insert");
        }
        for order in [Order::Ascending, Order::Descending] {
            let mut cursor = TreeCursor::new(&tree, KeyRange::all(), order);
            let mut records = 0;
            while let Some((_, found)) = cursor.next().expect("a record") {
                assert!(found == value);
                assert!(cursor.batch.bytes() <= 2 * FULL_BYTES, "{}", cursor.batch.bytes());
                records += 1;
            }
            assert_eq!(records, 20, "{order:?}");
        }
    }
}
