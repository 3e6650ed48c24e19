//! Keys: flushes, expiry, collections, watchers.

use super::sweeps::flush;
use super::*;
use crate::layout::{DATABASES, SPACES};

#[test]
fn several_writes_leave_no_intent_behind() {
    let store = volatile();
    let before = records(&store);
    write(&store, &[b"a", b"b"], |transaction| {
        for key in [b"a", b"b"] {
            transaction.put_head(transaction.space(0), key, &Head::string(b"x")).expect("puts");
        }
        assert!(transaction.head(0, b"a", |head| head.is_some()).expect("reads its own write"));
    });
    assert_eq!(records(&store), before + 2);
}

#[test]
fn a_database_may_be_flushed_faster_than_the_sweep_follows() {
    let store = volatile();
    let before = records(&store);
    for _ in 0..3 * u32::from(layout::SPACES) {
        set(&store, 0, b"key", b"value", None);
        let held = store.stripes.lock_all(Access::Exclusive);
        let mut transaction = store.begin(held, store.clock().now_ms());
        transaction.flush(0..1).expect("flushes");
        transaction.commit().expect("commits");
        drop(transaction);
        assert_eq!(get(&store, 0, b"key"), None);
    }
    sweep_all(&store);
    // The record of the spaces.
    assert_eq!(records(&store), before + 1);
}

#[test]
fn a_database_is_flushed_at_once_and_swept_later() {
    let store = volatile();
    let before = records(&store);
    for number in 0u32..500 {
        set(&store, 0, &number.to_le_bytes(), b"value", None);
    }
    put_hash(&store, b"hash", 100);
    set(&store, 1, b"other", b"value", None);
    assert_eq!((store.count(0).expect("counts"), store.count(1).expect("counts")), (501, 1));
    for _ in 0..2 {
        let held = store.stripes.lock_all(Access::Exclusive);
        let mut transaction = store.begin(held, store.clock().now_ms());
        transaction.flush([0].into_iter()).expect("flushes");
        transaction.commit().expect("commits");
        drop(transaction);
        assert_eq!((store.count(0).expect("counts"), store.count(1).expect("counts")), (0, 1));
        assert_eq!(get(&store, 0, &7u32.to_le_bytes()), None);
    }
    set(&store, 0, b"again", b"value", None);
    sweep_all(&store);
    assert_eq!(get(&store, 0, b"again").as_deref(), Some(&b"value"[..]));
    // Two keys, and the record of the spaces.
    assert_eq!(records(&store), before + 3);
    assert_eq!(store.count(0).expect("counts"), 1);
}

#[test]
fn what_has_expired_is_absent_at_once_and_removed_later() {
    let store = volatile();
    let before = records(&store);
    let soon = store.clock().now_ms() + 50;
    set(&store, 0, b"short", b"value", Some(soon));
    set(&store, 0, b"longer", b"value", Some(soon));
    set(&store, 0, b"longer", b"value", Some(soon + 1_000_000));
    set(&store, 0, b"forever", b"value", Some(soon));
    set(&store, 0, b"forever", b"value", None);
    assert_eq!(store.count(0).expect("counts"), 3);
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(get(&store, 0, b"short"), None);
    let swept = store.sweep_expired(10).expect("sweeps");
    assert_eq!((swept.expired_keys, swept.is_more), (1, false));
    assert!(get(&store, 0, b"longer").is_some() && get(&store, 0, b"forever").is_some());
    assert_eq!(store.count(0).expect("counts"), 2);
    // Two keys, and one expiry entry.
    assert_eq!(records(&store), before + 3);
}

#[test]
fn a_collection_goes_with_its_head() {
    let store = volatile();
    let before = records(&store);
    put_hash(&store, b"hash", 1000);
    put_hash(&store, b"replaced", 10);
    set(&store, 0, b"replaced", b"by a string", None);
    write(&store, &[b"hash", b"moved"], |transaction| {
        transaction.move_head((0, b"hash"), (0, b"moved")).expect("moves");
    });
    assert_eq!((fields(&store, b"hash"), fields(&store, b"moved")), (None, Some(1000)));
    sweep_all(&store);
    assert_eq!(fields(&store, b"moved"), Some(1000));
    assert_eq!(records(&store), before + 1002);
    write(&store, &[b"moved"], |transaction| {
        assert!(transaction.remove_head(0, b"moved").expect("removes"));
    });
    sweep_all(&store);
    assert_eq!(records(&store), before + 1);
}

#[test]
fn who_watches_a_key_is_told_of_every_change() {
    let store = volatile();
    let changed = Arc::new(AtomicBool::new(false));
    write(&store, &[b"key"], |transaction| {
        let stripe = transaction.held().stripe_mut(Store::stripe_of_key(b"key")).expect("held");
        stripe.watch(0, b"key", &changed);
    });
    set(&store, 1, b"key", b"of another database", None);
    assert!(!changed.load(Ordering::Relaxed));
    set(&store, 0, b"key", b"1", None);
    assert!(changed.load(Ordering::Relaxed));
}

/// After an exchange of databases, a key that the transaction has put in the one is a change for
/// watchers in the other.
#[test]
fn who_watches_a_key_is_told_of_what_an_exchange_of_databases_brings() {
    let store = volatile();
    let watch = |database: u8, key: &[u8]| {
        let changed = Arc::new(AtomicBool::new(false));
        write(&store, &[key], |transaction| {
            let space = transaction.space(database);
            let stripe = transaction.held().stripe_mut(Store::stripe_of_key(key)).expect("held");
            stripe.watch(space, key, &changed);
        });
        changed
    };
    let (brought, absent, kept) = (watch(1, b"key"), watch(1, b"absent"), watch(2, b"kept"));
    let mut transaction =
        store.begin(store.stripes.lock_all(Access::Exclusive), store.clock().now_ms());
    transaction.gather_commands();
    transaction.put_head(transaction.space(0), b"key", &Head::string(b"1")).expect("puts");
    transaction.put_head(transaction.space(2), b"other", &Head::string(b"1")).expect("puts");
    transaction.swap_databases(0, 1);
    transaction.swap_databases(2, 2);
    transaction.commit().expect("commits");
    let context = [brought, absent, kept].map(|changed| changed.load(Ordering::Relaxed));
    assert_eq!(context, [true, false, false]);
}

#[test]
fn who_was_told_or_has_gone_is_not_kept_among_the_watchers() {
    let store = volatile();
    let stripe = Store::stripe_of_key(b"key");
    let watch = |changed: &Arc<AtomicBool>| {
        write(&store, &[b"key"], |transaction| {
            transaction.held().stripe_mut(stripe).expect("held").watch(0, b"key", changed);
        });
    };
    let watchers = || {
        let held = store.lock([stripe].into_iter().collect(), Access::Shared).expect("locks");
        held.stripe(stripe).expect("held").watchers()
    };
    let (context, gone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    watch(&context);
    set(&store, 0, b"key", b"1", None);
    assert_eq!(watchers(), 0, "the watcher was notified");
    watch(&gone);
    drop(gone);
    set(&store, 1, b"key", b"of another database", None);
    assert_eq!(watchers(), 0, "it has gone");
}

#[test]
fn expiries_that_are_set_again_in_one_transaction_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    for (has_log, count) in [(false, 3u32), (false, 300), (true, 3), (true, 300)] {
        let path = folder.path().join(format!("{has_log}-{count}"));
        let store = Store::open(Some(&path), &options_at(&path, has_log)).expect("a store");
        let soon = store.clock().now_ms() + 1_000_000;
        let keys: Vec<_> = (0..count).map(u32::to_be_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
        let put = |expiries: &[u64]| {
            write(&store, &keys, |transaction| {
                for (key, at_ms) in
                    keys.iter().flat_map(|key| expiries.iter().map(move |at_ms| (key, at_ms)))
                {
                    let head = Head { expires_at: Some(*at_ms), ..Head::string(b"value") };
                    transaction.put_head(transaction.space(0), key, &head).expect("puts");
                }
            });
        };
        put(&[soon]);
        put(&[soon + 1, soon]);
        for key in &keys {
            let entry = own_keys::expiry(soon, &layout::head_key(store.space(0), key));
            assert!(store.map.get(&entry).expect("reads").is_some(), "{has_log} {count} {key:?}");
        }
    }
}

/// The flush of the second database finds no empty space, and the sweep of one is refused.
#[test]
fn a_flush_that_fails_halfway_keeps_watchers() {
    let store = volatile();
    // The watched key does not exist, so a flush does not change it.
    set(&store, 0, b"other", b"before", None);
    set(&store, 1, b"key", b"value", None);
    for _ in DATABASES + 1..SPACES {
        set(&store, 2, b"key", b"value", None);
        flush(&store, 2);
    }
    let changed = Arc::new(AtomicBool::new(false));
    let stripe = Store::stripe_of_key(b"watched");
    let mut held = store.lock_to_watch([stripe].into_iter().collect()).expect("locks");
    held.stripe_mut(stripe).expect("held").watch(store.space(0), b"watched", &changed);
    drop(held);

    let all = store.stripes.lock_all(Access::Exclusive);
    let mut transaction = store.begin(all, store.clock().now_ms());
    refuse(&store, 0, 1);
    transaction.flush(0..=1).expect_err("there is one empty space");
    drop(transaction);
    assert_eq!(get(&store, 0, b"other").as_deref(), Some(&b"before"[..]));
    assert!(!changed.load(Ordering::Relaxed), "nothing has changed");
    set(&store, 0, b"watched", b"after", None);
    assert!(changed.load(Ordering::Relaxed), "the watcher is told");

    // Without the refusal a space is emptied.
    let all = store.stripes.lock_all(Access::Exclusive);
    let mut transaction = store.begin(all, store.clock().now_ms());
    transaction.flush(0..=1).expect("flushes");
    transaction.commit().expect("commits");
    drop(transaction);
    assert_eq!(get(&store, 0, b"watched"), None);
}
