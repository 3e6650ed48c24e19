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

use std::ops::Bound;

use pando_index::{Error, Order};
use pando_pmem::{Domain, Guard};
use pando_tree::batch::{Batch, FULL_BYTES, ThreadsBatch};
use pando_tree::checked::undamaged;
use pando_tree::context::Context;
use pando_tree::cursor::{Fill, Scan};

use crate::layout::LOW_LEVELS;
use crate::list::SkipList;
use crate::node::{Node, Probe};
use crate::search::Aim;
use crate::style::Links;

/// Nodes of the first batch: each is a line to wait for, and short scans are mostly of ten. Later
/// batches double up to [`LAST_BATCH`].
const FIRST_BATCH: usize = 10;
const LAST_BATCH: usize = 768;
/// Nodes that are counted under one guard, so that reclamation does not wait for all.
const COUNTED: usize = 4096;

impl<D: Domain, S: Links> Fill for SkipList<D, S> {
    type Batch = ThreadsBatch;

    const FIRST_BATCH: usize = FIRST_BATCH;
    const LAST_BATCH: usize = LAST_BATCH;

    #[cold]
    fn fill(
        &self,
        guard: &Guard<'_, D>,
        scan: &mut Scan,
        batch: &mut ThreadsBatch,
    ) -> Result<(), Error> {
        let context = self.context(guard);
        let head = self.head(context);
        let order = scan.order();
        let mut node = match order {
            Order::Ascending => self.first_from(context, scan.start()),
            Order::Descending => self.last_to(context, scan.start()),
        };
        let mut last = None;
        for _ in 0..scan.most() {
            if node == head || scan.is_past(|end| node.compare(context, Probe::new(end))) {
                scan.finish();
                return Ok(());
            }
            copy(context, batch, node);
            last = Some(node);
            if batch.bytes() > FULL_BYTES {
                break;
            }
            match Self::step(context, order, node) {
                Some(next) => node = next,
                None => break,
            }
        }
        let Some(last) = last else { return Ok(()) };
        let mut key = Vec::new();
        last.key(context).copy_to(&mut key);
        scan.go_behind(last.0, &key)
    }
}

/// Copies the record, unless it is deleted.
#[inline(always)]
fn copy<D: Domain>(context: Context<'_, '_, D>, batch: &mut Batch, node: Node) {
    let Some((_, value)) = node.value(context) else { return };
    let (key, value) = (node.key(context), value.as_bytes());
    batch.push_with(|bytes| key.copy_to(bytes), |bytes| bytes.extend_from_slice(value));
}

impl<D: Domain, S: Links> SkipList<D, S> {
    /// The next node in the order of the scan; `None` if it is to be searched for.
    #[inline(always)]
    fn step(context: Context<'_, '_, D>, order: Order, node: Node) -> Option<Node> {
        let next = match order {
            Order::Ascending => {
                // Nodes further on, so that the scan waits for several lines at once.
                for level in 1..node.info(context).height.min(LOW_LEVELS) {
                    context.pool().prefetch(node.next(context, level).node().0);
                }
                let next = node.next(context, 0);
                (!S::MARKED_STAY || !next.is_marked()).then_some(next.node())
            }
            Order::Descending => S::before(context, node),
        };
        if let Some(next) = next {
            context.pool().prefetch(next.0);
        }
        next
    }

    /// The first node of a range, or the head.
    fn first_from(&self, context: Context<'_, '_, D>, low: Bound<&[u8]>) -> Node {
        let gap = |key, aim| self.find_gap(context, Probe::new(key), aim, Order::Ascending);
        match low {
            Bound::Included(low) => gap(low, Aim::Before).1,
            Bound::Excluded(low) => gap(low, Aim::Behind).1,
            // The head's own successor is never marked.
            Bound::Unbounded => self.head(context).next(context, 0).node(),
        }
    }

    /// The last node of a range, or the head.
    fn last_to(&self, context: Context<'_, '_, D>, high: Bound<&[u8]>) -> Node {
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
        let mut node = self.first_from(context, low.as_ref().map(Vec::as_slice));
        let mut live = 0;
        for visited in 1.. {
            if node == head {
                break;
            }
            live += u64::from(!node.state(context).is_deleted());
            let next = node.next(context, 0);
            if visited == COUNTED || (S::MARKED_STAY && next.is_marked()) {
                let mut key = Vec::new();
                node.key(context).copy_to(&mut key);
                undamaged(&guard)?;
                return Ok((live, Some(key)));
            }
            node = next.node();
        }
        undamaged(&guard)?;
        Ok((live, None))
    }
}
