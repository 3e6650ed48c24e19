//! Committed operations whose clean-up is pending: the thread cleans up with its next operation.
//!
//! Where lines are written back, a plain operation (one without blocks) returns when all its
//! references are on the medium. By these references recovery knows that it has succeeded. The
//! status stays *committed, pending*, and the references stay in place, until the thread begins its
//! next operation:
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | 1 | the status is written back, with the next descriptor; **fence** | an operation that recovery knows by its references, or by its status |
//! | 2 | references replaced by new values; these written back, with the next references; **fence** | some references, some new values; the status tells recovery which values |
//! | 3 | *free* | nothing to do |
//!
//! Until step 2, a thread that finds one of the references reads the new value. To change the word,
//! it does step 1, and step 2 for that word.
//!
//! Steps 1 and 2 are done before more than one epoch passes: the thread that raises the epoch does
//! them ([`settle_deferred`]), since a word may lie in a block that is about to be reused. (One
//! epoch may pass: the thread that raises it may have read the slot before the slot's owner
//! deferred anything. The next raise needs that owner to be unpinned, or pinned in the new epoch,
//! and so it sees the deferred work. A block waits for three epochs.)

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Pool, mutant};

use crate::descriptor::{WordEntry, entries, is_descriptor, status_word, targets};
use crate::pmwcas::Pmwcas;
use crate::word::{Life, State, Status};

impl<D: Domain> Pmwcas<D> {
    /// Defers the clean-up of the operation, which has just committed, to the thread's next
    /// operation.
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

    /// Step 1: starts the write-back of the status. The caller fences next.
    #[inline]
    pub(crate) fn flush_pending(&self, guard: &Guard<'_, D>) {
        if D::needs_write_back() {
            let pending = self.participant(guard.slot()).pending.borrow();
            if let Some(life) = pending.life {
                if !mutant!("replaced-before-known") {
                    self.status_word(life.index).flush();
                }
                pending.offs().for_each(|off| self.pool().word(off).prefetch_for_write());
            }
        }
    }

    /// Step 2, first half: replaces the references.
    #[inline]
    pub(crate) fn replace_pending(&self, guard: &Guard<'_, D>) {
        if D::needs_write_back() {
            let pending = self.participant(guard.slot()).pending.borrow();
            if let Some(life) = pending.life
                // If another thread has done this already, a word may lie in a reused block by now.
                && guard.has_deferred()
            {
                for (index, &(off, new)) in pending.targets().iter().enumerate() {
                    let _ = self.pool().word(off).compare_exchange(life.reference(index), new);
                }
                guard.defer(0);
            }
        }
    }

    /// Step 2, second half: starts the write-back of the words. The caller fences next, with no
    /// swap in between, since a swap would wait for the write-back too.
    #[inline]
    pub(crate) fn flush_replaced(&self, guard: &Guard<'_, D>) {
        if D::needs_write_back() {
            let pending = self.participant(guard.slot()).pending.borrow();
            if pending.life.is_some() && !mutant!("final-values-forgotten") {
                self.flush_lines(pending.offs());
            }
        }
    }

    /// Step 3: the operation no longer needs its descriptor.
    #[inline]
    pub(crate) fn free_pending(&self, guard: &Guard<'_, D>) {
        if D::needs_write_back()
            && let Some(life) = self.participant(guard.slot()).pending.borrow_mut().life.take()
        {
            let free = Status::new(State::Free, life.sequence);
            // Not flushed: if recovery repeats the operation's last steps, they change nothing.
            self.status_word(life.index).store(free.encode(), Ordering::Release);
        }
    }

    /// All three steps, if an operation is pending.
    pub(crate) fn settle_pending(&self, guard: &Guard<'_, D>) {
        if D::needs_write_back() && self.participant(guard.slot()).pending.borrow().life.is_some() {
            self.flush_pending(guard);
            D::fence();
            self.replace_pending(guard);
            self.flush_replaced(guard);
            D::fence();
            self.free_pending(guard);
        }
    }
}

/// Does steps 1 and 2 for another thread's operation; only that thread does step 3. `deferred` is
/// a reference of the operation.
pub(crate) fn settle_deferred<D: Domain>(pool: &Pool<D>, deferred: u64) {
    let (life, _) = Life::of(deferred);
    if !is_descriptor(pool, life.index) {
        return;
    }
    let word = status_word(pool, life.index);
    let committed = Status::new(State::CommittedPending, life.sequence).encode();
    let Some(entries) = entries(pool, life.index) else { return };
    // Loaded after the entries, whose loads acquire: so the entries are of that life.
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
