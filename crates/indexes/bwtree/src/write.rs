//! Writes of records, and consolidation.
//!
//! Every write is one step on its leaf's mapping word, from the link under which the record was
//! searched. So the result of the search still holds at the step, or the step fails and the write
//! searches again. Usually the step prepends a delta. If the chain has its greatest length, or has
//! no room, the write consolidates the page and puts its own change into the new base, in one step.
//!
//! If a split or a merge is due afterwards, the same thread does it. If it cannot be done, it is
//! left: the write has taken place.
//!
//! # A full pool
//!
//! Writes are refused, and change nothing; a remove should succeed, and make room. It needs no room
//! if its delta fits beside the base. Otherwise it takes a new base without room for deltas, which
//! is no larger than the one that it frees. This base comes from the reserve of the pool: two
//! chunks of 64 KiB, which are cut into blocks of 4 KiB. A freed base can be reused when no thread
//! can read it any more; a refused remove tries again several times, to wait for that. So a remove
//! succeeds, except in these cases:
//!
//! * with `delta_bytes` 0: there a base that takes in the inserts of its chain is larger than what
//!   it frees;
//! * in pages of more than 4 KiB;
//! * in a page whose keys, or values, all had one length (`build.rs`), if deltas have brought other
//!   lengths: its new base stores where each record is, and is larger than what it frees;
//! * if as many blocks wait for a thread that stays pinned, or if writes of other threads take each
//!   time what removes free.
//!
//! Then it may be refused like any write. Removes of other records make room for it.

use pando_index::{BlindChange, Change, Error, Intent, Known, Limits, Result, Upserted};
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::Blocks;
use pando_tree::context::Context;
use pando_tree::key::{Probe, Target};
use pando_tree::room::{Attempts, Refusal, Tries};
use pando_tree::value_block;

use crate::blind::removals;
use crate::build::{NewPage, base_bytes};
use crate::context::{At, Pid, Value, damaged};
use crate::gather::Gathered;
use crate::layout::{HEADER_BYTES, Kind, Link, NO_POSITION};
use crate::page::{Delta, Page};
use crate::pages::{absent, check_storable, is_too_long, too_long};
use crate::prepend::{NewDelta, beside};
use crate::races::Race;
use crate::search::Found;
use crate::style::{self, Style};
use crate::tree::BwTree;

/// The effect of a write on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It gets the value.
    Put,
    Remove,
    /// It stays as it is.
    Keep,
}

/// A write that depends on the present value.
pub(crate) trait Write {
    /// The effect on the record, or an error.
    fn decide(&mut self, found: Option<&[u8]>) -> Result<Decision>;

    /// How often it is tried again when the pool has no room.
    const TRIES: Tries = Tries::Few;

    /// The value of [`Decision::Put`].
    fn value(&self) -> &[u8];

    /// Whether the record need not be read (`blind.rs`).
    const IS_BLIND: bool = false;

    /// Bytes of the value, as far as they are known before the decision.
    fn value_bytes(&self) -> usize {
        0
    }

    /// How often a blind write has asked for a block, with this time.
    fn next_attempt(&mut self) -> u32 {
        0
    }

    /// Whether the effect on a record that was not read was decided before: that decision has
    /// failed.
    fn is_spent(&self) -> bool {
        false
    }

    /// The effect of a blind write on a record that was not read.
    fn decide_unread(&mut self) -> Result<Decision> {
        Ok(Decision::Keep)
    }
}

/// A write of a value that is given.
#[derive(Debug)]
pub(crate) struct Put<'call> {
    pub intent: Intent<'call>,
    pub value: &'call [u8],
}

impl Write for Put<'_> {
    #[inline(always)]
    fn decide(&mut self, found: Option<&[u8]>) -> Result<Decision> {
        self.intent.check(found)?;
        Ok(Decision::Put)
    }

    #[inline(always)]
    fn value(&self) -> &[u8] {
        self.value
    }

    fn value_bytes(&self) -> usize {
        self.value.len()
    }
}

/// A remove. If `expected` is given, a record with another value is an error.
#[derive(Debug)]
pub(crate) struct Remove<'call> {
    pub expected: Option<&'call [u8]>,
}

impl Write for Remove<'_> {
    const TRIES: Tries = Tries::Many;

    #[inline(always)]
    fn decide(&mut self, found: Option<&[u8]>) -> Result<Decision> {
        match (found, self.expected) {
            (None, _) => Ok(Decision::Keep),
            (Some(found), Some(expected)) if found != expected => Err(Error::ValueMismatch),
            _ => Ok(Decision::Remove),
        }
    }

    fn value(&self) -> &[u8] {
        &[]
    }
}

/// A write of the value that a caller computes from the present one.
struct Modify<'call, 'change> {
    change: &'call mut Change<'change>,
    limits: Limits,
    new: Vec<u8>,
}

impl Write for Modify<'_, '_> {
    fn decide(&mut self, found: Option<&[u8]>) -> Result<Decision> {
        self.new.clear();
        if !(self.change)(found, &mut self.new) {
            return Ok(Decision::Keep);
        }
        self.limits.check_value(&self.new)?;
        Ok(Decision::Put)
    }

    fn value(&self) -> &[u8] {
        &self.new
    }
}

/// A write of the value that a caller computes from what is known of the present one.
struct Blind<'call, 'change> {
    change: &'call mut BlindChange<'change>,
    limits: Limits,
    new: Vec<u8>,
    value_bytes: usize,
    /// How often it has asked for a block.
    attempts: u32,
    is_spent: bool,
}

impl Blind<'_, '_> {
    fn decide_known(&mut self, known: Known<'_>) -> Result<Decision> {
        self.new.clear();
        if !(self.change)(known, &mut self.new) {
            return Ok(Decision::Keep);
        }
        self.limits.check_value(&self.new)?;
        Ok(Decision::Put)
    }
}

impl Write for Blind<'_, '_> {
    const IS_BLIND: bool = true;

    fn decide(&mut self, found: Option<&[u8]>) -> Result<Decision> {
        self.decide_known(found.map_or(Known::Absent, Known::Value))
    }

    fn value(&self) -> &[u8] {
        &self.new
    }

    fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    fn next_attempt(&mut self) -> u32 {
        self.attempts += 1;
        self.attempts
    }

    fn is_spent(&self) -> bool {
        self.is_spent
    }

    fn decide_unread(&mut self) -> Result<Decision> {
        self.is_spent = true;
        self.decide_known(Known::Unread)
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The record was there before.
    pub was_there: bool,
    /// It has been changed.
    pub is_changed: bool,
}

/// A change of a record that a consolidation takes in.
#[derive(Debug)]
pub(crate) struct Taken<'op, D: Domain> {
    pub key: &'op [u8],
    pub value: Option<Value<'op>>,
    pub values: Blocks<'op, D>,
}

impl<D: Domain, S: Style<D>> BwTree<D, S> {
    /// Writes the value, with the intent of the operation.
    #[inline]
    pub(crate) fn put(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        S::LIMITS.check_key(key)?;
        S::LIMITS.check_value(value)?;
        let done = self.write(key, &mut Put { intent, value })?;
        Ok(if done.was_there { Upserted::Updated } else { Upserted::Inserted })
    }

    /// Removes the record; returns whether it was present. If `expected` is given, a record with
    /// another value is an error.
    #[inline]
    pub(crate) fn delete(&self, key: &[u8], expected: Option<&[u8]>) -> Result<bool> {
        S::LIMITS.check_key(key)?;
        Ok(self.write(key, &mut Remove { expected })?.was_there)
    }

    /// Replaces the value of `key` by the one that `change` computes; `None` if it is to stay.
    pub(crate) fn read_modify_write(
        &self,
        key: &[u8],
        change: &mut Change<'_>,
    ) -> Result<Option<Upserted>> {
        S::LIMITS.check_key(key)?;
        let done = self.write(key, &mut Modify { change, limits: S::LIMITS, new: Vec::new() })?;
        Ok(done.is_changed.then_some(match done.was_there {
            true => Upserted::Updated,
            false => Upserted::Inserted,
        }))
    }

    /// Replaces the value of `key` by the one that `change` computes, without a read of the page;
    /// whether it was replaced.
    pub(crate) fn blind_write(
        &self,
        key: &[u8],
        value_bytes: usize,
        change: &mut BlindChange<'_>,
    ) -> Result<bool> {
        S::LIMITS.check_key(key)?;
        let (limits, new) = (S::LIMITS, Vec::new());
        let (attempts, is_spent) = (0, false);
        let mut write = Blind { change, limits, new, value_bytes, attempts, is_spent };
        Ok(self.write(key, &mut write)?.is_changed)
    }

    /// Runs attempts until one succeeds: a failure means that another operation has succeeded.
    #[inline(always)]
    fn write<W: Write>(&self, key: &[u8], write: &mut W) -> Result<Done> {
        let probe = Probe::new(key);
        let mut attempts = Attempts::default();
        loop {
            let done = self.until_done(
                W::TRIES,
                || S::give_back(self, &mut attempts),
                |guard| {
                    let attempt = || self.attempt(self.context(guard), probe, write);
                    S::in_room(self, guard, attempt)
                },
            );
            match done {
                Ok(done) => {
                    S::after_write(self);
                    return Ok(done);
                }
                Err(error) => S::after_failure(self, error, &mut attempts)?,
            }
        }
    }

    /// Finds the leaf and does the write's step there; `None` if another change came first.
    #[inline(always)]
    fn attempt<W: Write>(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        write: &mut W,
    ) -> Result<Option<Done>> {
        if W::IS_BLIND && write.is_spent() {
            return Ok(Some(Done { was_there: false, is_changed: false }));
        }
        let now = match S::MAY_BE_ABSENT && W::IS_BLIND {
            true => self.find_leaf_now(context, probe)?,
            false => None,
        };
        let mut at = match now {
            Some(at) => at,
            None => self.find_leaf(context, Target::Holding(probe))?,
        };
        let record_bytes = probe.bytes.len() + write.value_bytes();
        if now.is_some() && S::missing(at).is_some() {
            if !self.takes_blind(context, at, record_bytes)? {
                return Err(absent(at));
            }
            // Before the decision, which may have consequences.
            let bytes = (probe.bytes.len(), write.value_bytes());
            let reserved = self.reserve_partial(context, bytes, write.next_attempt())?;
            let decision = write.decide_unread()?;
            let done = Done { was_there: false, is_changed: decision == Decision::Put };
            let record = (probe.bytes, write.value());
            let is_done = !done.is_changed || self.put_partial(context, at, record, reserved)?;
            return Ok(is_done.then_some(done));
        }
        let mut is_unread = false;
        let (found, position) = loop {
            let found =
                match at.link.find(context, probe, (self.options.shortcuts, S::MAY_BE_ABSENT)) {
                    Err(unread)
                        if now == Some(at)
                            && unread.unread_pid().is_some()
                            && self.takes_blind(context, at, record_bytes)? =>
                    {
                        is_unread = true;
                        Found::Absent(NO_POSITION)
                    }
                    found => found?,
                };
            let next = match found {
                Found::Value(value, position) => break (Some(value), position),
                Found::Absent(position) => break (None, position),
                Found::Right(right) => self.step_right(context, at, right)?,
                Found::Leaving => self.help(context, at)?,
            };
            let Some(next) = next else { return Ok(None) };
            at = next;
        };
        // Before the decision, which may have consequences.
        let bytes = (probe.bytes.len(), write.value_bytes());
        if S::MAY_BE_ABSENT && !is_unread && !self.takes_known(context, at, bytes)? {
            return Err(absent(at));
        }
        let there = found.map(|value| value.bytes(context)).transpose()?;
        let decision = match is_unread {
            true => write.decide_unread()?,
            false => write.decide(there)?,
        };
        let done = Done { was_there: found.is_some(), is_changed: decision != Decision::Keep };
        if !done.is_changed {
            return Ok(Some(done));
        }
        let bytes = write.value();
        let removes = decision == Decision::Remove;
        let kind = match found {
            _ if removes => Kind::Delete,
            Some(_) => Kind::Modify,
            None => Kind::Insert,
        };
        let freed = found.filter(|_| !mutant!("bw-old-value-leaked"));
        let mut values = Blocks { new: None, old: freed.map_or(0, |value| value.block_off()) };
        if let Some(Value::Block(off)) = found
            && value_block::check(context, off).is_err()
        {
            // Another operation may be the reason: then the record has changed.
            return if Link::at(context, at.pid) == at.link { Err(damaged(at)) } else { Ok(None) };
        }
        let mut value = Value::Inline(bytes);
        if !S::MAY_BE_ABSENT && bytes.len() > self.options.inline_bytes as usize {
            let block = value_block::reserve(context, bytes).map_err(Error::storage)?;
            value = Value::Block(values.new.insert(block).off());
        }
        let pointer = value.block_off().to_le_bytes();
        let mut delta = NewDelta { position, ..NewDelta::new(kind, probe.bytes) };
        if !removes {
            delta.is_pointer = values.new.is_some();
            delta.value[0] = if delta.is_pointer { &pointer } else { bytes };
        }
        let prepared = match at.link {
            Link::EMPTY => None,
            // Perhaps it must be split before.
            link if S::MAY_BE_ABSENT && !removes && self.is_long(context, link)? => None,
            link => match delta.prepare(context, link, self.chaining()) {
                // Its block takes room until the page is consolidated; a base frees more than it
                // takes.
                Err(error) if removes && error.is_full() => None,
                prepared => prepared?,
            },
        };
        let is_done = match prepared {
            Some(delta) => {
                let change = style::Change { delta, values };
                self.counted(Race::Write, S::prepend(context, at, change)?)
            }
            None => {
                let value = (!removes).then_some(value);
                let taken = Taken { key: probe.bytes, value, values };
                self.consolidate_with(context, at, taken, removes)?
            }
        };
        if is_done && removes {
            self.merge_if_small(context, at, probe.bytes);
        }
        Ok(is_done.then_some(done))
    }

    /// After a remove: consolidates the leaf and merges it, if its chain may have left a small
    /// page. It does not wait until the chain is full, since there may be no more removes.
    #[inline(always)]
    fn merge_if_small(&self, context: Context<'_, D>, at: At, key: &[u8]) {
        if at.link == Link::EMPTY {
            return;
        }
        let (Ok(delta), Ok(base)) = (Delta::of(context, at.link), Page::of(context, at.link))
        else {
            return;
        };
        let deltas = 1 + delta.map_or(0, |delta| usize::from(delta.info.deltas));
        // So each consolidation halves the page, and there are few of them.
        let merge_bytes = u64::from(self.options.merge_bytes);
        let is_small = base.body_bytes() < 2 * merge_bytes || deltas >= base.records();
        let may_be_small = deltas * 2 >= base.records() && is_small && merge_bytes > 0;
        if may_be_small {
            let _ = context.guard.with_reserve(|| self.merge_underfull(context, at.pid, key));
        }
    }

    /// Whether a leaf of that many bytes must be merged: a small one, or one without records
    /// (`merge.rs`).
    fn is_due(&self, bytes: u64) -> bool {
        let merge_bytes = u64::from(self.options.merge_bytes);
        merge_bytes > 0 && bytes < merge_bytes.max(HEADER_BYTES + 1)
    }

    #[cold]
    fn merge_underfull(&self, context: Context<'_, D>, pid: Pid, key: &[u8]) -> Result<()> {
        let at = At::now(context, pid);
        if at.link.is_removed() || at.link.is_inner() {
            return Ok(());
        }
        let bytes = match at.link.is_base() {
            true => Some(Page::of(context, at.link)?.body_bytes()),
            false => self.consolidate(context, at, None, self.room(0))?,
        };
        // If another change came first, the merge looks for itself.
        if bytes.is_none_or(|bytes| self.is_due(bytes)) {
            self.merge(context, 0, key)?;
        }
        Ok(())
    }

    /// Consolidates the leaf together with the change of a record, and then splits or merges it if
    /// that is due.
    #[cold]
    fn consolidate_with(
        &self,
        context: Context<'_, D>,
        at: At,
        taken: Taken<'_, D>,
        removes: bool,
    ) -> Result<bool> {
        let key = taken.key;
        let old = taken.values.old;
        let again = Taken { values: Blocks { new: None, old }, ..taken };
        let done = match self.consolidate(context, at, Some(taken), self.room(0)) {
            // A base without room for deltas is no larger than the one that it frees.
            Err(error) if removes && error.is_full() => {
                context.guard.with_reserve(|| self.consolidate(context, at, Some(again), 0))
            }
            Err(error) if S::MAY_BE_ABSENT && is_too_long(&error) => {
                // Its split was left to later operations. This one is tried again.
                self.split(context, at.pid).and(Err(error))
            }
            done => done,
        }?;
        if !self.counted(Race::Write, done.is_some()) {
            return Ok(false);
        }
        let bytes = done.unwrap_or_default();
        if bytes > self.max_bytes(0) {
            let _ = self.split(context, at.pid);
        } else if removes && self.is_due(bytes) {
            let _ = context.guard.with_reserve(|| self.merge(context, 0, key));
        }
        Ok(true)
    }

    /// Replaces the chain by a base page with `room` bytes for deltas. Returns its bytes; `None` if
    /// another change came first.
    pub(crate) fn consolidate(
        &self,
        context: Context<'_, D>,
        at: At,
        taken: Option<Taken<'_, D>>,
        room: u64,
    ) -> Result<Option<u64>> {
        let mut gathered = match taken.is_some() && S::MAY_BE_ABSENT {
            // A partial page may become a longer one.
            true => Gathered::any(context, at.link)?,
            false => Gathered::new(context, at.link)?,
        };
        if gathered.is_leaving {
            return Ok(None);
        }
        if gathered.level > 0 {
            S::settle(self, context, &gathered)?;
        }
        let mut values = Blocks::NONE;
        let has_change = taken.is_some();
        let puts = taken.as_ref().is_some_and(|taken| taken.value.is_some());
        if S::MAY_BE_ABSENT && puts && self.is_split_due(&gathered) {
            return Err(too_long(base_bytes(&gathered.items(false), gathered.level > 0)));
        }
        if let Some(taken) = taken {
            gathered.change(taken.key, taken.value);
            values = taken.values;
        }
        let items = gathered.items(!self.options.runs);
        if S::MAY_BE_ABSENT && has_change {
            check_storable(base_bytes(&items, gathered.level > 0))?;
        }
        // A partial page goes on to say which records are gone.
        let removed = match gathered.is_partial {
            true => removals(&gathered),
            false => Vec::new(),
        };
        let removed_bytes = removed.iter().map(NewDelta::room).sum::<u64>();
        let room = match gathered.is_partial {
            true => self.room_of_partial(&gathered, base_bytes(&items, false), removed_bytes)?,
            false => room,
        };
        let page = NewPage {
            level: gathered.level,
            low: gathered.low,
            high: gathered.high,
            right: gathered.right,
            items: &items,
            room,
            is_partial: gathered.is_partial,
        };
        let block = page.build(context)?;
        let is_inner = gathered.level > 0;
        let link = Link::base(block.off(), is_inner);
        let (block, link) = match removed.is_empty() {
            true => (block, link),
            false => beside(context, block, link, &removed)?.ok_or(damaged(at))?,
        };
        let freed = &gathered.blocks;
        let new = style::Replacement { page: block, link, freed, values };
        let is_done = S::replace(context, at, new)?;
        self.counted(Race::Consolidation, is_done);
        Ok(is_done.then(|| base_bytes(&items, is_inner)))
    }

    /// Whether the leaf's base is longer than a leaf should be.
    fn is_long(&self, context: Context<'_, D>, link: Link) -> Result<bool> {
        // Called in a tree that may have partial pages.
        Ok(Page::any_of(context, link)?.body_bytes() > self.max_bytes(0))
    }

    /// Bytes of the delta space of a new page, at least `room`.
    pub(crate) fn room(&self, room: u64) -> u64 {
        match self.options.delta_bytes {
            0 => 0,
            bytes => u64::from(bytes).max(room),
        }
    }
}
