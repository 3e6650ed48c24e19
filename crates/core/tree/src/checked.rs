//! What keeps an operation on a damaged pool from panicking, from leaving the pool and from going
//! in circles: the same policy for all indexes.
//!
//! An index trusts its blocks: they carry no checksum, and a look at each byte would cost more than
//! the operation. But whatever it finds in them, it comes to an end with an answer or an error. Who
//! finds damage notes it in the operation's guard ([`Guard::note_damage`]), goes on with something
//! harmless (a zero, an empty slice, an empty leaf), and asks the guard before anything is
//! believed.
//!
//! | what is checked | where | what follows |
//! | --- | --- | --- |
//! | an offset lies in the used part of the pool, at a multiple of 8 | each access: `Pool::word`, `words`, `bytes` | it reads zeros, or nothing; noted |
//! | an index lies in its node | `Words::load`, and each slice of a node's bytes | the same |
//! | a block is of the kind that leads there, and of a level below its parent's | where a node is entered | the way ends there; noted |
//! | counts and lengths fit the block | where a leaf or inner node is copied as a whole: scans, splits, merges | it counts as empty; noted |
//! | a way, or a retry, ends | [`Steps`] | an error |
//! | nothing that follows from damage is published | `Pmwcas`: an operation of a guard with a note fails | the caller's next [`Steps::take`] says why |
//! | an answer is believed | [`undamaged`], at the end of each operation | an error |
//! | keys of a scan ascend | `pando::Scan` | an error |
//! | nothing is believed of a map that is freed | `Tree::next_unit` | it is passed over; the note is forgotten |
//!
//! A reader without a guard ([`OptimisticRead`](pando_pmem::OptimisticRead)) leaves no note. It
//! reads zeros, which no consistent node has, and begins again with a guard.
//!
//! A note is a store to memory of the thread (`pando-pmem`, `damage.rs`), without a call. It costs
//! a get two stores, where it pins, and two tests, where it ends. All else takes the place of a
//! bounds check that would panic.
//!
//! What this does not see: bytes of keys and values that are others and no worse ones; a pointer
//! that leads into another consistent block of the same kind and level; a record that is no longer
//! reached; a block in use that the allocator's damaged bits name as free, and which is allocated
//! again. `check` sees most of the latter three.

use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard, mutant};

/// How often an operation begins again before its index counts as damaged. An attempt fails since
/// another thread's has succeeded, or since what it read contradicts itself. With hundreds of
/// threads on one key, none loses so many races one after the other.
const ATTEMPTS: u32 = 1 << 16;

#[cfg(feature = "testing")]
static LOWERED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(ATTEMPTS);

/// Lowers, for this process, how often operations begin again: tests of damage have no other
/// threads, and are to be quick.
#[cfg(feature = "testing")]
pub fn lower_attempts(attempts: u32) {
    // Relaxed: a figure, on which nothing hangs.
    LOWERED.store(attempts, std::sync::atomic::Ordering::Relaxed);
}

#[inline]
fn attempts() -> u32 {
    #[cfg(feature = "testing")]
    return LOWERED.load(std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(feature = "testing"))]
    ATTEMPTS
}

/// The error of an index that is damaged at `off`.
#[cold]
pub fn damaged(off: u64, what: &'static str) -> Error {
    Error::Damaged { off, what }
}

/// Whether what the guard's thread has read since it pinned is to be believed.
///
/// # Errors
///
/// [`Error::Damaged`] if damage was noted.
#[inline(always)]
pub fn undamaged<D: Domain>(guard: &Guard<'_, D>) -> Result<()> {
    match guard.damage() {
        None => Ok(()),
        Some(_) if mutant!("damage-not-told") => Ok(()),
        Some(off) => Err(damaged(off, "nothing lies there that could be meant")),
    }
}

/// The steps that a loop may still take.
#[derive(Debug)]
pub struct Steps(u64);

impl Steps {
    /// Of a loop that begins an operation again.
    #[inline]
    pub fn of_attempts() -> Self {
        Self(u64::from(attempts()))
    }

    /// Of a walk from block to block, each of at least `bytes` bytes: as many as the pool has room
    /// for.
    #[inline]
    pub fn of_blocks<D: Domain>(guard: &Guard<'_, D>, bytes: u64) -> Self {
        Self(guard.pool().size_bytes() / bytes)
    }

    /// Takes a step; `off` is where the loop is.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if there is none left, or if damage was noted.
    #[inline]
    pub fn take<D: Domain>(&mut self, guard: &Guard<'_, D>, off: u64) -> Result<()> {
        self.take_many(guard, off, 1)
    }

    /// Takes `count` steps; otherwise as [`take`](Self::take).
    #[inline]
    pub fn take_many<D: Domain>(
        &mut self,
        guard: &Guard<'_, D>,
        off: u64,
        count: u64,
    ) -> Result<()> {
        undamaged(guard)?;
        let count = if mutant!("damage-in-circles") { 0 } else { count };
        self.0 = self.0.checked_sub(count).ok_or_else(|| damaged(off, "it leads in circles"))?;
        Ok(())
    }
}
