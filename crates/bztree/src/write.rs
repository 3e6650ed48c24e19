//! Inserts, updates, upserts, deletes and compare-exchanges of single records (paper 4.2).
//!
//! # Versions of a key in a leaf
//!
//! The newest settled record of a key, by slot, decides: visible, the key is there with its
//! value; deleted, or none, it is not. An update adds a record; the one before it stays as it
//! was, superseded. A delete turns the newest record's metadata into *deleted*, which keeps its
//! offset (the paper zeroes it), so that it hides what is older.
//!
//! # Adding a record
//!
//! 1. *Reserve*: one CAS of the status counts a slot and takes space. The slot is the caller's.
//! 2. *Mark*: the slot's metadata becomes *reserved*, with a hash of the key and the incarnation.
//! 3. *Write* the record, and flush it.
//! 4. *Complete*: one PMwCAS over the status and the slot's metadata, which becomes *visible*.
//!    An update also raises the status's deleted bytes by what it supersedes; so the status
//!    changes with every update and delete, and tells them from each other. An insert leaves the
//!    status as it is, but only if it is not frozen.
//!
//! Where the paper reserves by a PMwCAS of two words and makes it durable, one CAS that nobody
//! flushes is enough: nothing durable depends on a reservation. A crash may forget it, or may
//! forget only its mark; a slot that is counted but not settled is passed over, and a slot that is
//! not counted is nobody's. The completing PMwCAS makes the status durable with the count. Only a
//! record so long that it reaches to where later slots have their metadata has its count made
//! durable before it is written.
//!
//! # Two inserts of one key
//!
//! An insert must not complete while another record of its key may. Of two slots in progress the
//! *later* one decides: its completion carries the earlier slot as a further word, from reserved
//! to *aborted*. So either the earlier insert completes first, and the later one fails, looks
//! again and finds the key; or the later one completes, and the earlier finds its slot aborted
//! and starts again. Nobody waits (the paper's insert does, for the earlier slot to settle), and
//! every failure is another's success. A slot whose hash or length differs is no concern; one
//! that is not yet marked may be anyone's, so it is aborted too.
//!
//! Why looking once is enough when nothing was in doubt: slots after one's own are the business
//! of their owners, who look at ours. Slots before it were settled or of other keys when the
//! reservation succeeded on the very status with which we looked.
//!
//! # A crash
//!
//! before 4 is durable leaves a slot that is never settled; consolidation drops it. After it the
//! record is there. A thread that stops for ever leaves the same.

use pando_index::{Error, Upserted};
use pando_pmem::{Domain, Reservation};
use pando_pmwcas::{Descriptor, MAX_WORDS, Policy};

use crate::build;
use crate::layout::{LeafStatus, Meta, SlotState, key_hash, padded};
use crate::node::{Context, Found, Leaf, Probe};
use crate::options::ValueMode;
use crate::tree::{BzTree, storage};

/// Slots that one completion aborts: a descriptor's words, less status, metadata and the words of
/// two value blocks.
const MAX_CONFLICTS: usize = MAX_WORDS - 4;

/// What is to be done with a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Intent<'op> {
    Insert,
    Update,
    Upsert,
    Exchange { expected: &'op [u8] },
}

/// A record being added: the claimed slot and what is to stand there.
struct Claim {
    slot: u64,
    reserved: Meta,
    visible: Meta,
    /// Another insert of this key may complete before this one.
    in_doubt: bool,
}

/// Slots that an insert aborts if it succeeds: where their metadata is, and what it was.
#[derive(Clone, Copy, Default)]
struct Conflicts {
    slots: [(u64, u64); MAX_CONFLICTS],
    count: usize,
}

impl Conflicts {
    /// False if there is no more room.
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

/// How an attempt ended.
enum Attempt {
    Done(Upserted),
    /// Start again from the root.
    Again,
}

/// What an intent makes of the state of its key.
enum Decision {
    /// Add a record that supersedes this one.
    Supersede(Meta),
    /// Add the key's first record.
    Add,
    /// The state changed while it was looked at.
    Again,
}

impl<D: Domain> BzTree<D> {
    fn decide(
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        intent: Intent<'_>,
        found: &Found,
    ) -> Result<Decision, Error> {
        match (intent, found.visible()) {
            (Intent::Insert, Some(_)) => Err(Error::KeyExists),
            (Intent::Insert | Intent::Upsert, None) => Ok(Decision::Add),
            (Intent::Update | Intent::Exchange { .. }, None) => Err(Error::KeyNotFound),
            (Intent::Update | Intent::Upsert, Some((_, meta))) => Ok(Decision::Supersede(meta)),
            (Intent::Exchange { expected }, Some((_, meta))) => match leaf.value(context, meta) {
                None => Ok(Decision::Again),
                Some(value) if value == expected => Ok(Decision::Supersede(meta)),
                Some(_) => Err(Error::ValueMismatch),
            },
        }
    }

    fn wants_block(&self, key: &[u8], value: &[u8]) -> bool {
        let options = self.options();
        options.value_mode == ValueMode::Pointer
            || value.len() > options.inline_bytes as usize
            || key.len() + value.len() > 0xFFFF
    }

    /// Writes `value` under `key` as `intent` says.
    #[inline]
    pub(crate) fn write(
        &self,
        key: &[u8],
        value: &[u8],
        intent: Intent<'_>,
    ) -> Result<Upserted, Error> {
        Self::check_key(key)?;
        Self::check_value(value)?;
        let probe = Probe::new(key);
        let pointer = self.wants_block(key, value);
        loop {
            let guard = self.pin()?;
            let context = self.context(&guard);
            let node = self.find_leaf(context, probe).node;
            // What writes leave of a full pool lets deletes make room again.
            let attempt = guard
                .frugal(|| self.write_in_leaf(context, node, probe, value, pointer, intent))?;
            match attempt {
                Attempt::Done(upserted) => return Ok(upserted),
                Attempt::Again => {}
            }
        }
    }

    #[inline]
    fn write_in_leaf(
        &self,
        context: Context<'_, '_, D>,
        node: crate::node::Node,
        probe: Probe<'_>,
        value: &[u8],
        pointer: bool,
        intent: Intent<'_>,
    ) -> Result<Attempt, Error> {
        let hash = key_hash(probe.bytes);
        let incarnation = context.pool().incarnation();
        let record_bytes = probe.bytes.len() as u64 + if pointer { 8 } else { value.len() as u64 };
        let needed = padded(record_bytes);
        loop {
            let leaf = Leaf::read(context, node);
            if leaf.status.is_frozen() {
                self.settle_frozen(context, probe, needed, &leaf)?;
                return Ok(Attempt::Again);
            }
            let found = leaf.find(context, probe, None, Some((incarnation, hash)));
            match Self::decide(context, &leaf, intent, &found)? {
                Decision::Again => continue,
                Decision::Supersede(old) if pointer && old.is_pointer() => {
                    match self.swap_value(context, &leaf, &found, value, intent)? {
                        Some(done) => return Ok(done),
                        None => continue,
                    }
                }
                Decision::Supersede(_) | Decision::Add => {}
            }
            let Some(status) = leaf.status.with_record(needed, node.header.node_bytes) else {
                self.restructure(context, probe, needed)?;
                return Ok(Attempt::Again);
            };
            let reserved = context.pmwcas.compare_exchange_undurable(
                context.guard,
                node.status_off(),
                leaf.status.0,
                status.0,
            );
            if reserved.is_err() {
                continue;
            }
            let offset = node.header.node_bytes - status.block_bytes();
            let key_bytes = probe.bytes.len() as u64;
            let claim = Claim {
                slot: leaf.status.records(),
                reserved: Meta::reserved(incarnation, hash, key_bytes, record_bytes),
                visible: Meta::visible(offset, key_bytes, record_bytes, pointer),
                in_doubt: found.in_doubt,
            };
            let leaf = Leaf { node, status };
            if !self.mark(context, &leaf, &claim) {
                continue;
            }
            Self::settle_count(context, &leaf, &claim);
            Self::write_record(context, &leaf, &claim, probe.bytes, value);
            return self.complete(context, leaf, &claim, &found, probe, value, intent);
        }
    }

    /// Marks the claimed slot; false if someone aborted it first.
    fn mark(&self, context: Context<'_, '_, D>, leaf: &Leaf, claim: &Claim) -> bool {
        let off = leaf.meta_off(claim.slot);
        let mut found = Meta(context.read(off));
        // A mark of an earlier incarnation may stand here, if its count was lost in a crash.
        while found.state() == SlotState::InProgress {
            let marked = context.pmwcas.compare_exchange_undurable(
                context.guard,
                off,
                found.0,
                claim.reserved.0,
            );
            match marked {
                Ok(()) => return true,
                Err(other) => found = Meta(other),
            }
        }
        false
    }

    /// Makes the reservation durable if its record reaches into the zone where the metadata of
    /// later slots will stand. If a crash forgot the count but not the record, what is left of
    /// the record would be taken for metadata.
    fn settle_count(context: Context<'_, '_, D>, leaf: &Leaf, claim: &Claim) {
        if D::WRITE_BACK && claim.visible.offset() < leaf.node.slots_end() {
            context.pool().word(leaf.node.status_off()).flush();
            D::fence();
        }
    }

    fn write_record(
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        claim: &Claim,
        key: &[u8],
        value: &[u8],
    ) {
        let pool = context.pool();
        let off = leaf.node.off + claim.visible.offset();
        let bytes = claim.visible.padded_bytes();
        if claim.visible.is_pointer() {
            // The pointer itself is set by the completion.
            pool.store_bytes(off, &[0; 8]);
            pool.store_bytes(off + 8, key);
        } else if key.len().is_multiple_of(8) {
            pool.store_bytes(off, key);
            pool.store_bytes(off + key.len() as u64, value);
        } else {
            pool.store_bytes(off, &[key, value].concat());
        }
        pool.flush(off, bytes);
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one operation, passed once")]
    #[inline]
    fn complete(
        &self,
        context: Context<'_, '_, D>,
        mut leaf: Leaf,
        claim: &Claim,
        first_look: &Found,
        probe: Probe<'_>,
        value: &[u8],
        intent: Intent<'_>,
    ) -> Result<Attempt, Error> {
        let meta_off = leaf.meta_off(claim.slot);
        let mut found = *first_look;
        // What was seen under the status that the reservation replaced still holds under the
        // reserved one, as nobody came between.
        let mut look_again = claim.in_doubt;
        loop {
            if leaf.status.is_frozen() {
                return Ok(Attempt::Again);
            }
            let mut conflicts = Conflicts::default();
            if look_again {
                // Before the look for settled records: a slot that settles between the two is
                // seen by that look, one that settles later fails the operation.
                conflicts = self.conflicts(context, &leaf, claim, probe);
                found = leaf.find(context, probe, Some(claim.slot), None);
                if found.newest.is_some_and(|(slot, _)| slot > claim.slot) {
                    // A later record settled: this one would come before it.
                    self.abort(context, meta_off, claim);
                    return Ok(Attempt::Again);
                }
            }
            let decision = Self::decide(context, &leaf, intent, &found)
                .inspect_err(|_| self.abort(context, meta_off, claim))?;
            let (status, old) = match decision {
                Decision::Again => {
                    look_again = true;
                    leaf.status = LeafStatus(context.read(leaf.node.status_off()));
                    continue;
                }
                Decision::Add => (leaf.status, None),
                Decision::Supersede(old) => {
                    (leaf.status.with_deleted(old.padded_bytes()), Some(old))
                }
            };
            let old_block = match (old.filter(|old| old.is_pointer()), intent) {
                (None, _) => None,
                (Some(old), intent) => {
                    let off = leaf.pointer_off(old);
                    let block = context.read(off);
                    // The very block that was compared is the one that the operation expects.
                    if let (Intent::Exchange { expected }, 1..) = (intent, block)
                        && crate::node::value_of_block(context, block) != expected
                    {
                        self.abort(context, meta_off, claim);
                        return Err(Error::ValueMismatch);
                    }
                    Some((off, block))
                }
            };
            let mut operation = context.pmwcas.allocate(context.guard).map_err(storage)?;
            let prepared = (|| {
                operation.add_word(leaf.node.status_off(), leaf.status.0, status.0)?;
                operation.add_word(meta_off, claim.reserved.0, claim.visible.0)?;
                if old.is_none() {
                    for (off, meta) in conflicts.iter() {
                        operation.add_word(off, meta.0, Meta::ABORTED.0)?;
                    }
                }
                if let Some((off, block)) = old_block {
                    operation.reserve_entry(off, block, Policy::FreeOldOnSuccess)?;
                }
                if claim.visible.is_pointer() {
                    let block = build::value(context, value)?;
                    Self::give_value(&leaf, claim, block, &mut operation)?;
                }
                Ok::<_, pando_pmwcas::Error>(())
            })();
            if let Err(error) = prepared {
                operation.discard();
                self.abort(context, meta_off, claim);
                return Err(storage(error));
            }
            if operation.execute() {
                let upserted = if old.is_some() { Upserted::Updated } else { Upserted::Inserted };
                return Ok(Attempt::Done(upserted));
            }
            if context.read(meta_off) != claim.reserved.0 {
                return Ok(Attempt::Again);
            }
            let status = LeafStatus(context.read(leaf.node.status_off()));
            // An insert that was never in doubt stays so: later slots look at this one.
            look_again = claim.in_doubt || old.is_some() || !matches!(intent, Intent::Insert);
            leaf.status = status;
        }
    }

    /// The earlier slots in progress that may become records of this key.
    fn conflicts(
        &self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        claim: &Claim,
        probe: Probe<'_>,
    ) -> Conflicts {
        let hash = key_hash(probe.bytes);
        let incarnation = context.pool().incarnation();
        let mut conflicts = Conflicts::default();
        for slot in leaf.sorted()..claim.slot {
            let meta = leaf.meta(context, slot);
            if meta.state() != SlotState::InProgress
                || !meta.may_become(incarnation, hash, probe.bytes.len() as u64)
            {
                continue;
            }
            let off = leaf.meta_off(slot);
            if !conflicts.push(off, meta) {
                // More than a descriptor holds: these are aborted whether we succeed or not.
                let _ = context.pmwcas.compare_exchange_undurable(
                    context.guard,
                    off,
                    meta.0,
                    Meta::ABORTED.0,
                );
            }
        }
        conflicts
    }

    fn give_value<'pool>(
        leaf: &Leaf,
        claim: &Claim,
        block: Reservation<'_, 'pool, D>,
        operation: &mut Descriptor<'_, 'pool, D>,
    ) -> pando_pmwcas::Result<()> {
        let pointer_off = leaf.pointer_off(claim.visible);
        let entry = operation.reserve_entry(pointer_off, 0, Policy::FreeNewOnFailure)?;
        operation.activate(entry, block);
        Ok(())
    }

    fn abort(&self, context: Context<'_, '_, D>, meta_off: u64, claim: &Claim) {
        let _ = context.pmwcas.compare_exchange_undurable(
            context.guard,
            meta_off,
            claim.reserved.0,
            Meta::ABORTED.0,
        );
    }

    /// Swaps the value's block of a pointer record in place (paper 4.2.3): one PMwCAS over the
    /// pointer, the metadata and the status. `None` if something changed meanwhile.
    fn swap_value(
        &self,
        context: Context<'_, '_, D>,
        leaf: &Leaf,
        found: &Found,
        value: &[u8],
        intent: Intent<'_>,
    ) -> Result<Option<Attempt>, Error> {
        let Some((slot, meta)) = found.visible() else { return Ok(None) };
        let pointer_off = leaf.pointer_off(meta);
        let old_block = context.read(pointer_off);
        if old_block == 0 {
            return Ok(None);
        }
        if let Intent::Exchange { expected } = intent
            && crate::node::value_of_block(context, old_block) != expected
        {
            return Err(Error::ValueMismatch);
        }
        let block = build::value(context, value).map_err(storage)?;
        let mut operation = context.pmwcas.allocate(context.guard).map_err(storage)?;
        let prepared = (|| {
            operation.add_word(leaf.node.status_off(), leaf.status.0, leaf.status.0)?;
            operation.add_word(leaf.meta_off(slot), meta.0, meta.0)?;
            let entry = operation.reserve_entry(pointer_off, old_block, Policy::FreeOne)?;
            operation.activate(entry, block);
            Ok::<_, pando_pmwcas::Error>(())
        })();
        prepared.map_err(storage)?;
        Ok(operation.execute().then_some(Attempt::Done(Upserted::Updated)))
    }

    /// Deletes `key` (paper 4.2.2): one PMwCAS over the status and the record's metadata. Whether
    /// it was there.
    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        Self::check_key(key)?;
        let probe = Probe::new(key);
        loop {
            let guard = self.pin()?;
            let context = self.context(&guard);
            let mut leaf = self.find_leaf(context, probe);
            loop {
                if leaf.status.is_frozen() {
                    self.settle_frozen(context, probe, 0, &leaf)?;
                    break;
                }
                let found = leaf.find(context, probe, None, None);
                let Some((slot, meta)) = found.visible() else { return Ok(false) };
                let status = leaf.status.with_deleted(meta.padded_bytes());
                let mut operation = context.pmwcas.allocate(context.guard).map_err(storage)?;
                let prepared = (|| {
                    operation.add_word(leaf.node.status_off(), leaf.status.0, status.0)?;
                    operation.add_word(leaf.meta_off(slot), meta.0, meta.deleted().0)?;
                    if meta.is_pointer() {
                        let pointer_off = leaf.pointer_off(meta);
                        let block = context.read(pointer_off);
                        operation.reserve_entry(pointer_off, block, Policy::FreeOldOnSuccess)?;
                    }
                    Ok::<_, pando_pmwcas::Error>(())
                })();
                prepared.map_err(storage)?;
                if operation.execute() {
                    self.tidy(context, probe, &Leaf { status, ..leaf });
                    return Ok(true);
                }
                leaf.status = LeafStatus(context.read(leaf.node.status_off()));
            }
        }
    }
}
