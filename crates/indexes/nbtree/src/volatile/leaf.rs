//! A leaf's metadata (paper 3.1): one line that every operation reads, and a second one that few
//! read.
//!
//! `control` decides which slots are in the leaf:
//!
//! ```text
//! bit   63      44 .. 0
//!       CLOSED  bitmap: slots whose inserts are decided
//! ```
//!
//! It changes only by a CAS of the whole word. So if a thread sees that it has not changed, no slot
//! was decided meanwhile. A closed `control` never changes again: nothing is inserted any more, and
//! the leaf is replaced (`smo.rs`). Its slots' value words still change, until they are closed one
//! by one.
//!
//! `fingerprints` has one byte for each slot: zero as long as the slot is free, and the fingerprint
//! of the key from the CAS that claims it on; then it never changes. (The paper counts claims, and
//! so hands out slots in order.)
//!
//! `dirty` is used only in a domain with write-backs. For each slot it counts the threads that are
//! about to change its value word, or have not yet made their change durable. If a thread reads a
//! value word and then a count of zero, the value is durable; otherwise the thread makes it durable
//! itself. The order is: count up, change the word, write back, fence, count down. If a thread
//! stops in between, the only cost is that other threads write that line back.

use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use pando_pmem::Domain;

use super::nodes::Leaf;
use crate::layout::{MAX_SLOTS, slot_to_take};
use crate::separator::Separator;

const CLOSED: u64 = 1 << 63;
const BITMAP_MASK: u64 = (1 << MAX_SLOTS) - 1;
/// The fingerprint of an unclaimed slot, and of no key.
pub(crate) const FREE: u8 = 0;
/// The fingerprint of a lost slot: an insert claimed it, and a crash interrupted the insert. Keys
/// may have it too.
pub(crate) const LOST: u8 = 1;

const _: () = assert!(MAX_SLOTS < 63);

/// A value of `control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control(u64);

impl Control {
    pub fn new(bitmap: u64) -> Self {
        Self(bitmap)
    }

    #[inline(always)]
    pub fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Slots whose inserts are decided.
    #[inline(always)]
    pub fn bitmap(self) -> u64 {
        self.0 & BITMAP_MASK
    }

    /// With the insert into the slot decided.
    #[inline(always)]
    pub fn decided(self, slot: usize) -> Self {
        Self(self.0 | 1 << slot)
    }
}

/// Which of eight bytes equal `byte`: the lowest bit of the result is for the lowest byte.
#[cfg_attr(target_arch = "x86_64", allow(dead_code))]
fn equal_bytes(word: u64, byte: u8) -> u64 {
    const LOW_SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let differing = word ^ u64::from(byte).wrapping_mul(0x0101_0101_0101_0101);
    // Sets the top bit of each zero byte; no carry leaves its byte.
    let zeros = !(((differing & LOW_SEVEN) + LOW_SEVEN) | differing | LOW_SEVEN);
    (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Which of sixteen bytes equal `byte`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_in_pair(low: u64, high: u64, byte: u8) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: SSE2 is part of every x86-64 processor.
    let mask = unsafe {
        let bytes = _mm_set_epi64x(high as i64, low as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8)))
    };
    mask as u64
}

#[cfg(not(target_arch = "x86_64"))]
fn equal_in_pair(low: u64, high: u64, byte: u8) -> u64 {
    equal_bytes(low, byte) | equal_bytes(high, byte) << 8
}

impl Leaf {
    /// A leaf over the block at `block_off`, with the fingerprints of its slots.
    pub fn new<D: Domain>(
        block_off: u64,
        low: Separator,
        control: Control,
        fingerprints: &[u8],
    ) -> Self {
        let word = |index: usize| {
            let mut bytes = [0; 8];
            let from = fingerprints.len().min(index * 8);
            let part = &fingerprints[from..fingerprints.len().min(from + 8)];
            bytes[..part.len()].copy_from_slice(part);
            AtomicU64::new(u64::from_le_bytes(bytes))
        };
        let dirty_slots = if D::needs_write_back() { MAX_SLOTS } else { 0 };
        Self {
            control: AtomicU64::new(control.0),
            block_off,
            fingerprints: std::array::from_fn(word),
            replacement: AtomicPtr::default(),
            low,
            deleted: AtomicU32::new(0),
            dirty: (0..dirty_slots).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    /// The present `control`.
    #[inline(always)]
    pub fn control<D: Domain>(&self) -> Control {
        D::observe_process_memory();
        // Acquire: pairs with the CAS that decided a slot, after the stores of its key and
        // fingerprint.
        Control(self.control.load(Ordering::Acquire))
    }

    /// Changes `control`; returns its present value if that is not `from`.
    #[inline(always)]
    pub fn change<D: Domain>(&self, from: Control, to: Control) -> Result<(), Control> {
        D::observe_process_memory();
        // Release for the slot that is decided; acquire for the slots that other threads have
        // decided.
        let changed =
            self.control.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire);
        changed.map(drop).map_err(Control)
    }

    /// Closes the leaf: nothing is inserted from now on. Returns its final `control`.
    pub fn close<D: Domain>(&self) -> Control {
        D::observe_process_memory();
        // As in `change`.
        Control(self.control.fetch_or(CLOSED, Ordering::AcqRel) | CLOSED)
    }

    /// Claims a slot for a key with this fingerprint, among the first `slots`; `None` if all are
    /// claimed.
    #[inline(always)]
    pub fn claim<D: Domain>(&self, fingerprint: u8, slots: usize) -> Option<usize> {
        loop {
            let slot = self.slot_to_take(fingerprint, slots)?;
            D::observe_process_memory();
            let word = &self.fingerprints[slot / 8];
            let shift = slot % 8 * 8;
            // Relaxed: this word alone decides which thread gets a free byte, and the content of
            // the slot is published with its bit.
            let found = word.load(Ordering::Relaxed);
            let claimed = found | u64::from(fingerprint) << shift;
            let is_free = (found >> shift) as u8 == FREE;
            if is_free
                && word
                    .compare_exchange(found, claimed, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                return Some(slot);
            }
        }
    }

    /// The slot that [`claim`](Self::claim) would claim now.
    #[inline(always)]
    pub fn slot_to_take(&self, fingerprint: u8, slots: usize) -> Option<usize> {
        slot_to_take(self.matches(FREE) & ((1 << slots) - 1), fingerprint, slots)
    }

    /// The fingerprint of a slot.
    pub fn fingerprint(&self, slot: usize) -> u8 {
        (self.fingerprints[slot / 8].load(Ordering::Relaxed) >> (slot % 8 * 8)) as u8
    }

    /// The slots with this fingerprint. They may include undecided slots, and numbers beyond the
    /// last slot.
    #[inline(always)]
    pub fn matches(&self, fingerprint: u8) -> u64 {
        // Relaxed: the fingerprints of decided slots were stored before the bit in `control`.
        let word = |index: usize| self.fingerprints[index].load(Ordering::Relaxed);
        equal_in_pair(word(0), word(1), fingerprint)
            | equal_in_pair(word(2), word(3), fingerprint) << 16
            | equal_in_pair(word(4), word(5), fingerprint) << 32
    }

    /// To be called before a change of the slot's value word.
    #[inline(always)]
    pub fn begin_change<D: Domain>(&self, slot: usize) {
        if D::needs_write_back() {
            D::observe_process_memory();
            // Before the CAS of the word, which is sequentially consistent.
            self.dirty[slot].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// To be called when this thread's change of the value word is durable, or was not made.
    #[inline(always)]
    pub fn end_change<D: Domain>(&self, slot: usize) {
        if D::needs_write_back() {
            D::observe_process_memory();
            // Release: pairs with `may_be_undurable`, which then needs no write-back of its own.
            self.dirty[slot].fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether the value word that was read may not be durable yet.
    #[inline(always)]
    pub fn may_be_undurable<D: Domain>(&self, slot: usize) -> bool {
        D::needs_write_back() && {
            D::observe_process_memory();
            // The load of the word came first, and acquired the count of its writer.
            self.dirty[slot].load(Ordering::Acquire) != 0
        }
    }

    /// Counts a deleted record of the leaf; returns whether it was the last one.
    pub fn note_deleted(&self) -> bool {
        // Relaxed: a hint; the content of the leaf is read again.
        let deleted = self.deleted.fetch_add(1, Ordering::Relaxed) + 1;
        let decided = (self.control.load(Ordering::Relaxed) & BITMAP_MASK).count_ones();
        deleted >= decided
    }

    /// Whether the leaf is replaced.
    #[inline(always)]
    pub fn is_replaced<D: Domain>(&self) -> bool {
        D::observe_process_memory();
        // Acquire: pairs with the CAS that published the replacement.
        !self.replacement.load(Ordering::Acquire).is_null()
    }
}

/// The slots of a bitmap, in ascending order.
pub(crate) fn slots(mut bitmap: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (bitmap != 0).then_some(bitmap.trailing_zeros() as usize)?;
        bitmap &= bitmap - 1;
        Some(slot)
    })
}

#[cfg(test)]
mod tests {
    use pando_pmem::Process;

    use crate::volatile::nodes::FINGERPRINT_WORDS;

    use super::*;

    #[test]
    fn fingerprints_are_found_by_every_way() {
        let bytes: Vec<u8> = (0..MAX_SLOTS).map(|slot| (slot * 7 % 11) as u8).collect();
        let leaf = Leaf::new::<Process>(64, Separator::lowest(), Control::new(0), &bytes);
        for wanted in 0..=255u8 {
            let slots = bytes.iter().enumerate().filter(|&(_, &byte)| byte == wanted);
            let expected = slots.fold(0, |mask, (slot, _)| mask | 1 << slot);
            assert_eq!(leaf.matches(wanted) & BITMAP_MASK, expected);
            let by_words = (0..FINGERPRINT_WORDS).fold(0, |mask, index| {
                let word = leaf.fingerprints[index].load(Ordering::Relaxed);
                mask | equal_bytes(word, wanted) << (8 * index)
            });
            assert_eq!(by_words & BITMAP_MASK, expected);
        }
    }

    #[test]
    fn slots_are_claimed_and_decided_once_and_leaves_close() {
        let leaf = Leaf::new::<Process>(64, Separator::lowest(), Control::new(0), &[]);
        let mut control = leaf.control::<Process>();
        for turn in 0..MAX_SLOTS {
            let fingerprint = (turn * 37 % 255 + 1) as u8;
            let slot = leaf.claim::<Process>(fingerprint, MAX_SLOTS).expect("is free");
            assert_eq!(leaf.fingerprint(slot), fingerprint);
            assert_eq!(control.bitmap() & 1 << slot, 0, "claimed twice");
            leaf.change::<Process>(control, control.decided(slot)).expect("nobody else");
            control = leaf.control::<Process>();
        }
        assert_eq!(control.bitmap(), BITMAP_MASK);
        assert_eq!(leaf.claim::<Process>(9, MAX_SLOTS), None);
        assert!(!control.is_closed() && leaf.close::<Process>().is_closed());
        assert!(leaf.change::<Process>(control, control).is_err());
    }
}
