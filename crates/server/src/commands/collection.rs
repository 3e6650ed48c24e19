//! A collection that a command reads or writes: found under its key, changed element by element, and
//! finished by writing its head with the new count.
//!
//! A command first looks and checks, then changes elements, then calls [`Collection::finish`]. A
//! collection without elements is not there, except for a range index, which is created by a command of
//! its own. When a key expires stays as it is, unless the collection replaces what was under the key.

use std::ops::{Bound, ControlFlow};

use pando::Order;

use crate::failure::{Result, WRONG_TYPE, told};
use crate::store::layout::{CollectionId, Content, Element, Head, Kind, Section};
use crate::store::{MAX_NAME_BYTES, Transaction};

/// From where to where a visit goes among names.
pub(super) type Bounds<'name> = (Bound<&'name [u8]>, Bound<&'name [u8]>);

/// Visits go on.
pub(super) const ON: Result<ControlFlow<()>> = Ok(ControlFlow::Continue(()));
/// Visits end.
pub(super) const ENOUGH: Result<ControlFlow<()>> = Ok(ControlFlow::Break(()));
/// All elements of a section.
pub(super) const ALL: Bounds<'_> = (Bound::Unbounded, Bound::Unbounded);

/// A collection under a key; see the module.
#[derive(Clone, Debug)]
pub(super) struct Collection<'key> {
    space: u8,
    key: &'key [u8],
    kind: Kind,
    id: CollectionId,
    count: u64,
    /// What the head says, if it is there and of this collection.
    count_before: Option<u64>,
    /// Whether it takes the place of whatever is under the key.
    replaces: bool,
    expires_at: Option<u64>,
    is_changed: bool,
}

impl<'key> Collection<'key> {
    /// The collection under a key, which must be of that kind.
    pub(super) fn find(
        transaction: &Transaction<'_>,
        space: u8,
        key: &'key [u8],
        kind: Kind,
    ) -> Result<Option<Self>> {
        let found = Self::find_any(transaction, space, key, &[kind])?;
        Ok(found)
    }

    /// The collection under a key, which must be of one of those kinds.
    pub(super) fn find_any(
        transaction: &Transaction<'_>,
        space: u8,
        key: &'key [u8],
        kinds: &[Kind],
    ) -> Result<Option<Self>> {
        transaction.head(space, key, |head| match head {
            None => Ok(None),
            Some(Head { content: Content::Collection(kind, id, count), expires_at, .. })
                if kinds.contains(&kind) =>
            {
                Ok(Some(Self {
                    space,
                    key,
                    kind,
                    id,
                    count,
                    count_before: Some(count),
                    replaces: false,
                    expires_at,
                    is_changed: false,
                }))
            }
            Some(_) => Err(WRONG_TYPE),
        })?
    }

    /// The collection under a key, or a new one.
    pub(super) fn find_or_begin(
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
    pub(super) fn replacing(
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
            replaces: true,
            expires_at: None,
            is_changed: false,
        })
    }

    /// What it is.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// How many fields it has.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Lends the value of an element.
    pub(super) fn get<Answer>(
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
    pub(super) fn has(&self, transaction: &Transaction<'_>, element: Element<'_>) -> Result<bool> {
        self.get(transaction, element, |value| value.is_some())
    }

    /// Puts an element; whether it is new.
    pub(super) fn put(
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

    /// Removes an element; whether it was there.
    pub(super) fn remove(
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

    /// Puts an element that does not count as a field.
    pub(super) fn put_uncounted(
        &mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
        value: &[u8],
    ) {
        self.is_changed = true;
        transaction.put_element(self.id, element, value);
    }

    /// Removes an element that does not count as a field.
    pub(super) fn remove_uncounted(
        &mut self,
        transaction: &mut Transaction<'_>,
        element: Element<'_>,
    ) {
        self.is_changed = true;
        transaction.remove_element(self.id, element);
    }

    /// Removes all that it has; it must be finished next.
    pub(super) fn clear(&mut self) {
        self.is_changed = true;
        self.count = 0;
    }

    /// Visits the elements of a section in order, until it is told to end.
    pub(super) fn visit(
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
    pub(super) fn finish(self, transaction: &mut Transaction<'_>) -> Result<()> {
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
        let head = Head {
            expires_at: self.expires_at,
            memcached: None,
            content: Content::Collection(self.kind, self.id, self.count),
        };
        transaction.put_head(self.space, self.key, &head)
    }
}

/// The name in an element.
pub(super) fn name_of(element: Element<'_>) -> &[u8] {
    match element {
        Element::Field(name) | Element::Ordered(name) | Element::Scored(_, name) => name,
    }
}

/// Refuses a field that is longer than the store takes.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME_BYTES {
        return Err(told(format!(
            "ERR a field or member of {} bytes is longer than the {MAX_NAME_BYTES} bytes that these may have",
            name.len()
        )));
    }
    Ok(())
}

/// A bound among names, where a name that is longer than any may be stands for its place among them.
pub(super) fn bound_of_name(bound: Bound<&[u8]>, is_low: bool) -> Bound<&[u8]> {
    match bound {
        Bound::Included(name) | Bound::Excluded(name) if name.len() > MAX_NAME_BYTES => {
            let cut = &name[..MAX_NAME_BYTES];
            // What it begins with is below it; all that are above that are above it.
            if is_low { Bound::Excluded(cut) } else { Bound::Included(cut) }
        }
        bound => bound,
    }
}
