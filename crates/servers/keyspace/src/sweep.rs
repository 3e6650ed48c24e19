//! The sweep removes in the background, in small steps: expired keys, elements of dropped
//! collections, pieces of dropped strings, and heads of flushed databases.
//!
//! No command waits for it: an expired key reads as absent, and no head refers to dropped records.
//! So the sweep may stop anywhere and continue later, also after a crash.

use std::sync::atomic::Ordering;

use pando::KeyRange;
use smallvec::SmallVec;

use crate::failure::{Failure, Result};
use crate::layout::{
    CollectionId, Head, SPACES, collection_prefix, hash_of, head_prefix, split_head_key,
};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::{Access, Held, stripe_of};

/// Heads of flushed databases that are removed while a stripe is held.
const HEADS_AT_ONCE: usize = 16;

/// The result of a sweep of expired keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Expired keys that were removed.
    pub expired_keys: u64,
    /// Whether there is more to do.
    pub is_more: bool,
}

/// The result of a sweep of all parts.
#[derive(Debug, Default)]
pub struct Sweep {
    /// Expired keys that were removed.
    pub expired_keys: u64,
    /// Whether a part without an error has more to do.
    pub is_more: bool,
    /// The first error.
    pub failure: Option<Failure>,
}

impl Sweep {
    /// Notes the result of a part: whether it has more to do.
    fn note(&mut self, part: Result<bool>) {
        match part {
            Ok(is_more) => self.is_more |= is_more,
            Err(failure) => drop(self.failure.get_or_insert(failure)),
        }
    }
}

impl Store {
    /// Removes up to `budget` expired keys, and about `budget` records that no head refers to. An
    /// error in one part does not keep the sweep from the others.
    pub fn sweep(&self, budget: usize) -> Sweep {
        let mut sweep = Sweep::default();
        let expired = self.sweep_expired(budget);
        sweep.expired_keys = expired.as_ref().map_or(0, |expired| expired.expired_keys);
        sweep.note(expired.map(|expired| expired.is_more));
        self.sweep_unused(budget, &mut sweep);
        sweep
    }

    /// Removes up to `budget` expired keys. A key whose removal finds no room stays, and the next
    /// one is removed, which may make room.
    pub fn sweep_expired(&self, budget: usize) -> Result<Swept> {
        let now_ms = self.clock().now_ms();
        let range = KeyRange::between(own_keys::EXPIRIES, &own_keys::expiry(now_ms + 1, b""));
        let mut due = Vec::new();
        let mut scan = self.map.range(range);
        while due.len() < budget {
            match scan.next_record().map_err(Failure::from) {
                Ok(Some((entry, _))) if self.unreadable.lock().expiries.contains(entry) => {}
                Ok(Some((entry, _))) => due.push(entry.to_vec()),
                Ok(None) => break,
                // First those before the damaged page.
                Err(failure) if failure.is_of_damaged_page() && !due.is_empty() => break,
                Err(failure) => return Err(failure),
            }
        }
        drop(scan);
        let mut swept = Swept { expired_keys: 0, is_more: due.len() == budget };
        let (mut done, mut refused) = (0, None);
        for entry in due {
            if self.must_rest() {
                return Ok(Swept { is_more: false, ..swept });
            }
            let (at_ms, full) = own_keys::split_expiry(&entry).ok_or(Failure::Damaged)?;
            let (_, hash, _) = split_head_key(full).ok_or(Failure::Damaged)?;
            // An error of the lock is not of this entry.
            let held = self.lock(SmallVec::from_slice(&[stripe_of(hash)]), Access::Exclusive)?;
            match self.sweep_expiry(held, (&entry, at_ms, full), now_ms) {
                Ok(is_key) => {
                    done += 1;
                    swept.expired_keys += u64::from(is_key);
                }
                Err(failure) if failure.is_no_memory() => refused = Some(failure),
                Err(failure) if failure.is_of_damaged_page() => {
                    tracing::warn!(error = %failure, "an expired key stays until the next start");
                    self.unreadable.lock().expiries.insert(entry);
                }
                Err(failure) => return Err(failure),
            }
        }
        match refused {
            Some(failure) if done == 0 => Err(failure),
            _ => Ok(swept),
        }
    }

    /// Removes an expiry entry that is due, and its key, whose stripe is held; returns whether it
    /// was the key's entry. `entry` has its bytes, its time and the key of the head.
    fn sweep_expiry<'store>(
        &'store self,
        held: Held<'store>,
        (entry, at_ms, full): (&[u8], u64, &[u8]),
        now_ms: u64,
    ) -> Result<bool> {
        let (space, _, key) = split_head_key(full).ok_or(Failure::Damaged)?;
        let mut transaction = self.begin(held, now_ms);
        let is_key = self.expires_at(full)? == Some(at_ms);
        if is_key {
            transaction.remove_head(space, key)?;
            transaction.commit()?;
        } else {
            self.map.remove(entry)?;
        }
        Ok(is_key)
    }

    pub(crate) fn expires_at(&self, full: &[u8]) -> Result<Option<u64>> {
        let found = self.map.read(full, |value| Head::decode(value).map(|head| head.expires_at))?;
        match found {
            Some(Some(at_ms)) => Ok(at_ms),
            Some(None) => Err(Failure::Damaged),
            None => Ok(None),
        }
    }

    /// Removes about `budget` records that no head refers to; returns whether there are more.
    pub fn sweep_garbage(&self, budget: usize) -> Result<bool> {
        let mut sweep = Sweep::default();
        self.sweep_unused(budget, &mut sweep);
        sweep.failure.map_or(Ok(sweep.is_more), Err)
    }

    fn sweep_unused(&self, budget: usize, sweep: &mut Sweep) {
        sweep.note(self.close_some());
        // Cleared before the search, so that garbage that comes during the search sets it again.
        if self.must_rest() || !self.has_garbage.swap(false, Ordering::AcqRel) {
            return;
        }
        // A half each, so that neither part waits until the other one has nothing to do.
        let half = budget.div_ceil(2);
        let spaces = self.sweep_spaces(half);
        let left = budget - half + spaces.as_ref().map_or(0, |&left| left);
        for part in [spaces, self.sweep_collections(left)] {
            if part.as_ref().map_or(true, |&left| left == 0) {
                self.has_garbage.store(true, Ordering::Release);
            }
            sweep.note(part.map(|left| left == 0));
        }
    }

    /// Whether the sweep goes on later: the disk of the log is slower than the writers, the log
    /// cannot be written, or the server ends.
    pub(crate) fn must_rest(&self) -> bool {
        self.is_ending() || self.log().is_some_and(|log| log.is_behind() || log.has_failed())
    }

    fn sweep_collections(&self, mut budget: usize) -> Result<usize> {
        while budget > 0 {
            let Some((garbage, id)) = self.next_garbage()? else { break };
            match self.sweep_collection(&garbage, id, budget) {
                Ok(None) => return Ok(0),
                Ok(Some(removed)) => budget = budget.saturating_sub(removed + 1),
                Err(failure) if failure.is_of_damaged_page() => {
                    tracing::warn!(error = %failure, "elements stay until the next start");
                    self.unreadable.lock().collections.insert(id);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(budget)
    }

    /// Removes up to `budget` elements of a dropped collection; returns their number, or `None` if
    /// the sweep must rest.
    fn sweep_collection(
        &self,
        garbage: &[u8],
        id: CollectionId,
        budget: usize,
    ) -> Result<Option<usize>> {
        let (elements, is_all) =
            self.some_keys(KeyRange::prefix(&collection_prefix(id)), budget)?;
        for element in &elements {
            if self.must_rest() {
                return Ok(None);
            }
            self.map.remove(element)?;
        }
        if is_all {
            self.map.remove(garbage)?;
        }
        Ok(Some(elements.len()))
    }

    /// The first number whose records are to be removed; `pieces.rs` explains which are skipped.
    fn next_garbage(&self) -> Result<Option<(Vec<u8>, CollectionId)>> {
        let drafts = self.drafts.hold();
        if self.has_pending_writes() {
            self.has_garbage.store(true, Ordering::Release);
            return Ok(None);
        }
        let mut scan = self.map.prefix(own_keys::GARBAGES);
        while let Some((garbage, _)) = scan.next_record()? {
            let id = own_keys::split_garbage(garbage).ok_or(Failure::Damaged)?;
            if !drafts.contains(&id) && !self.unreadable.lock().collections.contains(&id) {
                return Ok(Some((garbage.to_vec(), id)));
            }
        }
        Ok(None)
    }

    /// Removes heads in spaces that no database has.
    fn sweep_spaces(&self, mut budget: usize) -> Result<usize> {
        for space in 0..SPACES {
            while budget > 0 {
                // Spaces are reassigned only while all stripes are held. So while this stripe is
                // held, no database gets the space. It is held only for a few heads, because the
                // removals may wait for the disk, and commands for the stripe.
                let _held = self.lock(SmallVec::from_slice(&[0]), Access::Shared)?;
                if self.spaces().contains(&space) || self.unreadable.lock().spaces.contains(&space)
                {
                    break;
                }
                if self.must_rest() {
                    return Ok(0);
                }
                let some = budget.min(HEADS_AT_ONCE);
                let (removed, is_all) = match self.sweep_space(space, some, || self.must_rest()) {
                    Err(failure) if failure.is_of_damaged_page() => {
                        tracing::warn!(error = %failure, "flushed keys stay until the next start");
                        self.unreadable.lock().spaces.insert(space);
                        break;
                    }
                    swept => swept?,
                };
                budget = budget.saturating_sub(removed);
                if is_all {
                    break;
                }
            }
        }
        Ok(budget)
    }

    /// Removes up to `budget` heads of a space that no database has or gets, until `must_stop`;
    /// returns their number, and whether they were all.
    pub(crate) fn sweep_space(
        &self,
        space: u8,
        budget: usize,
        must_stop: impl Fn() -> bool,
    ) -> Result<(usize, bool)> {
        let range = KeyRange::between(&head_prefix(space, 0), &head_prefix(space + 1, 0));
        let (heads, is_all) = self.some_keys(range, budget)?;
        for (removed, full) in heads.iter().enumerate() {
            if must_stop() {
                return Ok((removed, false));
            }
            #[cfg(test)]
            self.refusals.step()?;
            let id = self.map.read(full, |value| Head::decode(value)?.content.id())?;
            if let Some(id) = id.flatten() {
                self.counts.forget(id);
                self.map.put(own_keys::garbage(id), [])?;
                self.has_garbage.store(true, Ordering::Release);
            }
            self.map.remove(full)?;
        }
        Ok((heads.len(), is_all))
    }

    /// The first keys of a range, and whether they are all.
    fn some_keys(&self, range: KeyRange, most: usize) -> Result<(Vec<Vec<u8>>, bool)> {
        let mut keys = Vec::new();
        let mut scan = self.map.range(range);
        while let Some((key, _)) = scan.next_record()? {
            if keys.len() == most {
                return Ok((keys, false));
            }
            keys.push(key.to_vec());
        }
        Ok((keys, true))
    }

    /// The stripe of a client's key.
    pub fn stripe_of_key(key: &[u8]) -> crate::stripes::StripeIndex {
        stripe_of(hash_of(key))
    }
}
