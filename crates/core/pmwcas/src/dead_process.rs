//! The operations of a dead process, in a pool that other processes use meanwhile.
//!
//! To other threads, these operations are those of stopped threads: they let them fail, or complete
//! them, as far as they need their words. This ends them, so that their descriptors and blocks are
//! free again. One thread at a time does so for a slot (`pando-pmem`, `processes.rs`), in place of
//! the owner. It may die too; then another thread begins again.
//!
//! | state of a descriptor | what is done, in this order | a death of this thread leaves |
//! | --- | --- | --- |
//! | *installing*, *undecided* | status := *failed*, by CAS, unless another thread has decided the operation | a decided operation |
//! | *succeeded*, *failed*; *committed, pending* | references and conditional references are replaced by final values, by CAS | some references |
//! | | spans that were half activated, or half freed, are claimed as a whole; the active bits of the operation's blocks to be freed are cleared | blocks that are taken, and not active |
//! | | status := *free* | the same |
//! | | the blocks go back for reuse after their epoch | the same: a census finds them (`pando-pmem`, `alloc/census.rs`) |
//! | *filling* | status := *free*; no word refers to it | a free descriptor |
//! | *helping* | the conditional reference that it records is completed; the record is closed | a record that is closed, or not |
//!
//! An operation that is not decided has not returned, so it may fail. It must not be completed:
//! the dead thread may not have activated its blocks yet.
//!
//! No block is freed twice. Clearing an active bit tells whether it was set, and a block goes back
//! for reuse only from the thread that has cleared it. A second thread that begins again finds the
//! bits cleared, and leaves the blocks to a census. No such block is reused before: until the
//! status is *free*, the dead process's slot keeps it. (If the dead thread was not pinned, it had
//! no operation.)
//!
//! Helpers may be late. A late install finds that the operation is decided, and takes itself back
//! (`rdcss.rs`), as after any other operation's end.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, mutant};

use crate::descriptor::{DESCRIPTORS_PER_PARTITION, Field, targets};
use crate::error::Result;
use crate::execute::Finals;
use crate::finalize::blocks_to_free;
use crate::pmwcas::Pmwcas;
use crate::word::{Life, State, Status};

impl<D: Domain> Pmwcas<D> {
    /// Recovers the processes that shared the pool and have died: ends their operations, and gives
    /// back their participant slots. Returns their number; zero in a pool that is not shared. Other
    /// threads use the pool meanwhile.
    ///
    /// # Errors
    ///
    /// If the system refuses a lock, or no participant slot is free. What is left is done by the
    /// next call, in any process.
    pub fn recover_dead(&self) -> Result<usize> {
        Ok(self.pool().recover_dead(|guard, slot| self.end_operations(guard, slot as u64))?)
    }

    fn end_operations(&self, guard: &Guard<'_, D>, slot: u64) {
        let first = slot * DESCRIPTORS_PER_PARTITION;
        (first..first + DESCRIPTORS_PER_PARTITION).for_each(|index| self.end(guard, index));
    }

    fn end(&self, guard: &Guard<'_, D>, index: u64) {
        let word = self.status_word(index);
        loop {
            let found = word.load(Ordering::Acquire);
            let Some(status) = Status::decode(found) else { return };
            let life = Life { index, sequence: status.sequence };
            match status.state {
                State::Free => return,
                State::Filling => {
                    let free = Status::new(State::Free, status.sequence);
                    // Release: pairs with the acquire load in `claim`.
                    word.store(free.encode(), Ordering::Release);
                    return;
                }
                State::Helping => {
                    if !mutant!("dead-helpers-record-stays") {
                        self.complete_record(index, life);
                    }
                    return;
                }
                State::Installing | State::Undecided => {
                    let failed = Status::new(State::Failed, status.sequence);
                    // If another thread was faster, the operation is decided all the same.
                    let _ = word.compare_exchange(found, failed.encode());
                }
                State::Succeeded | State::CommittedPending | State::Failed => {
                    self.end_decided(guard, life, status);
                    return;
                }
            }
        }
    }

    fn end_decided(&self, guard: &Guard<'_, D>, life: Life, status: Status) {
        let succeeded = status.state.has_succeeded();
        match self.entries(life.index) {
            Some(entries) => {
                self.phase_2(life, targets(&entries), succeeded);
                if !mutant!("dead-threads-spans-half-freed") {
                    let blocks = blocks_to_free(&entries, succeeded);
                    blocks.for_each(|off| self.pool().end_for_dead(off));
                }
                self.finalize(guard, life, &entries, succeeded, Finals::InPlace);
            }
            // Damaged: no thread can have written it.
            None => self.set_free(life.index, status),
        }
    }

    /// Completes the install that a dead helper has recorded, and closes the record.
    fn complete_record(&self, index: u64, life: Life) {
        let address = self.entry_word(index, 0, Field::Address);
        let off = address.load(Ordering::Acquire);
        let conditional = life.conditional(0);
        if self.pool().is_word(off) && self.pool().word(off).load(Ordering::Acquire) == conditional
        {
            self.complete_install(off, conditional);
        }
        address.store(0, Ordering::Release);
    }
}
