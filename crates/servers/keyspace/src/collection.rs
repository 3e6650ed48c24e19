//! A collection that a command reads or writes: found under its key, changed element by element,
//! and finished by writing its head with the new count.
//!
//! A command first looks and checks, then changes elements, then calls [`Collection::finish`]; one
//! that changes a single element, and nothing else, by [`Collection::put_only`] or its like, which
//! make that change at once if they can (`counts.rs`). A collection without elements is not
//! there, except for a range index, which is created by a command of its own. When a key expires
//! stays as it is, unless the collection replaces what was under the key.

use std::ops::{Bound, ControlFlow};

use pando::Order;

use crate::failure::{Result, WRONG_TYPE, fail_with};
use crate::layout::{CollectionId, Content, Count, Element, Head, Kind, MAX_NAME_BYTES, Section};
use crate::transaction::Transaction;

/// From where to where a visit goes among names.
pub type Bounds<'name> = (Bound<&'name [u8]>, Bound<&'name [u8]>);

/// Visits go on.
pub const ON: Result<ControlFlow<()>> = Ok(ControlFlow::Continue(()));
/// Visits end.
pub const ENOUGH: Result<ControlFlow<()>> = Ok(ControlFlow::Break(()));
/// All elements of a section.
pub const ALL: Bounds<'_> = (Bound::Unbounded, Bound::Unbounded);

/// A collection under a key; see the module.
#[derive(Clone, Debug)]
pub struct Collection<'key> {
    space: u8,
    key: &'key [u8],
    kind: Kind,
    id: CollectionId,
    count: u64,
    /// What it was, if the head is there and of this collection.
    count_before: Option<u64>,
    /// Whether the head leaves the count to the process.
    is_open: bool,
    /// Whether it takes the place of whatever is under the key.
    replaces: bool,
    expires_at: Option<u64>,
    is_changed: bool,
}

impl<'key> Collection<'key> {
    /// The collection under a key, which must be of that kind.
    pub fn find(
        transaction: &Transaction<'_>,
        space: u8,
        key: &'key [u8],
        kind: Kind,
    ) -> Result<Option<Self>> {
        let found = Self::find_any(transaction, space, key, &[kind])?;
        Ok(found)
    }

    /// The collection under a key, which must be of one of those kinds.
    pub fn find_any(
        transaction: &Transaction<'_>,
        space: u8,
        key: &'key [u8],
        kinds: &[Kind],
    ) -> Result<Option<Self>> {
        let found =
            transaction.head(space, key, |head| match head {
                None => Ok(None),
                Some(Head {
                    content: Content::Collection(kind, id, count), expires_at, ..
                }) if kinds.contains(&kind) => Ok(Some((kind, id, count, expires_at))),
                Some(_) => Err(WRONG_TYPE),
            })??;
        let Some((kind, id, count, expires_at)) = found else { return Ok(None) };
        let is_open = count == Count::Open;
        let count = transaction.count_of(space, key, (kind, id, count))?;
        Ok(Some(Self {
            space,
            key,
            kind,
            id,
            count,
            count_before: Some(count),
            is_open,
            replaces: false,
            expires_at,
            is_changed: false,
        }))
    }

    /// The collection under a key, or a new one.
    pub fn find_or_begin(
        transaction: &Transaction<'_>,
        space: u8,
        key: &'key [u8],
        kind: Kind,
    ) -> Result<Self> {
        match Self::find(transaction, space, key, kind)? {
            Some(found) => Ok(found),
            None => Ok(Self { replaces: false, ..Self::replacing(transaction, space, key, kind)? }),
        }
    }

    /// A new collection in place of whatever is under the key; if it stays empty, nothing will be.
    pub fn replacing(
        transaction: &Transaction<'_>,
        space: u8,
        key: &'key [u8],
        kind: Kind,
    ) -> Result<Self> {
        Ok(Self {
            space,
            key,
            kind,
            id: transaction.store().new_id()?,
            count: 0,
            count_before: None,
            is_open: false,
            replaces: true,
            expires_at: None,
            is_changed: false,
        })
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many fields it has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Lends the value of an element.
    pub fn get<Answer>(
        &self,
        transaction: &Transaction<'_>,
        element: Element<'_>,
        look: impl FnOnce(Option<&[u8]>) -> Answer,
    ) -> Result<Answer> {
        // None is that long; the map would refuse to look.
        if name_of(element).len() > MAX_NAME_BYTES {
            return Ok(look(None));
        }
        transaction.element(self.id, element, look)
    }

    /// Whether an element is there.
    pub fn has(&self, transaction: &Transaction<'_>, element: Element<'_>) -> Result<bool> {
        self.get(transaction, element, |value| value.is_some())
    }

    /// Puts an element; whether it is new.
    pub fn put(
        &mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
        value: &[u8],
    ) -> Result<bool> {
        // In a collection without fields nothing needs to be looked for.
        let is_new = self.count == 0 || !self.has(transaction, element)?;
        self.count += u64::from(is_new);
        self.put_uncounted(transaction, element, value);
        Ok(is_new)
    }

    /// Puts an element that is not there.
    pub fn put_new(
        &mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
        value: &[u8],
    ) {
        self.count += 1;
        self.put_uncounted(transaction, element, value);
    }

    /// Removes an element; whether it was there.
    pub fn remove(
        &mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
    ) -> Result<bool> {
        let is_there = self.count > 0 && self.has(transaction, element)?;
        if is_there {
            self.count -= 1;
            self.remove_uncounted(transaction, element);
        }
        Ok(is_there)
    }

    /// Whether a change of one element may be made at once, from here on.
    fn open(&mut self, transaction: &mut Transaction<'_>) -> Result<bool> {
        if self.count_before.is_none() {
            return Ok(false);
        }
        let what = (self.kind, self.id, self.count);
        let (space, key) = (self.space, self.key);
        let expires_at = self.expires_at;
        self.is_open = transaction.open_collection((space, key), what, self.is_open, expires_at)?;
        Ok(self.is_open)
    }

    /// Puts an element, the only change of a command, unless one of that name is there and `stays`;
    /// whether it is new.
    pub fn put_only(
        mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
        value: &[u8],
        stays: bool,
    ) -> Result<bool> {
        if self.open(transaction)? {
            let (at, what) = ((self.space, self.key), (self.id, self.count));
            return transaction.put_element_at_once(at, what, element, value, stays);
        }
        if stays && self.count > 0 && self.has(transaction, element)? {
            return Ok(false);
        }
        let is_new = self.put(transaction, element, value)?;
        self.finish(transaction)?;
        Ok(is_new)
    }

    /// Removes an element, the only change of a command; whether it was there.
    pub fn remove_only(
        mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
    ) -> Result<bool> {
        // None is that long; the map would refuse to look.
        let may_be = name_of(element).len() <= MAX_NAME_BYTES;
        if self.count > 1 && may_be && self.open(transaction)? {
            let (at, what) = ((self.space, self.key), (self.id, self.count));
            return transaction.remove_element_at_once(at, what, element);
        }
        let is_there = self.remove(transaction, element)?;
        self.finish(transaction)?;
        Ok(is_there)
    }

    /// Gives a member of a sorted set its score, the only change of a command. It has had `former`,
    /// if it was there.
    pub fn put_scored_only(
        mut self,
        transaction: &mut Transaction<'_>,
        member: &[u8],
        former: Option<f64>,
        score: f64,
    ) -> Result<()> {
        if self.open(transaction)? {
            let (at, what) = ((self.space, self.key), (self.id, self.count));
            return transaction.put_scored_at_once(at, what, member, former, one_zero(score));
        }
        self.put_scored(transaction, member, former, score)?;
        self.finish(transaction)
    }

    /// Removes a member of a sorted set, which has that score, the only change of a command.
    pub fn remove_scored_only(
        mut self,
        transaction: &mut Transaction<'_>,
        member: &[u8],
        score: f64,
    ) -> Result<()> {
        if self.count > 1 && self.open(transaction)? {
            let (at, what) = ((self.space, self.key), (self.id, self.count));
            return transaction.remove_scored_at_once(at, what, member, score);
        }
        self.remove_scored(transaction, member, score)?;
        self.finish(transaction)
    }

    /// Gives a member of a sorted set its score. It has had `former`, if it was there.
    pub fn put_scored(
        &mut self,
        transaction: &mut Transaction<'_>,
        member: &[u8],
        former: Option<f64>,
        score: f64,
    ) -> Result<()> {
        match former {
            Some(former) => self.remove_uncounted(transaction, Element::Scored(former, member)),
            None => self.count += 1,
        }
        let score = one_zero(score);
        self.put_uncounted(transaction, Element::Scored(score, member), &[]);
        self.put_uncounted(transaction, Element::Field(member), &score.to_le_bytes());
        Ok(())
    }

    /// Removes a member of a sorted set, which has that score.
    pub fn remove_scored(
        &mut self,
        transaction: &mut Transaction<'_>,
        member: &[u8],
        score: f64,
    ) -> Result<()> {
        self.remove_uncounted(transaction, Element::Scored(score, member));
        self.remove(transaction, Element::Field(member))?;
        Ok(())
    }

    /// Puts an element that does not count as a field.
    pub(crate) fn put_uncounted(
        &mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
        value: &[u8],
    ) {
        self.is_changed = true;
        transaction.put_element(self.id, element, value);
    }

    /// Removes an element that does not count as a field.
    pub(crate) fn remove_uncounted(
        &mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
    ) {
        self.is_changed = true;
        transaction.remove_element(self.id, element);
    }

    /// Removes all that it has; it must be finished next.
    pub fn clear(&mut self) {
        self.is_changed = true;
        self.count = 0;
    }

    /// Visits the elements of a section in order, until it is told to end.
    pub fn visit(
        &self,
        transaction: &Transaction<'_>,
        section: Section,
        bounds: Bounds<'_>,
        order: Order,
        mut visit: impl FnMut(Element<'_>, &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut outcome = Ok(());
        transaction.scan_elements(self.id, section, bounds, order, |element, value| {
            visit(element, value).unwrap_or_else(|failure| {
                outcome = Err(failure);
                ControlFlow::Break(())
            })
        })?;
        outcome
    }

    /// Writes the head, if there is anything to write.
    pub fn finish(self, transaction: &mut Transaction<'_>) -> Result<()> {
        if self.count == 0 && self.kind != Kind::RangeIndex {
            if self.replaces || self.count_before.is_some() && self.is_changed {
                transaction.remove_head(self.space, self.key)?;
            }
            return Ok(());
        }
        if self.count_before == Some(self.count) {
            if self.is_changed {
                transaction.touch(self.space, self.key);
            }
            return Ok(());
        }
        // The elements alone change, by one intent; the process knows how many they are.
        if self.is_open && !transaction.is_of_several() {
            transaction.count_open(self.id, self.count);
            transaction.touch(self.space, self.key);
            return Ok(());
        }
        let head = Head {
            expires_at: self.expires_at,
            memcached: None,
            content: Content::Collection(self.kind, self.id, Count::Known(self.count)),
        };
        transaction.put_head(self.space, self.key, &head)
    }
}

/// A score as it is stored: as in Redis's small sorted sets, both zeros are one.
fn one_zero(score: f64) -> f64 {
    score + 0.0
}

/// The name in an element.
pub fn name_of(element: Element<'_>) -> &[u8] {
    match element {
        Element::Field(name) | Element::Ordered(name) | Element::Scored(_, name) => name,
    }
}

/// Refuses a field that is longer than the store takes.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME_BYTES {
        return Err(fail_with(format!(
            "ERR a field or member of {} bytes is longer than the {MAX_NAME_BYTES} bytes that these may have",
            name.len()
        )));
    }
    Ok(())
}

/// A bound among names, where a name that is longer than any may be stands for its place among
/// them.
pub fn bound_of_name(bound: Bound<&[u8]>, is_low: bool) -> Bound<&[u8]> {
    match bound {
        Bound::Included(name) | Bound::Excluded(name) if name.len() > MAX_NAME_BYTES => {
            let cut = &name[..MAX_NAME_BYTES];
            // What it begins with is below it; all that are above that are above it.
            if is_low { Bound::Excluded(cut) } else { Bound::Included(cut) }
        }
        bound => bound,
    }
}
