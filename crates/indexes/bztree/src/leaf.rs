//! Leaves as a pinned thread reads them.
//!
//! # What a pass over a leaf finds
//!
//! Slots are claimed from the first to the last, and all writes to one key in one leaf settle in
//! the order of its slots. When a thread settles a slot, every earlier slot that might be of its
//! key is settled or aborted, or is aborted in the same step (`write.rs`). A settled slot never
//! changes. So the newest settled slot of a key decides, and one pass over the slots, upwards,
//! finds it. Of the slots of the key, let S be the last that the pass found settled:
//!
//! * If the pass found slots in progress behind S, then S was the newest when the pass reached the
//!   first of them, since none behind that one was settled then.
//! * If it found none, S was the newest when the pass reached an empty slot, or the end.
//!
//! A scan reads the slots of a leaf once for each batch, in order, and then the records that they
//! name. It finds each record that is present throughout: its slot stays settled, and only a later
//! settled slot, which is read later, can be newer for the key. So each record is one of an instant
//! of the scan, and the records of one leaf may be of different instants. (Values in blocks of
//! their own, and dead bits, are read after the slots, each at its own time.)
//!
//! If all slots are claimed, a record may have been deleted in place, by its dead bit, which is
//! read last. The bit is set only while no slot of its key is in progress, and none can be claimed.

use std::ops::Range;
use std::sync::atomic::Ordering;

use pando_inner::Node;
use pando_inner::slices::{Sliced, goes_right, search_numbers, search_range};
use pando_pmem::{Domain, mutant};
use pando_pmwcas::{CONTROL_BITS, DIRTY};
use pando_ranged::Count;
use pando_tree::context::Context;

use crate::closing::Closing;
use crate::layout::{DEAD_BITS, HEADER_BYTES, PAIR_BYTES, SLICED_BYTES, dead_bytes};
use crate::meta::{Gate, Kind, Meta};
use crate::node::{Probe, value_of_block};

/// A leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub node: Node,
}

/// A settled record: its metadata, and its index. Sorted records come first, then the slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub index: u64,
    pub meta: Meta,
}

/// The state of a leaf that a writer needs, for one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The newest settled record of the key: visible, or deleted.
    pub newest: Option<Settled>,
    /// Whether a slot in progress may become a record of this key.
    pub in_doubt: bool,
    /// The first unclaimed slot; if all are claimed, the number of slots.
    pub next: u64,
    /// Offset of the record of the last claimed slot.
    pub bottom: u64,
    /// The word that closed the leaf, if it is closed.
    pub closing: Option<Closing>,
}

impl Look {
    pub fn visible(&self) -> Option<Settled> {
        self.newest.filter(|newest| newest.meta.is_visible())
    }
}

/// A value's block was released between the read of its record and the read of the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Superseded;

/// An estimate of a leaf's content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    /// Bytes of a copy of the live records, if all had the mean length.
    pub live_bytes: u64,
    pub is_closed: bool,
    /// Deletions, of any records.
    pub deleted: u64,
}

impl Leaf {
    #[inline(always)]
    pub fn new(node: Node) -> Self {
        Self { node }
    }

    #[inline(always)]
    pub fn sorted(&self) -> u64 {
        self.node.header().count
    }

    #[inline(always)]
    pub fn slots(&self) -> u64 {
        self.node.shape().slots
    }

    /// Offset in the leaf of the first slot.
    #[inline(always)]
    fn slots_at(&self) -> u64 {
        let sliced = if self.node.shape().is_uniform() { 0 } else { self.sorted() };
        HEADER_BYTES + sliced * SLICED_BYTES
    }

    #[inline(always)]
    fn dead_at(&self) -> u64 {
        self.slots_at() + self.slots() * 8
    }

    /// Offset in the leaf from which records may be stored.
    #[inline(always)]
    pub fn records_at(&self) -> u64 {
        self.dead_at() + dead_bytes(self.sorted(), self.slots())
    }

    #[inline(always)]
    pub fn slot_off(&self, slot: u64) -> u64 {
        self.node.off + self.slots_at() + slot * 8
    }

    pub fn gate_off(&self) -> u64 {
        self.node.status_off()
    }

    pub fn gate<D: Domain>(&self, context: Context<'_, D>) -> Gate {
        Gate(context.read(self.gate_off()))
    }

    /// A slot's metadata. If the slot is settled, it is made durable.
    #[inline(always)]
    pub fn slot<D: Domain>(&self, context: Context<'_, D>, slot: u64) -> Meta {
        Meta(context.read(self.slot_off(slot)))
    }

    /// The offset of the word, and the bit in it, that say whether record `index` was deleted in
    /// place.
    pub fn dead_bit(&self, index: u64) -> (u64, u64) {
        (self.node.off + self.dead_at() + index / DEAD_BITS * 8, 1 << (index % DEAD_BITS))
    }

    /// The number of records that were deleted in place; zero while a slot is empty.
    pub fn dead<D: Domain>(&self, context: Context<'_, D>) -> u64 {
        let first = self.node.off + self.dead_at();
        let words = dead_bytes(self.sorted(), self.slots()) / 8;
        (0..words).map(|word| u64::from(context.read(first + word * 8).count_ones())).sum()
    }

    /// `meta`, of record `index`; if the record was deleted in place, a metadata that says so.
    pub fn unless_dead<D: Domain>(&self, context: Context<'_, D>, index: u64, meta: Meta) -> Meta {
        let (off, bit) = self.dead_bit(index);
        if context.read(off) & bit != 0 { meta.deleted(0) } else { meta }
    }

    /// The metadata of a sorted record.
    #[inline(always)]
    pub fn sorted_meta<D: Domain>(&self, context: Context<'_, D>, index: u64) -> Meta {
        let shape = self.node.shape();
        if shape.is_uniform() {
            let offset = shape.sorted_at + index * shape.stride();
            return Meta::visible(offset, 0, 8, shape.record_bytes, false);
        }
        Meta(context.fixed(self.node.off + self.metadata_at() + index * 8))
    }

    /// Offset in the leaf of the metadata of the sorted records, behind the slices. Only for
    /// records of different lengths.
    #[inline(always)]
    fn metadata_at(&self) -> u64 {
        HEADER_BYTES + self.sorted() * 8
    }

    /// The first sorted record in `range` that is not before `key`. Only for records with slices.
    #[inline(always)]
    pub fn sliced_position<D: Domain>(
        &self,
        context: Context<'_, D>,
        range: Range<u64>,
        key: &[u8],
    ) -> u64 {
        let key_at = |index| self.key(context, self.sorted_meta(context, index));
        self.sliced(context).search(range, key, false, key_at, |_| {})
    }

    /// The keys of the sorted records by their slices. Only for records with slices.
    #[inline(always)]
    fn sliced<'op, D: Domain>(&self, context: Context<'op, D>) -> Sliced<'op, D> {
        let key_at = match self.sorted() {
            0 => 0,
            _ => self.sorted_meta(context, 0).key_at(),
        };
        self.node.sliced(context, HEADER_BYTES, key_at)
    }

    /// Whether the slices are those of the keys.
    pub fn slices_match<D: Domain>(&self, context: Context<'_, D>) -> bool {
        if self.node.shape().is_uniform() || self.sorted() == 0 {
            return self.node.header().prefix_bytes == 0;
        }
        let key = |at| self.key(context, self.sorted_meta(context, at));
        self.node.header().prefix_bytes <= key(0).len()
            && self.sliced(context).are_of((0..self.sorted()).map(key))
    }

    /// The same; `any_dead` says whether some records were deleted in place.
    #[inline(always)]
    pub fn sorted_unless_dead<D: Domain>(
        &self,
        context: Context<'_, D>,
        index: u64,
        any_dead: bool,
    ) -> Meta {
        let meta = self.sorted_meta(context, index);
        if any_dead { self.unless_dead(context, index, meta) } else { meta }
    }

    /// The key of a settled record.
    #[inline(always)]
    pub fn key<'op, D: Domain>(&self, context: Context<'op, D>, meta: Meta) -> &'op [u8] {
        context.published(self.node.off + meta.key_at(), meta.key_bytes())
    }

    /// Prefetches the records of the first slots.
    #[inline(always)]
    pub fn prefetch_unsorted<D: Domain>(&self, context: Context<'_, D>) {
        let sorted_at = self.node.off + self.node.shape().sorted_at;
        for line in 1..4 {
            context.pool().prefetch(sorted_at.wrapping_sub(line * 64));
        }
    }

    /// Prefetches the next few sorted records.
    #[inline(always)]
    pub fn prefetch_from<D: Domain>(&self, context: Context<'_, D>, index: u64) {
        let (pool, shape) = (context.pool(), self.node.shape());
        if !shape.is_uniform() {
            pool.prefetch(self.node.off + self.metadata_at() + index * 8);
        }
        let record = self.node.off + shape.sorted_at + index * shape.stride();
        for line in 0..4 {
            pool.prefetch(record + line * 64);
        }
    }

    /// The key of a settled record that has eight bytes, as a number.
    #[inline(always)]
    pub fn key_number<D: Domain>(&self, context: Context<'_, D>, meta: Meta) -> u64 {
        let words = self.node.words(context);
        // Relaxed: as in `search_numbers`.
        words.load(meta.key_at() / 8, Ordering::Relaxed).swap_bytes()
    }

    /// Offset of the word that names the value's block of a pointer record.
    pub fn pointer_off(&self, meta: Meta) -> u64 {
        self.node.off + meta.offset()
    }

    /// The value of a visible record; `None` if the record was superseded or deleted since `meta`
    /// was read, so that its block may be gone.
    #[inline(always)]
    pub fn value<'op, D: Domain>(&self, context: Context<'op, D>, meta: Meta) -> Option<&'op [u8]> {
        if meta.is_pointer() {
            return self.pointed_value(context, meta);
        }
        let at = self.node.off + meta.offset() + meta.key_bytes();
        let Some(value_bytes) = meta.record_bytes().checked_sub(meta.key_bytes()) else {
            context.guard.note_damage(self.node.off);
            return Some(&[]);
        };
        Some(context.published(at, value_bytes))
    }

    #[cold]
    fn pointed_value<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        meta: Meta,
    ) -> Option<&'op [u8]> {
        let block = context.read(self.pointer_off(meta));
        (block != 0).then(|| value_of_block(context, block))
    }

    /// Whether the settled record has the key.
    #[inline(always)]
    pub fn has_key<D: Domain>(
        &self,
        context: Context<'_, D>,
        meta: Meta,
        probe: Probe<'_>,
    ) -> bool {
        if meta.key_bytes() != probe.bytes.len() as u64 {
            return false;
        }
        match probe.number {
            Some(number) => self.key_number(context, meta) == number,
            None => self.key(context, meta) == probe.bytes,
        }
    }

    /// The position of `probe` among the sorted records, or the one where it would be.
    #[inline(always)]
    pub fn sorted_position<D: Domain>(&self, context: Context<'_, D>, probe: Probe<'_>) -> u64 {
        let shape = self.node.shape();
        if !shape.is_uniform() {
            return self.sliced_position(context, 0..self.sorted(), probe.bytes);
        }
        if let Some(number) = probe.number {
            let words = self.node.words(context);
            let (first, stride) = (shape.sorted_at / 8, shape.stride() / 8);
            return search_numbers(words, first, stride, self.sorted(), number, false, |_| {});
        }
        let key_at = |at| self.key(context, self.sorted_meta(context, at));
        search_range(0..self.sorted(), |at| goes_right(key_at(at), probe.bytes, false))
    }

    #[inline(always)]
    fn find_sorted<D: Domain>(&self, context: Context<'_, D>, probe: Probe<'_>) -> Option<Settled> {
        let index = self.sorted_position(context, probe);
        if index == self.sorted() {
            return None;
        }
        let meta = self.sorted_meta(context, index);
        self.has_key(context, meta, probe).then_some(Settled { index, meta })
    }

    /// One pass over the claimed slots before `end`, upwards; returns their number. Lends `visit`
    /// the metadata of each, and whether the slot may be of `pattern`. If it may, and is settled,
    /// it is durable.
    #[inline(always)]
    fn pass<D: Domain>(
        &self,
        context: Context<'_, D>,
        pattern: u64,
        end: u64,
        mut visit: impl FnMut(u64, Meta, bool),
    ) -> u64 {
        let words = self.node.words(context);
        let first = self.slots_at() / 8;
        for slot in 0..end {
            // Acquire: the record was written before the slot was settled.
            let word = words.load(first + slot, Ordering::Acquire);
            if word == 0 {
                return slot;
            }
            if !Meta(word).may_match(pattern) && word & CONTROL_BITS == 0 {
                visit(slot, Meta(word), false);
                continue;
            }
            let word = if mutant!("undurable-slot") { word & !DIRTY } else { word };
            let meta = if word & CONTROL_BITS == 0 { Meta(word) } else { self.slot(context, slot) };
            if meta == Meta::EMPTY {
                return slot;
            }
            visit(slot, meta, true);
        }
        end
    }

    /// The newest settled record of the key, which may be deleted.
    #[inline(always)]
    pub fn find<D: Domain>(&self, context: Context<'_, D>, probe: Probe<'_>) -> Option<Settled> {
        let pattern = Meta::pattern(probe.hash, probe.bytes.len() as u64);
        let mut newest = None;
        let claimed = self.pass(context, pattern, self.slots(), |slot, meta, may_match| {
            if may_match && meta.is_settled() && self.has_key(context, meta, probe) {
                newest = Some(Settled { index: self.sorted() + slot, meta });
            }
        });
        self.newest(context, probe, newest, claimed == self.slots())
    }

    /// The newest settled record of the key: that of the slots, or the sorted one. `full` says
    /// whether all slots were found claimed.
    #[inline(always)]
    fn newest<D: Domain>(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        of_slots: Option<Settled>,
        full: bool,
    ) -> Option<Settled> {
        let Settled { index, meta } = match of_slots {
            Some(newest) => newest,
            None => self.find_sorted(context, probe)?,
        };
        let meta = if full { self.unless_dead(context, index, meta) } else { meta };
        Some(Settled { index, meta })
    }

    /// The state of the leaf that a writer needs. If `own` is a slot of the caller, only the slots
    /// before it count.
    #[inline(always)]
    pub fn look<D: Domain>(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        own: Option<u64>,
    ) -> Look {
        let key_bytes = probe.bytes.len() as u64;
        let pattern = Meta::pattern(probe.hash, key_bytes);
        let (mut newest, mut in_doubt) = (None, false);
        let mut bottom = self.node.shape().sorted_at;
        let mut last = Meta::EMPTY;
        let end = own.unwrap_or(self.slots());
        let next = self.pass(context, pattern, end, |slot, meta, may_match| {
            if may_match {
                if meta.is_settled() && self.has_key(context, meta, probe) {
                    newest = Some(Settled { index: self.sorted() + slot, meta });
                } else {
                    let generation = context.pool().generation();
                    in_doubt |= meta.may_become(generation, probe.hash, key_bytes);
                }
            }
            last = meta;
            bottom = bottom.saturating_sub(meta.padded_bytes());
        });
        if self.node.shape().sorted_at > self.node.header().node_bytes {
            context.guard.note_damage(self.node.off);
        } else if own.is_none() {
            // The place of the next record.
            context.pool().word(self.node.off + bottom.saturating_sub(8)).prefetch_for_write();
        }
        let full = next == self.slots();
        let closing = if last.is_closed() {
            Some(Closing::Slot { off: self.slot_off(next - 1), meta: last })
        } else if full {
            let gate = self.gate(context);
            gate.is_closed().then(|| Closing::Gate { off: self.gate_off(), gate })
        } else {
            None
        };
        let newest = self.newest(context, probe, newest, full);
        Look { newest, in_doubt, next, bottom, closing }
    }

    /// Whether there is a slot and room for a record of `needed` bytes.
    #[inline(always)]
    pub fn has_room(&self, look: &Look, needed: u64) -> bool {
        look.next < self.slots() && look.bottom >= self.records_at() + needed
    }

    /// The value of the key; `Err` if its block was released meanwhile, so that the caller must
    /// look again.
    #[inline(always)]
    pub fn get<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        probe: Probe<'_>,
    ) -> Result<Option<&'op [u8]>, Superseded> {
        self.visible_value(context, self.find(context, probe))
    }

    /// The value of a record that was found, unless it is deleted; `Err` as of [`get`](Self::get).
    #[inline(always)]
    pub fn visible_value<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        found: Option<Settled>,
    ) -> Result<Option<&'op [u8]>, Superseded> {
        match found {
            Some(Settled { meta, .. }) if meta.is_visible() => {
                self.value(context, meta).map(Some).ok_or(Superseded)
            }
            _ => Ok(None),
        }
    }

    /// Reads the metadata of all claimed slots into `slots`, once and in order.
    #[inline(always)]
    pub fn read_slots<D: Domain>(&self, context: Context<'_, D>, slots: &mut Vec<Meta>) {
        slots.clear();
        let claimed = (0..self.slots()).map(|slot| self.slot(context, slot));
        slots.extend(claimed.take_while(|&meta| meta != Meta::EMPTY));
    }

    /// Whether all records of the leaf may have been deleted. `estimate` counts updated records
    /// twice. The test: there are as many deletions as the leaf had records when it was built, and
    /// behind each added record there is a deletion that may be of its key.
    #[inline]
    pub fn may_be_empty<D: Domain>(&self, context: Context<'_, D>, estimate: Estimate) -> bool {
        match self.ranged(context) {
            Some(_) => estimate.live_bytes == 0,
            None => {
                estimate.deleted >= self.sorted().max(1) && self.all_added_may_be_deleted(context)
            }
        }
    }

    #[cold]
    fn all_added_may_be_deleted<D: Domain>(&self, context: Context<'_, D>) -> bool {
        let mut slots = Vec::with_capacity(self.slots() as usize);
        self.read_slots(context, &mut slots);
        if slots.len() as u64 == self.slots() && self.dead(context) > 0 {
            // A delete in place leaves no slot.
            return self.live_records(context).is_empty();
        }
        // From the last slot on: the last record is the most likely to be live.
        let later = |slot: usize| slots.iter().skip(slot + 1);
        slots.iter().enumerate().rev().filter(|(_, added)| added.is_visible()).all(
            |(slot, added)| {
                let is_its_end = |end: &Meta| end.kind() == Kind::Deleted && end.may_match(added.0);
                later(slot).any(is_its_end)
            },
        )
    }

    /// An estimate of the content, without a read of the keys: updated records count twice.
    pub fn estimate<D: Domain>(&self, context: Context<'_, D>) -> Estimate {
        if let Some(leaf) = self.ranged(context) {
            // The thread that has closed a range leaf may have left it so: any thread merges or
            // copies it, as if it was open.
            let Count { live, deleted, .. } = leaf.count(context);
            return Estimate { live_bytes: live * PAIR_BYTES, is_closed: false, deleted };
        }
        let (node, uniform) = (self.node, self.node.shape().is_uniform());
        let each = if uniform { 0 } else { SLICED_BYTES };
        let mut records = self.sorted();
        let sorted_bytes = node.header().node_bytes.saturating_sub(node.shape().sorted_at);
        let mut bytes = sorted_bytes + records * each;
        let mut deleted = 0;
        let mut is_closed = false;
        let mut full = true;
        for slot in 0..self.slots() {
            let meta = self.slot(context, slot);
            match meta.kind() {
                Kind::Empty => {
                    full = false;
                    break;
                }
                Kind::Inline | Kind::Pointer => {
                    records += 1;
                    bytes += meta.padded_bytes() + each;
                }
                Kind::Deleted => deleted += 1,
                Kind::Closed | Kind::Replaced => is_closed = true,
                Kind::Reserved | Kind::Aborted => {}
            }
        }
        if full {
            is_closed |= self.gate(context).is_closed();
            deleted += self.dead(context);
        }
        let gone = (bytes * deleted).checked_div(records).unwrap_or(0);
        Estimate { live_bytes: bytes.saturating_sub(gone), is_closed, deleted }
    }
}
