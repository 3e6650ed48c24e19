//! What one command, or the commands between MULTI and EXEC, read and write.
//!
//! # Protocol
//!
//! Writes are kept in memory until [`Transaction::commit`], and seen by the transaction's own
//! reads. (Made at once are the only change of one string, `change.rs`, and pieces of long strings
//! that do not count before the commit, `pieces.rs`.) Committed, one write of a record is one
//! operation of the index, which decides; several are an intent (`intents.rs`).
//!
//! An entry of what expires when is written before the head that says the same, and removed after
//! the head no longer does: the sweep looks at the head before it believes an entry, so an entry
//! too many is harmless, and none is missing.

use std::cell::{Cell, RefCell};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

use pando::{KeyRange, Order};
use smallvec::SmallVec;

use crate::failure::{Failure, Result, fail};
use crate::layout::{
    CollectionId, Content, Count, DATABASES, Element, Head, LONG_ABOVE_BYTES, SPACES, Section,
    element_key, hash_of, head_key, head_prefix, section_prefix, split_element_key,
};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::{Held, stripe_of};
use crate::writes::Writes;

/// Keys whose heads are looked for together.
const KEYS_AT_ONCE: usize = 16;

/// Heads of a space that are removed at once.
const SWEPT_AT_ONCE: usize = 1024;

impl Store {
    /// A transaction under locks that are held, at this moment.
    pub fn begin<'store>(&'store self, held: Held<'store>, now_ms: u64) -> Transaction<'store> {
        Transaction::new(self, held, now_ms)
    }
}

/// Reads and writes under the locks of the keys that they concern; see the module.
pub struct Transaction<'store> {
    store: &'store Store,
    held: Held<'store>,
    now_ms: u64,
    writes: Writes,
    /// Whether it is of several commands.
    is_of_several: bool,
    /// Entries of the sweep that are to be there before, and to be gone after.
    expiries_before: SmallVec<[Vec<u8>; 1]>,
    expiries_after: SmallVec<[Vec<u8>; 1]>,
    /// Heads more or less, by space and hash.
    counts: SmallVec<[(u8, u64, i64); 1]>,
    /// How many fields open collections have from the commit on; none for those that are closed, or
    /// gone.
    open_counts: SmallVec<[(CollectionId, Option<u64>); 1]>,
    /// Numbers of records that it has written and that nothing leads to before the commit.
    pub(crate) drafts: SmallVec<[CollectionId; 1]>,
    /// The databases' spaces from the commit on, if they change.
    spaces: Option<[u8; DATABASES as usize]>,
    looked: Cell<Looked>,
    /// The head that was looked at last, and what its removal needs: a command that changes a key
    /// has most often just looked at it.
    last: RefCell<Option<(Vec<u8>, Option<Former>)>>,
}

/// Keys that were looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Those that were there.
    pub found: u32,
    /// Those that were not, or had expired.
    pub missed: u32,
}

/// What a head replaces or leaves: all that its removal needs.
#[derive(Clone, Copy, Debug)]
struct Former {
    expires_at: Option<u64>,
    /// The number of the records that it leads to.
    id: Option<CollectionId>,
}

impl Former {
    fn of(head: &Head<'_>) -> Self {
        Self { expires_at: head.expires_at, id: head.content.id() }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Databases were to have other spaces, and their watchers wait there already, but it was
        // not committed.
        if self.spaces.is_some() {
            self.held.alone().for_each(|(_, stripe)| stripe.touch_all());
        }
        if !self.drafts.is_empty() {
            self.store.drafts.end(&self.drafts);
            // Those that were not committed.
            self.store.has_garbage.store(true, Ordering::Release);
        }
    }
}

impl<'store> Transaction<'store> {
    pub(crate) fn new(store: &'store Store, held: Held<'store>, now_ms: u64) -> Self {
        Self {
            store,
            held,
            now_ms,
            writes: Writes::default(),
            is_of_several: false,
            expiries_before: SmallVec::new(),
            expiries_after: SmallVec::new(),
            counts: SmallVec::new(),
            drafts: SmallVec::new(),
            open_counts: SmallVec::new(),
            spaces: None,
            looked: Cell::default(),
            last: RefCell::default(),
        }
    }

    /// It is to be one of several commands, whose writes all wait for the commit.
    pub fn gather_commands(&mut self) {
        self.is_of_several = true;
    }

    /// Whether it is of one command, which has written nothing so far.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        !self.is_of_several && self.writes.is_empty() && self.spaces.is_none()
    }

    /// The keys that were looked for since this was asked last.
    #[inline]
    pub fn take_looked(&self) -> Looked {
        self.looked.take()
    }

    fn note_looked(&self, is_found: bool) {
        let Looked { found, missed } = self.looked.get();
        let (found, missed) = (found + u32::from(is_found), missed + u32::from(!is_found));
        self.looked.set(Looked { found, missed });
    }

    /// The store.
    pub fn store(&self) -> &'store Store {
        self.store
    }

    /// The moment at which all in the transaction happens, by the store's clock.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The locks that are held.
    pub fn held(&mut self) -> &mut Held<'store> {
        &mut self.held
    }

    /// Lends a record's value.
    #[inline]
    pub(crate) fn read<Answer>(
        &self,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> Answer,
    ) -> Result<Answer> {
        if !self.writes.is_empty()
            && let Some(write) = self.writes.get(key)
        {
            return Ok(look(write.as_deref()));
        }
        let mut look = Some(look);
        let found = self.store.map.read(key, |value| look.take().map(|look| look(Some(value))))?;
        match (found.flatten(), look) {
            (Some(answer), _) => Ok(answer),
            (None, Some(look)) => Ok(look(None)),
            (None, None) => Err(Failure::Damaged),
        }
    }

    /// Lends the head of a key, which is not there if it has expired.
    #[inline]
    pub fn head<Answer>(
        &self,
        space: u8,
        key: &[u8],
        look: impl FnOnce(Option<Head<'_>>) -> Answer,
    ) -> Result<Answer> {
        self.store.memory.note_use(hash_of(key), self.now_ms);
        let full = head_key(space, key);
        let found = self.read(&full, |value| {
            let head = Head::decode_found(value)?;
            Ok((head.as_ref().map(Former::of), look(self.unless_expired(head))))
        })?;
        found.map(|(former, answer)| {
            *self.last.borrow_mut() = Some((full, former));
            answer
        })
    }

    /// Lends the heads of keys, in order, as [`head`](Self::head) does one, until `look` says that
    /// it is enough. Their waits for memory overlap. When `look` gets the head of a long string, it
    /// may read its pieces.
    pub fn heads(
        &self,
        space: u8,
        keys: &[&[u8]],
        mut look: impl FnMut(Option<Head<'_>>) -> Result<bool>,
    ) -> Result<()> {
        if !self.writes.is_empty() {
            for key in keys {
                let looked = self.head(space, key, |head| match head.and_then(long_head) {
                    Some(long) => Err(long),
                    None => Ok(look(head)),
                })?;
                if !looked.unwrap_or_else(|long| look(Some(long)))? {
                    break;
                }
            }
            return Ok(());
        }
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let full: SmallVec<[Vec<u8>; KEYS_AT_ONCE]> =
                keys.iter().map(|key| head_key(space, key)).collect();
            let lent: SmallVec<[&[u8]; KEYS_AT_ONCE]> = full.iter().map(Vec::as_slice).collect();
            let mut begin = 0;
            while begin < lent.len() {
                let (mut looked, mut long) = (Ok(true), None);
                self.store.map.read_many(&lent[begin..], |index, value| {
                    if let (Ok(true), None) = (&looked, &long) {
                        self.store.memory.note_use(hash_of(keys[begin + index]), self.now_ms);
                        looked = Head::decode_found(value).and_then(|head| {
                            let head = self.unless_expired(head);
                            long = head.and_then(long_head).map(|long| (index, long));
                            if long.is_none() { look(head) } else { Ok(true) }
                        });
                    }
                })?;
                begin = match long {
                    Some((index, head)) => {
                        looked = look(Some(head));
                        begin + index + 1
                    }
                    None => lent.len(),
                };
                if !looked? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A head that was looked for, or none if its time has come.
    #[inline]
    fn unless_expired<'head>(&self, head: Option<Head<'head>>) -> Option<Head<'head>> {
        let head = head.filter(|head| !has_expired(head, self.now_ms));
        self.note_looked(head.is_some());
        head
    }

    /// Puts the head of a key in place of whatever is there, which goes for good. A string that is
    /// too long for a head is put in pieces.
    pub fn put_head(&mut self, space: u8, key: &[u8], head: &Head<'_>) -> Result<()> {
        if let Content::String(bytes) = head.content
            && bytes.len() > LONG_ABOVE_BYTES
        {
            let content = Content::Long(self.draft_string(bytes)?);
            return self.put_head(space, key, &Head { content, ..*head });
        }
        let full = head_key(space, key);
        let mut head = *head;
        if let Content::Collection(kind, id, count) = head.content {
            // What is written with its head is closed.
            let count = Count::Known(self.store.count_of(&full, kind, id, count)?);
            head.content = Content::Collection(kind, id, count);
        }
        let former = self.former(&full)?;
        let kept = head.content.id();
        if let Some(former) = former {
            if let Some(at_ms) = former.expires_at.filter(|_| former.expires_at != head.expires_at)
            {
                self.expiries_after.push(own_keys::expiry(at_ms, &full));
            }
            if let Some(id) = former.id {
                self.open_counts.push((id, None));
            }
            if let Some(id) = former.id.filter(|_| former.id != kept) {
                self.writes.insert(own_keys::garbage(id), Some(Vec::new()));
            }
        } else {
            self.counts.push((space, hash_of(key), 1));
        }
        if let Some(at_ms) = head.expires_at
            && former.is_none_or(|former| former.expires_at != head.expires_at)
        {
            self.expiries_before.push(own_keys::expiry(at_ms, &full));
        }
        self.store.memory.note_use(hash_of(key), self.now_ms);
        self.touch(space, key);
        self.write_head(full, Some(head.encode()));
        Ok(())
    }

    /// Removes the head of a key, and with it all that it holds; whether it was there, and had not
    /// expired.
    pub fn remove_head(&mut self, space: u8, key: &[u8]) -> Result<bool> {
        let full = head_key(space, key);
        let Some(former) = self.former(&full)? else { return Ok(false) };
        if let Some(id) = former.id {
            self.open_counts.push((id, None));
            self.writes.insert(own_keys::garbage(id), Some(Vec::new()));
        }
        self.leave(space, key, full, former);
        Ok(former.expires_at.is_none_or(|at_ms| at_ms > self.now_ms))
    }

    /// Whether the head of a key is there still although its time has come.
    pub fn is_overdue(&self, space: u8, key: &[u8]) -> Result<bool> {
        let former = self.former(&head_key(space, key))?;
        let expires_at = former.and_then(|former| former.expires_at);
        Ok(expires_at.is_some_and(|at_ms| at_ms <= self.now_ms))
    }

    /// Moves the head of a key, and with it all that it holds, in place of whatever is at `to`. It
    /// must be there.
    pub fn move_head(&mut self, from: (u8, &[u8]), to: (u8, &[u8])) -> Result<()> {
        let full = head_key(from.0, from.1);
        let value = self.read(&full, |value| value.map(<[u8]>::to_vec))?.ok_or(Failure::Damaged)?;
        let mut head = Head::decode(&value).ok_or(Failure::Damaged)?;
        if let Content::Collection(kind, id, count) = head.content {
            // The process has the number with the key that it leaves.
            let count = Count::Known(self.store.count_of(&full, kind, id, count)?);
            head.content = Content::Collection(kind, id, count);
            self.open_counts.push((id, None));
        }
        let former = Former { expires_at: head.expires_at, id: None };
        self.put_head(to.0, to.1, &head)?;
        self.leave(from.0, from.1, full, former);
        Ok(())
    }

    fn leave(&mut self, space: u8, key: &[u8], full: Vec<u8>, former: Former) {
        if let Some(at_ms) = former.expires_at {
            self.expiries_after.push(own_keys::expiry(at_ms, &full));
        }
        self.counts.push((space, hash_of(key), -1));
        self.touch(space, key);
        self.write_head(full, None);
    }

    /// What is at a head's key, expired or not.
    fn former(&self, full: &[u8]) -> Result<Option<Former>> {
        if let Some((_, former)) = self.last.borrow().as_ref().filter(|(last, _)| last == full) {
            return Ok(*former);
        }
        self.read(full, |value| Ok(Head::decode_found(value)?.as_ref().map(Former::of)))?
    }

    /// Notes how many fields an open collection has from the commit on, of which only elements
    /// change.
    pub(crate) fn count_open(&mut self, id: CollectionId, count: u64) {
        self.open_counts.push((id, Some(count)));
    }

    /// Whether it is of several commands.
    pub(crate) fn is_of_several(&self) -> bool {
        self.is_of_several
    }

    /// Whether there is a write of a record that waits for the commit.
    pub(crate) fn has_write(&self, key: &[u8]) -> bool {
        self.writes.get(key).is_some()
    }

    /// Notes a write of a record for the commit.
    pub(crate) fn write_later(&mut self, key: Vec<u8>, write: Option<Vec<u8>>) {
        self.writes.insert(key, write);
    }

    /// Writes a head, or removes it.
    fn write_head(&mut self, full: Vec<u8>, write: Option<Vec<u8>>) {
        *self.last.get_mut() = None;
        self.writes.insert(full, write);
    }

    /// The space of a database.
    #[inline]
    pub fn space(&self, database: u8) -> u8 {
        self.spaces.map_or_else(|| self.store.space(database), |to| to[usize::from(database)])
    }

    /// How many keys `database` has, this transaction's among them; those that have expired and
    /// were not removed yet count. Between MULTI and EXEC it reads all keys.
    pub fn count(&self, database: u8) -> Result<u64> {
        if self.held.is_none() {
            return self.store.count(database);
        }
        // Who holds stripes cannot wait for others'.
        let space = self.space(database);
        let range = KeyRange::between(&head_prefix(space, 0), &head_prefix(space + 1, 0));
        let mut count = 0;
        self.scan(range, Order::Ascending, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Empties databases at once, whatever their size: they get spaces in which nothing is, and the
    /// sweep removes the old ones. All stripes must be held alone.
    pub fn flush(&mut self, databases: impl Iterator<Item = u8>) -> Result<()> {
        let mut spaces = self.spaces.unwrap_or_else(|| self.store.spaces());
        let mut used = [spaces, self.store.spaces()].concat();
        for database in databases {
            let old = spaces[usize::from(database)];
            if self.is_empty(old)? {
                continue;
            }
            let fresh = self.empty_space(&used)?;
            used.push(fresh);
            spaces[usize::from(database)] = fresh;
            self.touch_space(old, &[old]);
            self.held.alone().for_each(|(_, stripe)| stripe.exchange_watchers(old, fresh));
        }
        self.set_spaces(spaces);
        Ok(())
    }

    /// A space with nothing in it that is none of `used`. If there is none, since the sweep is
    /// behind with what was flushed, one is emptied first.
    fn empty_space(&self, used: &[u8]) -> Result<u8> {
        let unused = || (0..SPACES).filter(|space| !used.contains(space));
        for space in unused() {
            if self.is_empty(space)? {
                return Ok(space);
            }
        }
        for space in unused() {
            while !self.store.sweep_space(space, SWEPT_AT_ONCE)?.1 {}
            // What is left there was put by this transaction.
            if self.is_empty(space)? {
                return Ok(space);
            }
        }
        Err(fail("ERR too many databases were filled and flushed in one transaction"))
    }

    /// Exchanges two databases. All stripes must be held alone.
    pub fn swap_databases(&mut self, one: u8, other: u8) {
        if one == other {
            return;
        }
        let mut spaces = self.spaces.unwrap_or_else(|| self.store.spaces());
        let both = [one, other].map(|database| spaces[usize::from(database)]);
        for space in both {
            self.touch_space(space, &both);
        }
        self.held.alone().for_each(|(_, stripe)| stripe.exchange_watchers(both[0], both[1]));
        spaces.swap(usize::from(one), usize::from(other));
        self.set_spaces(spaces);
    }

    fn set_spaces(&mut self, spaces: [u8; DATABASES as usize]) {
        self.writes.insert(own_keys::own("spaces"), Some(spaces.to_vec()));
        self.spaces = Some(spaces);
    }

    /// Notes a change of all keys of `space` that one of the spaces `found_in` has: what is neither
    /// there before nor after does not change.
    fn touch_space(&mut self, space: u8, found_in: &[u8]) {
        let (map, writes) = (&self.store.map, &self.writes);
        let is_there = |key: &[u8]| {
            found_in.iter().map(|&space| head_key(space, key)).any(|full| {
                let is_written = writes.get(&full).is_some_and(Option::is_some);
                // What cannot be read has changed, for all we know.
                is_written || map.read(&full, |_| ()).map_or(true, |found| found.is_some())
            })
        };
        self.held.alone().for_each(|(_, stripe)| stripe.touch_space(space, is_there));
    }

    fn is_empty(&self, space: u8) -> Result<bool> {
        let mut is_empty = true;
        let range = KeyRange::between(&head_prefix(space, 0), &head_prefix(space + 1, 0));
        self.scan(range, Order::Ascending, |_, _| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        Ok(is_empty)
    }

    /// Notes a change of what `key` holds.
    pub(crate) fn touch(&mut self, space: u8, key: &[u8]) {
        if let Some(stripe) = self.held.stripe_mut(stripe_of(hash_of(key))) {
            stripe.touch(space, key);
        }
    }

    /// Lends the value of an element.
    pub(crate) fn element<Answer>(
        &self,
        id: CollectionId,
        element: Element<'_>,
        look: impl FnOnce(Option<&[u8]>) -> Answer,
    ) -> Result<Answer> {
        self.read(&element_key(id, element), look)
    }

    /// Puts an element. The key that the collection is under must be put or touched too.
    pub(crate) fn put_element(&mut self, id: CollectionId, element: Element<'_>, value: &[u8]) {
        self.writes.insert(element_key(id, element), Some(value.to_vec()));
    }

    /// Removes an element. The key that the collection is under must be put or touched too.
    pub(crate) fn remove_element(&mut self, id: CollectionId, element: Element<'_>) {
        self.writes.insert(element_key(id, element), None);
    }

    /// Visits the elements of a section in order, from `low` to `high`: what stands in their keys
    /// behind [`section_prefix`].
    pub fn scan_elements(
        &self,
        id: CollectionId,
        section: Section,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        mut visit: impl FnMut(Element<'_>, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let prefix = section_prefix(id, section);
        let whole = KeyRange::prefix(&prefix);
        let full = |bound: Bound<&[u8]>| bound.map(|bytes| [&prefix, bytes].concat());
        let range = KeyRange {
            low: if low == Bound::Unbounded { whole.low } else { full(low) },
            high: if high == Bound::Unbounded { whole.high } else { full(high) },
        };
        let mut is_damaged = false;
        self.scan(range, order, |key, value| match split_element_key(key) {
            Some(element) => visit(element, value),
            None => {
                is_damaged = true;
                ControlFlow::Break(())
            }
        })?;
        if is_damaged { Err(Failure::Damaged) } else { Ok(()) }
    }

    /// Visits records, the transaction's own writes among them.
    pub(crate) fn scan(
        &self,
        range: KeyRange,
        order: Order,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let is_empty = match (&range.low, &range.high) {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high))
            | (Bound::Excluded(low), Bound::Included(high)) => low >= high,
            _ => false,
        };
        if is_empty {
            return Ok(());
        }
        let bounds = (range.low.clone(), range.high.clone());
        let mut scan = self.store.map.scan(range, order)?;
        if self.writes.is_empty() {
            while let Some((key, value)) = scan.next_record()? {
                if visit(key, value).is_break() {
                    break;
                }
            }
            return Ok(());
        }
        let mut own: Vec<_> = self.writes.range(bounds).collect();
        if order == Order::Descending {
            own.reverse();
        }
        let comes_first = |one: &[u8], other: &[u8]| match order {
            Order::Ascending => one < other,
            Order::Descending => one > other,
        };
        let mut lend = |key: &[u8], value: Option<&[u8]>| match value {
            Some(value) => visit(key, value),
            None => ControlFlow::Continue(()),
        };
        let mut own = own.into_iter().peekable();
        while let Some((key, value)) = scan.next_record()? {
            while let Some((written, write)) = own.next_if(|(own, _)| comes_first(own, key)) {
                if lend(written, write.as_deref()).is_break() {
                    return Ok(());
                }
            }
            let visited = match own.next_if(|(written, _)| *written == key) {
                Some((written, write)) => lend(written, write.as_deref()),
                None => lend(key, Some(value)),
            };
            if visited.is_break() {
                return Ok(());
            }
        }
        for (written, write) in own {
            if lend(written, write.as_deref()).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Makes all writes durable, as one; after an error none has been made.
    pub fn commit(&mut self) -> Result<()> {
        let store = self.store;
        let writes = std::mem::take(&mut self.writes);
        let before = std::mem::take(&mut self.expiries_before);
        let after = std::mem::take(&mut self.expiries_after);
        let mut counts = std::mem::take(&mut self.counts);
        for entry in &before {
            store.map.upsert(entry, &[])?;
        }
        match writes.only() {
            Some((key, write)) => store.write(key, write)?,
            None if writes.is_empty() => {}
            None => store.commit_many(&writes)?,
        }
        // An entry may be of one write and against another.
        for entry in after.iter().filter(|entry| !before.contains(entry)) {
            // One that stays is passed over by the sweep.
            let _ = store.map.remove(entry);
        }
        if let Some(spaces) = self.spaces.take() {
            store.set_spaces(spaces);
            // Of the spaces that were given up nobody asks, and new ones are counted from zero.
            counts.retain(|(space, ..)| spaces.contains(space));
            self.held.alone().for_each(|(_, stripe)| {
                if let Some(counts) = &mut stripe.counts {
                    counts.retain(|(space, _)| spaces.contains(space));
                }
            });
        }
        for (space, hash, delta) in counts {
            if let Some(stripe) = self.held.stripe_mut(stripe_of(hash)) {
                stripe.count(space, delta);
            }
        }
        for (id, count) in std::mem::take(&mut self.open_counts) {
            match count {
                Some(count) => store.counts.set(id, count),
                None => store.counts.forget(id),
            }
        }
        if writes.iter().any(|(key, _)| own_keys::split_garbage(key).is_some()) {
            store.has_garbage.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// The head, if it is a long string's: it lends no bytes.
fn long_head(head: Head<'_>) -> Option<Head<'static>> {
    let Head { expires_at, memcached, content: Content::Long(long) } = head else { return None };
    Some(Head { expires_at, memcached, content: Content::Long(long) })
}

pub(crate) fn has_expired(head: &Head<'_>, now_ms: u64) -> bool {
    head.expires_at.is_some_and(|at_ms| at_ms <= now_ms)
}
