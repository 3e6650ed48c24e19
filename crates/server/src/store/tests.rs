//! The store as its users see it: crashes are an intent that stands, or a store that is opened again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::layout::{Content, Element, Head, Kind, Section};
use super::memory::{EvictionPolicy, MemoryLimit};
use super::stripes::Access;
use super::*;

const NO_POOL: Option<&Path> = None;

/// Writes that are refused, as by a full pool.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    granted: AtomicU64,
    refused: AtomicU64,
}

impl Refusals {
    /// The next `granted` writes are made, and then so many refused.
    fn come(&self, granted: u64, refused: u64) {
        self.granted.store(granted, Ordering::Relaxed);
        self.refused.store(refused, Ordering::Relaxed);
    }

    pub(super) fn step(&self) -> Result<()> {
        let less = |left: u64| left.checked_sub(1);
        let take = |from: &AtomicU64| {
            from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        };
        match take(&self.granted) || !take(&self.refused) {
            true => Ok(()),
            false => Err(pando::Error::PoolFull { max_bytes: 0 }.into()),
        }
    }
}

/// The next `granted` writes of a store are made, and then so many refused.
pub(super) fn refuse(store: &Store, granted: u64, refused: u64) {
    store.refusals.come(granted, refused);
}

fn options() -> StoreOptions {
    StoreOptions { pool: PoolOptions::new().max_bytes(256 << 20), index: None }
}

pub(super) fn volatile() -> Store {
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

pub(super) fn set(store: &Store, database: u8, key: &[u8], value: &[u8], expires_at: Option<u64>) {
    write(store, &[key], |transaction| {
        let head = Head { expires_at, ..Head::string(value) };
        transaction.put_head(transaction.space(database), key, &head).expect("puts");
    });
}

pub(super) fn get(store: &Store, database: u8, key: &[u8]) -> Option<Vec<u8>> {
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
pub(super) fn put_hash(store: &Store, key: &[u8], count: u64) {
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

pub(super) fn records(store: &Store) -> usize {
    store.map.len().expect("counts") as usize
}

fn sweep_all(store: &Store) {
    while store.sweep_expired(10).expect("sweeps").is_more {}
    while store.sweep_garbage(10).expect("sweeps") {}
}

/// A transaction of every kind of write: a new key, one that is replaced and had a time, one that goes,
/// one that moves, a collection that grows and one that is dropped. `bytes` is the length of the new key's
/// value.
const OF_ALL_KINDS: [&[u8]; 7] =
    [b"new", b"replaced", b"gone", b"from", b"to", b"hash", b"dropped"];

fn write_all_kinds(store: &Store, bytes: usize) {
    for key in [&b"replaced"[..], b"gone", b"from"] {
        set(store, 0, key, b"old", Some(store.clock().now_ms() + 1_000_000));
    }
    put_hash(store, b"hash", 3);
    put_hash(store, b"dropped", 3);
    let hash = collection_of(store, b"hash");
    write(store, &OF_ALL_KINDS, |transaction| {
        let space = transaction.space(0);
        let mut put = |key: &[u8], head: &Head<'_>| {
            transaction.put_head(space, key, head).expect("puts");
        };
        put(b"new", &Head::string(&vec![7; bytes]));
        put(b"replaced", &Head::string(b"replaced"));
        let content = Content::Collection(Kind::Hash, hash, 4);
        put(b"hash", &Head { expires_at: None, memcached: None, content });
        transaction.put_element(hash, Element::Field(&3u64.to_le_bytes()), b"value");
        transaction.move_head((space, b"from"), (space, b"to")).expect("moves");
        assert!(transaction.remove_head(space, b"gone").expect("removes"));
        assert!(transaction.remove_head(space, b"dropped").expect("removes"));
    });
}

/// Asserts that all of it has happened, and leaves the store without it.
fn assert_all_kinds_happened(store: &Store, bytes: usize, records_before: usize) {
    assert_eq!(get(store, 0, b"new"), Some(vec![7; bytes]));
    assert_eq!(get(store, 0, b"replaced").as_deref(), Some(&b"replaced"[..]));
    assert_eq!(get(store, 0, b"to").as_deref(), Some(&b"old"[..]));
    for key in [&b"gone"[..], b"from", b"dropped"] {
        assert_eq!(get(store, 0, key), None);
    }
    assert_eq!(fields(store, b"hash"), Some(4));
    write(store, &OF_ALL_KINDS, |transaction| {
        for key in OF_ALL_KINDS {
            transaction.remove_head(transaction.space(0), key).expect("removes");
        }
    });
    sweep_all(store);
    store.keep_ballast();
    // An entry of what expires may be left that no head agrees with; its time comes.
    let late = store.map.scan(KeyRange::prefix(own_keys::EXPIRIES), Order::Ascending);
    let late = late.expect("scans").count();
    assert!(late <= 3, "{late}");
    assert_eq!(records(store), records_before + late);
}

fn collection_of(store: &Store, key: &[u8]) -> CollectionId {
    let held = store.lock([Store::stripe_of_key(key)].into_iter().collect(), Access::Shared);
    let transaction = store.begin(held.expect("locks"), store.clock().now_ms());
    let id = |head: Option<Head<'_>>| match head?.content {
        Content::Collection(_, id, _) => Some(id),
        Content::String(_) => None,
    };
    transaction.head(transaction.space(0), key, id).expect("reads").expect("a collection")
}

/// Writes of the transaction of all kinds, and so the places where a crash can cut it short.
const WRITES: u64 = 9;
/// Writes that come before it: of three strings and two hashes of three fields.
const BEFORE: u64 = 11;

#[test]
fn what_was_decided_before_a_crash_is_carried_out_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for bytes in [10, 200_000] {
        for made in 0..=WRITES {
            let path = folder.path().join(format!("{bytes} {made}.pool"));
            let store = Store::open(Some(&path), &options()).expect("a store");
            let before = records(&store);
            store.refusals.come(made + BEFORE, u64::MAX);
            write_all_kinds(&store, bytes);
            assert_eq!(store.is_behind(), made < WRITES, "{made} writes were made");
            store.close().expect("closes");

            let store = Store::open(Some(&path), &options()).expect("opens again");
            assert_eq!(store.starts(), 2);
            assert_all_kinds_happened(&store, bytes, before);
        }
    }
}

/// A flush among other writes is one of them, and what opens the store must not believe what was there
/// before it.
#[test]
fn a_flush_that_a_crash_cut_short_is_carried_out_before_the_store_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    // The new key, and which spaces the databases have; the old key came before them.
    for made in 0..=2 {
        let path = folder.path().join(format!("{made}.pool"));
        let open = || Store::open(Some(&path), &options()).expect("a store");
        let store = open();
        set(&store, 0, b"flushed", b"old", None);
        let mut transaction =
            store.begin(store.stripes.lock_all(Access::Alone), store.clock().now_ms());
        transaction.gather_commands();
        transaction.flush(0..1).expect("flushes");
        transaction.put_head(transaction.space(0), b"new", &Head::string(b"1")).expect("puts");
        store.refusals.come(made, u64::MAX);
        transaction.commit().expect("it is decided");
        drop(transaction);
        assert_eq!(store.is_behind(), made < 2);
        store.close().expect("closes");

        let store = open();
        assert_eq!(get(&store, 0, b"flushed"), None, "{made}");
        assert_eq!(get(&store, 0, b"new").as_deref(), Some(&b"1"[..]), "{made}");
        set(&store, 0, b"later", b"2", None);
        sweep_all(&store);
        store.close().expect("closes");

        let store = open();
        sweep_all(&store);
        assert_eq!(get(&store, 0, b"new").as_deref(), Some(&b"1"[..]), "{made}");
        assert_eq!(get(&store, 0, b"later").as_deref(), Some(&b"2"[..]), "{made}");
    }
}

/// Opening writes a few records of its own, for which the ballast makes room in a pool that was filled to the
/// last behind it; and then keys can be removed.
#[test]
fn a_full_pool_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("full.pool");
    let options = StoreOptions { pool: PoolOptions::new().max_bytes(4 << 20), index: None };
    let mut random = fastrand::Rng::with_seed(3);
    for start in 1..30 {
        let store = Store::open(Some(&path), &options).expect("it opens");
        assert_eq!(store.starts(), start);
        let mut keys = Vec::new();
        let mut scan = store.map.scan(KeyRange::prefix(&[0]), Order::Ascending).expect("scans");
        while let Some((full, _)) = scan.next_record().expect("scans") {
            keys.extend(layout::split_head_key(full).map(|(_, _, key)| key.to_vec()));
        }
        drop(scan);
        for key in keys.iter().filter(|key| key[0] % 8 != 0) {
            write(&store, &[key], |transaction| {
                transaction.remove_head(0, key).expect("removes");
            });
        }
        // As the sweep does, until what was removed is free.
        let is_kept = (0..1000).any(|_| {
            store.keep_ballast();
            store.memory.has_ballast() || {
                std::thread::sleep(Duration::from_millis(1));
                false
            }
        });
        assert!(is_kept, "start {start}, {} bytes in use", store.pool.used_bytes());
        let mut refused = 0;
        while refused < 40 {
            let value = vec![0; random.usize(0..3000) >> (refused / 4)];
            let key = random.u32(..).to_le_bytes();
            let held =
                store.lock([Store::stripe_of_key(&key)].into_iter().collect(), Access::Alone);
            let mut transaction = store.begin(held.expect("locks"), store.clock().now_ms());
            let put = transaction.put_head(0, &key, &Head::string(&value));
            refused += u32::from(put.and_then(|()| transaction.commit()).is_err());
        }
        store.close().expect("closes");
    }
}

#[test]
fn what_was_decided_in_a_full_pool_is_carried_out_by_who_comes_next() {
    for bytes in [10, 200_000] {
        for made in 0..WRITES {
            for refused in [1, 2, 50] {
                let store = volatile();
                let before = records(&store);
                store.refusals.come(made + BEFORE, refused);
                write_all_kinds(&store, bytes);
                assert!(store.is_behind());
                assert_all_kinds_happened(&store, bytes, before);
                assert!(!store.is_behind());
            }
        }
    }
}

#[test]
fn a_store_without_ballast_gives_no_room_until_it_has_some_again() {
    let store = volatile();
    assert!(store.make_room().expect("looks"));
    store.refusals.come(0, 2);
    write(&store, &[b"a", b"b"], |transaction| {
        for key in [b"a", b"b"] {
            transaction.put_head(transaction.space(0), key, &Head::string(b"x")).expect("puts");
        }
    });
    assert!(get(&store, 0, b"a").is_some() && get(&store, 0, b"b").is_some());
    assert!(!store.make_room().expect("looks"), "the ballast went for the writes");
    store.keep_ballast();
    assert!(store.make_room().expect("looks"));
}

/// In a pool that is full all the time every transaction happens whole or not at all, and removing keys
/// always makes room again.
#[test]
fn a_full_pool_is_full_but_not_stuck() {
    let pool = PoolOptions::new().max_bytes(4 << 20);
    let store = Store::open(NO_POOL, &StoreOptions { pool, index: None }).expect("a store");
    let mut random = fastrand::Rng::with_seed(7);
    let mut generations = [0u32; 200];
    let (mut written, mut refused) = (0, 0);
    for generation in 1..3_000 {
        let (first, bytes) = (random.usize(..190), random.usize(1..30_000));
        let names: Vec<_> = (first..first + 10).map(|number| number.to_string()).collect();
        let wanted = names.iter().map(|name| Store::stripe_of_key(name.as_bytes())).collect();
        let held = store.lock(wanted, Access::Alone).expect("it is not stuck");
        let mut transaction = store.begin(held, store.clock().now_ms());
        for name in &names {
            let mut value = vec![0; bytes];
            value.extend_from_slice(&(generation as u32).to_le_bytes());
            let head = Head::string(&value);
            transaction.put_head(transaction.space(0), name.as_bytes(), &head).expect("puts");
        }
        if transaction.commit().is_ok() {
            written += 1;
            generations[first..first + 10].fill(generation as u32);
        } else {
            refused += 1;
        }
        drop(transaction);
        if generation % 7 == 0 {
            // What all have to agree on, now and then.
            for (number, &generation) in generations.iter().enumerate() {
                let value = get(&store, 0, number.to_string().as_bytes());
                let found = value.map_or(0, |value| {
                    u32::from_le_bytes(*value.last_chunk().expect("a generation"))
                });
                assert_eq!(found, generation, "key {number}");
            }
            for number in (0..200).filter(|number| number % 5 == generation % 5) {
                let name = number.to_string();
                write(&store, &[name.as_bytes()], |transaction| {
                    transaction.remove_head(transaction.space(0), name.as_bytes()).expect("goes");
                });
                generations[number] = 0;
            }
            store.keep_ballast();
        }
    }
    assert!(written > 100 && refused > 100, "{written} written, {refused} refused");
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
fn a_database_may_be_flushed_faster_than_the_sweep_follows() {
    let store = volatile();
    let before = records(&store);
    for _ in 0..3 * u32::from(layout::SPACES) {
        set(&store, 0, b"key", b"value", None);
        let held = store.stripes.lock_all(Access::Alone);
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

/// What a transaction has put where the exchanged database was is a change for who watches there.
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
        store.begin(store.stripes.lock_all(Access::Alone), store.clock().now_ms());
    transaction.gather_commands();
    transaction.put_head(transaction.space(0), b"key", &Head::string(b"1")).expect("puts");
    transaction.put_head(transaction.space(2), b"other", &Head::string(b"1")).expect("puts");
    transaction.swap_databases(0, 1);
    transaction.swap_databases(2, 2);
    transaction.commit().expect("commits");
    let told = [brought, absent, kept].map(|changed| changed.load(Ordering::Relaxed));
    assert_eq!(told, [true, false, false]);
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
    let (told, gone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    watch(&told);
    set(&store, 0, b"key", b"1", None);
    assert_eq!(watchers(), 0, "it was told");
    watch(&gone);
    drop(gone);
    set(&store, 1, b"key", b"of another database", None);
    assert_eq!(watchers(), 0, "it has gone");
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
    let path = folder.path().join("store.pool");
    let snapshot = folder.path().join("snapshot");
    std::fs::write(&snapshot, &sound[..sound.len() - 1]).expect("writes");
    let cut_short = Store::open(Some(&path), &options()).expect("a store");
    assert!(cut_short.restore(&snapshot).is_err());
    cut_short.close().expect("closes");
    let refused = Store::open(Some(&path), &options()).err().expect("it has a part of the keys");
    assert!(refused.to_string().contains("cut short"), "{refused}");
    assert!(store.save(&folder.path().join("no/folder")).is_err());
    assert!(store.snapshot_state().has_failed);
}

fn limit(store: &Store, bytes: u64, policy: EvictionPolicy) {
    store.limit_memory(MemoryLimit { bytes, policy, samples: 5 });
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
    limit(&store, limit_bytes, EvictionPolicy::NoEviction);
    let kept = fill(&store, 1_000_000);
    assert!((10_000..60_000).contains(&kept), "{kept} keys of 100 bytes in 4 MiB");
    assert_eq!(store.take_evicted_keys(), 0);
    limit(&store, 0, EvictionPolicy::NoEviction);
    assert!(store.make_room().expect("looks"));
}

#[test]
fn keys_that_are_used_outlive_those_that_are_not() {
    let store = volatile();
    let limit_bytes = store.pool().used_bytes() + (4 << 20);
    limit(&store, limit_bytes, EvictionPolicy::AllKeysLru);
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
    limit(&store, 1, EvictionPolicy::VolatileTtl);
    assert!(store.make_room().expect("evicts"), "a hundred keys may go for one command");
    assert!(!store.make_room().expect("evicts"), "nothing is left that may go");
    assert_eq!(store.take_evicted_keys(), 100);
    assert!(get(&store, 0, b"for ever").is_some());
}
