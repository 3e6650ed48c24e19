//! How many fields open collections have.
//!
//! # Protocol
//!
//! A collection's head has the number of its fields, so a change of one element would be of two
//! records, by an intent. Most such changes are of collections that are changed again soon. So a
//! collection is *opened*: its head says that the number is kept by the process ([`Count::Open`]),
//! and from then on a command that changes one element writes that element's record alone, at once,
//! and the number in [`Counts`].
//!
//! | step | what is written | what a crash behind it leaves |
//! | --- | --- | --- |
//! | 1 | the head: open | a collection to be counted |
//! | 2 | an element: it decides; the number in memory | the same, with the element |
//! | ... | more elements | the same |
//! | n | the head with the number: it is *closed*, and the number in memory is forgotten | nothing is owed |
//!
//! An open head whose number is not in memory is one that a crash left: whoever comes to it counts
//! the elements, under the lock of the key ([`Store::recount`]). That takes as long as reading
//! them, once.
//!
//! An open collection has an element at least: the last one leaves by an intent, with the head, and
//! the first one comes by an intent, with the head.
//!
//! What closes a collection: an intent that has its head (several elements in MULTI, another key,
//! another time to expire), the sweep if many are open, and the end of the server. What removes it
//! lets the number go.
//!
//! # Sorted sets
//!
//! A member has two records, and the one by its name decides. The other one, by its score, is
//! written before it, and the one by its former score is removed behind it. So a crash leaves, in
//! an open sorted set alone, a record by a score that its member does not have. Whoever counts such
//! a set removes these. A write that is refused in between is undone; if that is refused, too, the
//! number is forgotten, so that who comes next counts, and removes it.

use pando::{KeyRange, Order};

use crate::failure::{Failure, Result};
use crate::layout::{
    CollectionId, Content, Count, Element, Head, Kind, Section, element_key, head_key,
    section_prefix, split_element_key, split_head_key,
};
use crate::store::Store;
use crate::stripes::{Access, stripe_of};
use crate::transaction::Transaction;

/// Open collections at most; more are changed with their heads.
const MOST_OPEN: usize = 1 << 16;
/// Collections that the sweep closes at once.
const CLOSED_AT_ONCE: usize = 256;

impl Store {
    /// How many fields a collection has whose head is at that key and says `count`.
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

    /// Counts the elements of an open collection that a crash left, and removes what it left of a
    /// sorted set's change. Two that only read may do so at once: both find and do the same.
    #[cold]
    fn recount(&self, full: &[u8], kind: Kind, id: CollectionId) -> Result<u64> {
        let section = match kind {
            Kind::RangeIndex => Section::Ordered,
            _ => Section::Fields,
        };
        let range = KeyRange::prefix(&section_prefix(id, section));
        let mut scan = self.map.scan(range, Order::Ascending)?;
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

    /// Removes records by scores that their members do not have.
    fn remove_former_scores(&self, id: CollectionId) -> Result<()> {
        let range = KeyRange::prefix(&section_prefix(id, Section::Scored));
        let mut scan = self.map.scan(range, Order::Ascending)?;
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

    /// Closes some collections, if many are open.
    pub(crate) fn close_some(&self) -> Result<()> {
        if self.counts.len() <= MOST_OPEN / 2 {
            return Ok(());
        }
        for (id, head_key) in self.counts.some(CLOSED_AT_ONCE) {
            let (_, hash, _) = split_head_key(&head_key).ok_or(Failure::Damaged)?;
            let _held = self.lock([stripe_of(hash)].into_iter().collect(), Access::Alone)?;
            self.close_one(id, &head_key)?;
        }
        Ok(())
    }

    /// Closes all, when nobody else uses the store any more. One that cannot be closed is counted
    /// anew at the next start.
    pub(crate) fn close_all(&self) {
        for (id, head_key) in self.counts.some(usize::MAX) {
            if let Err(error) = self.close_one(id, &head_key) {
                tracing::warn!(%error, "collections are counted anew at the next start");
                break;
            }
        }
    }

    /// Writes the number of a collection's fields into its head. The caller holds its key alone.
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
    /// How many fields a collection has that the head at `key` leads to and says `count` of.
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

    /// Opens the collection at `key`, unless it is open; whether its elements may be changed at
    /// once, one by a command. It must be there, with `count` fields, and expire then.
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

    /// Puts an element of an open collection at once, unless one of that name is there and `stays`;
    /// whether it is new.
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

    /// Removes an element of an open collection at once; whether it was there. It must not be the
    /// last one.
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

    /// Gives a member of an open sorted set its score at once. It has had `former`, another one, if
    /// it was there.
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
        store.write(&by_score, Some(&[]))?;
        let by_name = element_key(id, Element::Field(member));
        if let Err(error) = store.write(&by_name, Some(&score.to_le_bytes())) {
            if store.write(&by_score, None).is_err() {
                store.counts.forget(id);
            }
            return Err(error);
        }
        match former {
            None => store.counts.set(id, count + 1),
            Some(former) => self.remove_score(id, former, member),
        }
        self.touch(space, key);
        Ok(())
    }

    /// Removes a member of an open sorted set, which has that score, at once. It must not be the
    /// last one.
    pub(crate) fn remove_scored_at_once(
        &mut self,
        (space, key): (u8, &[u8]),
        (id, count): (CollectionId, u64),
        member: &[u8],
        score: f64,
    ) -> Result<()> {
        let store = self.store();
        store.write(&element_key(id, Element::Field(member)), None)?;
        store.counts.set(id, count - 1);
        self.remove_score(id, score, member);
        self.touch(space, key);
        Ok(())
    }

    /// Removes the record by a score that a member has no more.
    fn remove_score(&self, id: CollectionId, score: f64, member: &[u8]) {
        let by_score = element_key(id, Element::Scored(score, member));
        if let Err(error) = self.store().write(&by_score, None) {
            tracing::warn!(%error, "a sorted set is counted anew");
            self.store().counts.forget(id);
        }
    }
}
