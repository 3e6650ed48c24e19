//! Scans, forwards and backwards.
//!
//! A cursor copies a batch of records while it is pinned, leaf after leaf, each under one state,
//! and lends them while it is not. Under one state, all copied cells are records of that state,
//! because a cell is used again only under a later state. The records of one leaf may be of
//! different instants, since they may be in two batches. A cursor goes from leaf to leaf by their
//! sibling pointers, as the paper's scans do: forwards by fences, backwards by the leaves'
//! pointers to the left. Only the next batch starts at the root.
//!
//! Forwards, the next leaf begins where the fence says, in any state. Backwards, the leaf to the
//! left must end where the last one begins. So it is read in the state whose fence leads there
//! ([`Node::left`]). If it is split or merged meanwhile, the cursor starts at the root again.
//!
//! The range of the leaf decides where a cursor continues, not the last key that it returned,
//! because an empty leaf has a range too. If a batch did not exhaust the leaf, the cursor continues
//! behind the batch's last key, in the leaf that has that key by then.
//!
//! Fixed keys have eight bytes, but bounds may be longer. A bound with more than eight bytes is
//! searched by its first eight, and each record is compared with the whole bound.

use pando_index::{Order, Result};
use pando_pmem::{Domain, Guard, mutant};
use pando_tree::batch::{Batch, ThreadsBatch};
use pando_tree::checked::Steps;
use pando_tree::cursor::{Fill, Scan};
use pando_tree::key::Target;

use crate::layout::{Cell, FIXED_BYTES};
use crate::node::{Changed, Context, Node};
use crate::state::State;
use crate::tree::{Found, WbTree};
use crate::write::with_value;

/// Records of the first batch: short scans copy little. Later batches double up to the maximum.
const FIRST_BATCH: usize = 12;
const LAST_BATCH: usize = 96;

/// A leaf found through its neighbour, and the state in which it must be read.
type Sibling<'op, D> = Option<(Node<'op, D>, State)>;

impl<D: Domain> Fill for WbTree<D> {
    type Batch = ThreadsBatch;

    const FIRST_BATCH: usize = FIRST_BATCH;
    const LAST_BATCH: usize = LAST_BATCH;

    /// Copies leaf after leaf, until the batch is full.
    fn fill(&self, guard: &Guard<'_, D>, scan: &mut Scan, batch: &mut ThreadsBatch) -> Result<()> {
        let context = self.context(guard);
        let mut copier = Copier { context, scan, batch, key: Vec::new() };
        // The next leaf, if the last one led to it.
        let mut sibling: Sibling<'_, D> = None;
        let mut steps = Steps::of_attempts();
        while !copier.is_done() {
            steps.take(guard, self.root_off)?;
            let (leaf, state, low) = match sibling.take() {
                Some((leaf, _)) if mutant!("wbtree-left-in-another-state") => {
                    (leaf, leaf.state(context), None)
                }
                Some((leaf, state)) => (leaf, state, None),
                None => {
                    let Some(found) = self.seek_scan(context, copier.scan)? else { continue };
                    (found.node, found.state, Some(found.low))
                }
            };
            if state.is_dead() {
                continue;
            }
            let Ok(seen) = leaf.contents(context, state) else { continue };
            let (records, fence) = (seen.live(), seen.fence());
            if !copier.copy(leaf.off, records)? {
                break;
            }
            sibling = match copier.scan.order() {
                Order::Ascending => copier.go_right(leaf.off, fence)?,
                Order::Descending => copier.go_left(&leaf, low, records.first())?,
            };
        }
        Ok(())
    }
}

impl<D: Domain> WbTree<D> {
    /// Searches the leaf in which the scan continues, from the root.
    fn seek_scan<'op>(
        &self,
        context: Context<'op, D>,
        scan: &Scan,
    ) -> Result<Option<Found<'op, D>>> {
        let mut target = scan.target();
        if let Target::Holding(probe) | Target::Before(probe) = target
            && !context.shape.is_variable
            && scan.order() == Order::Descending
        {
            // No record has a key of another length. A shorter bound lies before the record with
            // its slice, a longer one behind it.
            target = match probe.bytes.len() {
                FIXED_BYTES => target,
                1..FIXED_BYTES => Target::Before(probe),
                _ => Target::Holding(probe),
            };
        }
        self.seek(context, target, 0)
    }
}

/// The copying of leaves.
struct Copier<'fill, 'op, D: Domain> {
    context: Context<'op, D>,
    scan: &'fill mut Scan,
    batch: &'fill mut Batch,
    /// The key of the present record.
    key: Vec<u8>,
}

impl<'op, D: Domain> Copier<'_, 'op, D> {
    /// Whether nothing more must be copied.
    fn is_done(&self) -> bool {
        self.scan.is_over() || self.batch.is_full(self.scan.most())
    }

    /// Copies the wanted records of the leaf at `off`, up to the batch's size. Returns false if
    /// the scan continues in this leaf, or has ended.
    fn copy(&mut self, off: u64, records: &[Cell]) -> Result<bool> {
        let count = records.len();
        for index in 0..count {
            let record = match self.scan.order() {
                Order::Ascending => &records[index],
                Order::Descending => &records[count - 1 - index],
            };
            let (context, key) = (self.context, &mut self.key);
            context.copy_key(record, key);
            if self.scan.is_past(|end| key.as_slice().cmp(end)) {
                self.scan.finish();
                return Ok(false);
            }
            if !self.scan.has_begun(|start| key.as_slice().cmp(start)) {
                continue;
            }
            self.batch.push_with(
                |bytes| bytes.extend_from_slice(key),
                |bytes| with_value(context, record, |value| bytes.extend_from_slice(value)),
            );
            if self.batch.is_full(self.scan.most()) && index + 1 < count {
                self.scan.go_behind(off, key)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Continues behind the leaf at `off` with this fence; returns the leaf there, if it must be
    /// read now.
    fn go_right(&mut self, off: u64, fence: &Cell) -> Result<Sibling<'op, D>> {
        if fence.link == 0 {
            self.scan.finish();
            return Ok(None);
        }
        self.context.copy_key(fence, &mut self.key);
        self.scan.leave(off, Some(&self.key))?;
        if self.is_done() {
            return Ok(None);
        }
        let right = self.context.node(fence.link);
        Ok(Some((right, right.state(self.context))))
    }

    /// Continues below a leaf with this lowest record; returns the leaf there, if it must be read
    /// now. `low` is where the leaf begins, known if it was found from the root. Otherwise the leaf
    /// to the left says so.
    fn go_left(
        &mut self,
        leaf: &Node<'op, D>,
        low: Option<Cell>,
        lowest: Option<&Cell>,
    ) -> Result<Sibling<'op, D>> {
        if let Some(low) = &low {
            self.go_below(leaf.off, low)?;
            if self.is_done() {
                return Ok(None);
            }
        }
        match leaf.left(self.context) {
            Ok(None) => {
                self.scan.finish();
                Ok(None)
            }
            Ok(Some((left, state, fence))) => {
                // A leaf's lower bound never changes.
                if low.is_none() {
                    self.go_below(leaf.off, &fence)?;
                }
                Ok((!self.scan.is_over()).then_some((left, state)))
            }
            Err(Changed) => {
                // The lower bound of the leaf is not known otherwise; a leaf without records is
                // searched again.
                if let (None, Some(lowest)) = (low, lowest) {
                    self.go_below(leaf.off, lowest)?;
                }
                Ok(None)
            }
        }
    }

    /// Continues below the key of `bound`, the lower bound of the leaf at `off`; its words are zero
    /// for the smallest key.
    fn go_below(&mut self, off: u64, bound: &Cell) -> Result<()> {
        self.context.copy_key(bound, &mut self.key);
        let is_smallest = bound.slice == 0 && bound.block == 0;
        self.scan.leave(off, (!is_smallest).then_some(self.key.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use pando_pmem::Process;
    use pando_tree::testing::{Fixture, check_batches};

    use crate::{Options, WbTrees};

    #[test]
    fn a_batch_is_bounded_in_bytes() {
        check_batches(&Fixture::<Process, WbTrees>::anonymous(Options::default()).index);
    }
}
