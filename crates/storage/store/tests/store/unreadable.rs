//! Pages that cannot be read any more when a commit writes to them: the commit fails, and all
//! others go on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_device::Operation;
use pando_index::RangeIndex;
use pando_store::Store;
use pando_tc::TransactionalMap;

use crate::blind::{get, put, stored};
use crate::common::large_pages;
use crate::logged::{Place, check, kill};

/// Keys of two pages.
const KEY: u64 = 7;
const OTHER: u64 = 3_900;

/// From now on no page can be read while the flag is set.
fn refuses_reads(place: &Place) -> Arc<AtomicBool> {
    let is_refused = Arc::new(AtomicBool::new(false));
    let flag = is_refused.clone();
    place.pages.on_operation(move |operation, _| match operation {
        // Relaxed, here and below: only one thread, or threads that are joined.
        Operation::Read if flag.load(Ordering::Relaxed) => {
            Err(io::Error::other("the device does not answer"))
        }
        _ => Ok(()),
    });
    is_refused
}

/// Other commits go on, and become durable; nothing of the refused commit is there.
#[track_caller]
fn check_goes_on(place: &Place, store: Store, map: u64, is_refused: &AtomicBool) {
    put(&store, map, 2_000, b"later");
    let newest = store.sync().expect("durable");
    assert_eq!(store.stat().expect("reads").durable_lsn, newest);
    assert_eq!(store.component().undecided().expect("a slot"), 0);
    is_refused.store(false, Ordering::Relaxed);
    let check_records = |store: &Store| {
        for (key, value) in [(KEY, b"first"), (OTHER, b"first"), (2_000, b"later")] {
            assert_eq!(get(store, map, key).as_deref(), Some(&value[..]), "key {key}");
        }
        check(store);
    };
    check_records(&store);
    // The page takes writes again.
    put(&store, map, KEY, b"again");
    assert_eq!(get(&store, map, KEY).as_deref(), Some(&b"again"[..]));
    put(&store, map, KEY, b"first");
    kill(store);
    check_records(&place.open_with(&large_pages()));
}

/// The first page that the commit writes to cannot be read, or the second one, when it has written
/// to the first.
#[test]
fn a_commit_to_a_page_that_has_become_unreadable_fails_alone() {
    for in_memory in [None, Some(KEY), Some(OTHER)] {
        let (place, store, map) = stored();
        let is_refused = refuses_reads(&place);
        let mut transaction = store.component().begin();
        for key in [KEY, OTHER] {
            assert!(transaction.get(map, &key.to_be_bytes()).expect("reads").is_some());
            transaction.put(map, &key.to_be_bytes(), b"second").expect("fits");
        }
        store.empty_cache().expect("written");
        in_memory.map(|key| get(&store, map, key));
        is_refused.store(true, Ordering::Relaxed);
        let refused = transaction.commit().expect_err("a page is unread").to_string();
        assert!(refused.contains("does not answer"), "{refused}");
        check_goes_on(&place, store, map, &is_refused);
    }
}

/// The page leaves memory, and becomes unreadable, between the look at the record and its change.
#[test]
fn a_write_of_one_key_to_a_page_that_has_become_unreadable_fails_alone() {
    let (place, store, map) = stored();
    let is_refused = refuses_reads(&place);
    let component = store.component();
    let index = component.maps().index(map);
    let keys = TransactionalMap::new(component.clone(), map, index).expect("a map");
    let written = keys.modify(&KEY.to_be_bytes(), &mut |_, new| {
        // By another thread: this one is inside a call of the tree.
        std::thread::scope(|scope| {
            let emptied = scope.spawn(|| store.empty_cache());
            emptied.join().expect("ends").expect("written");
        });
        is_refused.store(true, Ordering::Relaxed);
        new.extend_from_slice(b"second");
        true
    });
    let refused = written.expect_err("its page is unread").to_string();
    assert!(refused.contains("does not answer"), "{refused}");
    drop(keys);
    check_goes_on(&place, store, map, &is_refused);
}
