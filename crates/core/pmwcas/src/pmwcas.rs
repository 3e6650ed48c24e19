//! The PMwCAS of a pool: reading words, single-word CAS, allocating descriptors.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, PerSlot, Pool, mutant};

use crate::committed_pending::{CommittedPending, settle_deferred};
use crate::descriptor::{DESCRIPTORS_PER_PARTITION, Descriptor, Entries};
use crate::error::{Error, Result};
use crate::execute::Algorithm;
use crate::recovery::Recovered;
use crate::word::{CONTROL_BITS, DAMAGED, DIRTY, Life, MWCAS, RDCSS, State, Status};

/// PMwCAS over one pool. Opening it recovers what a crash left.
#[derive(Debug)]
pub struct Pmwcas<D: Domain> {
    pool: Arc<Pool<D>>,
    participants: PerSlot<Participant>,
    recovered: Recovered,
    algorithm: Algorithm,
}

/// What belongs to a participant's slot, and only the thread that is pinned there touches: on lines
/// of its own, and on pairs of them, which processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Participant {
    /// The operation whose references wait for the next one.
    pub pending: RefCell<CommittedPending>,
    /// Which descriptor of its own it looks at first.
    next: Cell<u64>,
}

// SAFETY: the cells of a slot are only touched by the thread that is pinned in the slot, and the
// pool orders the hand-over of a slot from thread to thread.
unsafe impl Sync for Participant {}

impl<D: Domain> Pmwcas<D> {
    /// Recovers the operations that a crash cut short, and readies the pool for new ones.
    ///
    /// Before that, nothing may be allocated in the pool: recovery takes back what operations had
    /// begun to give away. And it is done once in each opening of a pool, or it is an error: a
    /// second recovery would undo what is under way.
    pub fn open(pool: Arc<Pool<D>>) -> Result<Self> {
        if !pool.begin_recovery() {
            return Err(Error::BegunBefore);
        }
        let participants = pool.per_slot();
        let mut pmwcas = Self {
            pool,
            participants,
            recovered: Recovered::default(),
            algorithm: Algorithm::default(),
        };
        pmwcas.recovered = pmwcas.recover();
        pmwcas.pool.do_deferred_by(settle_deferred);
        pmwcas.pool.reset_participants();
        Ok(pmwcas)
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
        self.swap_settled(guard, off, expected, dirty)?;
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
        self.swap_settled(guard, off, expected, new)
    }

    #[inline]
    pub(crate) fn swap_settled(
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

    /// Allocates a descriptor.
    // Always: what is returned is large, and only a copy if it is not built in its place.
    #[inline(always)]
    pub fn allocate<'op, 'pool>(
        &'op self,
        guard: &'op Guard<'pool, D>,
    ) -> Result<Descriptor<'op, 'pool, D>> {
        let life = self.claim_descriptor(guard)?;
        Ok(Descriptor { pmwcas: self, guard, life, entries: Entries::EMPTY, executed: false })
    }

    #[inline]
    fn claim_descriptor(&self, guard: &Guard<'_, D>) -> Result<Life> {
        match self.claim_own(guard) {
            Some(life) => Ok(life),
            None => self.borrow_descriptor(guard),
        }
    }

    #[inline]
    fn claim_own(&self, guard: &Guard<'_, D>) -> Option<Life> {
        const OWN: u64 = DESCRIPTORS_PER_PARTITION - 1;
        let first = guard.slot() as u64 * DESCRIPTORS_PER_PARTITION + 1;
        let next = &self.participant(guard.slot()).next;
        let life = (0..OWN).find_map(|turn| self.claim(first + (next.get() + turn) % OWN))?;
        if D::WRITE_BACK {
            // The one after it was written back longest ago, and waits for nothing.
            let after = (life.index - first + 1) % OWN;
            next.set(after);
            self.status_word(first + after).prefetch_for_write();
        }
        Some(life)
    }

    /// One's own partition has run dry: finish what waits there, then look at the others.
    #[cold]
    fn borrow_descriptor(&self, guard: &Guard<'_, D>) -> Result<Life> {
        self.settle_pending(guard);
        if let Some(life) = self.claim_own(guard) {
            return Ok(life);
        }
        // Slots below the high mark are those that a recovery looks at, once the mark is durable. A
        // descriptor claimed elsewhere would stay claimed, and its words unsettled.
        let partitions = self.pool.participants_high() as u64;
        if !mutant!("borrowed-off-record") {
            self.pool.secure_participants_high();
        }
        (0..partitions * DESCRIPTORS_PER_PARTITION)
            .filter(|index| index % DESCRIPTORS_PER_PARTITION != 0)
            .find_map(|index| self.claim(index))
            .ok_or(Error::DescriptorsExhausted)
    }

    #[inline]
    fn claim(&self, index: u64) -> Option<Life> {
        let word = self.status_word(index);
        let found = word.load(Ordering::Acquire);
        let status = Status::decode(found).filter(|status| status.state == State::Free)?;
        let passed = if mutant!("aba-recycled-descriptor") { 0 } else { 1 };
        let filling = Status::new(State::Filling, status.sequence.wrapping_add(passed));
        word.compare_exchange(found, filling.encode()).ok()?;
        Some(Life { index, sequence: filling.sequence })
    }
}
