//! The checks that prevent an operation on a damaged pool from panicking, from accessing memory
//! outside the pool, and from looping for ever. All indexes have the same policy.
//!
//! An index trusts its blocks: they carry no checksum, and a check of each byte would cost more
//! than the operation. But with any content of the blocks, an operation ends with an answer or an
//! error. Code that finds damage notes it in the operation's guard ([`Guard::note_damage`]), and
//! continues with something harmless (a zero, an empty slice, an empty leaf). Before an answer is
//! returned, the guard is checked.
//!
//! | what is checked | where | what follows |
//! | --- | --- | --- |
//! | an offset lies in the used part of the pool, at a multiple of 8 | each access: `Pool::word`, `words`, `bytes` | it reads zeros, or nothing; noted |
//! | an index lies in its node | `Words::load`, and each slice of a node's bytes | the same |
//! | a block has the expected kind, and a level below its parent's | where a node is entered | the descent ends there; noted |
//! | counts and lengths fit the block | where a leaf or inner node is copied as a whole: scans, splits, merges | it counts as empty; noted |
//! | a walk, or a retry, ends | [`Steps`] | an error |
//! | nothing that follows from damage is published | `Pmwcas`: an operation of a guard with a note fails | the caller's next [`Steps::take`] says why |
//! | an answer does not depend on damage | [`undamaged`], at the end of each operation | an error |
//! | keys of a scan ascend | `pando::Scan` | an error |
//! | a map that is freed may be damaged anywhere | `Tree::next_unit` | damaged parts are skipped; the note is forgotten |
//!
//! A reader without a guard leaves no note. An [`OptimisticRead`](pando_pmem::OptimisticRead) reads
//! zeros, which no consistent node has, and starts again with a guard. A read under a
//! [`ReadPin`](pando_pmem::ReadPin) ends at the first check that fails, and continues with a guard.
//!
//! A note is a store to memory of the thread (`pando-pmem`, `damage.rs`), without a call. It costs
//! a get two stores, where it pins, and two tests, where it ends. All other checks replace a bounds
//! check that would panic.
//!
//! Changed bytes of keys and values are not detected. Three more kinds are not, and `check` detects
//! most of them: a pointer into another consistent block of the same kind and level; a record that
//! is no longer reachable; a block in use that damaged bits of the allocator call free, and that is
//! allocated again.

use pando_index::{Error, Result};
use pando_pmem::{Domain, Guard, mutant};

/// How often an operation starts again before its index counts as damaged. An attempt fails because
/// another thread's has succeeded, or because what it read contradicts itself. Even with hundreds
/// of threads on one key, no thread loses so many races in sequence.
const ATTEMPTS: u32 = 1 << 16;

#[cfg(feature = "testing")]
static LOWERED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(ATTEMPTS);

/// Lowers, for this process, how often operations start again: tests of damage have no other
/// threads, and must be fast.
#[cfg(feature = "testing")]
pub fn lower_attempts(attempts: u32) {
    // Relaxed: a number on which nothing else depends.
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

/// Checks that the guard's thread has read no damage since it pinned.
///
/// # Errors
///
/// [`Error::Damaged`] if damage was noted.
#[inline(always)]
pub fn undamaged<D: Domain>(guard: &Guard<'_, D>) -> Result<()> {
    match guard.damage() {
        None => Ok(()),
        Some(_) if mutant!("damage-not-told") => Ok(()),
        Some(off) => Err(damaged(off, "there is no valid block or word")),
    }
}

/// The steps that a loop may still take.
#[derive(Debug)]
pub struct Steps(u64);

impl Steps {
    /// The steps of a loop that starts an operation again.
    #[inline]
    pub fn of_attempts() -> Self {
        Self(u64::from(attempts()))
    }

    /// The steps of a walk from block to block, each of at least `bytes` bytes: as many as the pool
    /// has room for.
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

    /// Takes `count` steps; otherwise like [`take`](Self::take).
    #[inline]
    pub fn take_many<D: Domain>(
        &mut self,
        guard: &Guard<'_, D>,
        off: u64,
        count: u64,
    ) -> Result<()> {
        undamaged(guard)?;
        let count = if mutant!("damage-in-circles") { 0 } else { count };
        self.0 =
            self.0.checked_sub(count).ok_or_else(|| damaged(off, "a loop over it does not end"))?;
        Ok(())
    }
}
