//! How many keys there are, as far as that is known without reading them.

use std::sync::atomic::Ordering;

use pando::{KeyRange, Order};
use smallvec::SmallVec;

use crate::failure::{Failure, Result};
use crate::layout::{DATABASES, head_prefix, split_head_key};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::{Access, STRIPES, StripeIndex};

/// Keys that expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiries {
    /// Of each database, how many.
    pub keys: [u64; DATABASES as usize],
    /// Of each database, the sum of the times that they have left, in milliseconds.
    left_ms: [u64; DATABASES as usize],
    /// Whether these are all.
    pub are_all: bool,
}

impl Expiries {
    /// What a key of a database has left on the average, in milliseconds.
    pub fn average_ms(&self, database: u8) -> u64 {
        let at = usize::from(database);
        self.left_ms[at].checked_div(self.keys[at]).unwrap_or(0)
    }
}

impl Store {
    /// Counts the keys that expire, those that expire soonest first and no more than `most`.
    pub fn expiries(&self, most: u64) -> Result<Expiries> {
        let (now_ms, spaces) = (self.clock().now_ms(), self.spaces());
        let mut expiries = Expiries { are_all: true, ..Expiries::default() };
        let mut scan = self.map.scan(KeyRange::prefix(own_keys::EXPIRIES), Order::Ascending)?;
        let mut seen = 0;
        while let Some((entry, _)) = scan.next_record()? {
            // Relaxed: who sees it late counts a little longer.
            if seen == most || self.is_ending.load(Ordering::Relaxed) {
                expiries.are_all = false;
                break;
            }
            seen += 1;
            let (at_ms, full) = own_keys::split_expiry(entry).ok_or(Failure::Damaged)?;
            let space = split_head_key(full).ok_or(Failure::Damaged)?.0;
            if let Some(at) = spaces.iter().position(|&used| used == space) {
                expiries.keys[at] += 1;
                expiries.left_ms[at] += at_ms.saturating_sub(now_ms);
            }
        }
        Ok(expiries)
    }

    /// Keys of all databases, those that have expired and were not removed yet among them; `None`
    /// until [`count`](Store::count) has read them.
    pub fn known_count(&self) -> Option<u64> {
        let spaces = self.spaces();
        let mut sum = 0;
        for index in 0..STRIPES as StripeIndex {
            let held = self.stripes.lock(SmallVec::from_slice(&[index]), Access::Shared);
            let counts = held.stripe(index)?.counts.as_ref()?;
            let used = counts.iter().filter(|(space, _)| spaces.contains(space));
            sum += used.map(|(_, count)| count).sum::<u64>();
        }
        Some(sum)
    }

    /// Whether no database has a key; then it is known from now on how many there are.
    pub(crate) fn count_none(&self) -> Result<bool> {
        let mut held = self.stripes.lock_all(Access::Alone);
        for space in self.spaces() {
            let heads = KeyRange::between(&head_prefix(space, 0), &head_prefix(space + 1, 0));
            if self.map.scan(heads, Order::Ascending)?.next_record()?.is_some() {
                return Ok(false);
            }
        }
        held.alone().for_each(|(_, stripe)| stripe.counts = Some(SmallVec::new()));
        Ok(true)
    }
}
