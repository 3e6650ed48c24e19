//! Claims of a leaf's slots, and the closing of the leaf, which is the claim that ends all.
//!
//! # Claims
//!
//! A slot is claimed by one CAS of the first empty one, and is not written back: nothing durable
//! depends on a claim. But a slot that a crash forgot must not leave a hole, which would be claimed
//! again for a record of another length. Stores to one line reach the medium in order, so within a
//! line none is forgotten before a later one; and who claims the first slot of a line first writes
//! the line before it back.
//!
//! A slot may be *aborted* while it is reserved, by anybody: whoever reserved it then finds that it
//! came to nothing. A crash that forgets an abortion leaves a slot that was reserved by a dead
//! generation, which nobody settles either.
//!
//! # Closing
//!
//! | step | what a crash leaves |
//! | --- | --- |
//! | upwards, every slot in progress is aborted | slots that came to nothing |
//! | the first empty slot becomes *closed*; or, if there is none, and the slots are durable, the gate does | a closed leaf, or an open one |
//!
//! No slot behind the closed one can be claimed after that, and none before it can settle; so the
//! leaf's records are final. Whoever meets a closed leaf replaces it, or opens it again: the closed
//! slot becomes *aborted*, and later ones can be claimed; a gate opens with a version that it
//! never had. So a leaf is never closed twice by the same word. What replaces it takes that word
//! from *closed* to *replaced*, which nobody opens: of an opening and a replacement only one
//! succeeds, and no copy that was made before an opening is ever put in place.
//!
//! The gate, and the dead bits that depend on it, count only when all slots are claimed; therefore
//! the last claims are made durable before the gate is closed, or a record deleted in place.

use pando_pmem::{Domain, mutant};
use pando_tree::checked::Steps;
use pando_tree::context::Context;

use crate::closing::{Closing, swap};
use crate::leaf::Leaf;
use crate::meta::{Kind, Meta};

impl Leaf {
    /// Claims the empty slot `slot`, not durably; false if somebody else has.
    #[inline]
    pub fn claim<D: Domain>(&self, context: Context<'_, D>, slot: u64, meta: Meta) -> bool {
        self.secure_slots_before(context, slot);
        swap(context, self.slot_off(slot), Meta::EMPTY.0, meta.0)
    }

    /// Sees to it that no crash forgets the claim of a slot before `slot`, which is about to be
    /// claimed. Within a line none is forgotten before a later one, and the first claim of each
    /// line has secured the line before it.
    #[inline]
    pub fn secure_slots_before<D: Domain>(&self, context: Context<'_, D>, slot: u64) {
        let off = self.slot_off(slot);
        if !mutant!("slots-not-secured") && D::WRITE_BACK && slot > 0 && off.is_multiple_of(64) {
            context.pool().word(off - 8).flush();
            D::fence();
        }
    }

    /// Sees to it that no crash forgets that all slots are claimed: what stands in the gate and the
    /// dead bits counts only then.
    pub fn secure_all_slots<D: Domain>(&self, context: Context<'_, D>) {
        if D::WRITE_BACK {
            context.pool().word(self.slot_off(self.slots().saturating_sub(1))).flush();
            D::fence();
        }
    }

    /// Sees to it that no crash brings back what a slot held before it was aborted.
    pub fn secure_every_slot<D: Domain>(&self, context: Context<'_, D>) {
        if D::WRITE_BACK {
            context.pool().flush(self.slot_off(0), self.slots() * 8);
            D::fence();
        }
    }

    /// Closes the leaf: no record of it changes after that.
    pub fn close<D: Domain>(&self, context: Context<'_, D>) -> Closing {
        let mut slot = 0;
        let mut steps = Steps::of_attempts();
        while slot < self.slots() {
            let off = self.slot_off(slot);
            let meta = self.slot(context, slot);
            match meta.kind() {
                Kind::Empty => {
                    if self.claim(context, slot, Meta::CLOSED) {
                        return Closing::Slot { off, meta: Meta::CLOSED };
                    } else if self.is_stuck(context, &mut steps) {
                        return Closing::Slot { off, meta };
                    }
                }
                Kind::Reserved => {
                    if mutant!("close-leaves-in-progress")
                        || swap(context, off, meta.0, meta.aborted().0)
                    {
                        slot += 1;
                    } else if self.is_stuck(context, &mut steps) {
                        return Closing::Slot { off, meta };
                    }
                }
                // A leaf that was replaced hangs nowhere any more: nothing will come of this.
                Kind::Closed | Kind::Replaced => return Closing::Slot { off, meta },
                Kind::Inline | Kind::Pointer | Kind::Deleted | Kind::Aborted => slot += 1,
            }
        }
        self.secure_all_slots(context);
        let off = self.gate_off();
        loop {
            let gate = self.gate(context);
            if gate.is_closed() || self.is_stuck(context, &mut steps) {
                return Closing::Gate { off, gate };
            }
            if swap(context, off, gate.0, gate.closed().0) {
                return Closing::Gate { off, gate: gate.closed() };
            }
        }
    }
}

impl Leaf {
    /// Takes a step of those that only other threads' success, or damage, makes necessary. Whether
    /// there is none left: then damage is noted, and nothing will come of what the caller does.
    #[cold]
    fn is_stuck<D: Domain>(&self, context: Context<'_, D>, steps: &mut Steps) -> bool {
        let is_stuck = steps.take(context.guard, self.node.off).is_err();
        if is_stuck {
            context.guard.note_damage(self.node.off);
        }
        is_stuck
    }
}

/// Aborts the operation that reserved the slot at `off`, if it is still in progress. A crash may
/// forget that, and bring back what the operation would have made of the slot: see
/// [`secure_every_slot`](Leaf::secure_every_slot).
pub(crate) fn abort<D: Domain>(context: Context<'_, D>, off: u64, reserved: Meta) {
    swap(context, off, reserved.0, reserved.aborted().0);
}
