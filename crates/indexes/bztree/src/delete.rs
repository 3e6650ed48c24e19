//! Deletes of single records (paper 4.2.2).
//!
//! A delete of an inline record claims its slot as *deleted*, durably before it returns: one CAS,
//! and nothing else is written. If an earlier operation on the key is in doubt, or the value has a
//! block of its own, the delete reserves its slot and settles it as writes do (`write.rs`).
//!
//! A delete that finds no slot replaces the leaf first. The new leaf has at least one slot, which
//! another operation may take. So each further attempt asks for room for one record more.
//!
//! # In a full leaf of a full pool
//!
//! If the pool once had no room to replace the leaf, the delete is done *in place*:
//!
//! | step | what a crash leaves |
//! | --- | --- |
//! | all slots in progress that may be of the key are aborted | aborted slots |
//! | the lines of all slots are written back, so the aborts are durable | the same |
//! | PMwCAS: the gate is open and stays as it is; the record's dead bit is set | the record, or not |
//!
//! The second step is needed because of what an aborted operation may have left on the medium. If
//! all references of its PMwCAS are there, recovery lets it succeed, and here no later slot of the
//! leaf supersedes it.
//!
//! No slot can be claimed meanwhile, since none is empty, so nothing can settle for the key. A
//! thread that copies the leaf has closed the gate before. The delete does not close the leaf, so
//! two such deletes do not exclude each other.

use pando_index::{Error, Intent, Result, Upserted};
use pando_pmem::{Domain, mutant};
use pando_tree::checked::Steps;
use pando_tree::context::Context;
use pando_tree::room::Tries;

use crate::build::{RecordKind, USUAL_BYTES, Wanted};
use crate::claim::abort;
use crate::layout::LIMITS;
use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::node::Probe;
use crate::smo::Merging;
use crate::tree::BzTree;
use crate::write::{Claim, Decision, more_rooms};

/// The room that a delete requests of the leaf that replaces the one without a slot.
#[derive(Default)]
pub(crate) struct Demand {
    /// The number of records; zero at first, so that the leaf may be merged away.
    rooms: u64,
    /// The pool had no room for that.
    refused: bool,
}

impl Demand {
    fn wanted(&self) -> Wanted {
        // A delete needs no bytes, but a write at the same leaf may.
        Wanted { records: self.rooms, record_bytes: USUAL_BYTES, kind: RecordKind::Any }
    }
}

impl<D: Domain> BzTree<D> {
    /// Deletes `key` (paper 4.2.2). Returns whether it was present. If `expected` is given, a
    /// record with another value is an error.
    pub(crate) fn delete(&self, key: &[u8], expected: Option<&[u8]>) -> Result<bool> {
        LIMITS.check_key(key)?;
        let probe = Probe::new(key);
        let mut demand = Demand::default();
        let deleted = self.until_done(
            Tries::Many,
            || self.give_back(),
            |guard| {
                let context = self.context(guard);
                let leaf = self.find_leaf(context, probe);
                self.delete_and_merge(context, leaf, probe, expected, &mut demand)
            },
        )?;
        if deleted == Some(Merging::Later) {
            self.merge_with_room(probe);
        }
        Ok(deleted.is_some())
    }

    /// One attempt: deletes the key, and merges the leaf if it has become small. `None` means:
    /// search again from the root. `Some(None)` means that the key was absent.
    #[inline]
    pub(crate) fn delete_and_merge(
        &self,
        context: Context<'_, D>,
        leaf: Leaf,
        probe: Probe<'_>,
        expected: Option<&[u8]>,
        demand: &mut Demand,
    ) -> Result<Option<Option<Merging>>> {
        match self.delete_in_leaf(context, leaf, probe, expected, demand) {
            Ok(Some(_)) => {
                self.sweep.stir();
                Ok(Some(Some(self.merge_underfull(context, probe, &leaf))))
            }
            Ok(None) => Ok(None),
            Err(Error::KeyNotFound) => Ok(Some(None)),
            Err(error) => Err(error),
        }
    }

    #[inline]
    fn delete_in_leaf(
        &self,
        context: Context<'_, D>,
        leaf: Leaf,
        probe: Probe<'_>,
        expected: Option<&[u8]>,
        demand: &mut Demand,
    ) -> Result<Option<Upserted>> {
        if let Some(leaf) = leaf.ranged(context) {
            return self.delete_in_range(context, &leaf, probe, expected);
        }
        let intent = expected.map(|expected| Intent::Exchange { expected });
        let mut steps = Steps::of_attempts();
        loop {
            let look = leaf.look(context, probe, None);
            steps.take(context.guard, leaf.node.off)?;
            if !mutant!("closed-check-in-delete") && look.closing.is_some() {
                context.guard.with_reserve(|| self.settle_closed(context, probe, demand.wanted()));
                demand.rooms = more_rooms(demand.rooms, USUAL_BYTES);
                return Ok(None);
            }
            let old = match Self::decide(context, &leaf, intent, &look)? {
                Decision::Supersede(old) => old,
                _ => continue,
            };
            if look.next == leaf.slots() {
                let restructure = || self.restructure(context, probe, demand.wanted());
                if demand.refused || context.guard.with_reserve(restructure).is_err() {
                    demand.refused = true;
                    return self.delete_in_place(context, leaf, probe, intent);
                }
                demand.rooms = more_rooms(demand.rooms, USUAL_BYTES);
                return Ok(None);
            }
            let off = leaf.slot_off(look.next);
            let deleted = old.meta.deleted(probe.hash);
            if (!mutant!("delete-in-doubt") && look.in_doubt) || old.meta.is_pointer() {
                let generation = context.pool().generation();
                let key_bytes = probe.bytes.len() as u64;
                let reserved = Meta::reserved(generation, probe.hash, key_bytes, 0);
                let claim = Claim { slot: look.next, reserved, record: None };
                if !leaf.claim(context, claim.slot, reserved) {
                    continue;
                }
                return self.settle_in_doubt(context, leaf, &claim, probe, &[], None, intent);
            }
            leaf.secure_slots_before(context, look.next);
            if context.pmwcas.compare_exchange(context.guard, off, 0, deleted.0).is_ok() {
                return Ok(Some(Upserted::Updated));
            }
        }
    }

    /// Deletes in a leaf whose slots are all claimed and that cannot be replaced.
    #[cold]
    fn delete_in_place(
        &self,
        context: Context<'_, D>,
        leaf: Leaf,
        probe: Probe<'_>,
        intent: Option<Intent<'_>>,
    ) -> Result<Option<Upserted>> {
        let is_blind = mutant!("in-place-in-doubt");
        for (off, meta) in Self::in_doubt(context, &leaf, leaf.slots(), probe) {
            if !is_blind {
                abort(context, off, meta);
            }
        }
        let look = leaf.look(context, probe, None);
        let in_doubt = look.in_doubt && !is_blind;
        if look.closing.is_some() || in_doubt || look.next < leaf.slots() {
            return Ok(None);
        }
        let Decision::Supersede(old) = Self::decide(context, &leaf, intent, &look)? else {
            return Ok(None);
        };
        if !mutant!("all-slots-not-secured") {
            leaf.secure_every_slot(context);
        }
        let is_done = context.publish(|operation| {
            let gate = leaf.gate(context);
            let (off, bit) = leaf.dead_bit(old.index);
            let dead = context.read(off);
            if !mutant!("in-place-despite-closing") {
                operation.add_word(leaf.gate_off(), gate.0, gate.0)?;
            }
            operation.add_word(off, dead, dead | bit)?;
            let is_expected = Self::release_value(context, &leaf, Some(old), intent, operation)?;
            Ok(is_expected && !gate.is_closed() && dead & bit == 0)
        })?;
        Ok(is_done.then_some(Upserted::Updated))
    }
}
