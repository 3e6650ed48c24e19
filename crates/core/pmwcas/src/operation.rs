//! An operation being put together: its descriptor is allocated and filled, and the operation is
//! executed or discarded.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Reservation, mutant};

use crate::descriptor::{DESCRIPTORS_PER_PARTITION, Entries, WordEntry};
use crate::error::{Error, Result};
use crate::pmwcas::Pmwcas;
use crate::policy::Policy;
use crate::word::{CONTROL_BITS, HINT_SHIFT, Life, MAX_HINT, State, Status};

/// An operation being put together. Dropped without being executed, it is discarded.
#[derive(Debug)]
pub struct Descriptor<'op, 'pool, D: Domain> {
    pmwcas: &'op Pmwcas<D>,
    guard: &'op Guard<'pool, D>,
    life: Life,
    entries: Entries,
    /// The operation was executed: the descriptor is no longer this object's.
    executed: bool,
}

/// An entry whose new value is still to come, from [`Descriptor::reserve_entry`].
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
    /// Adds the word at `off`, to be changed from `expected` to `new` (equal to leave it as it
    /// is, but only if it holds that).
    #[inline]
    pub fn add_word(&mut self, off: u64, expected: u64, new: u64) -> Result<()> {
        check_address(off)?;
        check_value(expected)?;
        check_value(new)?;
        self.entries.add(WordEntry { off, old: expected, new, policy: Policy::None })?;
        Ok(())
    }

    /// Adds a word that names a block, to be changed from `expected` to a block that
    /// [`activate`](Self::activate) gives it (or to zero, if none does). What becomes of the
    /// blocks is up to `policy`.
    pub fn reserve_entry(&mut self, off: u64, expected: u64, policy: Policy) -> Result<Entry> {
        check_address(off)?;
        check_value(expected)?;
        self.entries.add(WordEntry { off, old: expected, new: 0, policy })?;
        Ok(Entry { off, old: expected })
    }

    /// Adds a block that no target word names, but whose fate hangs on this operation: `old` is a
    /// block that its success makes unreachable, or zero; a new one comes by
    /// [`activate`](Self::activate).
    pub fn own_block(&mut self, old: u64, policy: Policy) -> Result<Entry> {
        check_value(old)?;
        self.entries.add(WordEntry { off: 0, old, new: 0, policy })?;
        Ok(Entry { off: 0, old })
    }

    /// Passes a reserved block to the descriptor, as the new value of `entry`. Its content must
    /// be flushed. After a failure the block is freed, whatever the policy of the entry says of
    /// old ones; after a success it belongs to the word.
    pub fn activate(&mut self, entry: Entry, block: Reservation<'_, 'pool, D>) -> u64 {
        self.activate_with_hint(entry, block, 0)
    }

    /// As [`activate`](Self::activate), with a hint of at most [`MAX_HINT`] above the offset in
    /// the new value, for whoever reads the word. Policies see the offset alone.
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
            // The entry has a block, or is another operation's: the reservation ends here.
            None => 0,
        }
    }

    /// Executes the operation. True if every word held its expected value and now, durably, all
    /// hold their new ones; false if none was changed.
    #[inline]
    pub fn execute(mut self) -> bool {
        self.executed = true;
        self.pmwcas.execute(self.guard, self.life, &self.entries)
    }

    /// Gives the descriptor back; no word is changed, and blocks that it was given are free.
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
        let partitions = self.pool().participants_high() as u64;
        if !mutant!("borrowed-off-record") {
            self.pool().secure_participants_high();
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
