//! A collection that a command reads or writes. The command finds it by its key, changes elements,
//! and writes the head with the new count at the end.
//!
//! A command first reads and checks, then changes elements, then calls [`Collection::finish`]. A
//! command whose only change is one element calls [`Collection::put_only`] or a similar function,
//! which writes the element at once if it can (`counts.rs`). A collection without elements does not
//! exist, except for a range index, which has a command to create it. A change keeps the key's
//! expiry, unless the collection replaces the key's value.

use std::ops::{Bound, ControlFlow};

use pando::Order;

use crate::failure::{Result, WRONG_TYPE, fail_with};
use crate::layout::{CollectionId, Content, Count, Element, Head, Kind, MAX_NAME_BYTES, Section};
use crate::transaction::Transaction;

/// The bounds of a visit among names.
pub type Bounds<'name> = (Bound<&'name [u8]>, Bound<&'name [u8]>);

/// Continues a visit.
pub const ON: Result<ControlFlow<()>> = Ok(ControlFlow::Continue(()));
/// Ends a visit.
pub const ENOUGH: Result<ControlFlow<()>> = Ok(ControlFlow::Break(()));
/// All elements of a section.
pub const ALL: Bounds<'_> = (Bound::Unbounded, Bound::Unbounded);

/// A collection under a key; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Collection<'key> {
    space: u8,
    key: &'key [u8],
    kind: Kind,
    id: CollectionId,
    count: u64,
    /// Its count before the command, if the key holds this collection.
    count_before: Option<u64>,
    /// Whether its count is kept in process memory ([`Count::Open`]).
    is_open: bool,
    /// Whether it replaces the key's value.
    replaces: bool,
    expires_at: Option<u64>,
    is_changed: bool,
}

impl<'key> Collection<'key> {
    /// Finds the collection under a key; another kind of value is an error.
    pub fn find(
        transaction: &Transaction<'_>,
        space: u8,
        key: &'key [u8],
        kind: Kind,
    ) -> Result<Option<Self>> {
        let found = Self::find_any(transaction, space, key, &[kind])?;
        Ok(found)
    }

    /// Finds the collection under a key; a value of none of these kinds is an error.
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

    /// Finds the collection under a key, or begins a new one.
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

    /// Begins a new collection that replaces the key's value. If it stays empty, the key is
    /// removed.
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

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of its fields.
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
        // No element has so long a name, and the map would refuse to search for it.
        if name_of(element).len() > MAX_NAME_BYTES {
            return Ok(look(None));
        }
        transaction.element(self.id, element, look)
    }

    /// Whether an element exists.
    pub fn has(&self, transaction: &Transaction<'_>, element: Element<'_>) -> Result<bool> {
        self.get(transaction, element, |value| value.is_some())
    }

    /// Puts an element; returns whether it is new.
    pub fn put(
        &mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
        value: &[u8],
    ) -> Result<bool> {
        // In an empty collection the element is new.
        let is_new = self.count == 0 || !self.has(transaction, element)?;
        self.count += u64::from(is_new);
        self.put_uncounted(transaction, element, value);
        Ok(is_new)
    }

    /// Puts an element that does not exist.
    pub fn put_new(
        &mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
        value: &[u8],
    ) {
        self.count += 1;
        self.put_uncounted(transaction, element, value);
    }

    /// Removes an element; returns whether it existed.
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

    /// Opens the collection for changes of one element at once; whether that is possible.
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

    /// Puts an element as the only change of a command; returns whether it is new. If `stays`, an
    /// element of that name keeps its value.
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

    /// Removes an element as the only change of a command; returns whether it existed.
    pub fn remove_only(
        mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
    ) -> Result<bool> {
        // No element has so long a name, and the map would refuse to search for it.
        let may_be = name_of(element).len() <= MAX_NAME_BYTES;
        if self.count > 1 && may_be && self.open(transaction)? {
            let (at, what) = ((self.space, self.key), (self.id, self.count));
            return transaction.remove_element_at_once(at, what, element);
        }
        let is_there = self.remove(transaction, element)?;
        self.finish(transaction)?;
        Ok(is_there)
    }

    /// Sets the score of a member of a sorted set, as the only change of a command. `former` is the
    /// member's score, if it exists.
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

    /// Removes a member of a sorted set with that score, as the only change of a command.
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

    /// Sets the score of a member of a sorted set. `former` is the member's score, if it exists.
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

    /// Removes a member of a sorted set with that score.
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

    /// Removes all elements. [`finish`](Self::finish) must be called next.
    pub fn clear(&mut self) {
        self.is_changed = true;
        self.count = 0;
    }

    /// Visits the elements of a section in order, until `visit` ends the visit.
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

    /// Writes the head, if it has changed.
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
        // Only elements change, by one intent; the count is kept in process memory.
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

/// A score as it is stored: both zeros are one, as in Redis's small sorted sets.
fn one_zero(score: f64) -> f64 {
    score + 0.0
}

/// The name of an element.
pub fn name_of(element: Element<'_>) -> &[u8] {
    match element {
        Element::Field(name) | Element::Ordered(name) | Element::Scored(_, name) => name,
    }
}

/// Refuses the name of a field or member that is too long.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME_BYTES {
        return Err(fail_with(format!(
            "ERR a field or member has {} bytes; at most {MAX_NAME_BYTES} are allowed",
            name.len()
        )));
    }
    Ok(())
}

/// A bound among names. A name that is longer than allowed is replaced by a bound at the same
/// position.
pub fn bound_of_name(bound: Bound<&[u8]>, is_low: bool) -> Bound<&[u8]> {
    match bound {
        Bound::Included(name) | Bound::Excluded(name) if name.len() > MAX_NAME_BYTES => {
            let cut = &name[..MAX_NAME_BYTES];
            // The prefix is below the long name, and all names above the prefix are above the long
            // name.
            if is_low { Bound::Excluded(cut) } else { Bound::Included(cut) }
        }
        bound => bound,
    }
}
