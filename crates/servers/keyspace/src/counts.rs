//! Sizes of open collections.
//!
//! # Protocol
//!
//! A collection's head has the number of its fields. So a change of one element would write two
//! records, by an intent. Most changed collections are changed again soon. Therefore a collection
//! is *opened*: its head says that the process keeps the number ([`Count::Open`]). From then on a
//! command that changes one element writes only that element's record, at once, and the number in
//! [`Counts`].
//!
//! | step | what is written | what a crash after it leaves |
//! | --- | --- | --- |
//! | 1 | the head: open | a collection to count |
//! | 2 | an element: the commit point; the number in memory | the same, with the element |
//! | ... | more elements | the same |
//! | n | the head with the number: the collection is *closed*, and the number in memory is removed | a closed collection |
//!
//! An open head without a number in memory is left by a crash. The first command on the collection
//! counts the elements, under the lock of the key ([`Store::recount`]). That takes the time to read
//! them, once.
//!
//! An open collection has at least one element: an intent with the head adds the first element, and
//! an intent with the head removes the last.
//!
//! A collection is closed by an intent that writes its head (several elements in MULTI, another
//! key, another expiry), by the sweep if many are open, and at the end of the server. The removal
//! of a collection removes the number.
//!
//! # Sorted sets
//!
//! A member has two records. The record by its name is the commit point. The record by its score is
//! written before it, and the record by its former score is removed after it. So a crash may leave,
//! in an open sorted set only, a record by a score that its member does not have. The count of such
//! a set removes these records. If the second write is refused, the first is undone. If the undo is
//! refused, too, the number is removed from memory, so that the next command counts and cleans up.
//! In a pool with a log, the writes are one commit.

use smallvec::SmallVec;

use crate::commits::LentWrite;
use crate::failure::{Failure, Result};
use crate::layout::{
    CollectionId, Content, Count, Element, Head, Kind, Section, element_key, head_key,
    section_prefix, split_element_key, split_head_key,
};
use crate::store::Store;
use crate::stripes::{Access, stripe_of};
use crate::transaction::Transaction;

/// Most open collections. Further collections are changed together with their heads.
const MOST_OPEN: usize = 1 << 16;
/// Collections that one sweep closes.
const CLOSED_AT_ONCE: usize = 256;

impl Store {
    /// The number of fields of a collection. `full` is the key of its head, which has `count`.
    pub(crate) fn count_of(
        &self,
        full: &[u8],
        kind: Kind,
        id: CollectionId,
        count: Count,
    ) -> Result<u64> {
        match count {
            Count::Known(count) => Ok(count),
            Count::Open => match self.counts.get(id) {
                Some(count) => Ok(count),
                None => self.recount(full, kind, id),
            },
        }
    }

    /// Counts the elements of an open collection after a crash, and removes the rest of an
    /// interrupted change of a sorted set. Two readers may do so concurrently: both compute and
    /// remove the same.
    #[cold]
    fn recount(&self, full: &[u8], kind: Kind, id: CollectionId) -> Result<u64> {
        let section = match kind {
            Kind::RangeIndex => Section::Ordered,
            _ => Section::Fields,
        };
        let mut scan = self.map.prefix(section_prefix(id, section));
        let mut count = 0;
        while scan.next_record()?.is_some() {
            count += 1;
        }
        if kind == Kind::SortedSet {
            self.remove_former_scores(id)?;
        }
        self.counts.put(id, full, count);
        Ok(count)
    }

    /// Removes the records by scores that their members do not have.
    fn remove_former_scores(&self, id: CollectionId) -> Result<()> {
        let mut scan = self.map.prefix(section_prefix(id, Section::Scored));
        while let Some((key, _)) = scan.next_record()? {
            let Some(Element::Scored(score, member)) = split_element_key(key) else {
                return Err(Failure::Damaged);
            };
            let by_name = element_key(id, Element::Field(member));
            let is_its = self.map.read(&by_name, |value| *value == score.to_le_bytes())?;
            if is_its != Some(true) {
                self.map.remove(key)?;
            }
        }
        Ok(())
    }

    /// Closes some collections, if many are open; returns whether many still are.
    ///
    /// # Errors
    ///
    /// That of a collection that stays open. Others behind it are closed if its page is damaged,
    /// and not if there is no room.
    pub(crate) fn close_some(&self) -> Result<bool> {
        let are_many = || self.counts.len() > MOST_OPEN / 2;
        if !are_many() {
            return Ok(false);
        }
        let mut damaged = None;
        for (id, head_key) in self.counts.some(CLOSED_AT_ONCE) {
            if self.must_rest() {
                return damaged.map_or(Ok(false), Err);
            }
            let (_, hash, _) = split_head_key(&head_key).ok_or(Failure::Damaged)?;
            let _held = self.lock([stripe_of(hash)].into_iter().collect(), Access::Exclusive)?;
            match self.close_one(id, &head_key) {
                Err(failure) if failure.is_of_damaged_page() => {
                    damaged.get_or_insert(failure);
                }
                closed => closed?,
            }
        }
        damaged.map_or_else(|| Ok(are_many()), Err)
    }

    /// Closes all collections, when no other thread uses the store. A collection that cannot be
    /// closed is counted at the next start.
    pub(crate) fn close_all(&self) {
        let mut failed = None;
        for (id, head_key) in self.counts.some(usize::MAX) {
            let Err(failure) = self.close_one(id, &head_key) else { continue };
            let is_last = !failure.is_of_damaged_page();
            failed.get_or_insert(failure);
            if is_last {
                break;
            }
        }
        if let Some(error) = failed {
            tracing::warn!(%error, "collections cannot be closed; the next start counts their elements");
        }
    }

    /// Writes the number of fields into a collection's head. The caller holds its key exclusively.
    fn close_one(&self, id: CollectionId, head_key: &[u8]) -> Result<()> {
        let Some(count) = self.counts.get(id) else { return Ok(()) };
        let closed = self.map.read(head_key, |value| match Head::decode(value) {
            Some(Head {
                content: Content::Collection(kind, found, Count::Open),
                expires_at,
                ..
            }) if found == id => {
                let content = Content::Collection(kind, id, Count::Known(count));
                Some(Head { expires_at, memcached: None, content }.encode())
            }
            _ => None,
        })?;
        if let Some(closed) = closed.flatten() {
            self.write(head_key, Some(&closed))?;
        }
        self.counts.forget(id);
        Ok(())
    }
}

impl Transaction<'_> {
    /// The number of fields of the collection at `key`, whose head has `count`.
    pub fn count_of(
        &self,
        space: u8,
        key: &[u8],
        (kind, id, count): (Kind, CollectionId, Count),
    ) -> Result<u64> {
        match count {
            Count::Known(count) => Ok(count),
            Count::Open => self.store().count_of(&head_key(space, key), kind, id, count),
        }
    }

    /// Opens the collection at `key`, which must have `count` fields and this expiry. Returns
    /// whether a command may change one element at once.
    pub(crate) fn open_collection(
        &mut self,
        (space, key): (u8, &[u8]),
        (kind, id, count): (Kind, CollectionId, u64),
        is_open: bool,
        expires_at: Option<u64>,
    ) -> Result<bool> {
        if !self.is_single() {
            return Ok(false);
        }
        if is_open {
            return Ok(true);
        }
        let store = self.store();
        if store.counts.len() >= MOST_OPEN {
            return Ok(false);
        }
        let full = head_key(space, key);
        let content = Content::Collection(kind, id, Count::Open);
        store.write(&full, Some(&Head { expires_at, memcached: None, content }.encode()))?;
        store.counts.put(id, &full, count);
        Ok(true)
    }

    /// Puts an element of an open collection at once; returns whether it is new. If `stays`, an
    /// element of that name keeps its value.
    pub(crate) fn put_element_at_once(
        &mut self,
        (space, key): (u8, &[u8]),
        (id, count): (CollectionId, u64),
        element: Element<'_>,
        value: &[u8],
        stays: bool,
    ) -> Result<bool> {
        let store = self.store();
        #[cfg(test)]
        store.refusals.step()?;
        let full = element_key(id, element);
        let upserted = store.map.modify(&full, |found, put| {
            if found.is_some() && stays {
                return false;
            }
            put.clear();
            put.extend_from_slice(value);
            true
        })?;
        let is_new = upserted == Some(pando::Upserted::Inserted);
        if upserted.is_some() {
            store.memory.note_write(full.len(), Some(value.len()));
            self.touch(space, key);
        }
        if is_new {
            store.counts.set(id, count + 1);
        }
        Ok(is_new)
    }

    /// Removes an element of an open collection at once; returns whether it existed. It must not be
    /// the last one.
    pub(crate) fn remove_element_at_once(
        &mut self,
        (space, key): (u8, &[u8]),
        (id, count): (CollectionId, u64),
        element: Element<'_>,
    ) -> Result<bool> {
        let store = self.store();
        #[cfg(test)]
        store.refusals.step()?;
        let is_there = store.remove(&element_key(id, element))?;
        if is_there {
            store.counts.set(id, count - 1);
            self.touch(space, key);
        }
        Ok(is_there)
    }

    /// Sets the score of a member of an open sorted set at once. `former` is its score, if it
    /// exists; it must differ.
    pub(crate) fn put_scored_at_once(
        &mut self,
        (space, key): (u8, &[u8]),
        (id, count): (CollectionId, u64),
        member: &[u8],
        former: Option<f64>,
        score: f64,
    ) -> Result<()> {
        let store = self.store();
        let by_score = element_key(id, Element::Scored(score, member));
        let by_name = element_key(id, Element::Field(member));
        let by_former = former.map(|former| element_key(id, Element::Scored(former, member)));
        let value = score.to_le_bytes();
        let mut writes: SmallVec<[LentWrite<'_>; 3]> = SmallVec::new();
        writes.push((&by_score, Some(&[])));
        writes.push((&by_name, Some(&value)));
        writes.extend(by_former.as_deref().map(|by_former| (by_former, None)));
        let is_committed = store.commit_with_log(&writes)?;
        if !is_committed {
            store.write(&by_score, Some(&[]))?;
            if let Err(error) = store.write(&by_name, Some(&value)) {
                if store.write(&by_score, None).is_err() {
                    store.counts.forget(id);
                }
                return Err(error);
            }
        }
        if former.is_none() {
            store.counts.set(id, count + 1);
        }
        if let Some(by_former) = by_former.as_deref().filter(|_| !is_committed) {
            self.remove_score(id, by_former);
        }
        self.touch(space, key);
        Ok(())
    }

    /// Removes a member of an open sorted set with that score at once. It must not be the last one.
    pub(crate) fn remove_scored_at_once(
        &mut self,
        (space, key): (u8, &[u8]),
        (id, count): (CollectionId, u64),
        member: &[u8],
        score: f64,
    ) -> Result<()> {
        let store = self.store();
        let by_name = element_key(id, Element::Field(member));
        let by_score = element_key(id, Element::Scored(score, member));
        let is_committed = store.commit_with_log(&[(&by_name, None), (&by_score, None)])?;
        if !is_committed {
            store.write(&by_name, None)?;
        }
        store.counts.set(id, count - 1);
        if !is_committed {
            self.remove_score(id, &by_score);
        }
        self.touch(space, key);
        Ok(())
    }

    /// Removes a record by a score that the member no longer has.
    fn remove_score(&self, id: CollectionId, by_score: &[u8]) {
        if let Err(error) = self.store().write(by_score, None) {
            tracing::warn!(%error, "an old score is not removed; the members of the sorted set will be counted again");
            self.store().counts.forget(id);
        }
    }
}
