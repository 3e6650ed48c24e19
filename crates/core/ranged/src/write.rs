//! Inserts, updates and deletes in a range leaf.
//!
//! | step | deciding word | who helps | a crash leaves |
//! | --- | --- | --- | --- |
//! | *look*: a pass over the key's slots, in their order, to its current one or to a free slot | | | |
//! | *take* a slot, if the key has none that fits: CAS of the first free key word | key word | any writer of the key uses it | a slot without a value, or a free one |
//! | *write*: CAS of the current slot's value word, or PMwCAS of both its words; write back, **fence** | value word | a reader that meets a dirty bit or a flush counter makes the line durable | the value, or the former state |
//!
//! A slot belongs to its key, not to a thread. A thread that finds a slot of its key without a
//! value uses it, so a thread that stops costs nothing, and nobody waits.
//!
//! # Values of another class
//!
//! The upper seven bits of a value, its class, stand in the key word. For a value of another class,
//! one PMwCAS changes both words: the key word gets the new class and the next version, and the
//! value word is *versioned* until the key moves. Then the words of a slot agree:
//!
//! * No key word comes twice, so a reader that finds the same one before and after the value word
//!   has both of one time. A value that is not versioned belongs to the first key word.
//! * A write to a versioned slot has the key word among the words of its PMwCAS, also if it stays:
//!   the value word may have come back with another class. Once it is versioned, no former value
//!   word comes back, so a write by the value word alone fails.
//!
//! The distance takes most bits of a key word, so versions end, and in a wide leaf there are none.
//! Then the key *moves*, to its first later slot of the class, or to one that is taken for it. One
//! PMwCAS changes the current slot to *moved*, empty slots in between to *moved*, and the later one
//! from *empty* to the value. So the first slot that is not moved stays the only one that counts.
//! Two writers that move a key have the current slot's word in common; a writer that finds the
//! moved key's later slot has seen the others moved.
//!
//! # Durability
//!
//! Key and value word of a slot lie in one line, and the key word is stored first, so a durable
//! value has a durable key. A power cut may free a slot whose value is not durable. If a later slot
//! in the same line was lost with it, nothing was acknowledged. But a record in a *later line*
//! would be hidden behind the free slot. So before a thread takes a slot, it secures the lines that
//! it has passed (*spill rule*). A line is secure if each of its slots has a value, without control
//! bit: then the slot's first value is durable, and so is its key. Otherwise the thread writes the
//! line back, and fences. Records that came with the leaf's construction are durable from the
//! start.
//!
//! The first value of a slot, if it has the slot's class, is written with the dirty bit: no value
//! word is empty twice. Later values repeat, and a reader that made one occurrence durable could
//! clear the bit of a later one (`Pmwcas::compare_exchange`). Such writes are counted
//! (`flush_counter.rs`). A value of another class is written by a PMwCAS.

use pando_index::{Error, Intent, Result, Upserted};
use pando_pmem::{Domain, mutant};
use pando_pmwcas::{CONTROL_BITS, Descriptor, MAX_WORDS};
use pando_tree::checked::{Steps, undamaged};
use pando_tree::context::Context;

use crate::layout::{FREE, Pair, State, ValueWord};
use crate::leaf::{Look, RangeLeaf, Slot, Taken, Until};

/// The result of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Written {
    /// It is done.
    Done(Upserted),
    /// The leaf is closed.
    Closed,
    /// The leaf has no slot for the key.
    NoRoom,
}

/// Empty slots behind the current one that one PMwCAS can move away, beside both words of the
/// current slot and the one that takes the value.
const MOST_BETWEEN: usize = MAX_WORDS - 3;

/// The result of an attempt to take a slot.
enum Take {
    Taken(Slot),
    /// Another thread has taken it, or the leaf was closed.
    Lost,
    NoRoom,
}

impl RangeLeaf {
    /// Writes the record, as `intent` says. Durable on return.
    ///
    /// # Errors
    ///
    /// Those of the intent; [`Error::Storage`] if the pool has no room for a descriptor;
    /// [`Error::Damaged`].
    #[inline]
    pub fn write<D: Domain>(
        &self,
        context: Context<'_, D>,
        pair: Pair,
        intent: Intent<'_>,
    ) -> Result<Written> {
        let Some(distance) = self.distance(pair.key) else { return Ok(Written::NoRoom) };
        let wanted = self.key_words().first(distance, pair.value);
        let new = ValueWord::present(pair.value);
        let mut steps = Steps::of_attempts();
        loop {
            let look = self.look(context, distance, Until::Takes(pair.value));
            // Before what was found is believed: this returns noted damage, too.
            steps.take(context.guard, self.node.off)?;
            if look.is_closed || look.current.is_some_and(|taken| taken.word.is_closed()) {
                // What the leaf holds may be out of date.
                return Ok(Written::Closed);
            }
            let found = look.current.and_then(Taken::value);
            check(intent, found)?;
            let is_written = match look.current {
                Some(taken) => match self.word_for(taken, pair.value) {
                    Some(key_word) => self.change(context, taken, key_word, new)?,
                    None => {
                        let later = look.behind.iter().position(|taken| taken.key_word == wanted);
                        match later {
                            Some(later) => {
                                self.move_key(context, taken, &look.behind[..=later], new)?
                            }
                            None => match self.take(context, &look, wanted) {
                                Take::Taken(_) | Take::Lost => continue,
                                Take::NoRoom => return Ok(Written::NoRoom),
                            },
                        }
                    }
                },
                None => match self.take(context, &look, wanted) {
                    Take::Taken(slot) => {
                        let taken = Taken { slot, key_word: wanted, word: ValueWord::EMPTY };
                        self.change(context, taken, wanted, new)?
                    }
                    Take::Lost => continue,
                    Take::NoRoom => return Ok(Written::NoRoom),
                },
            };
            if is_written {
                return Ok(Written::Done(match found {
                    Some(_) => Upserted::Updated,
                    None => Upserted::Inserted,
                }));
            }
        }
    }

    /// Deletes `key`; only if it has the value `expected`, if one is given. Durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::KeyNotFound`], [`Error::ValueMismatch`]; otherwise as [`write`](Self::write).
    #[inline]
    pub fn delete<D: Domain>(
        &self,
        context: Context<'_, D>,
        key: u64,
        expected: Option<&[u8]>,
    ) -> Result<Written> {
        let Some(distance) = self.distance(key) else { return Err(Error::KeyNotFound) };
        let intent = expected.map_or(Intent::Update, |expected| Intent::Exchange { expected });
        let mut steps = Steps::of_attempts();
        loop {
            let look = self.look(context, distance, Until::Current);
            steps.take(context.guard, self.node.off)?;
            if look.is_closed || look.current.is_some_and(|taken| taken.word.is_closed()) {
                return Ok(Written::Closed);
            }
            check(intent, look.current.and_then(Taken::value))?;
            let Some(taken) = look.current else { return Err(Error::KeyNotFound) };
            if self.change(context, taken, taken.key_word, ValueWord::DELETED)? {
                return Ok(Written::Done(Upserted::Updated));
            }
        }
    }

    /// Writes a value, or deletes, in a leaf that is closed and cannot be replaced, because the
    /// pool has no room for a copy: `new` is the value, or `None` for a delete. One attempt.
    ///
    /// The PMwCAS has the status among its words, so that no copy is installed that was made
    /// before. [`Written::NoRoom`]: that takes a slot. [`Written::Closed`]: the leaf has changed,
    /// or it is replaced; look again.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write) and [`delete`](Self::delete).
    #[cold]
    pub fn write_closed<D: Domain>(
        &self,
        context: Context<'_, D>,
        key: u64,
        new: Option<u64>,
        intent: Intent<'_>,
    ) -> Result<Written> {
        let Some(distance) = self.distance(key) else { return Ok(Written::NoRoom) };
        let status = self.status(context);
        let look = self.look(context, distance, Until::Current);
        undamaged(context.guard)?;
        let found = look.current.and_then(Taken::value);
        check(intent, found)?;
        let Some(taken) = look.current else { return Ok(Written::NoRoom) };
        let key_word = new.map_or(Some(taken.key_word), |new| self.word_for(taken, new));
        let Some(key_word) = key_word else { return Ok(Written::NoRoom) };
        if !taken.word.is_closed() || status.is_frozen() {
            return Ok(Written::Closed);
        }
        let new = new.map_or(ValueWord::DELETED, ValueWord::present).closed();
        let is_written = context.publish(|operation| {
            self.add_change(operation, taken, key_word, new)?;
            if !mutant!("range-closed-write-unseen") {
                operation.add_word(self.node.status_off(), status.0, status.next().0)?;
            }
            Ok(true)
        })?;
        Ok(match (is_written, found) {
            (false, _) => Written::Closed,
            (true, Some(_)) => Written::Done(Upserted::Updated),
            (true, None) => Written::Done(Upserted::Inserted),
        })
    }

    /// Whether a slot is free for `key`.
    pub fn has_room<D: Domain>(&self, context: Context<'_, D>, key: u64) -> bool {
        let look = self.distance(key).map(|distance| self.look(context, distance, Until::Free));
        look.is_some_and(|look| look.free.is_some())
    }

    /// Takes the free slot that the pass has found, for the key and class of `wanted`.
    #[inline]
    fn take<D: Domain>(&self, context: Context<'_, D>, look: &Look, wanted: u64) -> Take {
        let Some((slot, line)) = look.free else { return Take::NoRoom };
        if !self.is_within_bounds() {
            // The slot may lie in another block. The caller's next step tells the damage.
            context.guard.note_damage(self.node.off);
            return Take::Lost;
        }
        if D::needs_write_back() && !mutant!("range-spill-undurable") {
            self.secure_lines(context, look.bucket, line);
        }
        match context.pool().word(self.key_off(slot)).compare_exchange(FREE, wanted) {
            Ok(_) => Take::Taken(slot),
            // For the same key.
            Err(found) if found == wanted => Take::Taken(slot),
            Err(_) => Take::Lost,
        }
    }

    /// Makes the keys in the first `count` lines of a bucket's order durable.
    fn secure_lines<D: Domain>(&self, context: Context<'_, D>, bucket: u64, count: u64) {
        let words = self.node.words(context);
        let mut flushed = false;
        for index in 0..count {
            let number = self.geometry().line_of(bucket, index);
            let [.., a, b, c, d] = Self::line(words, number);
            let is_secure =
                |word: u64| word & CONTROL_BITS == 0 && ValueWord(word).state() != State::Empty;
            if ![a, b, c, d].into_iter().all(is_secure) {
                context.pool().word(self.line_off(number)).flush();
                flushed = true;
            }
        }
        if flushed {
            D::fence();
        }
    }

    /// Changes the value word of a slot, and its key word to `key_word`; false if they are no
    /// longer those of `taken`.
    #[inline]
    fn change<D: Domain>(
        &self,
        context: Context<'_, D>,
        taken: Taken,
        key_word: u64,
        new: ValueWord,
    ) -> Result<bool> {
        let old = taken.word;
        if !old.is_versioned() && key_word == taken.key_word {
            if D::needs_write_back() && old != ValueWord::EMPTY {
                return Ok(self.compare_exchange_counted(context, taken.slot, old.0, new.0));
            }
            let off = self.value_off(taken.slot);
            let swapped = context.pmwcas.compare_exchange(context.guard, off, old.0, new.0);
            return Ok(swapped.is_ok());
        }
        context.publish(|operation| {
            self.add_change(operation, taken, key_word, new)?;
            Ok(true)
        })
    }

    /// Adds the words of a slot that change. The key word is one of them if it was ever changed, or
    /// is now: the same value word may have come back with another one.
    #[inline]
    fn add_change<D: Domain>(
        &self,
        operation: &mut Descriptor<'_, '_, D>,
        taken: Taken,
        key_word: u64,
        mut new: ValueWord,
    ) -> pando_pmwcas::Result<()> {
        if taken.word.is_versioned() || key_word != taken.key_word {
            if new != ValueWord::MOVED {
                new = new.versioned();
            }
            let is_compared = key_word != taken.key_word || !mutant!("range-class-not-compared");
            if is_compared {
                operation.add_word(self.key_off(taken.slot), taken.key_word, key_word)?;
            }
        }
        operation.add_word(self.value_off(taken.slot), taken.word.0, new.0)
    }

    /// Moves the key from its current slot to the last one of `behind`, with the value `new`.
    #[cold]
    fn move_key<D: Domain>(
        &self,
        context: Context<'_, D>,
        current: Taken,
        behind: &[Taken],
        new: ValueWord,
    ) -> Result<bool> {
        let Some((target, between)) = behind.split_last() else { return Ok(false) };
        let is_empty = |taken: &Taken| taken.word == ValueWord::EMPTY;
        if !is_empty(target) || !between.iter().all(is_empty) {
            // One of them has become the current slot, or the leaf is being closed.
            return Ok(false);
        }
        // More than one PMwCAS has room for: these are moved away even if it fails.
        let (first, rest) = between.split_at(between.len().saturating_sub(MOST_BETWEEN));
        for taken in first {
            let off = self.value_off(taken.slot);
            let (empty, moved) = (ValueWord::EMPTY.0, ValueWord::MOVED.0);
            if context.pmwcas.compare_exchange(context.guard, off, empty, moved).is_err() {
                return Ok(false);
            }
        }
        context.publish(|operation| {
            self.add_change(operation, current, current.key_word, ValueWord::MOVED)?;
            let is_left = mutant!("range-between-left");
            for taken in rest.iter().filter(|_| !is_left) {
                let off = self.value_off(taken.slot);
                operation.add_word(off, ValueWord::EMPTY.0, ValueWord::MOVED.0)?;
            }
            operation.add_word(self.value_off(target.slot), ValueWord::EMPTY.0, new.0)?;
            Ok(true)
        })
    }
}

/// Refuses a write if the condition `intent` does not hold for the value that was found.
///
/// # Errors
///
/// As [`Intent::check`].
#[inline(always)]
pub fn check(intent: Intent<'_>, found: Option<u64>) -> Result<()> {
    match found.map(u64::to_le_bytes) {
        Some(found) => intent.check(Some(&found)),
        None => intent.check(None),
    }
}
