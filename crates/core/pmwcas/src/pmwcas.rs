//! The PMwCAS of a pool: reading words, and single-word CAS.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, PerSlot, Pool, mutant};

use crate::participant::Participant;
use crate::word::{CONTROL_BITS, DAMAGED, DIRTY, MWCAS, RDCSS};

/// PMwCAS over one pool. Opening it recovers what a crash left.
#[derive(Debug)]
pub struct Pmwcas<D: Domain> {
    pool: Arc<Pool<D>>,
    participants: PerSlot<Participant>,
    pub(crate) recovered: Recovered,
    algorithm: Algorithm,
}

/// How operations are executed. All kinds may be under way in one pool at once. By all but the
/// paper's, one word alone, without blocks, takes one CAS where nothing is written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// A hardware transaction changes all words, where the processor commits one and the domain
    /// writes nothing back; otherwise, and for operations with blocks, as [`Direct`](Self::Direct).
    #[default]
    Transactional,
    /// Only the owner installs references, each by one CAS, and lets the operation succeed; who
    /// wants one of its words lets it fail, and then it is executed by [`Rdcss`](Self::Rdcss).
    Direct,
    /// The paper's: whoever meets an operation completes it; each reference takes two CAS.
    Rdcss,
}

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Operations found decided as succeeded, and completed.
    pub rolled_forward: u64,
    /// Operations found undecided or failed, and undone.
    pub rolled_back: u64,
    /// Participants whose descriptors were looked at.
    pub participants: u64,
}

impl<D: Domain> Pmwcas<D> {
    /// Over a pool whose operations are to be recovered first.
    pub(crate) fn new(pool: Arc<Pool<D>>) -> Self {
        let (participants, recovered, algorithm) =
            (pool.per_slot(), Default::default(), Default::default());
        Self { pool, participants, recovered, algorithm }
    }

    /// From now on, operations begun through this handle are executed by `algorithm`.
    pub fn with_algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    #[inline(always)]
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The pool.
    #[inline(always)]
    pub fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    /// The pool's handle, when PMwCAS on it is over.
    pub fn into_pool(self) -> Arc<Pool<D>> {
        self.pool
    }

    /// What recovery found when the pool was opened.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    #[inline(always)]
    pub(crate) fn participant(&self, slot: usize) -> &Participant {
        self.participants.get(slot)
    }

    /// The value of the word at `off`, durable; completes operations that are in the way
    /// (Algorithm 3, `pmwcas_read`). A damaged word, which refers to an operation that there is
    /// not, reads as [`MAX_VALUE`](crate::MAX_VALUE), and is never changed.
    #[inline(always)]
    pub fn read(&self, guard: &Guard<'_, D>, off: u64) -> u64 {
        // Acquire: with the swap, by whomever, that put the value there. What its writer did before
        // it gave the value to an operation is seen, also if a third thread completed that.
        let value = self.pool.word(off).load(Ordering::Acquire);
        if value & CONTROL_BITS == 0 { value } else { self.read_settled(guard, off) }
    }

    /// Whether the word at `off` refers to an operation that there is not. It reads as
    /// [`MAX_VALUE`](crate::MAX_VALUE), and an operation that expects that fails, again and again.
    pub fn is_damaged(&self, guard: &Guard<'_, D>, off: u64) -> bool {
        self.settled(guard, off).is_none()
    }

    #[cold]
    #[inline(never)]
    fn read_settled(&self, guard: &Guard<'_, D>, off: u64) -> u64 {
        self.settled(guard, off).unwrap_or(DAMAGED)
    }

    /// The value of the word at `off`; `None` if it is damaged.
    fn settled(&self, guard: &Guard<'_, D>, off: u64) -> Option<u64> {
        loop {
            let found = self.pool.word(off).load(Ordering::Acquire);
            if found & CONTROL_BITS == 0 {
                return Some(found);
            }
            if found & CONTROL_BITS == MWCAS
                && let Some(value) = self.value_under(found)
            {
                return Some(value);
            }
            if !self.settle(guard, off, found) {
                return None;
            }
        }
    }

    /// Does what `found`, in the word at `off`, wants before the word can be read. False if nobody
    /// ever will: the word is damaged.
    pub(crate) fn settle(&self, guard: &Guard<'_, D>, off: u64, found: u64) -> bool {
        if found & RDCSS != 0 {
            self.complete_install(off, found);
        } else if found & DIRTY != 0 {
            self.persist(off, found);
            return true;
        } else if found & CONTROL_BITS != 0 {
            self.settle_reference(guard, off, found);
        }
        // Brought to its end, or over before: no word holds a reference to that operation any more,
        // and a conditional reference was replaced, by this thread or another.
        self.pool.word(off).load(Ordering::Acquire) != found
    }

    /// Makes a dirty value durable and says so (Algorithm 1, `persist`).
    pub(crate) fn persist(&self, off: u64, dirty: u64) {
        let word = self.pool.word(off);
        if !mutant!("dirty-read") {
            word.flush();
            D::fence();
        }
        let _ = word.compare_exchange(dirty, dirty & !DIRTY);
    }

    /// Single-word persistent CAS (Algorithm 1): on success `new` is durable on return. On
    /// failure, the value that was there.
    ///
    /// No value may return to a word that is changed by this: a reader that made an earlier
    /// occurrence durable would clear the dirty bit of the later one (the paper's algorithm has
    /// the same limit). Where values return, use a PMwCAS of one word.
    pub fn compare_exchange(
        &self,
        guard: &Guard<'_, D>,
        off: u64,
        expected: u64,
        new: u64,
    ) -> Result<(), u64> {
        let dirty = if D::WRITE_BACK { new | DIRTY } else { new };
        self.compare_exchange_undurable(guard, off, expected, dirty)?;
        if D::WRITE_BACK {
            self.persist(off, dirty);
        }
        Ok(())
    }

    /// As [`compare_exchange`](Self::compare_exchange), but of two steps only the first: `new`
    /// stands with its dirty bit, if the domain has these, and is durable when the caller has
    /// written the word's line back and fenced. The bit stays until somebody wants the word without
    /// it, and makes it durable again for that; who knows by other means that the value is durable
    /// looks past the bit, and may [clear](Self::clear_dirty) it.
    ///
    /// `expected` is a durable value, found with the bit or without.
    #[inline]
    pub fn compare_exchange_dirty(
        &self,
        guard: &Guard<'_, D>,
        off: u64,
        expected: u64,
        new: u64,
    ) -> Result<(), u64> {
        let dirty = if D::WRITE_BACK { DIRTY } else { 0 };
        let mut before = expected | dirty;
        loop {
            match self.pool.word(off).compare_exchange(before, new | dirty) {
                Ok(_) => return Ok(()),
                Err(found) if found & !dirty == expected => before = found,
                Err(found) if found & CONTROL_BITS & !dirty == 0 => return Err(found & !dirty),
                Err(found) => {
                    if !self.settle(guard, off, found) {
                        return Err(DAMAGED);
                    }
                }
            }
        }
    }

    /// Clears the dirty bit, if the word at `off` has it and `value`, which the caller knows to be
    /// durable.
    #[inline]
    pub fn clear_dirty(&self, off: u64, value: u64) {
        if D::WRITE_BACK {
            let word = self.pool.word(off);
            // Relaxed: a hint, and the swap decides.
            if word.load(Ordering::Relaxed) == value | DIRTY {
                let _ = word.compare_exchange(value | DIRTY, value);
            }
        }
    }

    /// As [`compare_exchange`](Self::compare_exchange), without making `new` durable.
    ///
    /// Only for a value on which nothing durable depends: whoever later changes the word by a
    /// PMwCAS makes that later value durable, and a crash may bring back any earlier one, or the
    /// new value of an operation that this very swap let fail.
    #[inline]
    pub fn compare_exchange_undurable(
        &self,
        guard: &Guard<'_, D>,
        off: u64,
        expected: u64,
        new: u64,
    ) -> Result<(), u64> {
        loop {
            match self.pool.word(off).compare_exchange(expected, new) {
                Ok(_) => return Ok(()),
                Err(found) if found & CONTROL_BITS == 0 => return Err(found),
                Err(found) => {
                    if !self.settle(guard, off, found) {
                        return Err(DAMAGED);
                    }
                }
            }
        }
    }
}
