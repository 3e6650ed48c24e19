//! The execution by direct installation. The crate's page has the protocol.

use pando_pmem::{Domain, Guard, mutant};

use crate::descriptor::{Entries, WordEntry, targets};
use crate::pmwcas::Pmwcas;
use crate::word::{CONTROL_BITS, Life, State, Status};

/// How an execution ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direct {
    /// All targets hold references, durably: the new values hold.
    Committed,
    /// All targets hold their new values, durably in the descriptor.
    Succeeded,
    /// A target did not hold the expected value. Nothing is changed, durably.
    Mismatch,
    /// Another thread needed a target. Nothing is changed, durably.
    Interrupted,
}

impl<D: Domain> Pmwcas<D> {
    /// Executes the operation, whose descriptor is durable and *installing*. A plain operation may
    /// end as *committed, pending*.
    #[inline]
    pub(crate) fn execute_direct(
        &self,
        guard: &Guard<'_, D>,
        life: Life,
        entries: &Entries,
        is_plain: bool,
    ) -> Direct {
        let targets = targets(entries);
        let status = self.status_word(life.index);
        if D::needs_write_back() {
            // Its write-back may have evicted the line.
            status.prefetch_for_write();
        }
        // Durable with the references, which is early enough: only this thread lets the operation
        // succeed.
        self.activate_blocks(entries);
        let installed = self.install_all(guard, life, targets);
        let installing = Status::new(State::Installing, life.sequence);
        if installed < targets.len() {
            // Another thread may have done this already.
            let failed = Status { state: State::Failed, ..installing };
            let _ = status.compare_exchange(installing.encode(), failed.encode());
            self.take_back(guard, life, &targets[..installed]);
            return Direct::Mismatch;
        }
        if D::needs_write_back() {
            self.flush_replaced(guard);
            if !mutant!("undurable-references") {
                self.flush_targets(targets);
            }
            // A success is decided only when neither a reference nor an activation can be lost.
            D::fence();
            self.free_pending(guard);
        }
        let ends_pending = D::needs_write_back() && is_plain;
        let succeeded = if ends_pending {
            Status { state: State::CommittedPending, ..installing }
        } else {
            Status { state: State::Succeeded, dirty: D::needs_write_back(), ..installing }
        };
        if status.compare_exchange(installing.encode(), succeeded.encode()).is_err()
            && !mutant!("success-after-interruption")
        {
            self.take_back(guard, life, targets);
            return Direct::Interrupted;
        }
        if ends_pending {
            return Direct::Committed;
        }
        if D::needs_write_back() {
            for target in targets {
                self.pool().word(target.off).prefetch_for_write();
            }
            if !mutant!("undurable-status") {
                status.flush();
            }
            D::fence();
        }
        self.replace_references(life, targets, true);
        Direct::Succeeded
    }

    /// Puts references into the targets, in order of address; returns how many. Fewer than all
    /// mean that the next target did not hold the expected value, or that the operation has failed
    /// already.
    #[inline]
    fn install_all(&self, guard: &Guard<'_, D>, life: Life, targets: &[WordEntry]) -> usize {
        for (index, target) in targets.iter().enumerate() {
            let word = self.pool().word(target.off);
            while let Err(found) = word.compare_exchange(target.old, life.reference(index)) {
                if found & CONTROL_BITS == 0 || !self.settle(guard, target.off, found) {
                    return index;
                }
            }
        }
        targets.len()
    }

    /// Puts the old values back, durably: the next life of the descriptor overwrites the entries
    /// from which recovery would take them.
    #[cold]
    fn take_back(&self, guard: &Guard<'_, D>, life: Life, targets: &[WordEntry]) {
        if !mutant!("interrupted-and-left") {
            self.replace_references(life, targets, false);
        }
        self.flush_replaced(guard);
        if !mutant!("interrupted-undurably") {
            self.flush_targets(targets);
        }
        D::fence();
        self.free_pending(guard);
    }

    /// Replaces the references by final values, where no other thread has done so.
    #[inline]
    fn replace_references(&self, life: Life, targets: &[WordEntry], succeeded: bool) {
        for (index, target) in targets.iter().enumerate() {
            let value = if succeeded { target.new } else { target.old };
            let word = self.pool().word(target.off);
            let _ = word.compare_exchange(life.reference(index), value);
        }
    }

    /// Lets the operation fail, unless its owner finishes it soon. The owner then executes it
    /// again so that other threads help.
    #[cold]
    pub(crate) fn interrupt(&self, life: Life) {
        for _ in 0..D::SPINS {
            if self.status_of(life).is_none_or(|status| status.state != State::Installing) {
                return;
            }
            std::hint::spin_loop();
        }
        let installing = Status::new(State::Installing, life.sequence);
        let failed = Status { state: State::Failed, ..installing };
        let word = self.status_word(life.index);
        let _ = word.compare_exchange(installing.encode(), failed.encode());
    }
}
