//! Scans, forwards and backwards, on level 0.
//!
//! A cursor copies a batch of records while it is pinned, and lends them while it is not. The next
//! batch begins behind the last visited key, wherever that lies by then. Each record was in the map
//! at some instant of the scan. At some instant there was also no key between it and the next
//! record: the two were neighbours (see `search.rs`). Backwards, `prev` shows this: it is exact
//! while its node is linked, and does not change after the node is unlinked.
//!
//! A scan waits for memory, for one node after the other. Upwards it prefetches later nodes: those
//! where its search left the low levels, some nodes ahead on each level, and those that the words
//! of the visited nodes lead to. The lowest three of these words are in a line that it has read.

use std::ops::Bound;

use pando_index::{Order, Result};
use pando_pmem::{Domain, Guard};
use pando_tree::batch::{Batch, FULL_BYTES, ThreadsBatch};
use pando_tree::context::Context;
use pando_tree::cursor::{Fill, Scan};
use pando_tree::handle::Counted;
use pando_tree::key::Probe;

use crate::layout::LOW_LEVELS;
use crate::list::SkipList;
use crate::node::Node;
use crate::search::Aim;
use crate::style::Links;

/// Nodes of the first batch: each is a line to wait for, and short scans mostly have ten records.
/// Later batches double up to [`LAST_BATCH`].
const FIRST_BATCH: usize = 10;
const LAST_BATCH: usize = 768;
/// Nodes that are counted under one guard, so that reclamation does not wait for all.
const COUNTED: usize = 4096;

impl<D: Domain, S: Links<D>> Fill for SkipList<D, S> {
    type Batch = ThreadsBatch;

    const FIRST_BATCH: usize = FIRST_BATCH;
    const LAST_BATCH: usize = LAST_BATCH;

    #[cold]
    fn fill(&self, guard: &Guard<'_, D>, scan: &mut Scan, batch: &mut ThreadsBatch) -> Result<()> {
        let context = self.context(guard);
        let head = self.head(context);
        let order = scan.order();
        let mut node = self.first_of(context, scan.start(), order);
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
fn copy<D: Domain>(context: Context<'_, D>, batch: &mut Batch, node: Node) {
    let Some((_, value)) = node.value(context) else { return };
    let (key, value) = (node.key(context), value.as_bytes());
    batch.push_with(|bytes| key.copy_to(bytes), |bytes| bytes.extend_from_slice(value));
}

impl<D: Domain, S: Links<D>> SkipList<D, S> {
    /// The next node in the order of the scan; `None` if it must be searched.
    #[inline(always)]
    fn step(context: Context<'_, D>, order: Order, node: Node) -> Option<Node> {
        let next = match order {
            Order::Ascending => {
                // Nodes further ahead, so that the scan waits for several lines at once.
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

    /// The first node of the rest of the scan, in its order, or the head.
    fn first_of(&self, context: Context<'_, D>, start: Bound<&[u8]>, order: Order) -> Node {
        let (key, aim) = match (start, order) {
            (Bound::Included(key), Order::Ascending) => (key, Aim::Before),
            (Bound::Excluded(key), Order::Ascending) => (key, Aim::Behind),
            (Bound::Included(key), Order::Descending) => (key, Aim::Behind),
            (Bound::Excluded(key), Order::Descending) => (key, Aim::Before),
            // The head's own successor is never marked.
            (Bound::Unbounded, Order::Ascending) => {
                return self.head(context).next(context, 0).node();
            }
            (Bound::Unbounded, Order::Descending) => return self.last(context),
        };
        let (before, behind) = self.find_gap(context, Probe::new(key), aim, order);
        if order == Order::Ascending { behind } else { before }
    }

    /// The last node, or the head.
    fn last(&self, context: Context<'_, D>) -> Node {
        let head = self.head(context);
        if let Some(last) = S::before(context, head) {
            return last;
        }
        // Like a search for a key behind all others.
        self.find_end(context)
    }

    /// Counts some of the records from the key `low` on.
    pub(crate) fn count_from(&self, context: Context<'_, D>, low: &[u8]) -> Counted {
        let head = self.head(context);
        let mut node = self.first_of(context, Bound::Included(low), Order::Ascending);
        let mut live = 0;
        for visited in 1.. {
            if node == head {
                break;
            }
            live += u64::from(!node.state(context).is_deleted());
            let next = node.next(context, 0);
            if visited == COUNTED || (S::MARKED_STAY && next.is_marked()) {
                // The next possible key.
                let mut key = Vec::new();
                node.key(context).copy_to(&mut key);
                key.push(0);
                return (live, Some(key));
            }
            node = next.node();
        }
        (live, None)
    }
}
