//! Transactions through the public API.

use std::sync::mpsc::channel;
use std::thread;

use pando::{
    Committed, Error, Isolation, Map, MapOptions, Pool, PoolOptions, Transaction, Upserted,
    WriteBatch,
};

const INDEXES: [&str; 5] = ["bztree", "bwtree", "nbtree", "wbtree", "skiplist"];

fn options() -> MapOptions {
    MapOptions::new().transactional(true)
}

fn volatile() -> Pool {
    Pool::volatile(&PoolOptions::new()).expect("memory")
}

fn records(pool: &Pool, map: &Map) -> Vec<(Vec<u8>, Vec<u8>)> {
    pool.transaction(|tx| tx.range(map, ..).collect::<Result<_, Error>>()).expect("reads")
}

#[test]
fn a_transaction_takes_place_whole_in_maps_of_different_indexes() {
    let pool = volatile();
    let maps = INDEXES.map(|index| pool.map_with(index, &options().index(index)).expect("a map"));
    maps.iter().for_each(|map| map.insert(b"k", b"old").expect("inserts"));
    let write = |tx: &mut Transaction<'_>| {
        for map in &maps {
            assert_eq!(tx.get(map, b"k")?.as_deref(), Some(&b"old"[..]));
            tx.remove(map, b"k")?;
            tx.put(map, b"n", b"new")?;
            assert_eq!(tx.get(map, b"k")?, None);
        }
        Ok::<_, Error>(())
    };
    let mut aborted = pool.begin().expect("begins");
    write(&mut aborted).expect("reads");
    aborted.abort();
    let failed = pool.transaction(|tx| {
        write(tx)?;
        Err::<(), _>(Error::KeyNotFound)
    });
    assert!(matches!(failed, Err(Error::KeyNotFound)));
    assert!(maps.iter().all(|map| map.len().expect("counts") == 1));
    pool.transaction(write).expect("commits");
    for map in &maps {
        assert_eq!(map.get(b"k").expect("reads"), None);
        assert_eq!(records(&pool, map), [(b"n".to_vec(), b"new".to_vec())]);
        assert!(map.is_transactional());
    }
    assert!(pool.check().expect("checks").is_consistent(), "{:?}", pool.check());
}

#[test]
fn a_conflict_names_map_and_key() {
    let pool = volatile();
    let [first, second] =
        ["first", "second"].map(|name| pool.map_with(name, &options()).expect("a map"));
    let mut transaction = pool.begin().expect("begins");
    assert_eq!(transaction.get(&second, b"oak").expect("reads"), None);
    transaction.put(&first, b"elm", b"1").expect("fits");
    assert_eq!(second.upsert(b"oak", b"2").expect("writes"), Upserted::Inserted);
    let conflict = transaction.commit().expect_err("what it has read has changed");
    let told = "the transaction conflicts with another one at the key \"oak\" of the map \"second\"; run it \
                again, or use Pool::transaction, which does";
    assert_eq!(conflict.to_string(), told);
    assert_eq!(first.get(b"elm").expect("reads"), None);

    // Run by the pool, it is run again.
    let mut times = 0;
    let sum = pool.transaction(|tx| {
        times += 1;
        let found = tx.get(&second, b"oak")?.map_or(0, |value| value[0]);
        if times == 1 {
            second.upsert(b"oak", [7])?;
        }
        tx.put(&first, b"sum", [found])?;
        Ok::<_, Error>(found)
    });
    assert_eq!((sum.expect("commits"), times), (7, 2));
}

/// Its result and its LSN are those of the run that has committed, and later commits have higher
/// LSNs.
#[test]
fn a_transaction_tells_its_lsn() {
    let pool = volatile();
    let map = pool.map_with("trees", &options()).expect("a map");
    let put = |key: &str| {
        let mut transaction = pool.begin().expect("begins");
        transaction.put(&map, key, "1").expect("fits");
        transaction.commit().expect("commits")
    };
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let before = put("ash");
        let (mut runs, mut other) = (0, 0);
        let committed = pool.transaction_with_lsn(isolation, |tx| {
            runs += 1;
            tx.get(&map, "elm")?;
            if runs == 1 {
                other = put("elm");
            }
            tx.put(&map, "elm", "2")?;
            Ok::<_, Error>(runs)
        });
        let Committed { value, lsn } = committed.expect("commits");
        assert_eq!(value, 2);
        assert!(before < other && other < lsn, "{before}, {other}, {lsn}");
        // A transaction without writes has that of what it has read.
        let get = |tx: &mut Transaction<'_>| tx.get(&map, "elm");
        let read = pool.transaction_with_lsn(isolation, get).expect("commits");
        assert_eq!(read, Committed { value: Some(b"2".to_vec()), lsn });
        assert!(put("oak") > lsn);
    }
    let refused = pool.transaction_with_lsn(Isolation::Serializable, |tx| {
        tx.put(&map, "fir", "1")?;
        Err::<(), _>(Error::KeyNotFound)
    });
    assert!(matches!(refused, Err(Error::KeyNotFound)), "{refused:?}");
    assert_eq!(map.get("fir").expect("reads"), None);
}

#[test]
fn maps_that_are_not_of_the_transaction_are_refused() {
    let (pool, other) = (volatile(), volatile());
    let plain = pool.map("plain").expect("a map");
    let theirs = other.map_with("theirs", &options()).expect("a map");
    let mut transaction = pool.begin().expect("begins");
    let refused = transaction.get(&plain, b"").expect_err("the map is plain");
    assert!(matches!(refused, Error::NotTransactional { .. }), "{refused}");
    let refused = transaction.put(&theirs, b"", b"").expect_err("the map is in another pool");
    assert!(matches!(refused, Error::MapOfOtherPool { .. }), "{refused}");
    transaction.commit().expect("it has done nothing");

    let own = pool.map_with("own", &options()).expect("a map");
    for (asked, name) in [(options(), "plain"), (MapOptions::new().transactional(false), "own")] {
        let refused = pool.map_with(name, &asked).expect_err("a map stays what it is");
        let is_told = matches!(refused, Error::MapOptionDiffers { option: "transactional", .. });
        assert!(is_told, "{refused}");
    }
    let fixed = options().index("wbtree").set("records", "fixed");
    let refused = pool.map_with("fixed", &fixed).expect_err("a value has no room for a stamp");
    assert!(
        matches!(&refused, Error::Option { option, .. } if option == "transactional"),
        "{refused}"
    );
    let kinds: Vec<_> =
        pool.maps().expect("lists").into_iter().map(|map| map.is_transactional).collect();
    assert_eq!(kinds, [true, false]);

    let limits = own.limits();
    let mut transaction = pool.begin().expect("begins");
    let refused = transaction.put(&own, vec![0; limits.max_key_bytes + 1], b"");
    assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
    let refused = transaction.put(&own, b"", vec![0; limits.max_value_bytes + 1]);
    assert!(matches!(refused, Err(Error::ValueTooLong { .. })), "{refused:?}");
    for key in 0..9_u8 {
        transaction.put(&own, [key], vec![key; 2 << 20]).expect("fits alone");
    }
    let refused = transaction.commit();
    assert!(matches!(refused, Err(Error::TransactionTooLong { .. })), "{refused:?}");
    assert!(own.is_empty().expect("reads"));
}

#[test]
fn a_file_has_what_was_committed_and_is_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    for index in INDEXES {
        let path = folder.path().join(index);
        let pool = Pool::create(&path, &PoolOptions::new()).expect("a pool");
        let map = pool.map_with("main", &options().index(index)).expect("a map");
        pool.map("plain").expect("a map").insert(b"p", b"q").expect("inserts");
        for number in 0..500_u16 {
            let key = number.to_be_bytes();
            pool.transaction(|tx| {
                tx.put(&map, key, [1; 40])?;
                tx.put(&map, [key, key].concat(), [2; 40])
            })
            .expect("commits");
        }
        assert!((0..500_u16).all(|number| map.remove(number.to_be_bytes()).expect("removes")));
        let figures = |pool: &Pool| {
            let stat = pool.stat().expect("figures").maps.remove(0);
            assert!(stat.is_transactional);
            stat.figures.expect("figures").records
        };
        assert_eq!((figures(&pool), map.len().expect("counts")), (500, 500));
        drop(map);
        assert!(pool.check().expect("checks").is_consistent(), "{:?}", pool.check());
        pool.close().expect("closes");

        let pool = Pool::open(&path, &PoolOptions::new()).expect("opens");
        assert!(pool.check().expect("checks").is_consistent(), "{:?}", pool.check());
        let map = pool.open_map("main").expect("the map");
        assert_eq!((figures(&pool), records(&pool, &map).len()), (500, 500));
        map.insert(b"after", b"").expect("inserts");
        drop(map);
        pool.compact().expect("compacts");

        let pool = Pool::open(&path, &PoolOptions::new().salvage(true)).expect("opens");
        let mut copied = Vec::new();
        let visit = |key: &[u8], value: &[u8]| copied.push((key.len(), value.len()));
        assert!(pool.salvage("main", visit).expect("copies").is_consistent());
        copied.sort_unstable();
        assert_eq!(copied, [&[(4, 40); 500][..], &[(5, 0)]].concat());
        assert!(matches!(pool.begin(), Err(Error::OpenForSalvage)));
        assert!(pool.check().expect("checks").is_consistent(), "{:?}", pool.check());
    }
}

#[test]
fn a_map_is_dropped_when_no_thread_may_use_it() {
    let pool = volatile();
    for _ in 0..3 {
        let map = pool.map_with("main", &options()).expect("a map");
        let mut transaction = pool.begin().expect("begins");
        transaction.put(&map, b"k", b"v").expect("fits");
        drop(map);
        let refused = pool.drop_map("main").expect_err("the transaction uses it");
        assert!(matches!(refused, Error::MapInUse { handles: 1, .. }), "{refused}");
        transaction.commit().expect("commits");
        pool.drop_map("main").expect("drops");
    }
    assert!(pool.check().expect("checks").is_consistent(), "{:?}", pool.check());

    // A thread that stays inside a call may have met a commit at the map.
    let plain = pool.map("plain").expect("a map");
    plain.insert(b"k", b"v").expect("inserts");
    pool.map_with("main", &options()).expect("a map").insert(b"k", b"v").expect("inserts");
    let (is_inside, inside) = channel();
    let (leave, left) = channel::<()>();
    thread::scope(|scope| {
        let plain = &plain;
        scope.spawn(move || {
            let read = plain.read(b"k", |_| {
                is_inside.send(()).expect("waited for");
                left.recv()
            });
            read.expect("reads").expect("there").expect("sent");
        });
        inside.recv().expect("sent");
        let refused = pool.drop_map("main").expect_err("the thread is inside");
        assert!(matches!(refused, Error::ThreadInside { .. }), "{refused}");
        let map = pool.open_map("main").expect("the map");
        assert_eq!(map.get(b"k").expect("reads").as_deref(), Some(&b"v"[..]));
        leave.send(()).expect("waited for");
    });
    pool.drop_map("main").expect("drops");
}

/// Four threads move amounts between accounts; the sum stays the same, for each that looks.
#[test]
fn threads_that_move_amounts_lose_none() {
    const ACCOUNTS: u8 = 10;
    let pool = volatile();
    let maps = ["bztree", "skiplist"]
        .map(|index| pool.map_with(index, &options().index(index)).expect("a map"));
    for map in &maps {
        (0..ACCOUNTS).for_each(|key| map.insert([key], 100_u64.to_le_bytes()).expect("inserts"));
    }
    let amount = |value: Option<Vec<u8>>| {
        u64::from_le_bytes(value.expect("there").try_into().expect("eight bytes"))
    };
    let (pool, maps) = (&pool, &maps);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let mut random = pando_index::random::Random::new(thread);
                for _ in 0..500 {
                    let mut account =
                        || (&maps[random.below(2) as usize], [random.below(10) as u8]);
                    let (from, to) = (account(), account());
                    pool.transaction(|tx| {
                        let left = amount(tx.get(from.0, from.1)?);
                        if left == 0 {
                            return Ok(());
                        }
                        tx.put(from.0, from.1, (left - 1).to_le_bytes())?;
                        let there = amount(tx.get(to.0, to.1)?);
                        tx.put(to.0, to.1, (there + 1).to_le_bytes())
                    })
                    .expect("commits");
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..100 {
                let all = maps.iter().flat_map(|map| records(pool, map));
                assert_eq!(all.count(), 2 * usize::from(ACCOUNTS));
                let sum = pool.transaction(|tx| {
                    let mut sum = 0;
                    for map in maps {
                        for record in tx.range(map, ..).rev() {
                            sum += amount(Some(record?.1));
                        }
                    }
                    Ok::<_, Error>(sum)
                });
                assert_eq!(sum.expect("reads"), 2 * 100 * u64::from(ACCOUNTS));
            }
        });
    });
}

#[test]
fn golden_digest_of_a_batch_and_what_changes_it() {
    let pool = volatile();
    let [a, b] = ["a", "b"].map(|name| pool.map_with(name, &options()).expect("a map"));
    let new = WriteBatch::new;
    let hex = |batch: &WriteBatch| {
        batch.digest().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(hex(&new())[..16], *"e3b0c44298fc1c14");
    let batch = new().put(&a, b"k", b"v").remove(&a, b"x").require(&b, b"k", None);
    assert_eq!(batch.len(), 3);
    assert_eq!(hex(&batch)[..32], *"e8b5b7986899d15f3da37d0d3398af8a");
    let others = [
        new().put(&b, b"k", b"v").remove(&a, b"x").require(&b, b"k", None),
        new().put(&a, b"kv", b"").remove(&a, b"x").require(&b, b"k", None),
        new().remove(&a, b"x").put(&a, b"k", b"v").require(&b, b"k", None),
        new().put(&a, b"k", b"v").put(&a, b"x", b"").require(&b, b"k", None),
        new().put(&a, b"k", b"v").remove(&a, b"x").require(&b, b"k", Some(b"")),
    ];
    assert!(others.iter().all(|other| other.digest() != batch.digest()));
    assert_eq!(batch.clone().digest(), batch.digest());
}
