//! The content of a leaf's block: live slots, their fingerprints, the lowest and the highest key.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, mutant};
use pando_tree::key::{Probe, slice_of};

use crate::layout::{
    Content, EMPTY, MARK_AT, MAX_SLOTS, SLOTS_A_LINE, block_bytes, class_of, classes_at, content,
    is_closed, is_pending, is_plain_value, key_at, mark, plain, value_at,
};
use crate::record;
use crate::separator::{Separator, eight_fingerprint, fingerprint};
use crate::volatile::leaf::{Control, FREE, LOST, slots as slots_of};
use crate::volatile::nodes::Leaf;

/// The content of a block's slots.
#[derive(Debug)]
pub(crate) struct Survey<'guard> {
    off: u64,
    bitmap: u64,
    fingerprints: [u8; MAX_SLOTS],
    /// The lowest and the highest key; `None` if no slot is live.
    pub ends: Option<(Key<'guard>, Key<'guard>)>,
    /// Whether a value word is closed.
    pub is_unsettled: bool,
}

/// A live record's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'guard> {
    /// The first eight bytes as a number.
    slice: u64,
    /// All bytes, if it has a block of its own.
    long: Option<&'guard [u8]>,
}

impl<'guard> Key<'guard> {
    #[inline(always)]
    pub fn is_below(&self, other: &Self) -> bool {
        if self.slice != other.slice || (self.long.is_none() && other.long.is_none()) {
            return self.slice < other.slice;
        }
        let (mut room, mut room_of_other) = ([0; 8], [0; 8]);
        self.bytes(&mut room) < other.bytes(&mut room_of_other)
    }

    /// The separator between it and the key `above` it.
    pub fn divided_from(&self, above: &Self) -> Separator {
        if self.long.is_none() && above.long.is_none() {
            return Separator::eight(above.slice);
        }
        let (mut room, mut room_above) = ([0; 8], [0; 8]);
        Separator::between(self.bytes(&mut room), above.bytes(&mut room_above))
    }

    pub fn to_vec(self) -> Vec<u8> {
        self.bytes(&mut [0; 8]).to_vec()
    }

    /// All bytes; written to `room` if they are not stored as bytes.
    fn bytes<'all>(&self, room: &'all mut [u8; 8]) -> &'all [u8]
    where
        'guard: 'all,
    {
        *room = self.slice.to_be_bytes();
        self.long.unwrap_or(room)
    }
}

impl Survey<'_> {
    /// The leaf.
    pub fn into_leaf<D: Domain>(self, low: Separator) -> Leaf {
        Leaf::new::<D>(self.off, low, Control::new(self.bitmap), &self.fingerprints)
    }
}

/// Opens the value words of the leaf at `off` that a failed replacement had closed.
pub(super) fn settle<D: Domain>(guard: &Guard<'_, D>, off: u64, slots: usize) {
    for slot in 0..slots {
        let value = guard.pool().word(off + value_at(slot));
        let word = value.load(Ordering::Acquire);
        if is_closed(word) && content(word) != Content::Damaged {
            // Not written back: another recovery that finds it closed does the same.
            value.store(plain(word), Ordering::Release);
        }
    }
}

/// Surveys the block at `off`; `None` if it is no leaf with so many slots, or if one of its records
/// is damaged.
pub(crate) fn survey<'guard, D: Domain>(
    guard: &'guard Guard<'_, D>,
    off: u64,
    slots: usize,
) -> Option<Survey<'guard>> {
    let words = guard.pool().words(off, block_bytes(slots) / 8);
    // Relaxed, here and below: no thread changes the block meanwhile, or the result is not used.
    let at = |at: u64| words.load(at / 8, Ordering::Relaxed);
    if at(MARK_AT) != mark(slots) {
        return None;
    }
    let mut fingerprints = [FREE; MAX_SLOTS];
    // Values of keys of eight bytes first, in a loop without branches: most slots hold one, and a
    // processor cannot predict which do not.
    let (mut bitmap, mut others) = (0u64, 0u64);
    let (mut lowest, mut highest) = (u64::MAX, 0);
    const A_LINE: usize = SLOTS_A_LINE as usize;
    for (turn, places) in fingerprints[..slots].chunks_mut(A_LINE).enumerate() {
        let first = turn * A_LINE;
        let line = words.load_eight(classes_at(first) / 8, Ordering::Relaxed);
        for (at, place) in places.iter_mut().enumerate() {
            let (slot, slice, word) = (first + at, line[1 + 2 * at], line[2 + 2 * at]);
            let is_value = is_plain_value(word);
            let was_claimed = word != EMPTY || class_of(line[0], slot) != 0;
            bitmap |= u64::from(is_value) << slot;
            others |= u64::from(!is_value & was_claimed) << slot;
            lowest = lowest.min(if is_value { slice } else { u64::MAX });
            highest = highest.max(if is_value { slice } else { 0 });
            *place = if is_value { eight_fingerprint(slice) } else { FREE };
        }
    }
    let eight = |slice| Key { slice, long: None };
    let mut ends = (bitmap != 0).then(|| (eight(lowest), eight(highest)));
    let mut is_unsettled = false;
    for slot in slots_of(others) {
        let (slice, word) = (at(key_at(slot)), at(value_at(slot)));
        let content = content(word);
        fingerprints[slot] = LOST;
        if is_pending(word) && !mutant!("nbtree-pending-recovered") {
            continue;
        }
        let key = match content {
            Content::Value => eight(slice),
            Content::Record(off) => {
                let long = record::checked_key(guard, off)?;
                // Keys compare first by their slices.
                if slice_of(long) != slice {
                    return None;
                }
                Key { slice, long: Some(long) }
            }
            Content::Empty | Content::Deleted => continue,
            Content::Damaged => return None,
        };
        fingerprints[slot] = match key.long {
            Some(long) => fingerprint(&Probe::new(long)),
            None => eight_fingerprint(slice),
        };
        bitmap |= 1 << slot;
        is_unsettled |= is_closed(word);
        let (lowest, highest) = ends.get_or_insert((key, key));
        if key.is_below(lowest) {
            *lowest = key;
        }
        if highest.is_below(&key) {
            *highest = key;
        }
    }
    Some(Survey { off, bitmap, fingerprints, ends, is_unsettled })
}
