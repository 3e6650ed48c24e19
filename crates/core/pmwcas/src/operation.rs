//! An operation before its execution: a descriptor is allocated and filled, and then the operation
//! is executed or discarded.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Reservation, mutant};

use crate::descriptor::{DESCRIPTORS_PER_PARTITION, Entries, WordEntry};
use crate::error::{Error, Result};
use crate::pmwcas::Pmwcas;
use crate::policy::Policy;
use crate::word::{CONTROL_BITS, HINT_SHIFT, Life, MAX_HINT, State, Status};

/// An operation that is not executed yet. Its drop discards it.
#[derive(Debug)]
pub struct Descriptor<'op, 'pool, D: Domain> {
    pmwcas: &'op Pmwcas<D>,
    guard: &'op Guard<'pool, D>,
    life: Life,
    entries: Entries,
    /// The operation was executed, so the descriptor no longer belongs to this object.
    executed: bool,
}

/// An entry without its new value, from [`Descriptor::reserve_entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    off: u64,
    old: u64,
}

fn check_value(value: u64) -> Result<()> {
    if value & CONTROL_BITS == 0 { Ok(()) } else { Err(Error::ControlBits { value }) }
}

fn check_address(off: u64) -> Result<()> {
    if off != 0 && off.is_multiple_of(8) { Ok(()) } else { Err(Error::NotAWord { off }) }
}

impl<'pool, D: Domain> Descriptor<'_, 'pool, D> {
    /// Adds the word at `off`, to be changed from `expected` to `new`. If both are equal, the word
    /// is only compared.
    #[inline]
    pub fn add_word(&mut self, off: u64, expected: u64, new: u64) -> Result<()> {
        check_address(off)?;
        check_value(expected)?;
        check_value(new)?;
        self.entries.add(WordEntry { off, old: expected, new, policy: Policy::None })?;
        Ok(())
    }

    /// Adds a word that names a block, to be changed from `expected` to the block of a later
    /// [`activate`](Self::activate), or to zero without one. `policy` says which blocks are freed.
    pub fn reserve_entry(&mut self, off: u64, expected: u64, policy: Policy) -> Result<Entry> {
        check_address(off)?;
        check_value(expected)?;
        self.entries.add(WordEntry { off, old: expected, new: 0, policy })?;
        Ok(Entry { off, old: expected })
    }

    /// Adds an owned block, which no target names, and which the end of this operation may free.
    /// `old` is a block that a success makes unreachable, or zero. A later
    /// [`activate`](Self::activate) adds the new block.
    pub fn own_block(&mut self, old: u64, policy: Policy) -> Result<Entry> {
        check_value(old)?;
        self.entries.add(WordEntry { off: 0, old, new: 0, policy })?;
        Ok(Entry { off: 0, old })
    }

    /// Passes a reserved block to the descriptor, as the new value of `entry`; returns that value.
    /// The block's content must be flushed. After a failure the block is freed, whichever policy
    /// the entry has; after a success it belongs to the word.
    pub fn activate(&mut self, entry: Entry, block: Reservation<'_, 'pool, D>) -> u64 {
        self.activate_with_hint(entry, block, 0)
    }

    /// Like [`activate`](Self::activate). The new value has a hint of at most [`MAX_HINT`] above
    /// the offset, for readers of the word. Policies use the offset alone.
    pub fn activate_with_hint(
        &mut self,
        entry: Entry,
        block: Reservation<'_, 'pool, D>,
        hint: u16,
    ) -> u64 {
        let place = self
            .entries
            .all_mut()
            .iter_mut()
            .find(|word| word.off == entry.off && word.old == entry.old && word.new == 0);
        match place {
            Some(word) => {
                word.policy = word.policy.with_new();
                word.new = block.into_logged() | u64::from(hint & MAX_HINT) << HINT_SHIFT;
                word.new
            }
            // The entry has a block already, or belongs to another operation. The reservation is
            // dropped.
            None => 0,
        }
    }

    /// Executes the operation. True if every word held its expected value and all now hold their
    /// new values, durably; false if none was changed.
    #[inline]
    pub fn execute(mut self) -> bool {
        self.executed = true;
        self.pmwcas.execute(self.guard, self.life, &self.entries)
    }

    /// Frees the descriptor and the blocks that were passed to it. No word is changed.
    pub fn discard(self) {
        drop(self);
    }
}

impl<D: Domain> Drop for Descriptor<'_, '_, D> {
    #[inline]
    fn drop(&mut self) {
        if self.executed {
            return;
        }
        self.pmwcas.give_up(self.guard, self.life, &self.entries);
    }
}

impl<D: Domain> Pmwcas<D> {
    /// Allocates a descriptor.
    // Always inlined: the returned value is large, and otherwise it is copied.
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
        if D::needs_write_back() {
            // The next descriptor was written back longest ago, so nothing waits for its line.
            let after = (life.index - first + 1) % OWN;
            next.set(after);
            self.status_word(first + after).prefetch_for_write();
        }
        Some(life)
    }

    /// The thread's own partition has no free descriptor. Finishes the pending operation, which
    /// may free one; otherwise claims a descriptor of another partition.
    #[cold]
    fn borrow_descriptor(&self, guard: &Guard<'_, D>) -> Result<Life> {
        self.settle_pending(guard);
        if let Some(life) = self.claim_own(guard) {
            return Ok(life);
        }
        // A recovery reads the slots below the high mark that the medium has. It would miss a
        // descriptor beyond, which would stay claimed, with its words unsettled.
        let partitions = self.pool().participants_high() as u64;
        if !mutant!("borrowed-off-record") {
            self.pool().secure_participants_high();
        }
        (0..partitions * DESCRIPTORS_PER_PARTITION)
            .filter(|index| index % DESCRIPTORS_PER_PARTITION != 0)
            // In the partitions of another process, nobody would look for it after a death.
            .filter(|index| self.may_borrow_of((index / DESCRIPTORS_PER_PARTITION) as usize))
            .find_map(|index| self.claim(index))
            .ok_or(Error::DescriptorsExhausted)
    }

    fn may_borrow_of(&self, slot: usize) -> bool {
        mutant!("borrowed-of-another-process")
            || !self.pool().is_shared()
            || self.pool().is_own_slot(slot)
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
