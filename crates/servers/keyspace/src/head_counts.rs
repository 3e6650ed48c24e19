//! How far the keys are counted, and the numbers of a stripe's heads (`key_counts.rs`).

use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::layout::head_prefix;

/// How far the keys are counted.
#[derive(Debug, Default)]
pub(crate) struct KeyCounts {
    /// The number of stripes whose heads are all counted.
    pub(crate) stripes: AtomicUsize,
    /// Whether a client waits for a count in the background.
    pub(crate) is_wanted: AtomicBool,
    /// The error of the last count in the background.
    pub(crate) failure: Mutex<Option<String>>,
}

impl KeyCounts {
    /// As after a start.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.stripes.store(0, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The numbers of a stripe's heads per space, as far as they are counted.
#[derive(Debug, Default)]
pub(crate) struct HeadCounts {
    /// The prefix of the first head that is not counted.
    next: u64,
    spaces: SmallVec<[(u8, u64); 2]>,
}

impl HeadCounts {
    /// The place behind all heads.
    pub(crate) const END: u64 = u64::MAX;

    /// Those of a stripe without heads.
    pub(crate) fn none() -> Self {
        Self { next: Self::END, spaces: SmallVec::new() }
    }

    /// The prefix of the first head that is not counted; `None` if all are.
    pub(crate) fn next(&self) -> Option<u64> {
        (self.next != Self::END).then_some(self.next)
    }

    /// The number of heads in a space.
    pub(crate) fn of(&self, space: u8) -> u64 {
        self.spaces.iter().find(|(of, _)| *of == space).map_or(0, |(_, count)| *count)
    }

    /// Adds what a step of a count has found from `begin` up to `next`; returns whether all heads
    /// are counted now, and were not before. Does nothing if another step has done so.
    pub(crate) fn advance(&mut self, begin: u64, next: u64, found: &[(u8, u64)]) -> bool {
        if self.next != begin {
            return false;
        }
        self.next = next;
        for &(space, count) in found {
            self.add(space, count as i64);
        }
        next == Self::END
    }

    /// Notes that a head is added or removed, if the count is past its place.
    #[inline]
    pub(crate) fn note(&mut self, space: u8, hash: u64, delta: i64) {
        if prefix(space, hash) < self.next {
            self.add(space, delta);
        }
    }

    fn add(&mut self, space: u8, delta: i64) {
        match self.spaces.iter_mut().find(|(of, _)| *of == space) {
            Some((_, count)) => *count = count.saturating_add_signed(delta),
            None => self.spaces.push((space, delta.max(0) as u64)),
        }
    }

    /// Keeps the numbers of these spaces only.
    pub(crate) fn retain(&mut self, spaces: &[u8]) {
        self.spaces.retain(|(space, _)| spaces.contains(space));
    }
}

/// The first bytes of a head's key, as a number.
pub(crate) fn prefix(space: u8, hash: u64) -> u64 {
    u64::from_be_bytes(head_prefix(space, hash))
}
