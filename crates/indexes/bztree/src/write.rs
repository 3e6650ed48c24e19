//! Inserts, updates, upserts and compare-exchanges of single records (paper 4.2).
//!
//! # One word decides
//!
//! The paper publishes each change of a leaf by a PMwCAS over the leaf's status and the record's
//! metadata. Here the metadata alone decides, so one CAS is enough, and one line is written back
//! for it. The purposes of the status are met in other ways:
//!
//! * *Which slot, which space.* The first empty slot is the next one. Its record stands right
//!   before the record of the slot before it. A claim is one CAS of an empty slot.
//! * *Two operations on one key.* They settle in the order of their slots (below).
//! * *A delete.* It does not change the slot of the deleted record. It claims another slot that
//!   marks the key as deleted. So settled slots never change.
//! * *Closing the leaf*, for a structure modification. The closer claims the next slot too, as
//!   *closed*, and aborts the slots in progress. From then on nothing in the leaf can change
//!   (`claim.rs`).
//!
//! # Adding a record
//!
//! | step | what a crash leaves |
//! | --- | --- |
//! | *look*: one pass over the slots finds the key's newest record, and the first empty slot | nothing |
//! | *claim* the slot: one CAS, from empty to *reserved* with the key's hash and the generation | a slot of a process that has ended, or an empty one |
//! | *write* the record; write it back; **fence** | the same |
//! | *settle*: one CAS, from reserved to visible; write it back; **fence** | the record, or the same |
//!
//! In a domain with write-backs, a slot is settled with the dirty bit, which is cleared when the
//! slot is durable. A thread that acts upon a dirty slot makes it durable first, as with any
//! persistent CAS (PMwCAS paper, section 3). Such a CAS requires that no value returns to its word
//! (there, `compare_exchange`), and the states of a slot have one direction. (A PMwCAS that fails
//! puts *reserved* back, but nothing durable depends on that.) `claim.rs` says what a crash may
//! lose of a claim.
//!
//! # Two operations on one key
//!
//! All slots of one key settle in their order: *a slot may only settle when every earlier slot that
//! may be of its key is settled or aborted.* A thread that reads the slots, finds none in doubt,
//! and claims the next slot, knows this for its own slot. So does a thread that has aborted those
//! in doubt. Therefore what an operation read of its key when it claimed its slot still holds when
//! it settles: later slots of its key cannot settle before it does.
//!
//! If an earlier slot is in doubt, the slot is settled by a PMwCAS that has the earlier slot as a
//! further word, from reserved to *aborted*. Either the earlier operation settles first, and the
//! later one fails and looks again. Or the later one settles, and the earlier one finds its slot
//! aborted and starts again. No thread waits (in the paper, the insert waits until the earlier slot
//! settles). Every failure is the success of another operation. Slots with another hash or length
//! are of other keys and do not matter.
//!
//! If more than seven operations on one key are in doubt, those beyond seven are aborted before the
//! PMwCAS. In this case an abort is not part of a success.
//!
//! A thread that closes a leaf also aborts slots without a success of its own. To let every thread
//! succeed in the end, a thread that finds no room, or a closed leaf, asks for room for one more
//! record each time, up to [`MAX_ROOM_BYTES`]. Then there is room for all threads at the leaf.
//!
//! # Values in blocks of their own
//!
//! A value in a block changes its owner by PMwCAS of the slot, the record's pointer, and the old
//! record's pointer, which becomes zero. A value that replaces another one in the same record swaps
//! the pointer in place (paper 4.2.3). That PMwCAS also compares the next slot, which must still be
//! empty (or, if all are claimed, the gate and the dead bit of the record). So it fails if anything
//! changed in between.

use pando_index::{Error, Intent, Result, Upserted};
use pando_pmem::{Domain, mutant};
use pando_pmwcas::{Descriptor, MAX_WORDS, Policy};
use pando_tree::blocks::NewBlock;
use pando_tree::checked::Steps;
use pando_tree::context::Context;
use pando_tree::room::Tries;
use pando_tree::value_block;

use crate::build::{RecordKind, Wanted};
use crate::claim::abort;
use crate::layout::{LIMITS, padded};
use crate::leaf::{Leaf, Look, Settled};
use crate::meta::Meta;
use crate::node::{Probe, value_of_block};
use crate::options::ValueMode;
use crate::tree::BzTree;

/// Slots that one settling can abort: the words of a descriptor, without its own slot and the words
/// of two values' blocks.
const MAX_CONFLICTS: usize = MAX_WORDS - 3;

/// The most room that a leaf gets for records of threads that repeatedly found none. One longer
/// record may get more.
const MAX_ROOM_BYTES: u64 = 128 << 10;

/// A claimed slot, and the record for it.
pub(crate) struct Claim {
    pub slot: u64,
    pub reserved: Meta,
    /// The record that was written for it; `None` for a delete.
    pub record: Option<Meta>,
}

/// Slots that an operation aborts if it succeeds: offset and content of their metadata.
#[derive(Clone, Copy, Default)]
struct Conflicts {
    slots: [(u64, u64); MAX_CONFLICTS],
    count: usize,
}

impl Conflicts {
    /// Returns false if there is no more room.
    fn push(&mut self, off: u64, meta: Meta) -> bool {
        let Some(place) = self.slots.get_mut(self.count) else { return false };
        *place = (off, meta.0);
        self.count += 1;
        true
    }

    fn iter(&self) -> impl Iterator<Item = (u64, Meta)> {
        self.slots.iter().take(self.count).map(|&(off, meta)| (off, Meta(meta)))
    }
}

/// How an intent changes the state of its key.
pub(crate) enum Decision {
    /// Supersede, or delete, this record.
    Supersede(Settled),
    /// Add the key's first record.
    Add,
    /// The state changed while it was read: look again.
    Again,
}

impl<D: Domain> BzTree<D> {
    /// `intent`: `None` for a delete of any value; a delete of one value has that of an exchange.
    #[inline]
    pub(crate) fn decide(
        context: Context<'_, D>,
        leaf: &Leaf,
        intent: Option<Intent<'_>>,
        look: &Look,
    ) -> Result<Decision> {
        match (intent, look.visible()) {
            (Some(Intent::Insert), Some(_)) => Err(Error::KeyExists),
            (Some(Intent::Insert | Intent::Upsert), None) => Ok(Decision::Add),
            (Some(Intent::Update | Intent::Exchange { .. }) | None, None) => {
                Err(Error::KeyNotFound)
            }
            (Some(Intent::Update | Intent::Upsert) | None, Some(old)) => {
                Ok(Decision::Supersede(old))
            }
            (Some(Intent::Exchange { expected }), Some(old)) => match leaf.value(context, old.meta)
            {
                None => Ok(Decision::Again),
                // The first is quick for the very value that a read-modify-write has read.
                Some(value) if std::ptr::eq(value, expected) || value == expected => {
                    Ok(Decision::Supersede(old))
                }
                Some(_) => Err(Error::ValueMismatch),
            },
        }
    }

    pub(crate) fn wants_block(&self, key: &[u8], value: &[u8]) -> bool {
        let options = &self.options;
        options.value_mode == ValueMode::Pointer
            || value.len() > options.inline_bytes as usize
            || key.len() + value.len() > 0xFFFF
    }

    /// Writes `value` under `key` as `intent` says.
    #[inline]
    pub(crate) fn put(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        LIMITS.check_key(key)?;
        LIMITS.check_value(value)?;
        let probe = Probe::new(key);
        let pointer = self.wants_block(key, value);
        let mut rooms = 1;
        self.until_done(
            Tries::Few,
            || self.give_back(),
            |guard| {
                let context = self.context(guard);
                let leaf = self.find_leaf(context, probe);
                // Writes leave some room in a full pool, so that deletes can make room again.
                guard.without_reserve(|| {
                    self.write_in_leaf(context, leaf, probe, value, pointer, intent, &mut rooms)
                })
            },
        )
    }

    /// What a leaf that is replaced must have room for: so many records as the one that is written.
    #[inline(always)]
    fn wanted(probe: Probe<'_>, value: &[u8], pointer: bool, rooms: u64) -> Wanted {
        let value_bytes = if pointer { 8 } else { value.len() };
        let kind = match probe.number {
            Some(number) if value.len() == 8 && !pointer => RecordKind::Number(number),
            _ => RecordKind::Other,
        };
        let record_bytes = padded((probe.bytes.len() + value_bytes) as u64);
        Wanted { records: rooms, record_bytes, kind }
    }

    /// One attempt. `None` means: search again from the root.
    ///
    /// `rooms`: the number of records of this length for which a leaf must have room if it is
    /// replaced.
    #[expect(clippy::too_many_arguments, reason = "the state of one operation, passed once")]
    #[inline]
    pub(crate) fn write_in_leaf(
        &self,
        context: Context<'_, D>,
        leaf: Leaf,
        probe: Probe<'_>,
        value: &[u8],
        pointer: bool,
        intent: Intent<'_>,
        rooms: &mut u64,
    ) -> Result<Option<Upserted>> {
        if let Some(leaf) = leaf.ranged(context) {
            let wanted = Self::wanted(probe, value, pointer, *rooms);
            return self.write_in_range(context, &leaf, probe, value, intent, wanted, rooms);
        }
        let look = leaf.look(context, probe, None);
        self.write_from(context, leaf, look, probe, value, pointer, intent, rooms)
    }

    /// The same in a leaf that is no range leaf, from a look that this thread has made. A slot that
    /// was claimed since makes the claim fail, and the next attempt makes a look of its own. (A
    /// value's block that was swapped since is noticed where blocks are replaced.)
    #[expect(clippy::too_many_arguments, reason = "the state of one operation, passed once")]
    #[inline]
    pub(crate) fn write_from(
        &self,
        context: Context<'_, D>,
        leaf: Leaf,
        look: Look,
        probe: Probe<'_>,
        value: &[u8],
        pointer: bool,
        intent: Intent<'_>,
        rooms: &mut u64,
    ) -> Result<Option<Upserted>> {
        let key_bytes = probe.bytes.len() as u64;
        let record_bytes = key_bytes + if pointer { 8 } else { value.len() as u64 };
        let needed = padded(record_bytes);
        let wanted = |rooms: u64| Self::wanted(probe, value, pointer, rooms);
        let mut steps = Steps::of_attempts();
        let mut first = Some(look);
        loop {
            let look = first.take().unwrap_or_else(|| leaf.look(context, probe, None));
            steps.take(context.guard, leaf.node.off)?;
            if !mutant!("closed-check-in-insert") && look.closing.is_some() {
                self.settle_closed(context, probe, wanted(*rooms));
                *rooms = more_rooms(*rooms, needed);
                return Ok(None);
            }
            match Self::decide(context, &leaf, Some(intent), &look)? {
                Decision::Again => continue,
                Decision::Supersede(old) if pointer && old.meta.is_pointer() && !look.in_doubt => {
                    if self.swap_value(context, &leaf, &look, old, value, intent)? {
                        return Ok(Some(Upserted::Updated));
                    }
                    continue;
                }
                Decision::Supersede(_) | Decision::Add => {}
            }
            if !leaf.has_room(&look, needed) {
                let _left = self.leave_for_merges(context);
                self.restructure(context, probe, wanted(*rooms))?;
                *rooms = more_rooms(*rooms, needed);
                return Ok(None);
            }
            let generation = context.pool().generation();
            let claim = Claim {
                slot: look.next,
                reserved: Meta::reserved(generation, probe.hash, key_bytes, record_bytes),
                record: Some(Meta::visible(
                    look.bottom - needed,
                    probe.hash,
                    key_bytes,
                    record_bytes,
                    pointer,
                )),
            };
            if pointer {
                // Before the claim, so that an error in a full pool leaves no slot behind.
                let _left = self.leave_for_merges(context);
                let block = Some(value_block::reserve(context, value).map_err(Error::storage)?);
                if !leaf.claim(context, claim.slot, claim.reserved) {
                    continue;
                }
                Self::write_record(context, &leaf, &claim, probe.bytes, value);
                return self.settle_in_doubt(
                    context,
                    leaf,
                    &claim,
                    probe,
                    value,
                    block,
                    Some(intent),
                );
            }
            if !leaf.claim(context, claim.slot, claim.reserved) {
                continue;
            }
            Self::write_record(context, &leaf, &claim, probe.bytes, value);
            return self.settle(context, leaf, &claim, &look, probe, value, intent);
        }
    }

    #[inline]
    fn write_record(context: Context<'_, D>, leaf: &Leaf, claim: &Claim, key: &[u8], value: &[u8]) {
        let Some(record) = claim.record else { return };
        let pool = context.pool();
        let off = leaf.node.off + record.offset();
        if record.is_pointer() {
            // The pointer itself is written when the slot settles.
            pool.store_bytes(off, &[0; 8]);
            pool.store_bytes(off + 8, key);
        } else if key.len().is_multiple_of(8) {
            pool.store_bytes(off, key);
            pool.store_bytes(off + key.len() as u64, value);
        } else {
            pool.store_bytes(off, &[key, value].concat());
        }
        if !mutant!("undurable-record") {
            pool.flush(off, record.padded_bytes());
        }
    }

    /// Settles the claimed slot, whose record is written. `intent`: `None` for a delete.
    #[expect(clippy::too_many_arguments, reason = "the state of one operation, passed once")]
    #[inline]
    fn settle(
        &self,
        context: Context<'_, D>,
        leaf: Leaf,
        claim: &Claim,
        first_look: &Look,
        probe: Probe<'_>,
        value: &[u8],
        intent: Intent<'_>,
    ) -> Result<Option<Upserted>> {
        let old = first_look.visible();
        let plain = |meta: Option<Meta>| !meta.is_some_and(Meta::is_pointer);
        if let Some(record) = claim.record
            && (mutant!("duplicate-insert") || !first_look.in_doubt)
            && plain(claim.record)
            && plain(old.map(|old| old.meta))
        {
            // The record must be durable before the slot that makes it visible.
            D::fence();
            let off = leaf.slot_off(claim.slot);
            let settled =
                context.pmwcas.compare_exchange(context.guard, off, claim.reserved.0, record.0);
            return Ok(settled.is_ok().then(|| upserted(old)));
        }
        self.settle_in_doubt(context, leaf, claim, probe, value, None, Some(intent))
    }

    /// Like `settle`, with earlier slots in doubt, or with values in blocks of their own. `block`
    /// holds the value, if it has a block; after a failure the next attempt makes another one.
    #[expect(clippy::too_many_arguments, reason = "the state of one operation, passed once")]
    #[cold]
    pub(crate) fn settle_in_doubt<'op>(
        &self,
        context: Context<'op, D>,
        leaf: Leaf,
        claim: &Claim,
        probe: Probe<'_>,
        value: &[u8],
        mut block: Option<NewBlock<'op, D>>,
        intent: Option<Intent<'_>>,
    ) -> Result<Option<Upserted>> {
        let off = leaf.slot_off(claim.slot);
        let mut steps = Steps::of_attempts();
        loop {
            steps.take(context.guard, leaf.node.off)?;
            if context.read(off) != claim.reserved.0 {
                // Aborted, by a later operation on the key or by a thread that closed the leaf.
                return Ok(None);
            }
            // All of this comes before the look. The look sees a slot that settles in between, and
            // a slot that settles later makes the operation fail. The look does not see a delete in
            // place of the key, but such a delete has aborted our slot before.
            let conflicts = Self::conflicts(context, &leaf, claim, probe);
            let look = leaf.look(context, probe, Some(claim.slot));
            let decision = Self::decide(context, &leaf, intent, &look)
                .inspect_err(|_| abort(context, off, claim.reserved))?;
            let old = match decision {
                Decision::Again => continue,
                Decision::Add => None,
                Decision::Supersede(old) => Some(old),
            };
            let settled = match (claim.record, old) {
                (Some(record), _) => record,
                (None, Some(old)) => old.meta.deleted(probe.hash),
                // A delete of an absent key was an error above.
                (None, None) => continue,
            };
            let is_done = context
                .publish(|operation| {
                    operation.add_word(off, claim.reserved.0, settled.0)?;
                    for (off, meta) in conflicts.iter() {
                        operation.add_word(off, meta.0, meta.aborted().0)?;
                    }
                    if !Self::release_value(context, &leaf, old, intent, operation)? {
                        return Ok(false);
                    }
                    if settled.is_pointer() {
                        let block = match block.take() {
                            Some(block) => block,
                            None => value_block::reserve(context, value)?,
                        };
                        let pointer_off = leaf.pointer_off(settled);
                        let policy = Policy::FreeNewOnFailure;
                        let entry = operation.reserve_entry(pointer_off, 0, policy)?;
                        operation.activate(entry, block);
                    }
                    Ok(true)
                })
                .inspect_err(|_| abort(context, off, claim.reserved))?;
            if is_done {
                return Ok(Some(upserted(old)));
            }
        }
    }

    /// Makes the operation free the value's block of the record `old`, if it has one. Returns false
    /// if that is not the value that the intent expects.
    pub(crate) fn release_value(
        context: Context<'_, D>,
        leaf: &Leaf,
        old: Option<Settled>,
        intent: Option<Intent<'_>>,
        operation: &mut Descriptor<'_, '_, D>,
    ) -> pando_pmwcas::Result<bool> {
        let Some(old) = old.filter(|old| old.meta.is_pointer()) else { return Ok(true) };
        let off = leaf.pointer_off(old.meta);
        let block = context.read(off);
        // The operation expects the very block whose value was compared.
        if let (Some(Intent::Exchange { expected }), 1..) = (intent, block)
            && value_of_block(context, block) != expected
        {
            return Ok(false);
        }
        operation.reserve_entry(off, block, Policy::FreeOldOnSuccess)?;
        Ok(true)
    }

    /// The earlier slots in progress that may become records of this key.
    fn conflicts(
        context: Context<'_, D>,
        leaf: &Leaf,
        claim: &Claim,
        probe: Probe<'_>,
    ) -> Conflicts {
        let mut conflicts = Conflicts::default();
        for (off, meta) in Self::in_doubt(context, leaf, claim.slot, probe) {
            if !conflicts.push(off, meta) {
                // More than a descriptor holds: these are aborted even if the operation fails.
                abort(context, off, meta);
            }
        }
        conflicts
    }

    /// The slots before `end` that are in progress and may become records of the key.
    pub(crate) fn in_doubt<'op>(
        context: Context<'op, D>,
        leaf: &'op Leaf,
        end: u64,
        probe: Probe<'op>,
    ) -> impl Iterator<Item = (u64, Meta)> + 'op {
        let generation = context.pool().generation();
        (0..end).map(move |slot| (leaf.slot_off(slot), leaf.slot(context, slot))).filter(
            move |(_, meta)| meta.may_become(generation, probe.hash, probe.bytes.len() as u64),
        )
    }

    /// Makes `operation` fail if the leaf is closed, if a slot was claimed since `look`, or if the
    /// record `index` was deleted in place. Returns false if that has already happened.
    fn require_unchanged(
        context: Context<'_, D>,
        leaf: &Leaf,
        look: &Look,
        index: u64,
        operation: &mut Descriptor<'_, '_, D>,
    ) -> pando_pmwcas::Result<bool> {
        if look.next < leaf.slots() {
            operation.add_word(leaf.slot_off(look.next), 0, 0)?;
            return Ok(true);
        }
        let gate = leaf.gate(context);
        let (off, bit) = leaf.dead_bit(index);
        let dead = context.read(off);
        operation.add_word(leaf.gate_off(), gate.0, gate.0)?;
        operation.add_word(off, dead, dead)?;
        Ok(!gate.is_closed() && dead & bit == 0)
    }

    /// Swaps the value's block of a pointer record in place (paper 4.2.3). Returns false if
    /// something changed meanwhile.
    fn swap_value(
        &self,
        context: Context<'_, D>,
        leaf: &Leaf,
        look: &Look,
        old: Settled,
        value: &[u8],
        intent: Intent<'_>,
    ) -> Result<bool> {
        let pointer_off = leaf.pointer_off(old.meta);
        let old_block = context.read(pointer_off);
        if old_block == 0 {
            return Ok(false);
        }
        if let Intent::Exchange { expected } = intent
            && value_of_block(context, old_block) != expected
        {
            return Err(Error::ValueMismatch);
        }
        let left = self.leave_for_merges(context);
        let block = value_block::reserve(context, value).map_err(Error::storage)?;
        drop(left);
        context.publish(|operation| {
            if !Self::require_unchanged(context, leaf, look, old.index, operation)? {
                return Ok(false);
            }
            let entry = operation.reserve_entry(pointer_off, old_block, Policy::FreeOne)?;
            operation.activate(entry, block);
            Ok(true)
        })
    }
}

/// For how many records a leaf must have room, after an operation found none again.
pub(crate) fn more_rooms(rooms: u64, record_bytes: u64) -> u64 {
    (rooms + 1).min((MAX_ROOM_BYTES / (record_bytes + 8)).max(1))
}

fn upserted(old: Option<Settled>) -> Upserted {
    if old.is_some() { Upserted::Updated } else { Upserted::Inserted }
}
