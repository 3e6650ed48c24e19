//! What becomes of the blocks behind an operation's words when it is over (section 5.2, table 1).
//!
//! The owner of the operation finalizes it, once all targets hold final values, durably:
//!
//! 1. the active bits of the blocks to be freed are cleared, durable;
//! 2. status := *free*, durable;
//! 3. the blocks go back for reuse: those that others may look at after their epoch, those that
//!    nobody ever saw at once.
//!
//! A crash before 2 repeats 1, which changes nothing; no block is reused before 2, so repeating
//! cannot hit a block in its next life. If the owner stops for ever, its blocks stay allocated
//! until recovery; nobody else is held up.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, mutant};

use crate::descriptor::{Entries, targets};
use crate::execute::Finals;
use crate::pmwcas::Pmwcas;
use crate::word::{BLOCK_MASK, Life, MAX_WORDS, State, Status};

/// Blocks that are no longer allocated, to be given back for reuse.
#[derive(Default)]
struct Freed {
    list: [u64; MAX_WORDS],
    count: usize,
}

impl Freed {
    fn offsets(&self) -> impl Iterator<Item = u64> {
        self.list[..self.count].iter().copied()
    }
}

fn blocks_to_free(entries: &Entries, succeeded: bool) -> impl Iterator<Item = u64> {
    entries
        .all()
        .iter()
        .filter_map(move |entry| match succeeded {
            true if entry.policy.owns_old() => Some(entry.old & BLOCK_MASK),
            false if !mutant!("leaked-new-block") && entry.policy.owns_new() => {
                Some(entry.new & BLOCK_MASK)
            }
            _ => None,
        })
        .filter(|&off| off != 0)
}

impl<D: Domain> Pmwcas<D> {
    /// Sets the active bits of the blocks that come with the operation, whose descriptor is
    /// durable; whether there were any. Durable after the caller's next fence.
    pub(crate) fn activate_blocks(&self, entries: &Entries) -> bool {
        let mut activated = false;
        for entry in entries.all() {
            if entry.policy.owns_new() && entry.new != 0 {
                self.pool().activate_logged(entry.new & BLOCK_MASK);
                activated = true;
            }
        }
        activated
    }

    #[inline]
    pub(crate) fn finalize(
        &self,
        guard: &Guard<'_, D>,
        life: Life,
        entries: &Entries,
        succeeded: bool,
        finals: Finals,
    ) {
        let free = Status::new(State::Free, life.sequence).encode();
        let status = self.status_word(life.index);
        if !entries.own_blocks() {
            // Not flushed: what recovery would do for the operation, again, is nothing.
            status.store(free, Ordering::Release);
            return;
        }
        if finals == Finals::InDescriptor {
            self.flush_targets(targets(entries));
        }
        // With a fence, by which the targets' final values are durable too.
        let freed = self.free_blocks(entries, succeeded);
        status.store(free, Ordering::Release);
        status.flush();
        D::fence();
        for off in freed.offsets() {
            if succeeded && !mutant!("freed-too-early") {
                guard.retire(off);
            } else {
                self.pool().reuse(guard, off);
            }
        }
    }

    /// Clears the active bits of the blocks to be freed, durably. What is not allocated is not
    /// freed: it may be another thread's reservation.
    fn free_blocks(&self, entries: &Entries, succeeded: bool) -> Freed {
        let mut freed = Freed::default();
        for off in blocks_to_free(entries, succeeded) {
            if self.pool().deactivate(off).is_ok() {
                freed.list[freed.count] = off;
                freed.count += 1;
            }
        }
        D::fence();
        freed
    }

    /// As [`free_blocks`](Self::free_blocks), for recovery, any number of times.
    fn free_blocks_again(&self, entries: &Entries, succeeded: bool) {
        for off in blocks_to_free(entries, succeeded) {
            self.pool().recover_deactivate(off);
        }
        D::fence();
    }

    /// Frees the operation's blocks and its descriptor, durably, in recovery.
    pub(crate) fn finish_again(
        &self,
        index: u64,
        status: Status,
        entries: &Entries,
        succeeded: bool,
    ) {
        self.free_blocks_again(entries, succeeded);
        self.set_free(index, status);
        for off in blocks_to_free(entries, succeeded) {
            self.pool().recover_reuse(off);
        }
    }
}
