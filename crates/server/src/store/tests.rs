//! The store as its users see it: crashes are an intent that stands, or a store that is opened again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::layout::{Content, Element, Head, Kind, Section};
use super::memory::EvictionPolicy;
use super::stripes::Access;
use super::*;

const NO_POOL: Option<&Path> = None;

fn options() -> StoreOptions {
    StoreOptions { pool: PoolOptions::new().max_bytes(256 << 20), index: None }
}

fn volatile() -> Store {
    Store::open(NO_POOL, &options()).expect("a store")
}

/// A transaction on `keys`, committed.
fn write<Answer>(
    store: &Store,
    keys: &[&[u8]],
    change: impl FnOnce(&mut Transaction<'_>) -> Answer,
) -> Answer {
    let wanted = keys.iter().map(|key| Store::stripe_of_key(key)).collect();
    let held = store.lock(wanted, Access::Alone).expect("locks");
    let mut transaction = store.begin(held, store.clock().now_ms());
    let answer = change(&mut transaction);
    transaction.commit().expect("commits");
    answer
}

fn set(store: &Store, database: u8, key: &[u8], value: &[u8], expires_at: Option<u64>) {
    write(store, &[key], |transaction| {
        let head = Head { expires_at, ..Head::string(value) };
        transaction.put_head(transaction.space(database), key, &head).expect("puts");
    });
}

fn get(store: &Store, database: u8, key: &[u8]) -> Option<Vec<u8>> {
    let wanted = [Store::stripe_of_key(key)].into_iter().collect();
    let held = store.lock(wanted, Access::Shared).expect("locks");
    let transaction = store.begin(held, store.clock().now_ms());
    let copied = |head: Option<Head<'_>>| match head?.content {
        Content::String(bytes) => Some(bytes.to_vec()),
        Content::Collection(..) => None,
    };
    transaction.head(transaction.space(database), key, copied).expect("reads")
}

/// Puts a hash with the fields 0 to `count`.
fn put_hash(store: &Store, key: &[u8], count: u64) {
    let id = store.new_id().expect("an id");
    write(store, &[key], |transaction| {
        for field in 0..count {
            transaction.put_element(id, Element::Field(&field.to_le_bytes()), b"value");
        }
        let content = Content::Collection(Kind::Hash, id, count);
        let head = Head { expires_at: None, memcached: None, content };
        transaction.put_head(transaction.space(0), key, &head).expect("puts");
    });
}

/// The fields of a hash.
fn fields(store: &Store, key: &[u8]) -> Option<u64> {
    let held = store.lock([Store::stripe_of_key(key)].into_iter().collect(), Access::Shared);
    let transaction = store.begin(held.expect("locks"), store.clock().now_ms());
    let head = transaction.head(transaction.space(0), key, |head| {
        head.map(|head| match head.content {
            Content::Collection(_, id, count) => (id, count),
            Content::String(_) => (0, 0),
        })
    });
    let (id, count) = head.expect("reads")?;
    let mut found = 0;
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let visit = |_: Element<'_>, _: &[u8]| {
        found += 1;
        std::ops::ControlFlow::Continue(())
    };
    transaction.scan_elements(id, Section::Fields, all, Order::Ascending, visit).expect("scans");
    assert_eq!(found, count, "the head counts its elements");
    Some(count)
}

fn records(store: &Store) -> usize {
    store.map.len().expect("counts") as usize
}

fn sweep_all(store: &Store) {
    while store.sweep_expired(10).expect("sweeps").is_more {}
    while store.sweep_garbage(10).expect("sweeps") {}
}

#[test]
fn what_was_decided_before_a_crash_is_carried_out_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.pool");
    let store = Store::open(Some(&path), &options()).expect("a store");
    set(&store, 0, b"old", b"1", None);
    let space = store.space(0);
    let writes = BTreeMap::from([
        (layout::head_key(space, b"new"), Some(Head::string(b"2").encode())),
        (layout::head_key(space, b"old"), None),
    ]);
    let intent = transaction::encode(&writes);
    store.map.upsert(&own_keys::intent(3), &intent).expect("writes");
    // As much of it as was carried out before the crash.
    store.map.upsert(&layout::head_key(space, b"new"), &Head::string(b"2").encode()).expect("ok");
    store.close().expect("closes");

    let store = Store::open(Some(&path), &options()).expect("opens again");
    assert_eq!(get(&store, 0, b"new").as_deref(), Some(&b"2"[..]));
    assert_eq!(get(&store, 0, b"old"), None);
    assert_eq!(store.map.get(&own_keys::intent(3)).expect("reads"), None);
    assert_eq!(store.starts(), 2);
}

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
        let held = store.stripes.lock_all(Access::Alone);
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
    // Two keys, and which spaces the databases have.
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
    set(&store, 0, b"for ever", b"value", Some(soon));
    set(&store, 0, b"for ever", b"value", None);
    assert_eq!(store.count(0).expect("counts"), 3);
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(get(&store, 0, b"short"), None);
    let swept = store.sweep_expired(10).expect("sweeps");
    assert_eq!((swept.expired_keys, swept.is_more), (1, false));
    assert!(get(&store, 0, b"longer").is_some() && get(&store, 0, b"for ever").is_some());
    assert_eq!(store.count(0).expect("counts"), 2);
    // Two keys and one entry of the sweep.
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

#[test]
fn a_snapshot_is_of_one_moment_whatever_is_written_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("snapshot");
    let store = volatile();
    for number in 0u64..20_000 {
        set(&store, 0, &number.to_le_bytes(), &0u64.to_le_bytes(), None);
    }
    put_hash(&store, b"hash", 500);
    set(&store, 3, b"expires", b"later", Some(store.clock().now_ms() + 1_000_000));
    set(&store, 3, b"expired", b"sooner", Some(store.clock().now_ms()));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One writer raises all numbers in turn, one after the other: a moment has at most two values,
        // the higher one before the lower one.
        scope.spawn(|| {
            for round in 1u64.. {
                for number in 0u64..20_000 {
                    set(&store, 0, &number.to_le_bytes(), &round.to_le_bytes(), None);
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(20));
            let saved = store.save(&path);
            if saved.is_err() {
                is_over.store(true, Ordering::Relaxed);
            }
            saved.expect("saves");
            let copy = volatile();
            assert_eq!(copy.restore(&path).expect("restores"), 20_002);
            let rounds: Vec<u64> = (0u64..20_000)
                .map(|number| {
                    let value = get(&copy, 0, &number.to_le_bytes()).expect("every key is there");
                    u64::from_le_bytes(value.try_into().expect("eight bytes"))
                })
                .collect();
            let is_one_moment =
                rounds.is_sorted_by(|one, next| one >= next) && rounds[0] - rounds[19_999] <= 1;
            if !is_one_moment {
                is_over.store(true, Ordering::Relaxed);
            }
            assert!(is_one_moment, "from {} to {}", rounds[0], rounds[19_999]);
            assert_eq!(fields(&copy, b"hash"), Some(500));
            assert!(get(&copy, 3, b"expires").is_some() && get(&copy, 3, b"expired").is_none());
            assert!(copy.restore(&path).is_err(), "only into an empty store");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(!store.snapshot_state().is_writing && !store.snapshot_state().has_failed);
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("snapshot");
    let store = volatile();
    set(&store, 0, b"key", b"value", None);
    store.save(&path).expect("saves");
    let sound = std::fs::read(&path).expect("reads");
    for at in 0..sound.len() {
        // The moment may be any.
        if (12..24).contains(&at) {
            continue;
        }
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).expect("writes");
        assert!(volatile().restore(&path).is_err(), "byte {at}");
        std::fs::write(&path, &sound[..at]).expect("writes");
        assert!(volatile().restore(&path).is_err(), "cut at {at}");
    }
    assert!(store.save(&folder.path().join("no/folder")).is_err());
    assert!(store.snapshot_state().has_failed);
}

/// Fills the store, a hundred bytes a key, until it says that there is no room, or `most` keys are in.
fn fill(store: &Store, most: u32) -> u32 {
    for number in 0..most {
        if number % 1000 == 0 {
            store.measure();
        }
        if !store.make_room().expect("looks") {
            return number;
        }
        set(store, 0, &number.to_be_bytes(), &[7; 100], None);
    }
    most
}

#[test]
fn without_a_policy_writes_are_refused_at_the_limit() {
    let store = volatile();
    let limit_bytes = store.pool().used_bytes() + (4 << 20);
    store.limit_memory(limit_bytes, EvictionPolicy::NoEviction);
    let kept = fill(&store, 1_000_000);
    assert!((10_000..60_000).contains(&kept), "{kept} keys of 100 bytes in 4 MiB");
    assert_eq!(store.take_evicted_keys(), 0);
    store.limit_memory(0, EvictionPolicy::NoEviction);
    assert!(store.make_room().expect("looks"));
}

#[test]
fn keys_that_are_used_outlive_those_that_are_not() {
    let store = volatile();
    let limit_bytes = store.pool().used_bytes() + (4 << 20);
    store.limit_memory(limit_bytes, EvictionPolicy::AllKeysLru);
    let now_ms = store.clock().now_ms();
    // The first thousand keys are used ten seconds later than all others.
    for number in 0u32..1000 {
        set(&store, 0, &number.to_be_bytes(), &[7; 100], None);
        store.memory.note_use(layout::hash_of(&number.to_be_bytes()), now_ms + 10_000);
    }
    for number in 1000u32..60_000 {
        if number % 1000 == 0 {
            store.measure();
        }
        assert!(store.make_room().expect("evicts"), "{number}");
        set(&store, 0, &number.to_be_bytes(), &[7; 100], None);
    }
    let left = |from: u32, to: u32| {
        (from..to).filter(|number| get(&store, 0, &number.to_be_bytes()).is_some()).count()
    };
    let (used, unused) = (left(0, 1000), left(1000, 10_000) / 9);
    let evicted = store.take_evicted_keys();
    assert!(evicted > 10_000, "{evicted} evicted");
    assert!(used > 900 && unused < 700, "{used} used and {unused} unused of 1,000 are left");
}

#[test]
fn what_expires_soonest_goes_first_and_what_does_not_stays() {
    let store = volatile();
    set(&store, 0, b"for ever", b"value", None);
    let later = store.clock().now_ms() + 1_000_000;
    for number in 0u32..100 {
        set(&store, 0, &number.to_be_bytes(), b"value", Some(later - u64::from(number)));
    }
    // Below what is in use: everything that may go goes.
    store.limit_memory(1, EvictionPolicy::VolatileTtl);
    assert!(store.make_room().expect("evicts"), "a hundred keys may go for one command");
    assert!(!store.make_room().expect("evicts"), "nothing is left that may go");
    assert_eq!(store.take_evicted_keys(), 100);
    assert!(get(&store, 0, b"for ever").is_some());
}
