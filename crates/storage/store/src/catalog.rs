//! The catalog of a store: the names of its maps, in the map with number 1.
//!
//! ```text
//! key                             value
//! "m" name                        number of the map (8 bytes, little-endian)
//! "d" number (8, big-endian)      empty: the map was dropped, and records of it may be there
//! "n"                             the next number (8 bytes, little-endian)
//! ```
//!
//! It is changed by transactions, like any map. So the log and the pages have it as they have
//! everything else.
//!
//! # A damaged page
//!
//! If a page of the catalog is damaged, the store opens. The names that can be read are listed
//! ([`list_readable`]). A map whose name cannot be read has its number alone; it is found by its
//! records, and can be read by its number. An operation that needs the damaged page is an error
//! that names the page: the look-up of a name that may be there, and the creation of a map if the
//! next number is there. So no map is taken for one that does not exist, and no number comes twice.
//!
//! # Dropping a map
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | one transaction: the name goes, and the number is noted as dropped | the map, or a dropped one |
//! | all commits so far are settled and durable; threads that may use the map leave | a dropped map, which the next opening clears |
//! | its records are removed, one by one, without the log | the same |
//! | a checkpoint: the log that would be read has none of its records any more | the same |
//! | a transaction: the number goes | nothing |

use std::ops::ControlFlow;
use std::sync::Arc;

use pando_index::{KeyRange, Order};
use pando_pmem::Process;
use pando_tc::{Transaction, TransactionComponent, TransactionalMap};

use crate::error::{Error, Result, damaged_page};
use crate::maps::StoreMaps;
use crate::readable::{lend_readable, numbers_with_records};

/// The number of the catalog's map.
pub(crate) const CATALOG: u64 = 1;
/// The first number of another map.
const FIRST: u64 = 2;
const NAME: u8 = b'm';
const DROPPED: u8 = b'd';
const NEXT: &[u8] = b"n";
/// The longest name of a map, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

type Component = TransactionComponent<Process, StoreMaps>;
type Change<'component> = Transaction<'component, Process, StoreMaps>;

fn damaged(what: &'static str) -> Error {
    Error::Damaged { what: format!("its list of maps is damaged: {what}") }
}

fn number_of(value: &[u8]) -> Result<u64> {
    let number = value.try_into().map(u64::from_le_bytes).map_err(|_| damaged("a number"))?;
    match number >= FIRST {
        true => Ok(number),
        false => Err(damaged("a number that no map has")),
    }
}

fn key_of(name: &str) -> Vec<u8> {
    [&[NAME], name.as_bytes()].concat()
}

fn key_of_dropped(number: u64) -> Vec<u8> {
    [&[DROPPED][..], &number.to_be_bytes()].concat()
}

/// The number of the map `name`; `None` if there is none.
pub(crate) fn find(component: &Component, name: &str) -> Result<Option<u64>> {
    component.get(CATALOG, &key_of(name))?.map(|value| number_of(&value)).transpose()
}

/// Creates the map `name`; its number.
pub(crate) fn create(component: &Component, name: &str) -> Result<u64> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(Error::Name { found: name.to_owned(), max_bytes: MAX_NAME_BYTES });
    }
    let body = |change: &mut Change<'_>| {
        if change.get(CATALOG, &key_of(name))?.is_some() {
            return Err(Error::MapExists { name: name.to_owned() });
        }
        let next = change.get(CATALOG, NEXT)?.map(|value| number_of(&value));
        let number = next.transpose()?.unwrap_or(FIRST);
        change.put(CATALOG, NEXT, &(number + 1).to_le_bytes())?;
        change.put(CATALOG, &key_of(name), &number.to_le_bytes())?;
        // Before the commit: a thread that finds its name finds it. No other map gets this number.
        component.maps().add(number);
        Ok(number)
    };
    Ok(component.transaction(body)?.0)
}

/// Marks the map `name` as dropped; its number, and the LSN.
pub(crate) fn mark_dropped(component: &Component, name: &str) -> Result<(u64, u64)> {
    let body = |change: &mut Change<'_>| {
        let found = change.get(CATALOG, &key_of(name))?;
        let found = found.ok_or_else(|| Error::MapNotFound { name: name.to_owned() })?;
        let number = number_of(&found)?;
        change.remove(CATALOG, &key_of(name))?;
        change.put(CATALOG, &key_of_dropped(number), &[])?;
        Ok::<_, Error>(number)
    };
    component.transaction(body)
}

/// Gives the map `from` the name `to`; the LSN.
pub(crate) fn rename(component: &Component, from: &str, to: &str) -> Result<u64> {
    if to.is_empty() || to.len() > MAX_NAME_BYTES {
        return Err(Error::Name { found: to.to_owned(), max_bytes: MAX_NAME_BYTES });
    }
    let body = |change: &mut Change<'_>| {
        let found = change.get(CATALOG, &key_of(from))?;
        let found = found.ok_or_else(|| Error::MapNotFound { name: from.to_owned() })?;
        if change.get(CATALOG, &key_of(to))?.is_some() {
            return Err(Error::MapExists { name: to.to_owned() });
        }
        change.remove(CATALOG, &key_of(from))?;
        change.put(CATALOG, &key_of(to), &found)?;
        Ok(())
    };
    Ok(component.transaction(body)?.1)
}

/// Forgets a dropped map that has no records any more, nor the log.
pub(crate) fn forget(component: &Component, number: u64) -> Result<()> {
    let body = |change: &mut Change<'_>| change.remove(CATALOG, &key_of_dropped(number));
    component.transaction(body).map(|_| ()).map_err(Error::Transactions)
}

/// The maps of a store.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Names and numbers, ascending by name.
    pub maps: Vec<(String, u64)>,
    /// Numbers of dropped maps.
    pub dropped: Vec<u64>,
    /// Numbers of maps whose names cannot be read. Perhaps some are dropped.
    pub unnamed: Vec<u64>,
    /// The damage of the catalog.
    pub damage: Vec<String>,
}

impl Listed {
    fn push(&mut self, entry: Entry) {
        match entry {
            Entry::Map(name, number) => self.maps.push((name, number)),
            Entry::Dropped(number) => self.dropped.push(number),
            Entry::Next => {}
        }
    }
}

/// The maps of the store.
pub(crate) fn list(component: &Component) -> Result<Listed> {
    let body = |reads: &mut Change<'_>| {
        let (mut listed, mut failure) = (Listed::default(), None);
        reads.scan(CATALOG, KeyRange::all(), Order::Ascending, &mut |key, value| {
            match entry(key, value) {
                Ok(entry) => listed.push(entry),
                Err(error) => failure = Some(error),
            }
            ControlFlow::Continue(())
        })?;
        match failure {
            None => Ok(listed),
            Some(error) => Err(error),
        }
    };
    Ok(component.transaction(body)?.0)
}

/// The maps of the store, as far as the catalog can be read. Beside changes of the catalog, a name
/// may be missing or out of date if a page is damaged.
pub(crate) fn list_readable(component: &Arc<Component>) -> Result<Listed> {
    match list(component) {
        Err(Error::Transactions(pando_tc::Error::Index(error)))
            if damaged_page(&error).is_some() => {}
        listed => return listed,
    }
    let maps = component.maps();
    let catalog = TransactionalMap::new(component.clone(), CATALOG, maps.index(CATALOG))?;
    let (mut listed, mut failure) = (Listed::default(), None);
    listed.damage = lend_readable(&catalog, &mut |key, value| match entry(key, value) {
        Ok(entry) => listed.push(entry),
        Err(error) => failure = Some(error),
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    let named = |number: &u64| listed.maps.iter().any(|(_, other)| other == number);
    let mut unnamed = numbers_with_records(&maps.cache, FIRST)?;
    unnamed.retain(|number| !named(number) && !listed.dropped.contains(number));
    listed.unnamed = unnamed;
    Ok(listed)
}

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Map(String, u64),
    Dropped(u64),
    Next,
}

/// Checked.
fn entry(key: &[u8], value: &[u8]) -> Result<Entry> {
    match key.split_first() {
        Some((&NAME, name)) => {
            let name = String::from_utf8(name.to_vec()).map_err(|_| damaged("a name"))?;
            Ok(Entry::Map(name, number_of(value)?))
        }
        Some((&DROPPED, number)) => {
            let number = number.try_into().map(u64::from_be_bytes);
            Ok(Entry::Dropped(number.map_err(|_| damaged("the number of a dropped map"))?))
        }
        _ if key == NEXT => number_of(value).map(|_| Entry::Next),
        _ => Err(damaged("an unknown key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_entries() {
        assert_eq!(key_of("oak"), b"moak");
        assert_eq!(key_of_dropped(0x0102), *b"d\0\0\0\0\0\0\x01\x02");
        let two = [2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(entry(b"moak", &two).expect("a map"), Entry::Map("oak".to_owned(), 2));
        let dropped = entry(&key_of_dropped(7), b"").expect("a dropped map");
        assert_eq!(dropped, Entry::Dropped(7));
        assert_eq!(entry(NEXT, &two).expect("the next number"), Entry::Next);
    }

    #[test]
    fn damaged_entries_are_told() {
        let one = [1, 0, 0, 0, 0, 0, 0, 0];
        for (key, value) in
            [(&b""[..], &one[..]), (b"x", &one), (b"moak", &one), (b"moak", b"1"), (b"d12", b"")]
        {
            entry(key, value).expect_err("damaged");
        }
        entry(b"m\xFF", &[2, 0, 0, 0, 0, 0, 0, 0]).expect_err("no name");
    }
}
