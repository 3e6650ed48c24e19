//! Records that are in a store alone, and cannot be read: a commit fails, and leaves nothing behind
//! that another thread must read. A thread of it that comes late changes nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::scope;

use pando_index::conformance::Reference;
use pando_index::{Change, Cursor, Error, Intent, KeyRange, Limits, Order, RangeIndex, Upserted};
use pando_log::{Log, LogOptions};
use pando_pmem::{CreateOptions, Pool, Process, layout};
use pando_tc::{Maps, TransactionComponent, TransactionalMap};

const KEY: &[u8] = b"key";
const OTHER: &[u8] = b"other";
const FIRST: &[u8] = b"first";

/// An index whose record of [`KEY`] may be in a store alone, which does not answer.
#[derive(Default)]
struct Unread {
    records: Reference,
    is_stored: AtomicBool,
    /// The next change of the key pauses twice: while it waits for the store, which answers this
    /// time; and when it has ended.
    pauses: AtomicBool,
    /// Before the first of these pauses it finds the record, and does not change it: another thread
    /// has changed the page.
    looks_twice: AtomicBool,
    meeting: Option<Barrier>,
}

impl Unread {
    fn load(&self, key: &[u8]) -> Result<(), Error> {
        // Relaxed, here and below: the threads meet.
        match key == KEY && self.is_stored.load(Ordering::Relaxed) {
            true => Err(Error::storage(std::io::Error::other("the store does not answer"))),
            false => Ok(()),
        }
    }

    /// Two meetings: another thread does something in between.
    fn pause(&self) {
        if let Some(meeting) = &self.meeting {
            meeting.wait();
            meeting.wait();
        }
    }
}

impl RangeIndex for Unread {
    fn limits(&self) -> Limits {
        self.records.limits()
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted, Error> {
        self.load(key)?;
        self.records.write(key, value, intent)
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        self.load(key)?;
        self.records.read(key, visit)
    }

    fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        self.load(key)?;
        self.records.remove(key)
    }

    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> Result<(), Error> {
        self.load(key)?;
        self.records.compare_remove(key, expected)
    }

    fn modify(&self, key: &[u8], change: &mut Change<'_>) -> Result<Option<Upserted>, Error> {
        if key != KEY || !self.pauses.swap(false, Ordering::Relaxed) {
            self.load(key)?;
            return self.records.modify(key, change);
        }
        if self.looks_twice.load(Ordering::Relaxed) {
            self.records.modify(key, &mut |found, new| {
                change(found, new);
                false
            })?;
        }
        self.is_stored.store(true, Ordering::Relaxed);
        self.pause();
        self.is_stored.store(false, Ordering::Relaxed);
        let changed = self.records.modify(key, change);
        self.pause();
        changed
    }

    fn is_only_stored(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.load(key).is_err())
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error> {
        self.records.scan(range, order)
    }

    fn len(&self) -> Result<u64, Error> {
        self.records.len()
    }
}

/// The only map.
struct One(Arc<Unread>);

impl Maps for One {
    type Lent<'maps> = &'maps dyn RangeIndex;

    const MAY_BE_STORED: bool = true;

    fn map(&self, _: u64) -> Option<&dyn RangeIndex> {
        Some(&*self.0)
    }
}

type Component = TransactionComponent<Process, One>;

/// Both keys have the first value.
fn component() -> Arc<Component> {
    let create = CreateOptions { max_bytes: 1 << 26, ..CreateOptions::default() };
    let pool = Pool::<Process>::anonymous(&create).expect("memory");
    let log = Log::without_files(pool, layout::LOG_OFF, LogOptions::default()).expect("a log");
    let index = Unread { meeting: Some(Barrier::new(2)), ..Unread::default() };
    let component = TransactionComponent::open(log, One(Arc::new(index))).expect("opens");
    let component = Arc::new(component);
    let first = |write: &mut pando_tc::Transaction<'_, _, _>| {
        write.put(0, KEY, FIRST)?;
        write.put(0, OTHER, FIRST)
    };
    component.transaction(first).expect("commits");
    component.settle().expect("settles");
    component
}

/// The values of both keys.
fn both(component: &Component) -> [Option<Vec<u8>>; 2] {
    [KEY, OTHER].map(|key| component.get(0, key).expect("reads"))
}

#[test]
fn a_record_that_cannot_be_read_at_a_commit_fails_that_commit_alone() {
    let component = component();
    let mut transaction = component.begin();
    for key in [KEY, OTHER] {
        assert!(transaction.get(0, key).expect("reads").is_some());
        transaction.put(0, key, b"second").expect("fits");
    }
    component.maps().0.is_stored.store(true, Ordering::Relaxed);
    let refused = transaction.commit().expect_err("it is unread").to_string();
    assert_eq!(refused, "the store does not answer");
    // Other commits go on, and the log behind this one.
    let other = |write: &mut pando_tc::Transaction<'_, _, _>| write.put(0, OTHER, b"third");
    component.transaction(other).expect("commits");
    component.settle().expect("settles");
    component.maps().0.is_stored.store(false, Ordering::Relaxed);
    assert_eq!(component.get(0, KEY).expect("reads").as_deref(), Some(FIRST));
    assert_eq!(component.get(0, OTHER).expect("reads").as_deref(), Some(&b"third"[..]));
}

/// The thread of a commit waits for the store. Meanwhile another thread cannot read the record, so
/// the commit fails; and it is settled. Then the store answers the first thread.
fn comes_late(component: &Arc<Component>, write: impl FnOnce() + Send) {
    let index = &component.maps().0;
    index.pauses.store(true, Ordering::Relaxed);
    scope(|scope| {
        let writer = scope.spawn(write);
        let meeting = index.meeting.as_ref().expect("one");
        meeting.wait();
        component.settle().expect("settles");
        meeting.wait();
        meeting.wait();
        // The late thread has not seen yet that the commit has failed.
        let seen = both(component);
        meeting.wait();
        writer.join().expect("ends");
        assert_eq!(seen, [FIRST, FIRST].map(|value| Some(value.to_vec())));
    });
    component.settle().expect("settles");
}

#[test]
fn a_late_thread_installs_nothing() {
    let component = component();
    comes_late(&component, || {
        let mut transaction = component.begin();
        transaction.get(0, KEY).expect("reads");
        transaction.put(0, KEY, b"second").expect("fits");
        let refused = transaction.commit().expect_err("it has failed");
        assert!(matches!(refused, pando_tc::Error::Conflict { .. }), "{refused}");
    });
    assert_eq!(both(&component), [FIRST, FIRST].map(|value| Some(value.to_vec())));
}

#[test]
fn a_late_thread_of_a_commit_of_one_key_installs_nothing() {
    let component = component();
    let index = component.maps().0.clone();
    index.looks_twice.store(true, Ordering::Relaxed);
    let map = TransactionalMap::new(component.clone(), 0, index).expect("a map");
    // It writes again after the conflict.
    comes_late(&component, || map.update(KEY, b"second").expect("commits"));
    assert_eq!(component.get(0, KEY).expect("reads").as_deref(), Some(&b"second"[..]));
}
