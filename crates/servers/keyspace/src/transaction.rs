//! Reads and writes of one command, or of the commands between MULTI and EXEC.
//!
//! # Protocol
//!
//! Writes are kept in memory until [`Transaction::commit`]; the transaction's own reads see them.
//! (Two kinds are executed at once: a command's only change of a string, `change.rs`, and pieces
//! whose bytes do not count before the commit, `pieces.rs`.) `commits.rs` has the commit.
//!
//! An expiry entry is written before the head with that expiry, and removed after the head no
//! longer has it, or with the head in one commit. The sweep checks the head before it acts on an
//! entry. So an extra entry is harmless, and none is missing.

use std::cell::{Cell, RefCell};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

use pando::{KeyRange, Order};
use smallvec::SmallVec;

use crate::commits::Expiries;
use crate::failure::{Failure, Result, fail};
use crate::layout::{
    CollectionId, Content, Count, DATABASES, Element, Head, SPACES, Section, element_key, hash_of,
    head_key, head_prefix, section_prefix, split_element_key,
};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::{Held, stripe_of};
use crate::writes::Writes;

/// Heads that are read together.
const KEYS_AT_ONCE: usize = 16;

/// Heads of a space that are removed at once.
const SWEPT_AT_ONCE: usize = 1024;

impl Store {
    /// Begins a transaction under these locks, at the time `now_ms`.
    pub fn begin<'store>(&'store self, held: Held<'store>, now_ms: u64) -> Transaction<'store> {
        Transaction::new(self, held, now_ms)
    }
}

/// A transaction: reads and writes under the locks of its keys; see the module's documentation.
pub struct Transaction<'store> {
    store: &'store Store,
    held: Held<'store>,
    now_ms: u64,
    writes: Writes,
    /// Whether it has several commands.
    is_of_several: bool,
    /// Expiry entries to write, and to remove.
    new_expiries: SmallVec<[Vec<u8>; 1]>,
    old_expiries: SmallVec<[Vec<u8>; 1]>,
    /// Changes of the numbers of heads, by space and hash.
    counts: SmallVec<[(u8, u64, i64); 1]>,
    /// The sizes of open collections after the commit; `None` for closed or removed ones.
    open_counts: SmallVec<[(CollectionId, Option<u64>); 1]>,
    /// Numbers of its drafts: records that no head refers to before the commit.
    pub(crate) drafts: SmallVec<[CollectionId; 1]>,
    /// The spaces of the databases after the commit, if they change.
    spaces: Option<[u8; DATABASES as usize]>,
    lookups: Cell<Lookups>,
    /// The head that was read last, with what its removal needs: a command that changes a key has
    /// usually just read it.
    last: RefCell<Option<(Vec<u8>, Option<Former>)>>,
}

/// Results of key lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Keys that exist.
    pub found: u32,
    /// Keys that do not exist, or have expired.
    pub missed: u32,
}

/// What the removal of a head needs.
#[derive(Clone, Copy, Debug)]
struct Former {
    expires_at: Option<u64>,
    /// The number of the records that belong to it.
    id: Option<CollectionId>,
}

impl Former {
    fn of(head: &Head<'_>) -> Self {
        Self { expires_at: head.expires_at, id: head.content.id() }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // The transaction was not committed, but the watchers have moved to the other spaces
        // already.
        if self.spaces.is_some() {
            self.held.exclusive().for_each(|(_, stripe)| stripe.touch_all());
        }
        if !self.drafts.is_empty() {
            self.store.drafts.end(&self.drafts);
            // Drafts that were not committed are garbage.
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
            new_expiries: SmallVec::new(),
            old_expiries: SmallVec::new(),
            counts: SmallVec::new(),
            drafts: SmallVec::new(),
            open_counts: SmallVec::new(),
            spaces: None,
            lookups: Cell::default(),
            last: RefCell::default(),
        }
    }

    /// Makes this a transaction of several commands, whose writes all wait for the commit.
    pub fn gather_commands(&mut self) {
        self.is_of_several = true;
    }

    /// Whether it has one command, which has written nothing yet.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        !self.is_of_several && self.writes.is_empty() && self.spaces.is_none()
    }

    /// The lookups since the last call.
    #[inline]
    pub fn take_lookups(&self) -> Lookups {
        self.lookups.take()
    }

    fn note_lookups(&self, is_found: bool) {
        let Lookups { found, missed } = self.lookups.get();
        let (found, missed) = (found + u32::from(is_found), missed + u32::from(!is_found));
        self.lookups.set(Lookups { found, missed });
    }

    /// The store.
    pub fn store(&self) -> &'store Store {
        self.store
    }

    /// The time of the transaction, by the store's clock.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Its locks.
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

    /// Lends the head of a key; `None` if the key does not exist or has expired.
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

    /// Lends the heads of keys in order, as [`head`](Self::head) does, until `look` returns
    /// `false`. Their cache misses overlap. While `look` has the head of a long string, it may read
    /// the pieces.
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

    /// The head, unless it has expired.
    #[inline]
    fn unless_expired<'head>(&self, head: Option<Head<'head>>) -> Option<Head<'head>> {
        let head = head.filter(|head| !has_expired(head, self.now_ms));
        self.note_lookups(head.is_some());
        head
    }

    /// Puts the head of a key in place of its value, which is dropped. A string that is too long
    /// for a head is stored in pieces.
    pub fn put_head(&mut self, space: u8, key: &[u8], head: &Head<'_>) -> Result<()> {
        if let Content::String(bytes) = head.content
            && bytes.len() > self.store.long_above_bytes
        {
            let content = Content::Long(self.draft_string(bytes)?);
            return self.put_head(space, key, &Head { content, ..*head });
        }
        let full = head_key(space, key);
        let mut head = *head;
        if let Content::Collection(kind, id, count) = head.content {
            // A collection whose head is written is closed.
            let count = Count::Known(self.store.count_of(&full, kind, id, count)?);
            head.content = Content::Collection(kind, id, count);
        }
        let former = self.former(&full)?;
        let kept = head.content.id();
        if let Some(former) = former {
            if let Some(at_ms) = former.expires_at.filter(|_| former.expires_at != head.expires_at)
            {
                self.old_expiries.push(own_keys::expiry(at_ms, &full));
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
            self.new_expiries.push(own_keys::expiry(at_ms, &full));
        }
        self.store.memory.note_use(hash_of(key), self.now_ms);
        self.touch(space, key);
        self.write_head(full, Some(head.encode()));
        Ok(())
    }

    /// Removes the head of a key and its value; returns whether it existed and had not expired.
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

    /// Whether the key has expired, but its head still exists.
    pub fn is_overdue(&self, space: u8, key: &[u8]) -> Result<bool> {
        let former = self.former(&head_key(space, key))?;
        let expires_at = former.and_then(|former| former.expires_at);
        Ok(expires_at.is_some_and(|at_ms| at_ms <= self.now_ms))
    }

    /// Moves the head of a key, which must exist, with its value to `to`, in place of the value
    /// there.
    pub fn move_head(&mut self, from: (u8, &[u8]), to: (u8, &[u8])) -> Result<()> {
        let full = head_key(from.0, from.1);
        let value = self.read(&full, |value| value.map(<[u8]>::to_vec))?.ok_or(Failure::Damaged)?;
        let mut head = Head::decode(&value).ok_or(Failure::Damaged)?;
        if let Content::Collection(kind, id, count) = head.content {
            // The process keeps the size under the old key.
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
            self.old_expiries.push(own_keys::expiry(at_ms, &full));
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

    /// Notes the size of an open collection after the commit, if only elements change.
    pub(crate) fn count_open(&mut self, id: CollectionId, count: u64) {
        self.open_counts.push((id, Some(count)));
    }

    /// Whether it has several commands.
    pub fn is_of_several(&self) -> bool {
        self.is_of_several
    }

    /// Whether a write of a record waits for the commit.
    pub(crate) fn has_write(&self, key: &[u8]) -> bool {
        self.writes.get(key).is_some()
    }

    /// Keeps a write of a record for the commit.
    pub(crate) fn write_later(&mut self, key: Vec<u8>, write: Option<Vec<u8>>) {
        self.writes.insert(key, write);
    }

    /// Keeps a write or removal of a head for the commit.
    fn write_head(&mut self, full: Vec<u8>, write: Option<Vec<u8>>) {
        *self.last.get_mut() = None;
        self.writes.insert(full, write);
    }

    /// The space of a database.
    #[inline]
    pub fn space(&self, database: u8) -> u8 {
        self.spaces.map_or_else(|| self.store.space(database), |to| to[usize::from(database)])
    }

    /// The number of keys of `database`, with this transaction's own, and with expired ones that
    /// are not removed yet; `None` if it is not known, and so much must be read for it that other
    /// clients would wait. Then the keys are counted in the background.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or could not be in the background.
    pub fn count(&self, database: u8) -> Result<Option<u64>> {
        let space = self.space(database);
        if let Some(count) = self.store.known_heads(space) {
            let own = self.counts.iter().filter(|(of, ..)| *of == space);
            let own: i64 = own.map(|(_, _, delta)| delta).sum();
            return Ok(Some(count.saturating_add_signed(own)));
        }
        if self.store.page_bytes().is_some() || self.held.is_none() {
            let count = self.store.count_for_client(database)?;
            // The numbers became known meanwhile: they lack those of this transaction.
            let is_other = count.is_some() && !self.held.is_none();
            return if is_other { self.count(database) } else { Ok(count) };
        }
        // A holder of stripes must not wait for others.
        let range = KeyRange::between(&head_prefix(space, 0), &head_prefix(space + 1, 0));
        let mut count = 0;
        self.scan(range, Order::Ascending, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(Some(count))
    }

    /// Empties databases at once, at any size: they get empty spaces, and the sweep removes the old
    /// ones. All stripes must be held exclusively.
    pub fn flush(&mut self, databases: impl Iterator<Item = u8>) -> Result<()> {
        let mut spaces = self.spaces.unwrap_or_else(|| self.store.spaces());
        let mut used = [spaces, self.store.spaces()].concat();
        let mut exchanged: SmallVec<[(u8, u8); 1]> = SmallVec::new();
        for database in databases {
            let old = spaces[usize::from(database)];
            if self.is_surely_empty(old)? {
                continue;
            }
            let fresh = self.empty_space(&used)?;
            used.push(fresh);
            spaces[usize::from(database)] = fresh;
            exchanged.push((old, fresh));
        }
        // Nothing fails from here on. After an error the watchers are those of the old spaces.
        for (old, fresh) in exchanged {
            self.touch_space(old, &[old]);
            self.held.exclusive().for_each(|(_, stripe)| stripe.exchange_watchers(old, fresh));
        }
        self.set_spaces(spaces);
        Ok(())
    }

    /// An empty space that is not in `used`. If there is none, because the sweep is late, one is
    /// emptied first.
    fn empty_space(&self, used: &[u8]) -> Result<u8> {
        let unused = || (0..SPACES).filter(|space| !used.contains(space));
        let taken = |space| {
            self.store.unreadable.lock().spaces.remove(&space);
            Ok(space)
        };
        for space in unused() {
            if self.is_surely_empty(space)? {
                return taken(space);
            }
        }
        for space in unused() {
            match self.sweep_all_of(space) {
                Err(failure) if failure.is_of_damaged_page() => continue,
                swept => swept?,
            }
            // The remaining heads were put by this transaction.
            if self.is_surely_empty(space)? {
                return taken(space);
            }
        }
        Err(fail("ERR one transaction flushed too many databases"))
    }

    /// Removes all heads of a space that no database has.
    fn sweep_all_of(&self, space: u8) -> Result<()> {
        while !self.store.sweep_space(space, SWEPT_AT_ONCE, || false)?.1 {}
        Ok(())
    }

    /// Exchanges two databases. All stripes must be held exclusively.
    pub fn swap_databases(&mut self, one: u8, other: u8) {
        if one == other {
            return;
        }
        let mut spaces = self.spaces.unwrap_or_else(|| self.store.spaces());
        let both = [one, other].map(|database| spaces[usize::from(database)]);
        for space in both {
            self.touch_space(space, &both);
        }
        self.held.exclusive().for_each(|(_, stripe)| stripe.exchange_watchers(both[0], both[1]));
        spaces.swap(usize::from(one), usize::from(other));
        self.set_spaces(spaces);
    }

    fn set_spaces(&mut self, spaces: [u8; DATABASES as usize]) {
        self.writes.insert(own_keys::own("spaces"), Some(spaces.to_vec()));
        self.spaces = Some(spaces);
    }

    /// Notes a change of all keys of `space` that exist in one of the spaces `found_in`: a key that
    /// exists neither before nor after does not change.
    fn touch_space(&mut self, space: u8, found_in: &[u8]) {
        let (map, writes) = (&self.store.map, &self.writes);
        let is_there = |key: &[u8]| {
            found_in.iter().map(|&space| head_key(space, key)).any(|full| {
                let is_written = writes.get(&full).is_some_and(Option::is_some);
                // A key that cannot be read may have changed.
                is_written || map.read(&full, |_| ()).map_or(true, |found| found.is_some())
            })
        };
        self.held.exclusive().for_each(|(_, stripe)| stripe.touch_space(space, is_there));
    }

    /// Whether a space is empty. A damaged page of a record store may have keys.
    fn is_surely_empty(&self, space: u8) -> Result<bool> {
        match self.is_empty(space) {
            Err(failure) if failure.is_of_damaged_page() => Ok(false),
            is_empty => is_empty,
        }
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

    /// Notes a change of the value of `key`.
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

    /// Puts an element. The collection's key must be put or touched, too.
    pub(crate) fn put_element(&mut self, id: CollectionId, element: Element<'_>, value: &[u8]) {
        self.writes.insert(element_key(id, element), Some(value.to_vec()));
    }

    /// Removes an element. The collection's key must be put or touched, too.
    pub(crate) fn remove_element(&mut self, id: CollectionId, element: Element<'_>) {
        self.writes.insert(element_key(id, element), None);
    }

    /// Visits the elements of a section in order, from `low` to `high`: bounds of the keys' bytes
    /// after [`section_prefix`].
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

    /// Visits records, including the transaction's own writes.
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
        let mut scan = self.store.map.range(range);
        if self.writes.is_empty() {
            while let Some((key, value)) = scan.next_record_in(order)? {
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
        while let Some((key, value)) = scan.next_record_in(order)? {
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

    /// Makes all writes durable as one; after an error none has happened.
    pub fn commit(&mut self) -> Result<()> {
        let store = self.store;
        let writes = std::mem::take(&mut self.writes);
        let new = std::mem::take(&mut self.new_expiries);
        let old = std::mem::take(&mut self.old_expiries);
        let mut counts = std::mem::take(&mut self.counts);
        store.commit(&writes, Expiries { new: &new, old: &old })?;
        if let Some(spaces) = self.spaces.take() {
            store.set_spaces(spaces);
            // Counts of former spaces are not needed, and new spaces are counted from zero.
            counts.retain(|(space, ..)| spaces.contains(space));
            store.stripes.all_heads().for_each(|mut heads| heads.retain(&spaces));
        }
        for (space, hash, delta) in counts {
            store.stripes.heads(stripe_of(hash)).note(space, hash, delta);
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

/// The head, if it is a long string's, which borrows no bytes.
fn long_head(head: Head<'_>) -> Option<Head<'static>> {
    let Head { expires_at, memcached, content: Content::Long(long) } = head else { return None };
    Some(Head { expires_at, memcached, content: Content::Long(long) })
}

pub(crate) fn has_expired(head: &Head<'_>, now_ms: u64) -> bool {
    head.expires_at.is_some_and(|at_ms| at_ms <= now_ms)
}
