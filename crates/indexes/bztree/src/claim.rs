//! Claims of a leaf's slots, and the closing of the leaf, which is its last claim.
//!
//! # Claims
//!
//! A slot is claimed by one CAS of the first empty one. The claim is not written back, because
//! nothing durable depends on it. But if a crash loses the claim of one slot and keeps that of a
//! later one, the lost slot would be claimed again, for a record of another length. Stores to one
//! line reach the medium in order, so within a line a crash keeps no later claim without the
//! earlier ones. A thread that claims the first slot of a line first writes back the line before
//! it.
//!
//! Any thread may *abort* a slot while it is reserved. The thread that reserved it then finds it
//! aborted. If a crash loses the abort, the slot is one that a dead generation reserved, and no
//! thread settles it.
//!
//! # Closing
//!
//! | step | what a crash leaves |
//! | --- | --- |
//! | every slot in progress is aborted, from the first on | aborted slots |
//! | the first empty slot becomes *closed*; if there is none, and the slots are durable, the gate does | a closed leaf, or an open one |
//!
//! From then on, no slot behind the closed one can be claimed, and none before it can settle. So
//! the leaf's records are final. A thread that finds a closed leaf replaces it or opens it again.
//! To open it, the closed slot becomes *aborted*, and later slots can be claimed; or the gate gets
//! a version that it never had. So two closings of a leaf never have the same word. The replacement
//! changes that word from *closed* to *replaced*, which is never opened. Of an opening and a
//! replacement only one succeeds, and a copy that was made before an opening is never installed.
//!
//! The gate, and the dead bits that depend on it, count only when all slots are claimed. Therefore
//! the last claims are made durable before the gate is closed, and before a record is deleted in
//! place.

use pando_pmem::{Domain, mutant};
use pando_tree::checked::Steps;
use pando_tree::context::Context;

use crate::closing::{Closing, swap};
use crate::leaf::Leaf;
use crate::meta::{Kind, Meta};

impl Leaf {
    /// Claims the empty slot `slot`, not durably. Returns false if another thread has claimed it.
    #[inline]
    pub fn claim<D: Domain>(&self, context: Context<'_, D>, slot: u64, meta: Meta) -> bool {
        self.secure_slots_before(context, slot);
        swap(context, self.slot_off(slot), Meta::EMPTY.0, meta.0)
    }

    /// Makes the claims of all slots before `slot` safe from a crash, before `slot` is claimed.
    /// Within a line a crash keeps no later claim without the earlier ones, and the first claim of
    /// each line has written back the line before it.
    #[inline]
    pub fn secure_slots_before<D: Domain>(&self, context: Context<'_, D>, slot: u64) {
        let off = self.slot_off(slot);
        if !mutant!("slots-not-secured")
            && D::needs_write_back()
            && slot > 0
            && off.is_multiple_of(64)
        {
            context.pool().word(off - 8).flush();
            D::fence();
        }
    }

    /// Makes the claims of all slots durable. Only then do the gate and the dead bits count.
    pub fn secure_all_slots<D: Domain>(&self, context: Context<'_, D>) {
        if D::needs_write_back() {
            context.pool().word(self.slot_off(self.slots().saturating_sub(1))).flush();
            D::fence();
        }
    }

    /// Writes back all slots, so that no crash brings back the content of a slot before it was
    /// aborted.
    pub fn secure_every_slot<D: Domain>(&self, context: Context<'_, D>) {
        if D::needs_write_back() {
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
                // A replaced leaf cannot be reached any more, so the replacement of the caller will
                // fail.
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
    /// Takes one of the steps that are needed only after another thread's success, or after damage.
    /// Returns true if no step remains: then damage is noted, and the caller's operation will fail.
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
/// lose the abort, and with it bring back the slot of that operation: see
/// [`secure_every_slot`](Leaf::secure_every_slot).
pub(crate) fn abort<D: Domain>(context: Context<'_, D>, off: u64, reserved: Meta) {
    swap(context, off, reserved.0, reserved.aborted().0);
}
