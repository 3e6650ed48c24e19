//! Frees the blocks of an operation at its end (section 5.2, table 1).
//!
//! The owner of the operation finalizes it when all targets hold final values. By the default
//! algorithm, it first writes the targets back; by RDCSS they are durable already.
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | 1 | the active bits of the blocks to be freed are cleared; **fence** | a descriptor in use: recovery repeats step 1, which changes nothing |
//! | 2 | status := *free*; **fence** | free blocks and a free descriptor |
//! | 3 | the blocks go back for reuse: after their epoch if other threads may read them, at once if no other thread has seen them | |
//!
//! No block is reused before step 2, so a repeated step 1 cannot free a reused block. If the owner
//! stalls forever, its blocks stay allocated until recovery. No other thread is delayed.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, mutant};

use crate::descriptor::{Entries, targets};
use crate::execute::Finals;
use crate::pmwcas::Pmwcas;
use crate::word::{BLOCK_MASK, Life, MAX_WORDS, State, Status};

/// Blocks that are no longer allocated, and not given back for reuse yet.
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

pub(crate) fn blocks_to_free(entries: &Entries, succeeded: bool) -> impl Iterator<Item = u64> {
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
    /// Sets the active bits of the operation's new blocks; its descriptor must be durable. Returns
    /// whether it has any. The bits are durable after the caller's next fence.
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
            // Not flushed: if recovery repeats the operation's last steps, they change nothing.
            status.store(free, Ordering::Release);
            return;
        }
        if finals == Finals::InDescriptor {
            self.flush_targets(targets(entries));
        }
        // Ends with a fence, which makes the final values of the targets durable too.
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

    /// Clears the active bits of the blocks to be freed, durably. A block that is not allocated is
    /// skipped: it may be a reservation of another thread.
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

    /// Like [`free_blocks`](Self::free_blocks), for recovery, which may repeat it.
    fn free_blocks_again(&self, entries: &Entries, succeeded: bool) {
        for off in blocks_to_free(entries, succeeded) {
            self.pool().recover_deactivate(off);
        }
        D::fence();
    }

    /// Frees the operation's blocks and its descriptor, durably. Only in recovery.
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
