//! Numbers of keys: before and while they are counted.

use std::sync::mpsc;

use pando::KeyRange;

use super::disk::on_disk;
use super::*;
use crate::head_counts::HeadCounts;
use crate::stripes::{Held, stripe_of};

fn number_of(store: &Store, database: u8) -> Result<Option<u64>> {
    store.begin(Held::none(), store.clock().now_ms()).count(database)
}

/// A store that has been closed, so that its keys are not counted.
fn opened_again(path: &Path, keys: u64) -> Store {
    let store = Store::open(Some(path), &options()).expect("a store");
    (0..keys).for_each(|key| set(&store, 0, &key.to_le_bytes(), b"value", None));
    store.close().expect("closes");
    Store::open(Some(path), &options()).expect("a store")
}

#[test]
fn a_reader_of_the_number_waits_for_no_count_and_no_command() {
    const KEYS: u64 = 5_000;
    let folder = tempfile::tempdir().expect("a folder");
    let store = &opened_again(&folder.path().join("pool"), KEYS);
    std::thread::scope(|scope| {
        let held = store.stripes.lock([500].into_iter().collect(), Access::Exclusive);
        let counting = scope.spawn(|| store.count(0));
        std::thread::sleep(Duration::from_millis(100));
        let known = || {
            let (sender, receiver) = mpsc::channel();
            scope.spawn(move || sender.send(store.known_count()));
            receiver.recv_timeout(Duration::from_secs(20)).expect("it does not wait")
        };
        assert_eq!(known(), None);
        drop(held);
        assert_eq!(counting.join().expect("no panic").expect("counts"), KEYS);
        let _held = store.stripes.lock([500].into_iter().collect(), Access::Exclusive);
        assert_eq!(known(), Some(KEYS));
    });
}

#[test]
fn numbers_are_right_whatever_is_done_between_the_steps_of_a_count() {
    const STRIPES_OF_KEYS: u16 = 3;
    let names = (0u64..).map(u64::to_le_bytes);
    let in_few = |name: &[u8; 8]| stripe_of(layout::hash_of(name)) < STRIPES_OF_KEYS;
    let names: Vec<[u8; 8]> = names.filter(in_few).take(30).collect();
    let store = volatile();
    let mut random = fastrand::Rng::with_seed(29);
    for round in 0..200 {
        // As after a start.
        store.stripes.all_heads().for_each(|mut heads| *heads = HeadCounts::default());
        store.key_counts.forget();
        for _ in 0..random.u32(1..150) {
            let name = &names[random.usize(..names.len())][..];
            let database = random.u8(..2);
            match random.u32(..20) {
                0 => {
                    let all = store.stripes.lock_all(Access::Exclusive);
                    let mut transaction = store.begin(all, store.clock().now_ms());
                    transaction.flush(database..=database).expect("flushes");
                    let space = transaction.space(database);
                    transaction.put_head(space, name, &Head::string(b"new")).expect("puts");
                    transaction.commit().expect("commits");
                }
                1 => {
                    let all = store.stripes.lock_all(Access::Exclusive);
                    let mut transaction = store.begin(all, store.clock().now_ms());
                    transaction.swap_databases(0, 1);
                    transaction.commit().expect("commits");
                }
                2 => drop(store.sweep_garbage(10).expect("sweeps")),
                3..9 => drop(store.count_some(random.u16(..STRIPES_OF_KEYS)).expect("counts")),
                9..13 => write(&store, &[name], |transaction| {
                    let space = transaction.space(database);
                    transaction.remove_head(space, name).expect("removes");
                }),
                13..16 => write(&store, &[name], |transaction| {
                    let space = transaction.space(database);
                    transaction.put_string(space, name, &Head::string(b"once")).expect("puts");
                }),
                _ => set(&store, database, name, b"value", None),
            }
        }
        assert_eq!(store.known_count(), None);
        for database in 0..2 {
            let space = store.space(database);
            let (low, high) = (layout::head_prefix(space, 0), layout::head_prefix(space + 1, 0));
            let there = store.map.range(KeyRange::between(&low, &high)).count() as u64;
            assert_eq!(store.count(database).expect("counts"), there, "round {round}");
        }
        assert!(store.known_count().is_some());
    }
}

#[test]
fn a_client_of_a_record_store_reads_no_keys_to_count_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = on_disk(&path);
    assert_eq!(number_of(&store, 0).expect("known"), Some(0), "a new store has no keys");
    (0..50u64).for_each(|key| set(&store, 0, &key.to_le_bytes(), b"value", None));
    store.close().expect("closes");

    let store = on_disk(&path);
    assert!(!store.is_count_wanted());
    assert_eq!(number_of(&store, 0).expect("it is not known"), None);
    assert!(store.is_count_wanted());
    let put = |name: &[u8], before: Option<u64>| {
        write(&store, &[name], |transaction| {
            assert_eq!(transaction.count(0).expect("reads nothing"), before);
            transaction.put_head(0, name, &Head::string(b"value")).expect("puts");
            let behind = transaction.count(0).expect("reads nothing");
            assert_eq!(behind, before.map(|before| before + 1));
        });
    };
    put(b"new", None);
    store.count_in_background();
    assert!(!store.is_count_wanted());
    assert_eq!(number_of(&store, 0).expect("known"), Some(51));
    put(b"newer", Some(51));
    assert_eq!(number_of(&store, 0).expect("known"), Some(52));
}

#[test]
fn threads_that_count_at_the_same_time_find_the_same_number() {
    const KEYS: u64 = 3_000;
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened_again(&folder.path().join("pool"), KEYS);
    std::thread::scope(|scope| {
        let counting: Vec<_> = (0..4).map(|_| scope.spawn(|| store.count(0))).collect();
        for counting in counting {
            assert_eq!(counting.join().expect("no panic").expect("counts"), KEYS);
        }
    });
    assert_eq!(store.known_count(), Some(KEYS));
}
