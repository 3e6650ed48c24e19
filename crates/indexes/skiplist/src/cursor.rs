//! Scans, forwards and backwards, on level 0.
//!
//! A cursor copies a batch of records while it is pinned, and lends them when it is not. The next
//! batch begins behind the last key that it has visited, wherever that lies by then. Each record is
//! one of an instant of the scan, and so is the absence of any other between it and the next one:
//! the two were neighbours (see `search.rs`). Backwards, `prev` says so, which is exact while its
//! node is linked and stays as it was when that is unlinked.
//!
//! A scan waits for memory, for one node after the other. Upwards it asks for those ahead: where
//! its search left the low levels, some nodes further on each, and where the words of the nodes it
//! comes to lead, of which the lowest three are in a line that it has read.

use std::cmp::Ordering as Compare;
use std::ops::Bound;

use pando_index::{Cursor, Error, KeyRange, Order, Record};
use pando_pmem::Domain;
use pando_tree::batch::{FULL_BYTES, ThreadsBatch};
use pando_tree::checked::{Steps, sound};

use crate::layout::LOW_LEVELS;
use crate::list::SkipList;
use crate::node::{Context, Node, Probe};
use crate::search::Aim;
use crate::style::Links;

/// Nodes of the first batch: each is a line to wait for, and short scans are mostly of ten. Later
/// batches double up to [`LAST_BATCH`].
const FIRST_BATCH: usize = 10;
const LAST_BATCH: usize = 768;
/// Nodes that are counted under one guard, so that reclamation does not wait for all.
const COUNTED: usize = 4096;

/// A scan of a list.
#[derive(Debug)]
pub(crate) struct ListCursor<'index, D: Domain, S: Links> {
    list: &'index SkipList<D, S>,
    /// What is left.
    range: KeyRange,
    order: Order,
    /// Nodes of the next batch.
    most: usize,
    batch: ThreadsBatch,
    is_over: bool,
}

impl<'index, D: Domain, S: Links> ListCursor<'index, D, S> {
    pub fn new(list: &'index SkipList<D, S>, range: KeyRange, order: Order) -> Self {
        let batch = ThreadsBatch::default();
        Self { list, range, order, most: FIRST_BATCH, batch, is_over: false }
    }

    #[cold]
    fn fill(&mut self) -> Result<(), Error> {
        self.batch.clear();
        let mut steps = Steps::of_attempts();
        while self.batch.is_empty() && !self.is_over {
            let list = self.list;
            let guard = list.pin()?;
            self.fill_once(list.context(&guard));
            if let Err(error) = steps.take(&guard, list.root_off()) {
                self.batch.clear();
                self.is_over = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Copies a batch, and takes what was visited off the range.
    fn fill_once(&mut self, context: Context<'_, '_, D>) {
        let list = self.list;
        let head = list.head(context);
        let mut node = match self.order {
            Order::Ascending => list.first_from(context, &self.range.low),
            Order::Descending => list.last_to(context, &self.range.high),
        };
        let mut last = None;
        for _ in 0..self.most {
            if node == head || self.is_beyond(context, node) {
                self.is_over = true;
                break;
            }
            self.copy(context, node);
            last = Some(node);
            if self.batch.bytes() > FULL_BYTES {
                break;
            }
            match self.step(context, node) {
                Some(next) => node = next,
                None => break,
            }
        }
        self.most = (self.most * 2).min(LAST_BATCH);
        if let Some(last) = last.filter(|_| !self.is_over) {
            let mut key = Vec::new();
            context.key(last).copy_to(&mut key);
            match self.order {
                Order::Ascending => self.range.low = Bound::Excluded(key),
                Order::Descending => self.range.high = Bound::Excluded(key),
            }
        }
    }

    /// The next node in the order of the scan; `None` if it is to be searched for.
    #[inline(always)]
    fn step(&self, context: Context<'_, '_, D>, node: Node) -> Option<Node> {
        let next = match self.order {
            Order::Ascending => {
                // Nodes further on, so that the scan waits for several lines at once.
                for level in 1..context.info(node).height.min(LOW_LEVELS) {
                    context.pool().prefetch(context.next(node, level).node().0);
                }
                let next = context.next(node, 0);
                (!S::MARKED_STAY || !next.is_marked()).then_some(next.node())
            }
            Order::Descending => S::before(context, node),
        };
        if let Some(next) = next {
            context.pool().prefetch(next.0);
        }
        next
    }

    /// Whether the node lies beyond the end of the range.
    #[inline(always)]
    fn is_beyond(&self, context: Context<'_, '_, D>, node: Node) -> bool {
        let (end, beyond) = match self.order {
            Order::Ascending => (&self.range.high, Compare::Greater),
            Order::Descending => (&self.range.low, Compare::Less),
        };
        match end {
            Bound::Unbounded => false,
            Bound::Included(end) => context.compare(node, Probe::new(end)) == beyond,
            Bound::Excluded(end) => {
                let found = context.compare(node, Probe::new(end));
                found == beyond || found.is_eq()
            }
        }
    }

    /// Copies the record, unless it is deleted.
    #[inline(always)]
    fn copy(&mut self, context: Context<'_, '_, D>, node: Node) {
        let Some((_, value)) = context.value(node) else { return };
        let (key, value) = (context.key(node), value.as_bytes());
        self.batch.push_with(|bytes| key.copy_to(bytes), |bytes| bytes.extend_from_slice(value));
    }
}

impl<D: Domain, S: Links> SkipList<D, S> {
    /// The first node of a range, or the head.
    fn first_from(&self, context: Context<'_, '_, D>, low: &Bound<Vec<u8>>) -> Node {
        let gap = |key, aim| self.find_gap(context, Probe::new(key), aim, Order::Ascending);
        match low {
            Bound::Included(low) => gap(low, Aim::Before).1,
            Bound::Excluded(low) => gap(low, Aim::Behind).1,
            // The head's own successor is never marked.
            Bound::Unbounded => context.next(self.head(context), 0).node(),
        }
    }

    /// The last node of a range, or the head.
    fn last_to(&self, context: Context<'_, '_, D>, high: &Bound<Vec<u8>>) -> Node {
        let gap = |key, aim| self.find_gap(context, Probe::new(key), aim, Order::Descending);
        match high {
            Bound::Included(high) => gap(high, Aim::Behind).0,
            Bound::Excluded(high) => gap(high, Aim::Before).0,
            Bound::Unbounded => self.last(context),
        }
    }

    /// The last node, or the head.
    fn last(&self, context: Context<'_, '_, D>) -> Node {
        let head = self.head(context);
        if let Some(last) = S::before(context, head) {
            return last;
        }
        // As a search for a key behind all.
        self.find_end(context)
    }

    /// Counts some of the records from `low` on, and says from which key on the others are.
    pub(crate) fn count_from(&self, low: &Bound<Vec<u8>>) -> Result<(u64, Option<Vec<u8>>), Error> {
        let guard = self.pin()?;
        let context = self.context(&guard);
        let head = self.head(context);
        let mut node = self.first_from(context, low);
        let mut live = 0;
        for visited in 1.. {
            if node == head {
                break;
            }
            live += u64::from(!context.state(node).is_deleted());
            let next = context.next(node, 0);
            if visited == COUNTED || (S::MARKED_STAY && next.is_marked()) {
                let mut key = Vec::new();
                context.key(node).copy_to(&mut key);
                sound(&guard)?;
                return Ok((live, Some(key)));
            }
            node = next.node();
        }
        sound(&guard)?;
        Ok((live, None))
    }
}

impl<D: Domain, S: Links> Cursor for ListCursor<'_, D, S> {
    #[inline]
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if self.batch.is_used_up() {
            self.fill()?;
        }
        Ok(self.batch.lend())
    }
}
