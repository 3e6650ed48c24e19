//! Blind writes, over an index that has not read its records: the tests of `one_key.rs`.

use std::sync::Arc;

use pando_index::{
    BlindChange, Change, Cursor, Intent, KeyRange, Known, Limits, Order, RangeIndex, Record,
    Result, Upserted,
};

use crate::common::{AnyIndex, Kind, Stopped, bztree};
use crate::one_key;

/// Whether a record was read, behind its value.
const READ: u8 = 0;
const UNREAD: u8 = 1;

/// An index whose records may be unread: a blind write finds nothing of these, and everything else
/// reads them first. The mark of a record changes with the record, as a page's word does.
struct Forgetful(Arc<dyn AnyIndex>);

impl Forgetful {
    /// Reads the record.
    fn load(&self, key: &[u8]) -> Result<()> {
        self.0.modify(key, &mut |found, new| {
            let Some((&UNREAD, value)) = found.and_then(<[u8]>::split_last) else { return false };
            new.extend_from_slice(value);
            new.push(READ);
            true
        })?;
        Ok(())
    }
}

fn marked(value: &[u8]) -> Vec<u8> {
    [value, &[READ]].concat()
}

fn unmarked(value: &[u8]) -> &[u8] {
    value.split_last().map_or(&[], |(_, value)| value)
}

impl RangeIndex for Forgetful {
    fn limits(&self) -> Limits {
        let limits = self.0.limits();
        Limits { max_value_bytes: limits.max_value_bytes - 1, ..limits }
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        self.load(key)?;
        match intent {
            Intent::Exchange { expected } => {
                let expected = marked(expected);
                self.0.write(key, &marked(value), Intent::Exchange { expected: &expected })
            }
            intent => self.0.write(key, &marked(value), intent),
        }
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.load(key)?;
        self.0.read(key, &mut |value| visit(unmarked(value)))
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        self.0.remove(key)
    }

    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> Result<()> {
        self.load(key)?;
        self.0.compare_remove(key, &marked(expected))
    }

    fn modify(&self, key: &[u8], change: &mut Change<'_>) -> Result<Option<Upserted>> {
        self.load(key)?;
        self.0.modify(key, &mut |found, new| {
            let changes = change(found.map(unmarked), new);
            new.push(READ);
            changes
        })
    }

    fn write_blind(&self, key: &[u8], _: usize, change: &mut BlindChange<'_>) -> Result<bool> {
        let written = self.0.modify(key, &mut |found, new| {
            let known = match found.and_then(<[u8]>::split_last) {
                None => Known::Absent,
                Some((&UNREAD, _)) => Known::Unread,
                Some((_, value)) => Known::Value(value),
            };
            let changes = change(known, new);
            new.push(READ);
            changes
        })?;
        Ok(written.is_some())
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>> {
        Ok(Box::new(Unmarked(self.0.scan(range, order)?)))
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }
}

struct Unmarked<'index>(Box<dyn Cursor + 'index>);

impl Cursor for Unmarked<'_> {
    fn expect(&mut self, records: usize) {
        self.0.expect(records);
    }

    fn next(&mut self) -> Result<Option<Record<'_>>> {
        Ok(self.0.next()?.map(|(key, value)| (key, unmarked(value))))
    }
}

impl AnyIndex for Forgetful {
    fn check(&self) {
        self.0.check();
    }

    fn forget(&self) {
        let mut keys = Vec::new();
        let mut cursor = self.0.scan(KeyRange::all(), Order::Ascending).expect("a scan");
        while let Some((key, _)) = cursor.next().expect("a record") {
            keys.push(key.to_vec());
        }
        for key in keys {
            let unread = &mut |found: Option<&[u8]>, new: &mut Vec<u8>| {
                new.extend_from_slice(unmarked(found.unwrap_or_default()));
                new.push(UNREAD);
                true
            };
            self.0.modify(&key, unread).expect("room");
        }
    }
}

fn forgetful() -> Kind<Stopped> {
    let find_or_create = |catalog: &_, name: &str| {
        let index = (bztree::<Stopped>().find_or_create)(catalog, name);
        Arc::new(Forgetful(index)) as Arc<dyn AnyIndex>
    };
    Kind { find_or_create, drop: bztree::<Stopped>().drop }
}

#[test]
fn a_write_that_pauses_takes_place_once() {
    one_key::a_write_that_pauses_takes_place_once(forgetful());
}

#[test]
fn a_write_that_others_have_completed_takes_place_once() {
    one_key::a_write_that_others_have_completed_takes_place_once(forgetful());
}

#[test]
fn a_snapshot_beside_a_write_that_pauses_shows_one_moment() {
    one_key::a_snapshot_beside_a_write_that_pauses_shows_one_moment(forgetful());
}

/// A write pauses, and another thread only looks.
#[test]
fn a_write_that_was_seen_stays() {
    one_key::a_write_that_was_seen_stays(forgetful());
}
