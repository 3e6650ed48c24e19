//! The PMwCAS of a pool: reads of words, and single-word CAS.

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

/// How operations are executed. All algorithms may run in one pool at once. Where nothing is
/// written back, all but the paper's execute a plain operation on one word by one CAS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// A hardware transaction changes all words, if the processor commits it and the domain writes
    /// nothing back. Otherwise, and for operations with blocks, like [`Direct`](Self::Direct).
    #[default]
    Transactional,
    /// Only the owner installs references, each by one CAS, and lets the operation succeed. A
    /// thread that needs one of its words lets it fail; then the owner executes it by
    /// [`Rdcss`](Self::Rdcss).
    Direct,
    /// The paper's: a thread that finds a reference of an operation completes the operation. Each
    /// reference takes two CAS.
    Rdcss,
}

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Operations that had succeeded, and were completed.
    pub rolled_forward: u64,
    /// Operations that were undecided or had failed, and were undone.
    pub rolled_back: u64,
    /// Participants whose descriptors were read.
    pub participants: u64,
}

impl<D: Domain> Pmwcas<D> {
    /// Makes the handle. The caller recovers the pool's operations next.
    pub(crate) fn new(pool: Arc<Pool<D>>) -> Self {
        let (participants, recovered, algorithm) =
            (pool.per_slot(), Default::default(), Default::default());
        Self { pool, participants, recovered, algorithm }
    }

    /// Sets the algorithm that executes the operations of this handle.
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

    /// The pool's handle, to be shared.
    pub fn pool_handle(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    /// The pool's handle; ends PMwCAS on the pool.
    pub fn into_pool(self) -> Arc<Pool<D>> {
        self.pool
    }

    /// What recovery did when the pool was opened.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    #[inline(always)]
    pub(crate) fn participant(&self, slot: usize) -> &Participant {
        self.participants.get(slot)
    }

    /// The value of the word at `off`, durable; settles the word if necessary (Algorithm 3,
    /// `pmwcas_read`). A damaged word, which refers to an operation that does not exist, reads as
    /// [`MAX_VALUE`](crate::MAX_VALUE), and is never changed.
    #[inline(always)]
    pub fn read(&self, guard: &Guard<'_, D>, off: u64) -> u64 {
        // Acquire: pairs with the swap that stored the value, by any thread. So this thread sees
        // all that the writer did before it gave the value to its operation, even if a third thread
        // completed the operation.
        let value = self.pool.word(off).load(Ordering::Acquire);
        if value & CONTROL_BITS == 0 { value } else { self.read_settled(guard, off) }
    }

    /// Whether the word at `off` is damaged: it refers to an operation that does not exist. It
    /// reads as [`MAX_VALUE`](crate::MAX_VALUE), and every operation that expects that value fails.
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

    /// Settles the word at `off`, which holds `found`, so that its value can be read. False if no
    /// thread can settle it: the word is damaged.
    pub(crate) fn settle(&self, guard: &Guard<'_, D>, off: u64, found: u64) -> bool {
        if found & RDCSS != 0 {
            self.complete_install(off, found);
        } else if found & DIRTY != 0 {
            self.persist(off, found);
            return true;
        } else if found & CONTROL_BITS != 0 {
            self.settle_reference(guard, off, found);
        }
        // The operation has ended, now or before. So no word holds a reference to it any more, and
        // this thread or another has replaced the conditional reference.
        self.pool.word(off).load(Ordering::Acquire) != found
    }

    /// Makes a dirty value durable and clears its dirty bit (Algorithm 1, `persist`).
    pub(crate) fn persist(&self, off: u64, dirty: u64) {
        let word = self.pool.word(off);
        if !mutant!("dirty-read") {
            word.flush();
            D::fence();
        }
        let _ = word.compare_exchange(dirty, dirty & !DIRTY);
    }

    /// Single-word persistent CAS (Algorithm 1): after a success, `new` is durable on return. After
    /// a failure, returns the value of the word.
    ///
    /// A word that is changed by this function must never hold the same value twice. Otherwise a
    /// reader that made the first occurrence durable could clear the dirty bit of the second. (The
    /// paper's algorithm has the same limit.) Where values repeat, use a PMwCAS of one word, or
    /// count the writes that are not durable yet (`pando-ranged`).
    pub fn compare_exchange(
        &self,
        guard: &Guard<'_, D>,
        off: u64,
        expected: u64,
        new: u64,
    ) -> Result<(), u64> {
        let dirty = if D::needs_write_back() { new | DIRTY } else { new };
        self.compare_exchange_undurable(guard, off, expected, dirty)?;
        if D::needs_write_back() {
            self.persist(off, dirty);
        }
        Ok(())
    }

    /// The first step of [`compare_exchange`](Self::compare_exchange): stores `new` with its dirty
    /// bit, if the domain has dirty bits. `new` is durable when the caller has written the word's
    /// line back and fenced.
    ///
    /// The bit stays until a thread needs the word without it; that thread makes the value durable
    /// first. A thread that knows otherwise that the value is durable ignores the bit, and may
    /// [clear](Self::clear_dirty) it.
    ///
    /// `expected` is a durable value, whether the word has the bit or not.
    #[inline]
    pub fn compare_exchange_dirty(
        &self,
        guard: &Guard<'_, D>,
        off: u64,
        expected: u64,
        new: u64,
    ) -> Result<(), u64> {
        let dirty = if D::needs_write_back() { DIRTY } else { 0 };
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

    /// Clears the dirty bit of the word at `off`, if the word holds `value`. The caller knows that
    /// `value` is durable.
    #[inline]
    pub fn clear_dirty(&self, off: u64, value: u64) {
        if D::needs_write_back() {
            let word = self.pool.word(off);
            // Relaxed: only a hint, since the swap decides.
            if word.load(Ordering::Relaxed) == value | DIRTY {
                let _ = word.compare_exchange(value | DIRTY, value);
            }
        }
    }

    /// Like [`compare_exchange`](Self::compare_exchange), but does not make `new` durable.
    ///
    /// Only for a value on which nothing durable depends; or if the caller makes the value durable,
    /// and readers can tell until then that it is not. A later PMwCAS on the word makes its
    /// own value durable. A crash may bring back any earlier value, or the new value of an
    /// operation that this swap let fail.
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
