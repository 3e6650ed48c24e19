//! Snapshots through the public API.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use pando::{
    Error, Isolation, Map, MapOptions, Order, Pool, PoolOptions, Snapshot, SnapshotOptions,
};

const INDEXES: [&str; 5] = ["bztree", "bwtree", "nbtree", "wbtree", "skiplist"];

fn options() -> MapOptions {
    MapOptions::new().transactional(true)
}

fn volatile() -> Pool {
    Pool::volatile(&PoolOptions::new()).expect("memory")
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("a number"))
}

/// Amounts move between accounts in maps of all indexes, and accounts come and go. Each snapshot
/// has the same sum, each time it is read, by several threads, in both directions.
#[test]
fn snapshots_show_one_moment_while_threads_write() {
    const ACCOUNTS: u64 = 60;
    const TOTAL: u64 = ACCOUNTS * 1_000;
    let pool = volatile();
    let maps = INDEXES.map(|index| pool.map_with(index, &options().index(index)).expect("a map"));
    let map_of = |account: u64| &maps[account as usize % maps.len()];
    let key_of = |account: u64| account.to_be_bytes();
    pool.transaction(|tx| {
        (0..ACCOUNTS).try_for_each(|account| {
            tx.put(map_of(account), key_of(account), 1_000_u64.to_be_bytes())
        })
    })
    .expect("commits");
    let sum = |snapshot: &Snapshot<'_>, order: Order| {
        let of_map = |map: &Map| {
            let (mut records, mut sum) = (snapshot.range(map, ..), 0);
            while let Some((_, value)) = records.next_record_in(order).expect("reads") {
                sum += number(value);
            }
            sum
        };
        maps.iter().map(of_map).sum::<u64>()
    };
    let is_enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (pool, is_enough) = (&pool, &is_enough);
            scope.spawn(move || {
                for step in 0.. {
                    if is_enough.load(Ordering::Relaxed) {
                        break;
                    }
                    let mixed = (step * 2 + thread).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                    let (from, to) = (mixed % ACCOUNTS, mixed / ACCOUNTS % ACCOUNTS);
                    if from == to {
                        continue;
                    }
                    pool.transaction(|tx| {
                        let left = tx.get(map_of(from), key_of(from))?;
                        let right = tx.get(map_of(to), key_of(to))?;
                        let [left, right] =
                            [left, right].map(|value| value.as_deref().map_or(0, number));
                        // An empty account is removed.
                        tx.remove(map_of(from), key_of(from))?;
                        tx.put(map_of(to), key_of(to), (left + right).to_be_bytes())
                    })
                    .expect("commits");
                    // Else all amounts end in one account.
                    pool.transaction(|tx| {
                        let right = tx.get(map_of(to), key_of(to))?;
                        let right = right.as_deref().map_or(0, number);
                        let left = tx.get(map_of(from), key_of(from))?;
                        let left = left.as_deref().map_or(0, number);
                        tx.put(map_of(to), key_of(to), (right - right / 2).to_be_bytes())?;
                        tx.put(map_of(from), key_of(from), (left + right / 2).to_be_bytes())
                    })
                    .expect("commits");
                }
            });
        }
        let mut kept = Vec::new();
        for round in 0..60 {
            let snapshot = pool.snapshot().expect("a snapshot");
            assert_eq!(sum(&snapshot, Order::Ascending), TOTAL);
            kept.push(snapshot);
            if round % 4 == 3 {
                std::thread::scope(|scope| {
                    for snapshot in &kept {
                        scope.spawn(|| assert_eq!(sum(snapshot, Order::Descending), TOTAL));
                    }
                });
                drop(kept.remove(round % kept.len()));
                kept.truncate(3);
            }
        }
        is_enough.store(true, Ordering::Relaxed);
    });
    let stat = pool.stat().expect("reads").transactions.expect("it has transactions");
    assert_eq!((stat.snapshots, stat.kept_bytes, stat.undecided), (0, 0, 0));
    assert!(pool.check().expect("checks").is_consistent());
}

#[test]
fn a_snapshot_tells_maps_that_it_cannot_read_and_has_no_later_maps() {
    let pool = volatile();
    let early = pool.snapshot().expect("a snapshot");
    let plain = pool.map("plain").expect("a map");
    let map = pool.map_with("trees", &options()).expect("a map");
    map.insert(b"ash", b"1").expect("inserts");
    let other_pool = volatile();
    let other = other_pool.map_with("trees", &options()).expect("a map");
    let snapshot = pool.snapshot().expect("a snapshot");
    let late = pool.map_with("late", &options()).expect("a map");
    late.insert(b"ash", b"2").expect("inserts");

    for (snapshot, expected) in [(&early, None), (&snapshot, Some(b"1".to_vec()))] {
        assert_eq!(snapshot.get(&map, b"ash").expect("reads"), expected);
        let prefix = snapshot.prefix(&map, b"a").rev();
        assert_eq!(prefix.count(), usize::from(expected.is_some()));
        assert_eq!(snapshot.get(&late, b"ash").expect("reads"), None);
        assert_eq!(snapshot.range(&late, ..).count(), 0);
        assert!(matches!(snapshot.get(&plain, b"k"), Err(Error::NotTransactional { .. })));
        assert!(matches!(snapshot.get(&other, b"k"), Err(Error::MapOfOtherPool { .. })));
    }
    assert!(matches!(snapshot.get(&map, [0; 40_000]), Err(Error::KeyTooLong { .. })));
    assert!(early.lsn() < snapshot.lsn());
}

#[test]
fn a_snapshot_beyond_its_limits_is_revoked_and_its_holder_is_told() {
    let limits = PoolOptions::new().snapshot_limits(Duration::from_secs(60), 10_000);
    let pool = Pool::volatile(&limits).expect("memory");
    let map = pool.map_with("trees", &options()).expect("a map");
    let put = |value: u8| {
        (0..100_u8).try_for_each(|key| map.upsert([key], [value; 50]).map(drop)).expect("fits");
    };
    put(0);
    let told = Arc::new(AtomicU64::new(0));
    let theirs = told.clone();
    let options = SnapshotOptions::new().holder("backup").on_revoke(move || {
        theirs.fetch_add(1, Ordering::Relaxed);
    });
    let snapshot = pool.snapshot_with(options).expect("a snapshot");
    map.upsert(b"\0", b"new").expect("fits");
    let stat = pool.stat().expect("reads").transactions.expect("it has transactions");
    assert_eq!((stat.snapshots, stat.oldest_holder.as_str()), (1, "backup"));
    assert!(stat.kept_bytes > 50 && stat.oldest_age_ns > 0);
    let mut scan = snapshot.range(&map, ..);
    assert!(scan.next_record().expect("reads").is_some());
    let mut transaction = pool.begin_with(Isolation::Snapshot).expect("begins");
    assert_eq!(transaction.get(&map, b"\x01").expect("reads"), Some(vec![0; 50]));
    put(1);
    put(2);
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert!(matches!(scan.next(), Some(Err(Error::SnapshotRevoked))));
    assert!(scan.next().is_none());
    let refused = snapshot.get(&map, b"\x01").expect_err("it is revoked");
    assert!(refused.to_string().contains("snapshot_limits"), "{refused}");
    transaction.put(&map, b"\x01", b"x").expect("fits");
    assert!(matches!(transaction.commit(), Err(Error::SnapshotRevoked)));
    assert_eq!(map.get(b"\x01").expect("reads"), Some(vec![2; 50]));
}

/// The age is looked at by each commit: reads alone revoke nothing.
#[test]
fn a_snapshot_beyond_its_age_is_revoked_by_the_next_commit_and_its_holder_is_told_before() {
    let limits = |age| PoolOptions::new().snapshot_limits(age, u64::MAX);
    let young = Pool::volatile(&limits(Duration::from_secs(3_600))).expect("memory");
    let pool = Pool::volatile(&limits(Duration::ZERO)).expect("memory");
    let [young_map, map] =
        [&young, &pool].map(|pool| pool.map_with("trees", &options()).expect("a map"));
    let is_told = Arc::new((Barrier::new(2), Barrier::new(2)));
    let theirs = is_told.clone();
    let options = SnapshotOptions::new().on_revoke(move || {
        theirs.0.wait();
        theirs.1.wait();
    });
    map.insert(b"ash", b"1").expect("inserts");
    young_map.insert(b"ash", b"1").expect("inserts");
    let snapshot = pool.snapshot_with(options).expect("a snapshot");
    let young_snapshot = young.snapshot().expect("a snapshot");
    let read = || snapshot.get(&map, b"ash").map(Option::unwrap_or_default);
    assert_eq!(read().expect("no commit came"), b"1");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| map.upsert(b"ash", b"2").map(drop));
        is_told.0.wait();
        let meanwhile = (read(), pool.stat().expect("reads").transactions);
        is_told.1.wait();
        writer.join().expect("a thread").expect("it is not refused");
        assert_eq!(meanwhile.0.expect("it is not revoked yet"), b"1");
        assert_eq!(meanwhile.1.expect("it has transactions").snapshots, 1);
    });
    assert!(matches!(read(), Err(Error::SnapshotRevoked)));
    assert!(matches!(snapshot.range(&map, ..).next(), Some(Err(Error::SnapshotRevoked))));
    assert_eq!(map.get(b"ash").expect("reads"), Some(b"2".to_vec()));
    // One that is not beyond its limit.
    young_map.upsert(b"ash", b"2").expect("writes");
    assert_eq!(young_snapshot.get(&young_map, b"ash").expect("reads"), Some(b"1".to_vec()));
}

/// Writers go on, maps are created and renamed, and nothing of it is in the dump.
#[test]
fn a_dump_of_a_snapshot_has_the_records_of_all_maps_as_they_were() {
    let pool = volatile();
    let dump = |snapshot: &Snapshot<'_>| {
        let mut records = Vec::new();
        let count = snapshot.dump(|map, key, value| {
            records.push((map.to_owned(), key.to_vec(), value.to_vec()));
            Ok::<_, Error>(())
        });
        assert_eq!(count.expect("dumps"), records.len() as u64);
        records
    };
    assert_eq!(dump(&pool.snapshot().expect("of nothing")), []);
    let maps = INDEXES.map(|index| pool.map_with(index, &options().index(index)).expect("a map"));
    pool.map("plain").expect("a map").insert("no", "part of it").expect("inserts");
    for (map, index) in maps.iter().zip(INDEXES) {
        (0..100_u8).for_each(|key| map.insert([key], index).expect("inserts"));
    }
    let snapshot = pool.snapshot().expect("a snapshot");
    for map in &maps {
        map.upsert([7], "later").expect("writes");
        map.remove([8]).expect("removes");
    }
    let later = pool.map_with("later", &options()).expect("a map");
    later.insert("later", "too").expect("inserts");
    let mut sorted = INDEXES;
    sorted.sort_unstable();
    let expected = |name: &dyn Fn(&'static str) -> String| {
        let of_map = |index| (0..100_u8).map(move |key| (name(index), vec![key], index.into()));
        sorted.into_iter().flat_map(of_map).collect::<Vec<_>>()
    };
    assert_eq!(dump(&snapshot), expected(&str::to_owned));
    drop(maps);
    pool.rename_map("bztree", "bztree-2").expect("renamed");
    let renamed = |index: &'static str| index.replace("bztree", "bztree-2");
    assert_eq!(dump(&snapshot), expected(&renamed));
    // Errors of the caller end it.
    let refused = snapshot.dump(|_, key, _| match key {
        [9] => Err(Error::KeyNotFound),
        _ => Ok(()),
    });
    assert!(matches!(refused, Err(Error::KeyNotFound)));
}

/// Maps are renamed meanwhile, and names move from map to map: each dump has each map once.
#[test]
fn a_dump_beside_renames_has_each_map_once() {
    const MAPS: u8 = 24;
    const ROUNDS: usize = 300;
    let pool = volatile();
    let name = |map: u8| format!("map {map}");
    for number in 0..MAPS {
        let map = pool.map_with(&name(number), &options()).expect("a map");
        map.insert("number", [number]).expect("inserts");
    }
    let snapshot = pool.snapshot().expect("a snapshot");
    // False while the maps are open in a dump. The other thread dumps, and then waits for renames.
    let rename = |from: &str, to: &str| match pool.rename_map(from, to) {
        Err(Error::MapInUse { .. }) => false,
        renamed => renamed.map(|()| true).expect("renames"),
    };
    let (is_over, renames) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Two maps exchange their names, in three steps, so that each name is often free.
            let pairs = (0..).map(|step: usize| {
                let maps = usize::from(MAPS);
                [step % maps, (step * 7 + 1) % maps].map(|map| map as u8)
            });
            for [one, other] in pairs.filter(|[one, other]| one != other) {
                let [one, other] = [name(one), name(other)];
                for (from, to) in [(&*one, "passing"), (&*other, &*one), ("passing", &*other)] {
                    while !rename(from, to) {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        std::thread::yield_now();
                    }
                    renames.fetch_add(1, Ordering::Relaxed);
                }
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let _over = Over(&is_over);
        let mut dumps = 0;
        while dumps < ROUNDS || renames.load(Ordering::Relaxed) < ROUNDS {
            let (mut names, mut numbers) = (BTreeSet::new(), Vec::new());
            let dumped = snapshot.dump(|map, _, value| {
                names.insert(map.to_owned());
                numbers.push(value[0]);
                Ok::<_, Error>(())
            });
            assert_eq!(dumped.expect("dumps"), u64::from(MAPS));
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(0..MAPS), "{numbers:?}");
            assert_eq!(names.len(), usize::from(MAPS), "{names:?}");
            dumps += 1;
            std::thread::yield_now();
        }
    });
}

/// Ends another thread, also after a panic.
struct Over<'flag>(&'flag AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_transaction_over_a_snapshot_runs_again_after_a_write_of_its_key() {
    let pool = volatile();
    let map = pool.map_with("trees", &options()).expect("a map");
    map.insert(b"count", 0_u64.to_be_bytes()).expect("inserts");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.transaction_with(Isolation::Snapshot, |tx| {
                        let count = number(&tx.get(&map, b"count")?.expect("a value"));
                        tx.put(&map, b"count", (count + 1).to_be_bytes())
                    })
                    .expect("commits");
                }
            });
        }
    });
    assert_eq!(map.get(b"count").expect("reads"), Some(600_u64.to_be_bytes().to_vec()));
}
