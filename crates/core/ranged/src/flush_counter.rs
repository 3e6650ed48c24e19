//! Values that may not be durable, in a domain with write-backs: each leaf counts its writes
//! between their CAS and the end of their write-back (flush counters, as FliT has them).
//!
//! | step | deciding word | a crash leaves |
//! | --- | --- | --- |
//! | raise the counter of the slot's line | | a counter above zero, of an earlier generation |
//! | *write*: CAS of the value word, without dirty bit | value word | the former value, or the new one |
//! | write back the line, **fence** | | the new value |
//! | lower the counter | | |
//!
//! A reader loads the value word and then the counter of its line. If that is not zero, the value
//! may not be durable. Then the reader writes the line back, and fences, before it uses the value.
//!
//! * *Why the reader misses no write:* a value is stored after its writer has raised the counter,
//!   by a release that the reader's acquire finds, itself or through later swaps of the word. So
//!   the reader finds the counter raised, or lowered after the write-back.
//! * *Why no dirty bit:* values repeat. A thread that made one occurrence durable could come late,
//!   and clear the bit of a later one.
//! * *A PMwCAS on the word* expects and puts back a value that may not be durable. Recovery may
//!   make it durable, which is right: it was written before. A reader that takes the value out of
//!   the descriptor loads the counter afterwards, too.
//! * *After a kill*, the caches keep a value that was not written back, and the counter is of an
//!   earlier generation. Readers write the line back as before. The first writer of the new
//!   generation writes back all lines of the counter before it begins to count from zero.
//! * *A thread that stops* leaves the counter raised. Reads of its lines write back and fence until
//!   the leaf is replaced, or is written to after the pool was opened again.
//!
//! The counters lie in the first line of the leaf, which a reader has loaded before. No thread
//! needs them on the medium.

use std::ops::Range;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Word, Words, mutant};
use pando_tree::context::Context;

use crate::layout::{COUNTERS, COUNTERS_AT};
use crate::leaf::{RangeLeaf, Slot};

const GENERATION_SHIFT: u32 = 32;

impl RangeLeaf {
    /// Changes a value word from `old` to `new` by a CAS; durable on return. False if the word did
    /// not hold `old`. `old` is not *empty*: a first value is written with the dirty bit.
    pub(crate) fn compare_exchange_counted<D: Domain>(
        &self,
        context: Context<'_, D>,
        slot: Slot,
        old: u64,
        new: u64,
    ) -> bool {
        let counter = self.counter(context, slot.line());
        let off = self.value_off(slot);
        let is_counted = !mutant!("range-write-not-counted");
        if is_counted {
            self.raise(context, slot.line());
        }
        let swapped = context.pmwcas.compare_exchange_undurable(context.guard, off, old, new);
        if swapped.is_ok() && !mutant!("range-counted-write-undurable") {
            context.pool().word(off).flush();
            D::fence();
        }
        if is_counted {
            // Release: pairs with the reader's load of the counter.
            counter.fetch_add(u64::MAX);
        }
        swapped.is_ok()
    }

    /// Makes the values durable that this thread has read in `lines`.
    #[inline(always)]
    pub(crate) fn make_durable<D: Domain>(&self, context: Context<'_, D>, lines: Range<u64>) {
        if !D::needs_write_back() {
            return;
        }
        let words = self.node.words(context);
        if lines.clone().any(|line| Self::is_counted(words, line)) {
            self.write_back(context, lines);
        }
    }

    /// Whether a write of a value in the line may not be durable. `words` are those of the leaf,
    /// and the thread has read the value.
    #[inline(always)]
    pub(crate) fn is_counted<D: Domain>(words: Words<'_, D>, line: u64) -> bool {
        if !D::needs_write_back() || mutant!("range-undurable-read") {
            return false;
        }
        // Acquire: pairs with the lowering. The values were loaded with acquire, so this load comes
        // after them. The generation does not matter.
        words.load(counter_of(line), Ordering::Acquire) as u32 != 0
    }

    /// Makes the lines durable.
    #[cold]
    #[inline(never)]
    fn write_back<D: Domain>(&self, context: Context<'_, D>, lines: impl Iterator<Item = u64>) {
        lines.for_each(|line| context.pool().word(self.line_off(line)).flush());
        D::fence();
    }

    fn counter<'op, D: Domain>(&self, context: Context<'op, D>, line: u64) -> Word<'op, D> {
        context.pool().word(self.node.off + counter_of(line) * 8)
    }

    /// Raises the counter of a line.
    fn raise<D: Domain>(&self, context: Context<'_, D>, line: u64) {
        let word = self.counter(context, line);
        let generation = context.pool().generation();
        // Relaxed: the CAS decides.
        let mut found = word.load(Ordering::Relaxed);
        loop {
            let is_current = (found >> GENERATION_SHIFT) as u32 == generation;
            if !is_current && found as u32 != 0 && !mutant!("range-killed-writers-forgotten") {
                let counted = |other: &u64| counter_of(*other) == counter_of(line);
                self.write_back(context, self.geometry().slot_lines().filter(counted));
            }
            let zero = u64::from(generation) << GENERATION_SHIFT;
            let next = if is_current { found.wrapping_add(1) } else { zero | 1 };
            match word.compare_exchange(found, next) {
                Ok(_) => return,
                Err(other) => found = other,
            }
        }
    }
}

/// The index of a line's counter among the words of the leaf.
#[inline(always)]
fn counter_of(line: u64) -> u64 {
    COUNTERS_AT / 8 + line % COUNTERS
}
