//! An index that fails in the middle of a commit of one key.

use std::sync::atomic::{AtomicU8, Ordering};

use pando_index::conformance::Reference;
use pando_index::{Change, Cursor, Error as IndexError, Intent, KeyRange, Limits, Order, Upserted};
use pando_log::{Log, LogOptions};
use pando_pmem::{CreateOptions, Pool, Process, layout};

use super::*;
use crate::snapshots::SnapshotOptions;

/// What the next call of `modify` does.
const WORKS: u8 = 0;
const FAILS_BEFORE: u8 = 1;
const FAILS_BEHIND: u8 = 2;

/// An index that says that a call has failed, before it has written or behind that.
#[derive(Default)]
struct Failing {
    index: Reference,
    next: AtomicU8,
}

impl RangeIndex for Failing {
    fn limits(&self) -> Limits {
        self.index.limits()
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> pando_index::Result<Upserted> {
        self.index.write(key, value, intent)
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> pando_index::Result<bool> {
        self.index.read(key, visit)
    }

    fn remove(&self, key: &[u8]) -> pando_index::Result<bool> {
        self.index.remove(key)
    }

    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> pando_index::Result<()> {
        self.index.compare_remove(key, expected)
    }

    fn modify(&self, key: &[u8], change: &mut Change<'_>) -> pando_index::Result<Option<Upserted>> {
        let damage = IndexError::Damaged { off: 0, what: "this call fails" };
        match self.next.swap(WORKS, Ordering::Relaxed) {
            FAILS_BEFORE => {
                change(self.index.get(key)?.as_deref(), &mut Vec::new());
                Err(damage)
            }
            FAILS_BEHIND => self.index.modify(key, change).and(Err(damage)),
            _ => self.index.modify(key, change),
        }
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> pando_index::Result<Box<dyn Cursor + 'index>> {
        self.index.scan(range, order)
    }

    fn len(&self) -> pando_index::Result<u64> {
        self.index.len()
    }
}

#[derive(Default)]
struct OneMap(Failing);

impl Maps for OneMap {
    type Lent<'maps> = &'maps dyn RangeIndex;

    fn map(&self, _: u64) -> Option<&dyn RangeIndex> {
        Some(&self.0)
    }
}

/// Each kind of commit: bare, beside a snapshot, and a removal. The call fails before the write, or
/// behind it. The caller is told what has taken place, and the next commit finds that.
#[test]
fn a_commit_whose_index_fails_takes_place_or_not_as_its_caller_is_told() {
    for (fails, is_beside_snapshot, is_removal) in [
        (FAILS_BEFORE, false, false),
        (FAILS_BEFORE, true, false),
        (FAILS_BEFORE, false, true),
        (FAILS_BEHIND, false, false),
        (FAILS_BEHIND, true, false),
        (FAILS_BEHIND, false, true),
    ] {
        let case = format!("{fails} {is_beside_snapshot} {is_removal}");
        let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
        let log = Log::without_files(pool, layout::LOG_OFF, LogOptions::default()).expect("a log");
        let component = TransactionComponent::open(log, OneMap::default()).expect("opens");
        let index = &component.maps().0;
        let replace = |new: Option<&[u8]>| {
            component.replace(index, (0, b"key"), new.is_none(), None, &mut |_, value| {
                value.extend_from_slice(new.unwrap_or_default());
                Ok(if new.is_some() { Decision::Put } else { Decision::Remove })
            })
        };
        let get = || component.get(0, b"key").expect("reads");
        replace(Some(b"old")).expect("commits");
        let snapshot = is_beside_snapshot
            .then(|| component.snapshot(SnapshotOptions::default()).expect("a snapshot"));
        index.next.store(fails, Ordering::Relaxed);
        let new = (!is_removal).then_some(&b"new"[..]);
        let done = replace(new);
        let expected = if done.is_ok() { new } else { Some(&b"old"[..]) };
        assert!(done.is_ok() || fails == FAILS_BEFORE, "{case}: {:?}", done.err());
        assert_eq!(get().as_deref(), expected, "{case}");
        component.settle().expect("settles");
        assert_eq!(get().as_deref(), expected, "{case}");
        if let Some(snapshot) = &snapshot {
            assert_eq!(snapshot.get(0, b"key").expect("reads").as_deref(), Some(&b"old"[..]));
        }
        let was_present = replace(Some(b"last")).expect("commits").was_present;
        assert_eq!(was_present, expected.is_some(), "{case}");
        assert_eq!(get().as_deref(), Some(&b"last"[..]), "{case}");
    }
}
