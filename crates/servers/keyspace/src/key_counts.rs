//! Numbers of keys.
//!
//! # Protocol
//!
//! Each stripe has the numbers of its heads per space (`head_counts.rs`). They are not known after
//! a start. A count reads the heads once, in the order of their keys, in steps of about 2 ms. The
//! first place that is not counted, `next`, decides: heads before it are in the numbers.
//!
//! | who | lock of the stripe | what changes |
//! | --- | --- | --- |
//! | a commit adds or removes a head | exclusive | the number, if the head is before `next` |
//! | a step of a count reads heads from `next` on | shared | what it found is added, and `next` is raised to the end of a hash |
//! | a flush gives a database another space | all, exclusive | the numbers of the old space are dropped |
//! | a reader of the numbers | none | nothing |
//!
//! So no head changes during a step, and readers of its keys go on. If two threads count a stripe,
//! the step that ends first is added, and the other one finds that `next` has changed. The numbers
//! have a lock of their own, whose holder waits for nothing. So a reader of the numbers waits for
//! no command and no disk. When the last stripe is counted, all numbers are known, and they stay so
//! until the process ends. A crash loses only them.
//!
//! In a record store a count reads all pages with heads. So no thread that serves clients counts
//! there: it asks for a count in the background, and says that the number is not known yet.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pando::KeyRange;
use smallvec::SmallVec;

use crate::failure::{Failure, Result, fail_with};
use crate::head_counts::{HeadCounts, prefix};
use crate::layout::{DATABASES, head_prefix, split_head_key};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::{Access, STRIPES, StripeIndex, hashes_of};

/// About the longest time of a step of a count. In tests a step counts the keys of one hash.
const STEP: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 2 });

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
            if seen == most || self.is_ending() {
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
    /// until they are counted. Does not wait.
    pub fn known_count(&self) -> Option<u64> {
        let spaces = self.spaces();
        self.are_heads_known().then(|| {
            let of = |heads: &HeadCounts| spaces.iter().map(|&space| heads.of(space)).sum::<u64>();
            self.stripes.all_heads().map(|heads| of(&heads)).sum()
        })
    }

    /// The number of heads in a space; `None` until they are counted. Does not wait.
    pub(crate) fn known_heads(&self, space: u8) -> Option<u64> {
        self.are_heads_known().then(|| self.stripes.all_heads().map(|heads| heads.of(space)).sum())
    }

    fn are_heads_known(&self) -> bool {
        // Acquire: with the addition behind the last step of a stripe. The numbers have locks, too.
        self.key_counts.stripes.load(Ordering::Acquire) == STRIPES
    }

    /// The number of keys of `database`, with expired ones that are not removed yet. The first call
    /// reads all keys. The caller must hold no stripe.
    pub fn count(&self, database: u8) -> Result<u64> {
        if !self.are_heads_known() {
            for index in 0..STRIPES as StripeIndex {
                while !self.count_some(index)? {}
            }
        }
        let space = self.space(database);
        Ok(self.stripes.all_heads().map(|heads| heads.of(space)).sum())
    }

    /// The same for a thread that serves clients: `None` if the keys are in a record store and not
    /// counted yet. Then it asks for a count in the background.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or could not be in the background.
    pub fn count_for_client(&self, database: u8) -> Result<Option<u64>> {
        if self.page_bytes().is_some() && !self.are_heads_known() {
            self.want_count();
            let failure = self.key_counts.failure.lock().clone();
            return failure.map_or(Ok(None), |words| Err(fail_with(words)));
        }
        self.count(database).map(Some)
    }

    /// Asks for a count in the background.
    pub fn want_count(&self) {
        // Relaxed: the flag orders nothing.
        self.key_counts.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether a client has asked for a count since the last one began.
    pub fn is_count_wanted(&self) -> bool {
        self.key_counts.is_wanted.load(Ordering::Relaxed)
    }

    /// Counts the keys, for clients that have asked for it. The caller serves no client.
    pub fn count_in_background(&self) {
        self.key_counts.is_wanted.store(false, Ordering::Relaxed);
        let counted = self.count(0);
        if self.is_ending() {
            return;
        }
        let failure = counted.err().map(|failure| failure.to_string());
        let mut last = self.key_counts.failure.lock();
        if let Some(error) = failure.as_deref().filter(|_| *last != failure) {
            tracing::warn!(error, "the keys cannot be counted");
        }
        *last = failure;
    }

    /// Runs a step of the count of a stripe; returns whether all its heads are counted.
    pub(crate) fn count_some(&self, index: StripeIndex) -> Result<bool> {
        self.check_not_ending()?;
        // A log that cannot be written does not matter.
        let _held = self.lock_unchecked(SmallVec::from_slice(&[index]), Access::Shared)?;
        let Some(begin) = self.stripes.heads(index).next() else { return Ok(true) };
        let (next, found) = self.heads_from(begin, index)?;
        let mut heads = self.stripes.heads(index);
        if heads.advance(begin, next, &found) {
            // Release: with the load in `are_heads_known`.
            self.key_counts.stripes.fetch_add(1, Ordering::Release);
        }
        // Another thread may have ended an earlier step, which did not come as far.
        Ok(heads.next().is_none())
    }

    /// The numbers of a stripe's heads from `begin` on, and the place up to which they are.
    fn heads_from(&self, begin: u64, index: StripeIndex) -> Result<(u64, Vec<(u8, u64)>)> {
        let until = Instant::now() + STEP;
        let (first, last) = hashes_of(index);
        let mut spaces = self.spaces();
        spaces.sort_unstable();
        let mut found = Vec::new();
        let mut before = None;
        for space in spaces {
            let low = prefix(space, first).max(begin);
            // The last spaces are not in use, so the sum does not overflow.
            let high = prefix(space, last) + 1;
            if low >= high {
                continue;
            }
            let range = KeyRange::between(&low.to_be_bytes(), &high.to_be_bytes());
            let mut scan = self.map.range(range);
            let mut count = 0;
            while let Some((full, _)) = scan.next_record()? {
                let (_, hash, _) = split_head_key(full).ok_or(Failure::Damaged)?;
                let at = prefix(space, hash);
                // Heads of one hash are counted together.
                let is_next = before.is_some_and(|before| before != at);
                if is_next && Instant::now() >= until {
                    found.push((space, count));
                    return Ok((at, found));
                }
                before = Some(at);
                count += 1;
            }
            if count > 0 {
                found.push((space, count));
            }
        }
        Ok((HeadCounts::END, found))
    }

    /// If no database has a key, sets all numbers to zero; returns whether that is so.
    pub(crate) fn count_none(&self) -> Result<bool> {
        let _all = self.stripes.lock_all(Access::Exclusive);
        for space in self.spaces() {
            let heads = KeyRange::between(&head_prefix(space, 0), &head_prefix(space + 1, 0));
            if self.map.range(heads).next_record()?.is_some() {
                return Ok(false);
            }
        }
        self.stripes.all_heads().for_each(|mut heads| *heads = HeadCounts::none());
        self.key_counts.stripes.store(STRIPES, Ordering::Release);
        Ok(true)
    }
}
