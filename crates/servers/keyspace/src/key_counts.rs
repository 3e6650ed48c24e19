//! Numbers of keys, as far as they are known without reading all keys.

use std::sync::atomic::Ordering;

use pando::KeyRange;
use smallvec::SmallVec;

use crate::failure::{Failure, Result};
use crate::layout::{DATABASES, head_prefix, split_head_key};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::{Access, STRIPES, StripeIndex};

/// Keys with an expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiries {
    /// Their number per database.
    pub keys: [u64; DATABASES as usize],
    /// The sum of their times to live per database, in milliseconds.
    left_ms: [u64; DATABASES as usize],
    /// Whether all are counted.
    pub are_all: bool,
}

impl Expiries {
    /// The average time to live in a database, in milliseconds.
    pub fn average_ms(&self, database: u8) -> u64 {
        let at = usize::from(database);
        self.left_ms[at].checked_div(self.keys[at]).unwrap_or(0)
    }
}

impl Store {
    /// Counts at most `most` keys with an expiry, the earliest expiries first.
    pub fn expiries(&self, most: u64) -> Result<Expiries> {
        let (now_ms, spaces) = (self.clock().now_ms(), self.spaces());
        let mut expiries = Expiries { are_all: true, ..Expiries::default() };
        let mut scan = self.map.prefix(own_keys::EXPIRIES);
        let mut seen = 0;
        while let Some((entry, _)) = scan.next_record()? {
            // Relaxed: a late view only counts a little longer.
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

    /// The number of keys of all databases, with expired ones that are not removed yet; `None`
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

    /// If no database has a key, sets all counts to zero; returns whether that is so.
    pub(crate) fn count_none(&self) -> Result<bool> {
        let mut held = self.stripes.lock_all(Access::Exclusive);
        for space in self.spaces() {
            let heads = KeyRange::between(&head_prefix(space, 0), &head_prefix(space + 1, 0));
            if self.map.range(heads).next_record()?.is_some() {
                return Ok(false);
            }
        }
        held.exclusive().for_each(|(_, stripe)| stripe.counts = Some(SmallVec::new()));
        Ok(true)
    }
}
