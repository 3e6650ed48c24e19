//! The closing of a range leaf, before it is replaced.
//!
//! | step | what a crash leaves |
//! | --- | --- |
//! | read the status | |
//! | each free key word becomes *closed*, and each value word gets the closed bit, by CAS; what the slot holds then is final | a leaf that is closed in part |
//! | PMwCAS: the status from what was read to *frozen*, and the words above (`pando-inner`) | this leaf, or its replacement |
//!
//! Each thread that replaces a leaf makes all of these steps. It relies on no word that says that
//! the leaf is closed: after a power cut, any part of the closed words may be open again, since
//! none of these CAS is made durable.
//!
//! A closed leaf is never opened again: value words have no room for a version, so a thread that
//! closes a leaf late could meet a later opening. If there is no room for its replacement, its
//! records are changed by PMwCAS that count in the status ([`RangeLeaf::write_closed`]). Such a
//! change makes every replacement fail whose copy was made before, and none succeeds once the
//! status says *frozen*.

use pando_index::Result;
use pando_inner::layout::Status;
use pando_pmem::{Domain, mutant};
use pando_pmwcas::{CONTROL_BITS, Descriptor};
use pando_tree::checked::{Steps, undamaged};
use pando_tree::context::Context;

use crate::layout::{BUCKET_LINES, FREE, KEY_CLOSED, LINE_SLOTS, Pair, ValueWord, is_taken};
use crate::leaf::{RangeLeaf, Slot};

/// A leaf that a thread has closed.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    status_off: u64,
    status: Status,
}

impl Closed {
    /// Makes the operation replace the leaf only if it was not changed since it was closed.
    ///
    /// # Errors
    ///
    /// The descriptor has no room.
    pub fn seal<D: Domain>(
        self,
        operation: &mut Descriptor<'_, '_, D>,
    ) -> pando_pmwcas::Result<()> {
        operation.add_word(self.status_off, self.status.0, self.status.frozen().0)
    }
}

impl RangeLeaf {
    pub(crate) fn status<D: Domain>(&self, context: Context<'_, D>) -> Status {
        Status(context.read(self.node.status_off()))
    }

    /// Closes the leaf. Returns its records, ascending: they are final, unless
    /// [`seal`](Closed::seal) says otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`](pando_index::Error::Damaged).
    pub fn close<D: Domain>(&self, context: Context<'_, D>) -> Result<(Closed, Vec<Pair>)> {
        if !self.is_within_bounds() {
            context.guard.note_damage(self.node.off);
            undamaged(context.guard)?;
        }
        let status = self.status(context);
        let mut steps = Steps::of_attempts();
        let mut pairs = Vec::with_capacity(self.slots() as usize);
        let mut highest = None;
        for bucket in 0..self.buckets() {
            let (first, start) = (self.geometry().bucket_line(bucket), pairs.len());
            for line in first..first + BUCKET_LINES {
                self.close_line(context, line, &mut steps, &mut pairs)?;
            }
            let keys = pairs[start..].iter().map(|pair| pair.key);
            let lowest = keys.clone().min();
            if lowest.is_some_and(|lowest| highest.is_some_and(|highest| lowest <= highest)) {
                // Separators, or keys of a bucket, are damaged.
                context.guard.note_damage(self.node.off);
            }
            highest = keys.max().or(highest);
        }
        for line in self.geometry().bucket_line(self.buckets())..self.geometry().slot_lines().end {
            self.close_line(context, line, &mut steps, &mut pairs)?;
        }
        pairs.sort_unstable_by_key(|pair| pair.key);
        if pairs.windows(2).any(|pair| pair[0].key == pair[1].key) {
            // No key has two slots that are not moved, and none of a closed leaf moves.
            context.guard.note_damage(self.node.off);
        }
        Ok((Closed { status_off: self.node.status_off(), status }, pairs))
    }

    /// Closes the slots of a line, and appends its records.
    #[inline]
    fn close_line<D: Domain>(
        &self,
        context: Context<'_, D>,
        number: u64,
        steps: &mut Steps,
        pairs: &mut Vec<Pair>,
    ) -> Result<()> {
        let line = Self::line(self.node.words(context), number);
        for at in 0..LINE_SLOTS {
            let slot = Slot::new(number, at);
            let mut key_word = line[at as usize];
            if key_word == FREE && !mutant!("range-free-slot-open") {
                let word = context.pool().word(self.key_off(slot));
                match word.compare_exchange(FREE, KEY_CLOSED) {
                    Ok(_) => continue,
                    Err(found) => key_word = found,
                }
            }
            if !is_taken(key_word) {
                continue;
            }
            let value = match mutant!("range-value-open") {
                true => self.value(context, slot),
                false => self.close_value(context, slot, steps)?,
            };
            // The key word may have changed before the value word was closed. It is final now.
            let may_differ = key_word & CONTROL_BITS != 0 || value.is_versioned();
            if may_differ && !mutant!("range-closed-key-not-read-again") {
                key_word = self.key(context, slot);
            }
            if let Some(value) = value.value(key_word) {
                let key = self.low.wrapping_add(self.key_words().distance(key_word));
                pairs.push(Pair { key, value });
            }
        }
        Ok(())
    }

    /// Closes the value word of a slot that is taken, and returns it.
    #[inline]
    fn close_value<D: Domain>(
        &self,
        context: Context<'_, D>,
        slot: Slot,
        steps: &mut Steps,
    ) -> Result<ValueWord> {
        let off = self.value_off(slot);
        loop {
            let value = self.value(context, slot);
            if value.is_closed() {
                return Ok(value);
            }
            let closed = value.closed();
            let swapped =
                context.pmwcas.compare_exchange_undurable(context.guard, off, value.0, closed.0);
            if swapped.is_ok() {
                return Ok(closed);
            }
            steps.take(context.guard, self.node.off)?;
        }
    }
}
