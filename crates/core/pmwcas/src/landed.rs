//! What a thread's last operation has left to be done with its next one.
//!
//! Where lines are written back, a plain operation (one without blocks) returns when
//! all its references are on the medium: by these, recovery knows that it has succeeded. It stands
//! as *landed*, with its references in place, until the thread begins its next operation:
//!
//! 1. status written back, with the next descriptor; **fence**: recovery knows it by the status;
//! 2. references replaced by new values; these written back, with the next references; **fence**;
//! 3. *free*.
//!
//! Who meets one of the references before that reads the new value, or does 1 and its own part of 2
//! to change the word. And before 1 and 2 are done no more than one epoch passes, by whoever wants
//! it to pass ([`settle_left`]): a word may lie in a block that is about to be used for something
//! else. (One: who raises the epoch may have looked at the thread before it left something. The
//! next raise needs that thread unpinned, or pinned anew, and so sees it. Blocks wait for three.)

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Pool, mutant};

use crate::descriptor::{MAX_WORDS, WordEntry, entries, is_descriptor, status_word, targets};
use crate::pmwcas::Pmwcas;
use crate::word::{Life, State, Status};

/// The last operation of a participant's thread, if it landed and nothing was done since.
#[derive(Debug, Default)]
pub(crate) struct Landed {
    life: Option<Life>,
    /// Address and new value of each target.
    targets: [(u64, u64); MAX_WORDS],
    count: usize,
}

impl Landed {
    fn targets(&self) -> &[(u64, u64)] {
        &self.targets[..self.count]
    }

    fn offs(&self) -> impl Iterator<Item = u64> {
        self.targets().iter().map(|&(off, _)| off)
    }
}

impl<D: Domain> Pmwcas<D> {
    /// Leaves the operation, which has just landed, to the thread's next one.
    #[inline]
    pub(crate) fn leave(&self, guard: &Guard<'_, D>, life: Life, targets: &[WordEntry]) {
        let mut landed = self.participant(guard.slot()).landed.borrow_mut();
        debug_assert!(landed.life.is_none(), "one operation after the other");
        landed.life = Some(life);
        landed.count = targets.len();
        for (own, target) in landed.targets.iter_mut().zip(targets) {
            *own = (target.off, target.new);
        }
        guard.leave(life.reference(0));
    }

    /// The first step: starts the write-back of the status. A fence is to follow.
    #[inline]
    pub(crate) fn flush_landed(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK {
            let landed = self.participant(guard.slot()).landed.borrow();
            if let Some(life) = landed.life {
                if !mutant!("replaced-before-known") {
                    self.status_word(life.index).flush();
                }
                landed.offs().for_each(|off| self.pool().word(off).prefetch_for_write());
            }
        }
    }

    /// The second step, its first half: replaces the references.
    #[inline]
    pub(crate) fn replace_landed(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK {
            let landed = self.participant(guard.slot()).landed.borrow();
            if let Some(life) = landed.life
                // If another thread has done it since, a word may be of another block by now.
                && guard.has_left()
            {
                for (index, &(off, new)) in landed.targets().iter().enumerate() {
                    let _ = self.pool().word(off).compare_exchange(life.reference(index), new);
                }
                guard.leave(0);
            }
        }
    }

    /// The second step, its second half: starts the write-back of the words. A fence is to follow,
    /// and no swap before that, which would wait for it too.
    #[inline]
    pub(crate) fn flush_replaced(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK {
            let landed = self.participant(guard.slot()).landed.borrow();
            if landed.life.is_some() && !mutant!("final-values-forgotten") {
                self.flush_lines(landed.offs());
            }
        }
    }

    /// The third step: the operation needs its descriptor no more.
    #[inline]
    pub(crate) fn free_landed(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK
            && let Some(life) = self.participant(guard.slot()).landed.borrow_mut().life.take()
        {
            let free = Status::new(State::Free, life.sequence);
            // Not flushed: what recovery would do for the operation, again, is nothing.
            self.status_word(life.index).store(free.encode(), Ordering::Release);
        }
    }

    /// All three, if anything is left.
    pub(crate) fn settle_landed(&self, guard: &Guard<'_, D>) {
        if D::WRITE_BACK && self.participant(guard.slot()).landed.borrow().life.is_some() {
            self.flush_landed(guard);
            D::fence();
            self.replace_landed(guard);
            self.flush_replaced(guard);
            D::fence();
            self.free_landed(guard);
        }
    }
}

/// Does for another thread what its operation has left, but for the third step, which is that
/// thread's own: `left` is a reference of the operation.
pub(crate) fn settle_left<D: Domain>(pool: &Pool<D>, left: u64) {
    let (life, _) = Life::of(left);
    if !is_descriptor(pool, life.index) {
        return;
    }
    let word = status_word(pool, life.index);
    let landed = Status::new(State::Landed, life.sequence).encode();
    let Some(entries) = entries(pool, life.index) else { return };
    // After the entries were read, whose loads acquire, so that it is of that life.
    if word.load(Ordering::Acquire) != landed {
        return;
    }
    if !mutant!("left-undurable") {
        word.flush();
    }
    D::fence();
    for (index, target) in targets(&entries).iter().enumerate() {
        let _ = pool.word(target.off).compare_exchange(life.reference(index), target.new);
    }
}
