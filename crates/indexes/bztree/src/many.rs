//! Gets, upserts and removes of many keys at once.
//!
//! The descents of a group of keys take turns, so that they wait for memory together. Each key is
//! an operation of its own, as by a single call; the answers are not of one point in time.
//!
//! Writes are made in the order of the keys, each in the leaf that its descent has found. That may
//! be out of date, also because of an earlier write of the group. A leaf that was replaced is
//! closed, so a write there fails, as for any writer that comes late (`write.rs`). Then its key is
//! searched again; the leaves that were found for the keys behind it are kept. A write that fails
//! several times, or for which the pool has no room, is made by a single call without the guard of
//! the group, so that room can be reclaimed. The keys behind it begin a new group.

use std::cell::Cell;

use pando_index::{Intent, Record, Result, VisitMany};
use pando_inner::Node;
use pando_pmem::Domain;
use pando_tree::checked::undamaged;
use pando_tree::context::Context;
use pando_tree::maps::Tree;

use crate::delete::Demand;
use crate::layout::LIMITS;
use crate::leaf::{Leaf, Settled, Superseded};
use crate::node::Probe;
use crate::smo::Merging;
use crate::tree::BzTree;

/// Descents that take turns. More would request more lines at a time than a core can wait for.
const GROUP: usize = 16;

/// How often a write is tried under the guard of its group.
const ATTEMPTS: u32 = 4;

/// Where a write begins: the leaf of its key.
struct Place<'op, D: Domain> {
    context: Context<'op, D>,
    leaf: Leaf,
    probe: Probe<'op>,
}

/// What the search in a leaf has found.
#[derive(Clone, Copy)]
enum Found {
    /// In a range leaf: the value, if the key is present.
    Number(Option<[u8; 8]>),
    /// In any other.
    Record(Option<Settled>),
}

impl<D: Domain> BzTree<D> {
    /// Lends the value of each of `keys` to `visit`, with the key's index, in order; `None` if it
    /// is absent.
    pub(crate) fn visit_many(&self, keys: &[&[u8]], visit: &mut VisitMany<'_>) -> Result<()> {
        self.in_groups::<GROUP>(keys, LIMITS, |guard, first, keys| {
            let context = self.context(guard);
            let mut probes = [Probe::new(&[]); GROUP];
            for (probe, key) in probes.iter_mut().zip(keys) {
                *probe = Probe::new(key);
            }
            let probes = &probes[..keys.len()];
            let leaves = self.find_leaves(context, probes);
            // The searches in the leaves overlap too, if nothing else is done in between.
            let mut records = [const { Found::Record(None) }; GROUP];
            for ((record, leaf), &probe) in records.iter_mut().zip(&leaves).zip(probes) {
                let leaf = Leaf::new(*leaf);
                *record = match leaf.ranged(context) {
                    Some(leaf) => {
                        let value = probe.number.and_then(|number| leaf.get(context, number));
                        Found::Number(value.map(u64::to_le_bytes))
                    }
                    None => Found::Record(leaf.find(context, probe)),
                };
            }
            for (at, ((record, leaf), probe)) in records.iter().zip(leaves).zip(probes).enumerate()
            {
                let value = match record {
                    Found::Number(value) => Ok(value.as_ref().map(<[u8; 8]>::as_slice)),
                    Found::Record(record) => Leaf::new(leaf).visible_value(context, *record),
                };
                match value {
                    Ok(value) => {
                        undamaged(guard)?;
                        visit(first + at, value);
                    }
                    // The value's block was superseded or deleted meanwhile: look again.
                    Err(Superseded) => {
                        let lend = |value: &[u8]| visit(first + at, Some(value));
                        if self.read_with(probe.bytes, lend)?.is_none() {
                            visit(first + at, None);
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Upserts the records, in their order.
    pub(crate) fn put_many(&self, records: &[Record<'_>]) -> Result<()> {
        let upsert = |place: Place<'_, D>, at: usize| {
            let (key, value) = records[at];
            LIMITS.check_key(key).and(LIMITS.check_value(value)).ok()?;
            let Place { context, probe, .. } = place;
            let (pointer, intent, mut rooms) = (self.wants_block(key, value), Intent::Upsert, 1);
            let written = self.try_from(place, |leaf| {
                // As in `put`.
                context.guard.without_reserve(|| {
                    self.write_in_leaf(context, leaf, probe, value, pointer, intent, &mut rooms)
                })
            });
            written.map(|_| Merging::Done)
        };
        let alone = |at: usize| {
            let (key, value) = records[at];
            self.put(key, value, Intent::Upsert).map(drop)
        };
        self.write_in_groups(records.len(), |at| records[at].0, upsert, alone)
    }

    /// Deletes the keys, in their order. Returns how many were present.
    pub(crate) fn delete_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let deleted = Cell::new(0);
        let delete = |place: Place<'_, D>, _| {
            let Place { context, probe, .. } = place;
            LIMITS.check_key(probe.bytes).ok()?;
            let mut demand = Demand::default();
            let merging = self.try_from(place, |leaf| {
                self.delete_and_merge(context, leaf, probe, None, &mut demand)
            })?;
            deleted.set(deleted.get() + u64::from(merging.is_some()));
            Some(merging.unwrap_or(Merging::Done))
        };
        let alone = |at: usize| {
            deleted.set(deleted.get() + u64::from(self.delete(keys[at], None)?));
            Ok(())
        };
        self.write_in_groups(keys.len(), |at| keys[at], delete, alone)?;
        Ok(deleted.get())
    }

    /// Makes the writes 0 to `count`, in order. `attempt` makes one at the place of its key. If it
    /// returns `None`, `alone` makes the write, without a guard.
    fn write_in_groups<'keys>(
        &self,
        count: usize,
        key: impl Fn(usize) -> &'keys [u8],
        attempt: impl Fn(Place<'_, D>, usize) -> Option<Merging>,
        alone: impl Fn(usize) -> Result<()>,
    ) -> Result<()> {
        let mut next = 0;
        while next < count {
            let end = count.min(next + GROUP);
            let mut underfull = None;
            // One key has nothing to overlap with.
            if end - next > 1 {
                let guard = self.pin()?;
                let context = self.context(&guard);
                let mut probes = [Probe::new(&[]); GROUP];
                for (probe, at) in probes.iter_mut().zip(next..end) {
                    *probe = Probe::new(key(at));
                }
                let probes = &probes[..end - next];
                let leaves = self.find_leaves(context, probes);
                for (leaf, &probe) in leaves.iter().zip(probes) {
                    let place = Place { context, leaf: Leaf::new(*leaf), probe };
                    let Some(merging) = attempt(place, next) else { break };
                    next += 1;
                    if merging == Merging::Later {
                        underfull = Some(probe);
                        break;
                    }
                }
            }
            if let Some(probe) = underfull {
                self.merge_with_room(probe);
            } else if next < end {
                alone(next)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Tries a write in the leaf of its place, and then in the leaf that has its key by now. `None`
    /// if there was an error, or if each attempt failed.
    fn try_from<R>(
        &self,
        Place { context, mut leaf, probe }: Place<'_, D>,
        mut attempt: impl FnMut(Leaf) -> Result<Option<R>>,
    ) -> Option<R> {
        for attempts in 0..ATTEMPTS {
            if attempts > 0 {
                leaf = self.find_leaf(context, probe);
            }
            let done = attempt(leaf).ok()?;
            if done.is_some() {
                return done;
            }
        }
        None
    }

    /// The leaves for at most [`GROUP`] probes, in order; the further elements are unspecified.
    fn find_leaves(&self, context: Context<'_, D>, probes: &[Probe<'_>]) -> [Node; GROUP] {
        self.upper().find_leaves::<GROUP, D>(context, probes.iter().map(|probe| probe.upper()))
    }
}
