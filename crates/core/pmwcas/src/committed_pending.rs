//! Committed operations whose clean-up is pending: the thread does it with its next operation.
//!
//! Where lines are written back, a plain operation (one without blocks) returns when all its
//! references are on the medium: recovery knows by these that it has succeeded. Its status is
//! *committed, pending*, with its references in place, until the thread begins its next operation:
//!
//! 1. status written back, with the next descriptor; **fence**: recovery knows it by the status;
//! 2. references replaced by new values; these written back, with the next references; **fence**;
//! 3. *free*.
//!
//! A thread that meets one of the references before that reads the new value. To change the word,
//! it does 1 and its own part of 2. Before 1 and 2 are done no more than one epoch passes: the
//! thread that raises the epoch does them ([`settle_deferred`]), since a word may lie in a block
//! that is about to be used for something else. (One epoch: the thread that raises it may have
//! looked at the slot before its owner deferred anything. The next raise needs that owner unpinned,
//! or pinned anew, and so sees it. Blocks wait for three.)

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Pool, mutant};

use crate::descriptor::{WordEntry, entries, is_descriptor, status_word, targets};
use crate::pmwcas::Pmwcas;
use crate::word::{Life, State, Status};

impl<D: Domain> Pmwcas<D> {
    /// Defers the clean-up of the operation, which has just committed, to the thread's next one.
    #[inline]
    pub(crate) fn defer(&self, guard: &Guard<'_, D>, life: Life, targets: &[WordEntry]) {
        let mut pending = self.participant(guard.slot()).pending.borrow_mut();
        debug_assert!(pending.life.is_none(), "one operation after the other");
        pending.life = Some(life);
        pending.count = targets.len();
        for (own, target) in pending.targets.iter_mut().zip(targets) {
            *own = (target.off, target.new);
        }
        guard.defer(life.reference(0));
    }

    /// The first step: starts the write-back of the status. A fence is to follow.
    #[inline]
    pub(crate) fn flush_pending(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK {
            let pending = self.participant(guard.slot()).pending.borrow();
            if let Some(life) = pending.life {
                if !mutant!("replaced-before-known") {
                    self.status_word(life.index).flush();
                }
                pending.offs().for_each(|off| self.pool().word(off).prefetch_for_write());
            }
        }
    }

    /// The second step, its first half: replaces the references.
    #[inline]
    pub(crate) fn replace_pending(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK {
            let pending = self.participant(guard.slot()).pending.borrow();
            if let Some(life) = pending.life
                // If another thread has done it since, a word may be of another block by now.
                && guard.has_deferred()
            {
                for (index, &(off, new)) in pending.targets().iter().enumerate() {
                    let _ = self.pool().word(off).compare_exchange(life.reference(index), new);
                }
                guard.defer(0);
            }
        }
    }

    /// The second step, its second half: starts the write-back of the words. A fence is to follow,
    /// and no swap before that, which would wait for it too.
    #[inline]
    pub(crate) fn flush_replaced(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK {
            let pending = self.participant(guard.slot()).pending.borrow();
            if pending.life.is_some() && !mutant!("final-values-forgotten") {
                self.flush_lines(pending.offs());
            }
        }
    }

    /// The third step: the operation needs its descriptor no more.
    #[inline]
    pub(crate) fn free_pending(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK
            && let Some(life) = self.participant(guard.slot()).pending.borrow_mut().life.take()
        {
            let free = Status::new(State::Free, life.sequence);
            // Not flushed: what recovery would do for the operation, again, is nothing.
            self.status_word(life.index).store(free.encode(), Ordering::Release);
        }
    }

    /// All three, if anything is pending.
    pub(crate) fn settle_pending(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK && self.participant(guard.slot()).pending.borrow().life.is_some() {
            self.flush_pending(guard);
            D::fence();
            self.replace_pending(guard);
            self.flush_replaced(guard);
            D::fence();
            self.free_pending(guard);
        }
    }
}

/// Does the deferred clean-up of another thread's operation, but for the third step, which is that
/// thread's own: `deferred` is a reference of the operation.
pub(crate) fn settle_deferred<D: Domain>(pool: &Pool<D>, deferred: u64) {
    let (life, _) = Life::of(deferred);
    if !is_descriptor(pool, life.index) {
        return;
    }
    let word = status_word(pool, life.index);
    let committed = Status::new(State::CommittedPending, life.sequence).encode();
    let Some(entries) = entries(pool, life.index) else { return };
    // After the entries were read, whose loads acquire, so that it is of that life.
    if word.load(Ordering::Acquire) != committed {
        return;
    }
    if !mutant!("deferred-undurable") {
        word.flush();
    }
    D::fence();
    for (index, target) in targets(&entries).iter().enumerate() {
        let _ = pool.word(target.off).compare_exchange(life.reference(index), target.new);
    }
}
