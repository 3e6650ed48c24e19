//! Transactions that a crash interrupts, and full pools.

use super::*;

/// Writes of the transaction of all kinds: the points where a crash can interrupt it.
const WRITES: u64 = 9;
/// Writes before it: of three strings and two hashes of three fields.
const BEFORE: u64 = 11;

#[test]
fn what_was_decided_before_a_crash_is_carried_out_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for bytes in [10, 200_000] {
        for made in 0..=WRITES {
            let path = folder.path().join(format!("{bytes} {made}.pool"));
            let store = Store::open(Some(&path), &options()).expect("a store");
            let before = records(&store);
            store.refusals.set(made + BEFORE, u64::MAX);
            write_all_kinds(&store, bytes);
            assert_eq!(store.has_pending_writes(), made < WRITES, "{made} writes were made");
            store.close().expect("closes");

            let store = Store::open(Some(&path), &options()).expect("opens again");
            assert_eq!(store.starts(), 2);
            assert_all_kinds_happened(&store, bytes, before);
        }
    }
}

/// A flush is one of the writes of a transaction. Opening must not use the spaces from before it.
#[test]
fn a_flush_that_a_crash_cut_short_is_carried_out_before_the_store_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    // The new key, and the spaces of the databases; the old key is written before.
    for made in 0..=2 {
        let path = folder.path().join(format!("{made}.pool"));
        let open = || Store::open(Some(&path), &options()).expect("a store");
        let store = open();
        set(&store, 0, b"flushed", b"old", None);
        let mut transaction =
            store.begin(store.stripes.lock_all(Access::Exclusive), store.clock().now_ms());
        transaction.gather_commands();
        transaction.flush(0..1).expect("flushes");
        transaction.put_head(transaction.space(0), b"new", &Head::string(b"1")).expect("puts");
        store.refusals.set(made, u64::MAX);
        transaction.commit().expect("it is decided");
        drop(transaction);
        assert_eq!(store.has_pending_writes(), made < 2);
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

/// Opening writes a few records. In a full pool the reserve provides their room. With a log the
/// memory limit does, as in the server. Then keys can be removed.
#[test]
fn a_full_pool_opens() {
    fill_and_open_again(false, 4 << 20, 30);
    fill_and_open_again(true, 16 << 20, 5);
}

fn fill_and_open_again(has_log: bool, max_bytes: u64, starts: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("full.pool");
    let StoreOptions { pool, .. } = options_at(&path, has_log);
    let options = StoreOptions { pool: pool.max_bytes(max_bytes), ..StoreOptions::default() };
    let mut random = fastrand::Rng::with_seed(3);
    for start in 1..starts {
        let store = Store::open(Some(&path), &options).expect("it opens");
        assert_eq!(store.starts(), start);
        let bytes = if has_log { max_bytes / 2 } else { 0 };
        let limit = MemoryLimit { bytes, policy: EvictionPolicy::NoEviction, samples: 0 };
        store.limit_memory(limit);
        let mut keys = Vec::new();
        let mut scan = store.map.prefix([0]);
        while let Some((full, _)) = scan.next_record().expect("scans") {
            keys.extend(layout::split_head_key(full).map(|(_, _, key)| key.to_vec()));
        }
        drop(scan);
        for key in keys.iter().filter(|key| key[0] % 8 != 0) {
            write(&store, &[key], |transaction| {
                transaction.remove_head(0, key).expect("removes");
            });
        }
        // As the sweep does, until removed records are free.
        let is_kept = (0..1000).any(|_| {
            store.keep_intent_reserve();
            store.memory.has_intent_reserve() || {
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
                store.lock([Store::stripe_of_key(&key)].into_iter().collect(), Access::Exclusive);
            let mut transaction = store.begin(held.expect("locks"), store.clock().now_ms());
            if !store.make_room().expect("looks") {
                break;
            }
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
                store.refusals.set(made + BEFORE, refused);
                write_all_kinds(&store, bytes);
                assert!(store.has_pending_writes());
                assert_all_kinds_happened(&store, bytes, before);
                assert!(!store.has_pending_writes());
            }
        }
    }
}

#[test]
fn a_store_without_intent_reserve_gives_no_room_until_it_has_some_again() {
    let store = volatile();
    assert!(store.make_room().expect("looks"));
    store.refusals.set(0, 2);
    write(&store, &[b"a", b"b"], |transaction| {
        for key in [b"a", b"b"] {
            transaction.put_head(transaction.space(0), key, &Head::string(b"x")).expect("puts");
        }
    });
    assert!(get(&store, 0, b"a").is_some() && get(&store, 0, b"b").is_some());
    assert!(!store.make_room().expect("looks"), "the reserve went for the writes");
    store.keep_intent_reserve();
    assert!(store.make_room().expect("looks"));
}

/// In a pool that is always full, every transaction happens as a whole or not at all, and removing
/// keys always makes room.
#[test]
fn a_full_pool_is_full_but_not_stuck() {
    let pool = PoolOptions::new().max_bytes(4 << 20);
    let store =
        Store::open(NO_POOL, &StoreOptions { pool, ..StoreOptions::default() }).expect("a store");
    let mut random = fastrand::Rng::with_seed(7);
    let mut generations = [0u32; 200];
    let (mut written, mut refused) = (0, 0);
    for generation in 1..3_000 {
        let (first, bytes) = (random.usize(..190), random.usize(1..30_000));
        let names: Vec<_> = (first..first + 10).map(|number| number.to_string()).collect();
        let wanted = names.iter().map(|name| Store::stripe_of_key(name.as_bytes())).collect();
        let held = store.lock(wanted, Access::Exclusive).expect("it is not stuck");
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
            // Sometimes compares all keys with the model.
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
            store.keep_intent_reserve();
        }
    }
    assert!(written > 100 && refused > 100, "{written} written, {refused} refused");
}
