//! A census finds the blocks that dead processes had reserved or retired, while live processes
//! allocate and free blocks.
//!
//! Such a block is taken and not active, and no process knows of it. A block that a live process
//! has reserved or retired looks the same. The difference is that a live process does something
//! with its block soon, and a lost block never changes. So a census stamps all changes, waits
//! until each live process must have changed its blocks, and gives back those without its stamp.
//!
//! # Stamps
//!
//! Each census has a number. Its *stamp*, the number modulo 255, is in each word that says which
//! blocks are taken: a slab's taken word (`slab.rs`), and the word of a claimed chunk
//! (`chunks.rs`). A thread writes the stamp of the newest census when it takes a block, gives it
//! back, or clears its active bit; there, before it clears it.
//!
//! # Protocol
//!
//! One process takes a census at a time: it has the lock *census* (`processes.rs`). If it dies,
//! another one continues the same census: the number rises only after all processes have answered.
//! The control page has the number and the phase.
//!
//! | phase | step | afterwards |
//! | --- | --- | --- |
//! | *begun* | the number rises | threads stamp their changes, except for those that have read the number before |
//! | | three epochs pass | those threads have unpinned, so every later change is stamped. Blocks that were reserved before are active now, or given back: a reservation does not outlive its pin |
//! | *stamped* | a process answers, in its word of the process table, when it has given back all blocks that it retired before it saw this phase | |
//! | | all processes have answered | a live process has reserved or retired no block without the stamp |
//! | *done* | each word without the stamp: blocks that are taken and not active are free, by CAS of the word | |
//!
//! A block that waits for its epoch has a *colour*: the number of the census, and whether its phase
//! was *begun* or a later one. A thread may stamp a block under one census, and retire it under the
//! next. It is pinned meanwhile, so the next census is not *stamped* yet. So blocks that were
//! retired when it is *begun* count as those of before. At most four colours are in use at once:
//! when a census is *stamped*, its own two, and those of the census before. Blocks of earlier ones
//! were given back before that one was *done*.
//!
//! The CAS decides: it fails if a thread has changed or stamped the word since it was read. A lost
//! block in a word that has the stamp stays for the next census. So a census is repeated until
//! several have found nothing.
//!
//! A process that dies during a census does not answer, so the census waits until it is recovered.
//! Its own blocks may be found by this census, or by the next one, since its death counts as a new
//! one. A stopped process does not answer: then lost blocks stay lost until it goes on or dies. No
//! operation waits for a census.
//!
//! A thread without a pin claims chunks only to grow the table of participants (`table.rs`). These
//! claims have a stamp that no census frees.
//!
//! After 255 censuses a stamp is used again. Then blocks that were lost under that stamp wait for
//! one census more.
//!
//! Why the three epochs suffice for threads that have read an old number: such a thread is pinned,
//! and has read the number after its announcement, a full barrier. The process that takes the
//! census raises the number, and then reads the epoch, with a full barrier in between. A thread
//! that announces a later epoch than that has read it after that barrier, so its full barrier comes
//! later, and it reads the new number.

use std::sync::TryLockError;
use std::sync::atomic::{Ordering, fence};

use super::chunks::{Chunk, LASTING_STAMP, tag_of};
use crate::domain::Domain;
use crate::error::{Result, io_error};
use crate::layout::{CENSUS_OFF, COUNTED_DEATHS_OFF, DEATHS_OFF, MAX_PROCESSES};
use crate::limbo::COLOURS;
use crate::mutant;
use crate::pool::Pool;
use crate::sharing::{CENSUS_LOCK_OFF, Census, Sharing};
use crate::sys::{self, Access};

/// Epochs that must pass before each thread has read the number of the census.
const GRACE_EPOCHS: u64 = 3;
/// Chunks that are looked at under one pin.
const CHUNKS_A_PIN: u64 = 256;
/// Bits of the census's word that are its phase.
const PHASE_BITS: u32 = 2;
/// The phase of a census: some threads have not seen its number yet.
const BEGUN: u32 = 0;
/// All later changes are stamped.
const STAMPED: u32 = 1;
/// All processes have answered.
const DONE: u32 = 2;
/// So many censuses must find nothing before none is due.
const FRUITLESS: u32 = 3;

/// The number of a census and its phase.
fn census_word(number: u32, phase: u32) -> u32 {
    number << PHASE_BITS | phase
}

/// The colour of blocks that are retired at this word of the census.
fn colour_of(word: u32) -> usize {
    let phase = word & ((1 << PHASE_BITS) - 1);
    let is_late = phase != BEGUN && !mutant!("retired-early-counts-as-late");
    (2 * (word >> PHASE_BITS) as usize + usize::from(is_late)) % COLOURS
}

fn stamp_of_number(number: u32) -> u8 {
    (number % u32::from(LASTING_STAMP)) as u8
}

impl<D: Domain> Pool<D> {
    /// The lower half of a word of the control page, if it is of this generation.
    fn counted(&self, off: u64) -> u32 {
        // Acquire: pairs with `set_counted`.
        self.value_now(self.word(off).load(Ordering::Acquire))
    }

    fn set_counted(&self, off: u64, count: u32) {
        // Release: pairs with `counted`.
        self.word(off).store(self.word_now(count), Ordering::Release);
    }

    /// The stamp of the newest census.
    #[inline]
    pub(crate) fn stamp(&self) -> u8 {
        if !self.is_shared() {
            return 0;
        }
        stamp_of_number(self.counted(CENSUS_OFF) >> PHASE_BITS)
    }

    /// The colour of a block that this thread retires.
    #[inline]
    pub(crate) fn colour(&self) -> usize {
        if !self.is_shared() {
            return 0;
        }
        colour_of(self.counted(CENSUS_OFF))
    }

    /// The upper half of words that say what is taken.
    #[inline]
    pub(crate) fn tag(&self) -> u32 {
        tag_of(self.generation(), self.stamp())
    }

    /// The same, for a thread without a pin.
    pub(crate) fn lasting_tag(&self) -> u32 {
        tag_of(self.generation(), if self.is_shared() { LASTING_STAMP } else { 0 })
    }

    /// Counts the death of a process. Its blocks are lost until a census finds them.
    pub(crate) fn note_death(&self) {
        let word = self.word(DEATHS_OFF);
        loop {
            let found = word.load(Ordering::Acquire);
            let next = self.word_now(self.value_now(found).wrapping_add(1));
            if word.compare_exchange(found, next).is_ok() {
                return;
            }
        }
    }

    /// Makes a step of a census, and answers the census of another process. To be called now and
    /// then by each process that shares the pool. Returns the number of blocks that were lost and
    /// are given back.
    ///
    /// Takes a census if processes have died since the last one. A call reads the state of all
    /// blocks at most.
    pub fn step_census(&self) -> Result<u64> {
        let Some(sharing) = &self.sharing else { return Ok(0) };
        let mut census = match sharing.census.try_lock() {
            Ok(census) => census,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(0),
        };
        self.check_not_forked()?;
        self.answer_census();
        let Some(begun) = census.taken else {
            census.taken = self.begin_census(sharing)?;
            return Ok(0);
        };
        if !begun.is_stamped {
            census.taken = Some(self.await_stamps(begun)?);
            return Ok(0);
        }
        if !self.is_answered() {
            return Ok(0);
        }
        let freed = self.free_lost(stamp_of_number(begun.number))?;
        self.set_counted(CENSUS_OFF, census_word(begun.number, DONE));
        census.taken = None;
        if census.deaths != begun.deaths && !mutant!("fruitless-censuses-of-other-deaths") {
            census.deaths = begun.deaths;
            census.fruitless = 0;
        }
        census.fruitless = if freed == 0 { census.fruitless + 1 } else { 0 };
        if census.fruitless >= FRUITLESS {
            census.fruitless = 0;
            self.set_counted(COUNTED_DEATHS_OFF, begun.deaths);
        }
        sys::unlock(&sharing.reaper, CENSUS_LOCK_OFF, 1)
            .map_err(io_error(&self.path, "unlock the file"))?;
        Ok(freed)
    }

    fn answer_census(&self) {
        let word = self.counted(CENSUS_OFF);
        let is_stamped = word == census_word(word >> PHASE_BITS, STAMPED);
        if is_stamped && (self.limbo.has_only(colour_of(word)) || mutant!("census-answered-early"))
        {
            self.answer(stamp_of_number(word >> PHASE_BITS));
        }
    }

    fn is_answered(&self) -> bool {
        let stamp = self.stamp();
        let answers = (0..MAX_PROCESSES).filter_map(|number| self.answer_of(number));
        answers.into_iter().all(|answer| answer == stamp) || mutant!("census-waits-for-nobody")
    }

    fn begin_census(&self, sharing: &Sharing) -> Result<Option<Census>> {
        let deaths = self.counted(DEATHS_OFF);
        if deaths == self.counted(COUNTED_DEATHS_OFF) {
            return Ok(None);
        }
        let lock = sys::try_lock(&sharing.reaper, Access::Exclusive, CENSUS_LOCK_OFF, 1);
        if !lock.map_err(io_error(&self.path, "lock the file"))? {
            return Ok(None);
        }
        let word = self.counted(CENSUS_OFF);
        // A census that another process has begun, and not ended, goes on. (A generation begins
        // without a census.)
        let is_over = word == 0 || word == census_word(word >> PHASE_BITS, DONE);
        let number = (word >> PHASE_BITS) + u32::from(is_over || mutant!("census-left-undone"));
        let number = number & (u32::MAX >> PHASE_BITS);
        let is_stamped = number == word >> PHASE_BITS && word == census_word(number, STAMPED);
        if !is_stamped {
            self.set_counted(CENSUS_OFF, census_word(number, BEGUN));
        }
        // Before the epoch is read: see the end of the page above.
        fence(Ordering::SeqCst);
        Ok(Some(Census { number, from_epoch: self.epoch(), deaths, is_stamped }))
    }

    fn await_stamps(&self, begun: Census) -> Result<Census> {
        let grace = if mutant!("census-without-grace") { 0 } else { GRACE_EPOCHS };
        {
            let _guard = self.pin()?;
            if self.try_advance() < begun.from_epoch + grace {
                return Ok(begun);
            }
        }
        self.set_counted(CENSUS_OFF, census_word(begun.number, STAMPED));
        Ok(Census { is_stamped: true, ..begun })
    }

    /// Gives the lost blocks back; returns how many.
    fn free_lost(&self, stamp: u8) -> Result<u64> {
        let mut freed = 0;
        let mut next = 0;
        while next < self.frontier() {
            let guard = self.pin()?;
            for chunk in next..self.frontier().min(next + CHUNKS_A_PIN) {
                freed += match self.chunk(chunk) {
                    Chunk::Slab { class } => self.free_lost_in_slab(&guard, chunk, class, stamp),
                    _ => u64::from(self.free_lost_chunk(chunk, stamp)),
                };
            }
            next += CHUNKS_A_PIN;
        }
        Ok(freed)
    }
}
