//! Scans, forwards and backwards. The paper has none.
//!
//! A cursor collects the slots of one leaf in its range while it is pinned, sorts them, copies
//! their records, and lends these while it is not pinned. Of long values it copies at most about
//! [`FULL_BYTES`] at once, and comes back for the rest. The range of the leaf decides where it
//! continues, not the last key that it returned:
//!
//! * Forwards: at the separator to the right of the leaf, as the descent found it. An open leaf has
//!   at least that range: its range only grows, to the right, when its neighbour is dropped. The
//!   keys beyond the separator are left to the next step, which may find the same leaf.
//! * Backwards: right below the leaf's lowest key, which never changes.
//!
//! The leaf was not replaced at the time during the scan when it was found. Its bitmap is read
//! once, and then each of its value words.
//!
//! * A record that is present throughout has its slot in that bitmap, and its word holds it at each
//!   read. An update changes the word in place. If the leaf is replaced meanwhile, the closed word
//!   still holds the value before the update.
//! * The content of an open word was true when it was read. That of a closed word was true when the
//!   leaf was found, or later: no change of a closed word takes effect before the leaf's
//!   replacement is published.
//! * No key appears twice: of the slots of a key in one bitmap, all except one are deleted, and
//!   stay so.
//!
//! So each record is one of an instant of the scan, and the records of one leaf may be of different
//! instants. No step waits for another thread or starts again because of one, except at a leaf that
//! is dropped during the search for it.

use std::cmp::Ordering as Compare;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use pando_index::{Order, Result};
use pando_pmem::{Domain, Guard, mutant};
use pando_tree::batch::{Batch, FULL_BYTES, ThreadsBatch};
use pando_tree::cursor::{Fill, Scan};
use pando_tree::key::{Probe, Side};

use crate::layout::{Content, MAX_SLOTS, content, is_closed, key_at};
use crate::record;
use crate::separator::Separator;
use crate::tree::{Found, NbTree};
use crate::volatile::leaf::slots;
use crate::volatile::node::{Kind, LeafRef};

/// A slot with a record of the range.
#[derive(Clone, Copy, Debug)]
struct Taken {
    slice: u64,
    found: Found,
}

/// The slots of a leaf.
type AllTaken = ArrayVec<Taken, MAX_SLOTS>;

impl<D: Domain> Fill for NbTree<D> {
    type Batch = ThreadsBatch;

    /// A leaf is sorted as a whole.
    const FIRST_BATCH: usize = usize::MAX;

    fn fill(&self, guard: &Guard<'_, D>, scan: &mut Scan, batch: &mut ThreadsBatch) -> Result<()> {
        self.layers.check()?;
        let order = scan.order();
        let (key, side) = scan.place();
        let probe = key.map(Probe::new);
        let Some((leaf, high)) = self.find_for_scan(guard, probe.as_ref(), side) else {
            return Ok(());
        };
        let mut taken = self.take(guard, scan, leaf, probe.as_ref(), high.as_ref());
        taken.sort_unstable_by(|left, right| {
            let compared = left.slice.cmp(&right.slice).then_with(|| {
                let (mut left_room, mut right_room) = ([0; 8], [0; 8]);
                let left = key_of(guard, left, &mut left_room);
                left.cmp(key_of(guard, right, &mut right_room))
            });
            if order == Order::Ascending { compared } else { compared.reverse() }
        });
        if !self.copy_taken(guard, batch, leaf, &taken) {
            return scan.go_behind(leaf.block_off, batch.last_key().unwrap_or_default());
        }
        let low = (!leaf.low.is_lowest()).then(|| leaf.low.clone());
        let edge = if order == Order::Ascending { high } else { low };
        let mut room = [0; 8];
        scan.leave(leaf.block_off, edge.as_ref().map(|edge| edge.bytes(&mut room)))
    }
}

impl<D: Domain> NbTree<D> {
    /// The leaf of the probe, or the first or last leaf, and the separator to its right.
    fn find_for_scan<'guard>(
        &self,
        guard: &'guard Guard<'_, D>,
        probe: Option<&Probe<'_>>,
        side: Side,
    ) -> Option<(LeafRef<'guard>, Option<Separator>)> {
        let mut high = None;
        let mut node = self.layers.root.slot().load(guard);
        let mut leaf = loop {
            match node.kind() {
                Kind::Inner(inner) => {
                    let index = match (probe, side) {
                        (Some(probe), _) => inner.index(probe, side),
                        (None, Side::Holding) => 0,
                        (None, Side::Before) => inner.len() - 1,
                    };
                    if index + 1 < inner.len() {
                        high = Some(inner.separator(index));
                    }
                    node = inner.slot(index).load(guard);
                }
                Kind::Leaf(leaf) => break leaf,
            }
        };
        while let Some(replacement) = leaf.replaced_by(guard) {
            self.install(guard, leaf);
            let is_right = |right: &LeafRef<'_>| match probe.map(|probe| right.low.compare(probe)) {
                None => side == Side::Before,
                Some(Compare::Less) => false,
                Some(Compare::Equal) => side == Side::Holding,
                Some(Compare::Greater) => true,
            };
            // A dropped leaf has no replacement.
            let left = replacement.left(guard)?;
            leaf = match replacement.right(guard) {
                Some(right) if is_right(&right) && !mutant!("nbtree-scan-of-the-left-half") => {
                    right
                }
                Some(right) => {
                    high = Some(right.low.clone());
                    left
                }
                None => left,
            };
        }
        Some((leaf, high))
    }

    /// Copies the records of the slots; returns whether it copied all.
    fn copy_taken(
        &self,
        guard: &Guard<'_, D>,
        batch: &mut Batch,
        leaf: LeafRef<'_>,
        taken: &[Taken],
    ) -> bool {
        for (turn, taken) in taken.iter().enumerate() {
            if turn > 0 && batch.bytes() >= FULL_BYTES {
                return false;
            }
            let mut room = [0; 8];
            let key = key_of(guard, taken, &mut room);
            batch.push_with(
                |bytes| bytes.extend_from_slice(key),
                |bytes| {
                    self.lend(guard, leaf, taken.found, |value| bytes.extend_from_slice(value));
                },
            );
        }
        true
    }

    /// The slots of the leaf whose records lie in the range, from the probe on, and below `high`.
    fn take(
        &self,
        guard: &Guard<'_, D>,
        scan: &Scan,
        leaf: LeafRef<'_>,
        probe: Option<&Probe<'_>>,
        high: Option<&Separator>,
    ) -> AllTaken {
        let mut all = AllTaken::new();
        for slot in slots(leaf.control::<D>().bitmap()) {
            let word = self.settled(guard, leaf, slot);
            if mutant!("nbtree-scan-passes-closed") && is_closed(word) {
                continue;
            }
            // Relaxed: stored before the slot was decided.
            let slice = guard.pool().word(leaf.block_off + key_at(slot)).load(Ordering::Relaxed);
            let eight = slice.to_be_bytes();
            let key = match content(word) {
                Content::Value => &eight[..],
                Content::Record(off) => record::parts(guard, off).0,
                Content::Deleted => {
                    self.make_durable(guard, leaf, slot);
                    continue;
                }
                Content::Empty | Content::Damaged => continue,
            };
            let own = Probe { slice, bytes: key };
            let is_ahead = probe.is_none_or(|probe| {
                scan.is_ahead(slice.cmp(&probe.slice).then_with(|| key.cmp(probe.bytes)))
            });
            let is_below = high.is_none_or(|high| high.compare(&own) == Compare::Less);
            // Backwards no slot is left for later: the keys above the leaf's range come earlier in
            // the scan.
            let is_here = is_ahead && (is_below || scan.order() == Order::Descending);
            if !is_here || scan.is_past(|end| key.cmp(end)) {
                continue;
            }
            self.make_durable(guard, leaf, slot);
            all.push(Taken { slice, found: Found { slot, word } });
        }
        all
    }
}

/// The key of a slot's record.
fn key_of<'all, D: Domain>(
    guard: &'all Guard<'_, D>,
    taken: &Taken,
    room: &'all mut [u8; 8],
) -> &'all [u8] {
    match content(taken.found.word) {
        Content::Record(off) => record::parts(guard, off).0,
        _ => {
            *room = taken.slice.to_be_bytes();
            room
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_pmem::Process;
    use pando_tree::testing::{Fixture, check_batches};

    use crate::{NbTrees, Options};

    #[test]
    fn a_batch_is_bounded_in_bytes() {
        check_batches(&Fixture::<Process, NbTrees>::anonymous(Options::default()).index);
    }
}
