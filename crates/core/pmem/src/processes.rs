//! Several processes that share one pool, and the recovery of those that die.
//!
//! A process opens a pool alone, or shares it ([`OpenPool::shared`](crate::OpenPool::shared)). All
//! processes that share it use one generation. A process has a *number* while it has the pool open.
//!
//! # Locks
//!
//! A process holds locks on bytes far behind the content of the file. They are locks of the open
//! file description, so the kernel ends them when the process dies, at any instruction. They are
//! the only evidence of death: a stopped process keeps its locks, and counts as alive.
//!
//! ```text
//! byte    0      1         2 .. 257                       258      259 .. 1,282
//!         gate   sharing   one for each process number    census   one for each map (map_locks.rs)
//! ```
//!
//! | process | gate | sharing | numbers |
//! | --- | --- | --- | --- |
//! | has the pool alone | exclusive | exclusive | all, exclusive |
//! | shares it | exclusive, while it enters or leaves | shared | its own, exclusive |
//! | recovers a dead process | | | the dead one's, exclusive, through a second description |
//! | has handles of a map, or drops it (`map_locks.rs`) | | | that of the map's slot, shared or exclusive |
//! | takes a census (`alloc/census.rs`) | | | *census*, exclusive, through that description |
//!
//! # In the pool
//!
//! ```text
//! process table     256 words: generation << 32 | answer to a census << 24 | process id,
//!                   or 0 if the number is free
//! participant slot  owner, byte 24: generation << 32 | number + 1 (participant.rs)
//! ```
//!
//! A word of another generation counts as zero. A process takes participant slots by a CAS of their
//! owner, and keeps them. So the content of its memory that belongs to a slot (`slots.rs`) belongs
//! to no other process, and a dead process's operations are those in its slots.
//!
//! # Entering
//!
//! | step | what a death leaves |
//! | --- | --- |
//! | lock the gate, for at most 5 s; lock *sharing*, shared | nothing |
//! | *first*, if no number is locked: lock number 0, raise the generation, recover as a process that has the pool alone | a pool in use, which the next process recovers |
//! | *later*: lock a free number. The generation and the content stay | nothing |
//! | write the word of the process table | a number to recover, without slots |
//! | unlock the gate | a number to recover |
//!
//! # Leaving
//!
//! A process that leaves locks the gate. If no other number is locked, it is the last one, and
//! marks the pool as closed. Then it drops all its locks. Its word and slots stay: other processes
//! treat them as those of a dead process, so there is one way to give them back. A process that
//! cannot lock the gate within 5 s leaves as if it was killed.
//!
//! # Recovering a dead process
//!
//! Threads do not wait for this: the operations of a dead process are like those of a stopped
//! thread. But its pinned threads hold the epoch back, and its slots are lost.
//!
//! | step, by one thread at a time | a death of that thread leaves |
//! | --- | --- |
//! | lock the number; this proves that its process is dead | the number is unlocked, so another process continues |
//! | for each of its slots: end the operations of the slot's descriptors (`pando-pmwcas`) | operations that are ended, or not yet |
//! | for each of its slots: do its deferred work; unpin the lease; the slot is not prepared; its owner := 0 | a free slot |
//! | the count of deaths rises; the word of the process table := 0; unlock the number | a free number, or a death that counts twice |
//!
//! All of this happens while other threads use the pool, so it changes words only as a helping
//! thread does. The dead thread's pin stays until its operations are ended: no block that they
//! name is reused before.
//!
//! # Limits
//!
//! * Blocks that a dead process had reserved or retired stay taken until a census finds them
//!   (`alloc/census.rs`): the lists of them were in the memory of the process.
//! * Only in a domain without write-backs: there, a process need not make durable what another one
//!   has written.
//! * No index that exchanges blocks by a log (`alloc/exchange.rs`), or that has more than hints in
//!   process memory: the layer above refuses these.
//! * No hole is punched, since the count of optimistic reads is in process memory.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crate::domain::Domain;
use crate::epoch::Guard;
use crate::error::{Error, Result, io_error};
use crate::layout::{MAX_PROCESSES, PROCESSES_OFF};
use crate::mutant;
use crate::pool::Pool;
use crate::sharing::{GATE_OFF, lock_gate, number_off};
use crate::sys::{self, Access};
use crate::word::Word;

/// The bits of a process's word that are its id. Linux has no more than 2^22 ids.
const PID_BITS: u32 = 24;
const PID_MASK: u32 = (1 << PID_BITS) - 1;

/// A process that has the pool open, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSeen {
    /// Its number.
    pub number: usize,
    /// Its process id, in the process namespace that it has opened the pool in.
    pub pid: u32,
    /// Whether it is alive, perhaps stopped. A dead process is recovered by the others soon.
    pub is_alive: bool,
    /// Its participant slots.
    pub slots: usize,
    /// How many of them are pinned: its threads inside operations.
    pub pinned: usize,
    /// For how long at least a pinned one has been behind the current epoch, so that no block that
    /// is removed since can be reused; `None` if none is.
    pub holds_epoch: Option<Duration>,
}

fn try_locked(mutex: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl<D: Domain> Pool<D> {
    fn process_word(&self, number: usize) -> Word<'_, D> {
        self.word(PROCESSES_OFF + number as u64 * 8)
    }

    /// The process id of the process with that number, if it has one in this generation.
    fn process_of(&self, number: usize) -> Option<u32> {
        // Acquire: pairs with the store of the process, or of the thread that recovered it.
        let word = self.process_word(number).load(Ordering::Acquire);
        let value = self.value_now(word);
        (value != 0).then_some(value & PID_MASK)
    }

    /// The stamp of the last census that the process with that number has answered, if there is
    /// such a process.
    pub(crate) fn answer_of(&self, number: usize) -> Option<u8> {
        // Acquire: pairs with `answer`.
        let word = self.process_word(number).load(Ordering::Acquire);
        let value = self.value_now(word);
        (value != 0).then_some((value >> PID_BITS) as u8)
    }

    /// Answers the census `stamp`: this process has no block that it retired before.
    pub(crate) fn answer(&self, stamp: u8) {
        let Some(sharing) = &self.sharing else { return };
        let word = u32::from(stamp) << PID_BITS | std::process::id() & PID_MASK;
        // Release: pairs with `answer_of`.
        self.process_word(sharing.number).store(self.word_now(word), Ordering::Release);
    }

    /// The owner's word of a slot of the process with that number.
    fn owner_of(&self, number: usize) -> u64 {
        self.word_now(number as u32 + 1)
    }

    /// The owner's word of this process's slots.
    pub(crate) fn own_owner(&self) -> u64 {
        self.owner_of(self.sharing.as_ref().map_or(0, |sharing| sharing.number))
    }

    /// Whether this owner's word is that of a process of this generation.
    pub(crate) fn is_owner(&self, word: u64) -> bool {
        self.value_now(word) != 0
    }

    /// Whether several processes may have the pool open.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    /// Whether other processes had the pool open when this one opened it. Then it is recovered
    /// already, and operations are running.
    pub fn has_joined(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| !sharing.is_first)
    }

    /// Takes a number for this process, which has entered the file.
    pub(crate) fn take_number(&mut self) -> Result<()> {
        let (Some(file), true) = (&self.file, self.is_shared()) else { return Ok(()) };
        let path = &self.path;
        let is_free = |&number: &usize| {
            // A number with a word has slots to be recovered, also if its process is dead.
            if self.process_of(number).is_some() {
                return Ok(false);
            }
            sys::try_lock(file, Access::Exclusive, number_off(number), 1)
        };
        let mut taken = None;
        for number in 0..MAX_PROCESSES {
            if is_free(&number).map_err(io_error(path, "lock the file"))? {
                taken = Some(number);
                break;
            }
        }
        let max = MAX_PROCESSES;
        let number = taken.ok_or_else(|| Error::TooManyProcesses { path: path.clone(), max })?;
        if let Some(sharing) = &mut self.sharing {
            sharing.number = number;
        }
        if !self.has_joined() {
            self.note_raise();
        }
        // It has retired nothing yet, so this is an answer to any census.
        self.answer(self.stamp());
        Ok(())
    }

    /// Lets other processes enter, when this one has recovered the pool.
    pub fn admit_others(&self) -> Result<()> {
        match (&self.file, &self.sharing) {
            (Some(file), Some(_)) => {
                sys::unlock(file, GATE_OFF, 1).map_err(io_error(&self.path, "unlock the file"))
            }
            _ => Ok(()),
        }
    }

    /// Before this process drops its locks: whether it must close the pool, since no other process
    /// has it open. Then no other process enters until the locks are dropped.
    pub(crate) fn leaves_as_last(&self) -> Result<bool> {
        let (Some(file), Some(sharing)) = (&self.file, &self.sharing) else { return Ok(true) };
        lock_gate(&self.path, file)?;
        let last = MAX_PROCESSES - sharing.number - 1;
        let is_locked = |from: usize, count: usize| {
            count > 0
                && sys::is_locked_elsewhere(file, number_off(from), count as u64).unwrap_or(true)
        };
        Ok(!is_locked(0, sharing.number) && !is_locked(sharing.number + 1, last))
    }

    /// An error in a forked child, which does not have the mapping.
    pub(crate) fn check_not_forked(&self) -> Result<()> {
        if self.slots.is_ours() { Ok(()) } else { Err(Error::Forked(self.path.clone())) }
    }

    /// The processes that share the pool, this one included.
    pub fn processes(&self) -> Result<Vec<ProcessSeen>> {
        let (Some(file), Some(sharing)) = (&self.file, &self.sharing) else {
            return Ok(Vec::new());
        };
        self.check_not_forked()?;
        let owners = self.slot_owners();
        let epoch = self.epoch();
        // The age last: if the epoch is raised in between, the age is shorter, so it still is the
        // least time that a thread has been behind.
        let age = self.epoch_age();
        let mut seen = Vec::new();
        for number in 0..MAX_PROCESSES {
            let Some(pid) = self.process_of(number) else { continue };
            let is_alive = number == sharing.number
                || sys::is_locked_elsewhere(file, number_off(number), 1)
                    .map_err(io_error(&self.path, "look at a lock"))?;
            let owner = self.owner_of(number);
            let own = owners.iter().filter(|slot| slot.owner == owner);
            let lags: Vec<_> = own.clone().filter_map(|slot| slot.lag(epoch)).collect();
            seen.push(ProcessSeen {
                number,
                pid,
                is_alive,
                slots: own.count(),
                pinned: lags.len(),
                holds_epoch: lags.iter().any(|&lag| lag > 0).then_some(age),
            });
        }
        Ok(seen)
    }

    /// The numbers and the process ids of the other processes that share the pool, alive or dead.
    pub fn other_processes(&self) -> Vec<(usize, u32)> {
        let Some(sharing) = &self.sharing else { return Vec::new() };
        let others = (0..MAX_PROCESSES).filter(|&number| number != sharing.number);
        others.filter_map(|number| Some((number, self.process_of(number)?))).collect()
    }

    /// Recovers the processes that have died. `end_operations` ends the operations in the
    /// descriptors of a slot; it may be called again for the same slot. Returns the number of
    /// processes.
    ///
    /// Does nothing while another thread of this process is inside this call.
    pub fn recover_dead(
        &self,
        mut end_operations: impl FnMut(&Guard<'_, D>, usize),
    ) -> Result<usize> {
        let Some(sharing) = &self.sharing else { return Ok(0) };
        self.check_not_forked()?;
        let Some(_recovers) = try_locked(&sharing.recovers) else { return Ok(0) };
        let reaper = &sharing.reaper;
        let mut recovered = 0;
        for number in 0..MAX_PROCESSES {
            if number == sharing.number || self.process_of(number).is_none() {
                continue;
            }
            let byte = number_off(number);
            let is_dead = sys::try_lock(reaper, Access::Exclusive, byte, 1)
                .map_err(io_error(&self.path, "lock the file"))?;
            if !is_dead && !mutant!("stopped-process-counts-as-dead") {
                continue;
            }
            // Again, now that no process can have the number: another process may have recovered
            // this one meanwhile.
            let result = match self.process_of(number) {
                Some(_) => self.recover_process(number, &mut end_operations).map(|()| 1),
                None => Ok(0),
            };
            let unlocked = sys::unlock(reaper, byte, 1);
            recovered += result?;
            unlocked.map_err(io_error(&self.path, "unlock the file"))?;
        }
        Ok(recovered)
    }

    /// Recovers the process with that number, which is dead; no other thread does.
    fn recover_process(
        &self,
        number: usize,
        end_operations: &mut impl FnMut(&Guard<'_, D>, usize),
    ) -> Result<()> {
        let owner = self.owner_of(number);
        let slots = self.slot_owners();
        let own = || slots.iter().filter(|slot| slot.owner == owner);
        // All operations first: one of them may be in a descriptor that its thread has borrowed
        // from another slot, and that thread's pin must stay until it is ended.
        for slot in own().filter(|slot| self.is_readied_at(slot.off)) {
            // A guard for each slot, so that many slots do not hold the epoch back.
            let guard = self.pin()?;
            if !mutant!("dead-operations-stay") {
                end_operations(&guard, slot.number);
            }
        }
        for slot in own() {
            let _guard = self.pin()?;
            if self.is_readied_at(slot.off) {
                self.end_lease(slot.off);
            }
            self.free_slot(slot.off);
        }
        // Before the number is free: a death that is not counted would keep its blocks.
        self.note_death();
        // Release: pairs with `process_of` of a process that takes the number next.
        self.process_word(number).store(0, Ordering::Release);
        Ok(())
    }

    /// As after the death of this process: drops its locks, and nothing else.
    #[cfg(feature = "testing")]
    pub fn drop_locks_like_a_kill(&self) {
        use crate::sharing::{LOCK_BYTES, LOCK_OFF};

        if let (Some(file), Some(sharing)) = (&self.file, &self.sharing) {
            let _ = sys::unlock(file, LOCK_OFF, LOCK_BYTES);
            let _ = sys::unlock(&sharing.reaper, LOCK_OFF, LOCK_BYTES);
        }
    }
}
