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
//!
//! With a callback all three wait for the epoch, and the callback runs between 1 and 2. It may run
//! again after a crash, so it must be idempotent.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Pool};

use crate::descriptor::{Content, Entries, MAX_WORDS, targets};
use crate::execute::Finals;
use crate::pmwcas::Pmwcas;
use crate::word::{BLOCK_MASK, Life, State, Status};

/// Which blocks are freed when an operation is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// None.
    #[default]
    None = 0,
    /// The old one after success, the new one after failure.
    FreeOne = 1,
    /// The new one after failure.
    FreeNewOnFailure = 2,
    /// The old one after success.
    FreeOldOnSuccess = 3,
}

impl Policy {
    pub(crate) fn decode(bits: u64) -> Option<Self> {
        match bits {
            0 => Some(Self::None),
            1 => Some(Self::FreeOne),
            2 => Some(Self::FreeNewOnFailure),
            3 => Some(Self::FreeOldOnSuccess),
            _ => None,
        }
    }

    /// This policy for an entry that was given a new block: on failure only the operation can
    /// free that one.
    pub(crate) fn with_new(self) -> Self {
        match self {
            Self::None | Self::FreeNewOnFailure => Self::FreeNewOnFailure,
            Self::FreeOne | Self::FreeOldOnSuccess => Self::FreeOne,
        }
    }

    pub(crate) fn owns_new(self) -> bool {
        matches!(self, Self::FreeOne | Self::FreeNewOnFailure)
    }

    fn owns_old(self) -> bool {
        matches!(self, Self::FreeOne | Self::FreeOldOnSuccess)
    }
}

/// Callbacks that one table holds.
pub const MAX_CALLBACKS: usize = 16;

/// A callback that runs when an operation is over and nobody can look at its blocks any more.
pub type Finalize<D> = fn(&Finalization<'_, '_, D>);

/// A word of a finalized operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalizedWord {
    /// Its address; zero for an owned block.
    pub off: u64,
    /// The value that was expected.
    pub old: u64,
    /// The value that was to be set.
    pub new: u64,
}

/// What a callback is told.
#[derive(Debug)]
pub struct Finalization<'call, 'pool, D: Domain> {
    /// Whether the operation succeeded.
    pub succeeded: bool,
    /// Its words, in order of address.
    pub words: &'call [FinalizedWord],
    /// The pool.
    pub pool: &'pool Pool<D>,
}

/// Operations whose callbacks wait for their epoch.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    queue: VecDeque<(u64, u64)>,
}

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
            false if entry.policy.owns_new() => Some(entry.new & BLOCK_MASK),
            _ => None,
        })
        .filter(|&off| off != 0)
}

impl<D: Domain> Pmwcas<D> {
    /// Sets the active bits of the blocks that come with the operation, whose descriptor is durable;
    /// whether there were any. Durable after the caller's next fence.
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
        callback: Option<usize>,
        succeeded: bool,
        finals: Finals,
    ) {
        if callback.is_some() {
            if finals == Finals::InDescriptor {
                // With a fence of its own: the callback may run on another thread, which takes this
                // one's place, and whose fence completes no write-back of this one.
                self.flush_targets(targets(entries));
                D::fence();
            }
            let epoch = guard.unlink_epoch();
            let mut waiting = self.participant(guard.slot()).waiting.borrow_mut();
            waiting.queue.push_back((epoch, life.index));
            return;
        }
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
            if succeeded {
                guard.defer_reuse(off);
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

    /// Runs the callbacks of this participant whose epoch has come.
    pub(crate) fn run_ripe_callbacks(&self, guard: &Guard<'_, D>) {
        loop {
            let waiting = &self.participant(guard.slot()).waiting;
            let Some((epoch, index)) = waiting.borrow().queue.front().copied() else { return };
            if !guard.is_ripe(epoch) {
                return;
            }
            waiting.borrow_mut().queue.pop_front();
            let status = Status::decode(self.status_word(index).load(Ordering::Acquire));
            if let (Some(status), Some(content)) = (status, self.content(index)) {
                let succeeded = status.state.has_succeeded();
                let freed = self.free_blocks(&content.entries, succeeded);
                self.call_and_set_free(index, status, &content, succeeded);
                for off in freed.offsets() {
                    self.pool().reuse(guard, off);
                }
            }
        }
    }

    /// Frees, in recovery, the blocks, runs the callback and frees the descriptor, durably.
    pub(crate) fn finish_again(
        &self,
        index: u64,
        status: Status,
        content: &Content,
        succeeded: bool,
    ) {
        self.free_blocks_again(&content.entries, succeeded);
        self.call_and_set_free(index, status, content, succeeded);
        for off in blocks_to_free(&content.entries, succeeded) {
            self.pool().recover_reuse(off);
        }
    }

    fn call_and_set_free(&self, index: u64, status: Status, content: &Content, succeeded: bool) {
        if let Some(callback) = content.callback.and_then(|index| self.callback(index)) {
            let words: Vec<_> = content
                .entries
                .all()
                .iter()
                .map(|entry| FinalizedWord { off: entry.off, old: entry.old, new: entry.new })
                .collect();
            callback(&Finalization { succeeded, words: &words, pool: self.pool() });
            D::fence();
        }
        let word = self.status_word(index);
        word.store(Status::new(State::Free, status.sequence).encode(), Ordering::Release);
        word.flush();
        D::fence();
    }
}
