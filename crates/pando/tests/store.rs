//! A store by the public API: the same maps as a pool's, larger than memory.

use std::path::Path;
use std::time::{Duration, Instant};

use pando::{
    Acknowledge, Error, Isolation, LogFiles, MapOptions, Pool, PoolOptions, Store, StoreFiles,
};
use pando_device::Disk;
use pando_log::{LogOptions, create_files};

const MEMORY_BYTES: u64 = 16 << 20;

fn store(folder: &tempfile::TempDir) -> Store {
    Store::open(folder.path().join("store"), MEMORY_BYTES).expect("opens")
}

#[test]
fn records_larger_than_memory_are_there_after_a_reopening() {
    const RECORDS: u64 = 220_000;
    let folder = tempfile::tempdir().expect("a folder");
    let value = |key: u64| [&key.to_le_bytes()[..], &[7; 150]].concat();
    let opened = store(&folder);
    let map = opened.map("main").expect("created").typed::<u64>();
    for key in 0..RECORDS {
        map.insert(key * 7_919 % RECORDS, value(key)).expect("inserted");
    }
    let stat = opened.stat().expect("reads").store.expect("a store");
    assert!(stat.live_bytes > 2 * MEMORY_BYTES && stat.loads > 0 && stat.evictions > 0, "{stat:?}");
    drop(map);
    // As a kill leaves it: without a checkpoint.
    drop(opened);
    let opened = store(&folder);
    let map = opened.open_map("main").expect("it is there").typed::<u64>();
    for key in (0..RECORDS).step_by(97) {
        let found = map.get(key * 7_919 % RECORDS).expect("reads");
        assert_eq!(found, Some(value(key)), "{key}");
    }
    assert_eq!(map.len().expect("reads"), RECORDS);
    let report = opened.check().expect("reads");
    assert!(report.is_consistent(), "{report:?}");
    assert_eq!((report.maps, report.records), (1, RECORDS));
    drop(map);
    opened.close().expect("durable");
    assert_eq!(store(&folder).stat().expect("reads").recovery.commits, 0);
}

#[test]
fn transactions_and_snapshots_are_those_of_a_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = PoolOptions::new().acknowledge(Acknowledge::Synced);
    let store =
        Store::open_with(folder.path().join("store"), MEMORY_BYTES, &options).expect("opens");
    let [left, right] = ["left", "right"].map(|name| store.map(name).expect("created"));
    left.insert(b"ash", b"1").expect("inserted");
    let snapshot = store.snapshot().expect("taken");
    store
        .transaction(|transaction| {
            let moved = transaction.get(&left, b"ash")?.expect("it is there");
            transaction.remove(&left, b"ash")?;
            transaction.put(&right, b"ash", &moved)
        })
        .expect("commits");
    assert_eq!(left.get(b"ash").expect("reads"), None);
    assert_eq!(right.get(b"ash").expect("reads").as_deref(), Some(&b"1"[..]));
    assert_eq!(snapshot.get(&left, b"ash").expect("reads").as_deref(), Some(&b"1"[..]));
    assert_eq!(snapshot.get(&right, b"ash").expect("reads"), None);
    let mut scan = snapshot.range(&left, ..);
    assert_eq!(scan.next().expect("a record").expect("a record").0, b"ash");
    drop(scan);
    drop(snapshot);
    let mut first = store.begin_with(Isolation::Snapshot).expect("begun");
    let mut second = store.begin().expect("begun");
    first.put(&left, b"elm", b"1").expect("fits");
    second.put(&left, b"elm", b"2").expect("fits");
    second.commit().expect("it is the first");
    assert!(matches!(first.commit(), Err(Error::Conflict { .. })));
    let session = store.new_session().expect("begun");
    let batch = pando::WriteBatch::new().put(&left, b"oak", b"3");
    session.apply(1, &batch).expect("applied");
    session.apply(1, &batch).expect("applied once");
    assert!(store.durable_lsn().expect("it has a log") > 0);
    assert_eq!(store.sync().expect("durable"), store.durable_lsn().expect("it has a log"));
}

#[test]
fn a_store_says_what_it_cannot_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let refused = Store::open(&path, 1).expect_err("too small");
    assert_eq!(refused.to_string(), "memory_bytes is 1; allowed is 16777216 or more");
    let store = Store::open(&path, MEMORY_BYTES).expect("opens");
    assert!(matches!(Store::open(&path, MEMORY_BYTES), Err(Error::StoreBusy { .. })));
    let map = store.map("main").expect("created");
    for options in [
        MapOptions::new().index("bztree"),
        MapOptions::new().transactional(false),
        MapOptions::new().set("leaf_bytes", 4096),
    ] {
        store.map_with("other", &options).expect_err("not in a store");
        store.map_with("main", &options).expect_err("not in a store");
    }
    store.map_with("main", &MapOptions::new().index("bwtree").transactional(true)).expect("so");
    let limits = map.limits();
    assert_eq!(limits.max_value_bytes, (16 << 10) - 16);
    let long = vec![7; limits.max_value_bytes + 1];
    assert!(matches!(map.insert(b"key", &long), Err(Error::ValueTooLong { .. })));
    map.insert(b"key", &long[1..]).expect("fits");
    map.insert(vec![7; limits.max_key_bytes], b"").expect("fits");
    assert!(matches!(store.drop_map("main"), Err(Error::MapInUse { .. })));
    assert!(matches!(store.drop_map("none"), Err(Error::MapNotFound { .. })));
    match store.open_map("none").expect_err("it is not there") {
        Error::MapNotFound { present, .. } => assert_eq!(present, ["main"]),
        other => panic!("{other}"),
    }
    let refused = store.salvage("main", |_, _| ()).expect_err("not in a store");
    assert!(matches!(refused, Error::NotInAStore { .. }), "{refused}");
    let backup = folder.path().join("backup");
    let refused = store.backup(&backup).expect_err("its log alone is no backup");
    assert!(matches!(refused, Error::NotInAStore { .. }), "{refused}");
    assert!(refused.to_string().contains("copy its whole directory"), "{refused}");
    assert!(!backup.exists());
    drop(map);
    store.drop_map("main").expect("dropped");
    assert_eq!(store.maps().expect("reads"), []);
    let refused = store.clone().into_pool().compact().expect_err("handles are held");
    assert!(matches!(refused, Error::PoolInUse { .. }), "{refused}");
    assert!(matches!(store.into_pool().compact(), Err(Error::NotInAStore { .. })));
}

#[test]
fn a_renamed_map_of_a_store_has_its_records_after_a_reopening() {
    let folder = tempfile::tempdir().expect("a folder");
    let opened = store(&folder);
    opened.map("trees").expect("created").insert(b"ash", b"1").expect("inserted");
    opened.map("other").expect("created");
    let taken = opened.rename_map("trees", "other").expect_err("it is there");
    assert!(matches!(taken, Error::MapExists { .. }), "{taken}");
    let long = opened.rename_map("trees", &"x".repeat(65)).expect_err("it is too long");
    assert!(matches!(long, Error::MapName { .. }), "{long}");
    opened.rename_map("trees", "plants").expect("renamed");
    drop(opened);
    let opened = store(&folder);
    let plants = opened.open_map("plants").expect("it is there");
    assert_eq!(plants.get(b"ash").expect("reads").as_deref(), Some(&b"1"[..]));
    assert!(matches!(opened.open_map("trees"), Err(Error::MapNotFound { .. })));
}

/// A folder with a store of one map with so many records, whose name is in a damaged page.
fn with_damaged_list(records: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let opened = store(&folder);
    let map = opened.map("trees").expect("created");
    (0..records).for_each(|key| map.put(key.to_be_bytes(), [7; 100]).expect("written"));
    drop(map);
    opened.close().expect("durable");
    // The key of the name, in the map that is the list of maps.
    let key = b"\x01\x01mtrees";
    let mut damaged = 0;
    for entry in std::fs::read_dir(folder.path().join("store/pages")).expect("a folder") {
        let path = entry.expect("a file").path();
        let mut bytes = std::fs::read(&path).expect("read");
        let places = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(key));
        let places: Vec<_> = places.collect();
        damaged += places.len();
        places.into_iter().for_each(|at| bytes[at] ^= 1);
        std::fs::write(path, bytes).expect("written");
    }
    assert!(damaged > 0);
    folder
}

/// The dump of a snapshot would leave out maps that are not listed.
#[test]
fn a_dump_of_a_store_whose_list_of_maps_is_damaged_is_an_error() {
    // In the second case the only page of the map is the damaged one.
    for records in [4_000, 1] {
        let folder = with_damaged_list(records);
        let opened = store(&folder);
        let snapshot = opened.snapshot().expect("taken");
        let dumped = snapshot.dump(|_, _, _| Ok::<_, Error>(()));
        let refused = dumped.expect_err("a map may be missing");
        assert!(matches!(refused, Error::Damaged(_)), "{records} records: {refused}");
        assert!(refused.to_string().contains("is damaged"), "{records} records: {refused}");
    }
}

#[test]
fn a_store_that_is_not_there_is_an_error_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["", "none"] {
        let path = folder.path().join(name);
        let refused = StoreFiles::at(&path).open(MEMORY_BYTES).expect_err("there is none");
        let Error::StoreNotFound { path: named } = &refused else { panic!("{refused:?}") };
        assert_eq!(*named, path);
    }
    let refused = Store::open(folder.path().join("none/store"), MEMORY_BYTES);
    let refused = refused.expect_err("it has no folder");
    let Error::FolderNotFound { path } = &refused else { panic!("{refused:?}") };
    assert_eq!(*path, folder.path().join("none"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("reads").count(), 0);
}

/// A store that was killed, and then closed. Two readers have it, and a writer none meanwhile.
#[test]
fn a_store_that_is_open_for_reading_alone_refuses_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let files = StoreFiles::at(&path);
    for is_closed in [false, true] {
        let written = store(&folder);
        written.map("trees").expect("created").upsert(b"ash", b"1").expect("written");
        match is_closed {
            true => written.close().expect("closed"),
            false => drop(written),
        }
        let read = files.open(MEMORY_BYTES).expect("opens");
        let trees = read.open_map("trees").expect("it is there");
        assert_eq!(trees.get(b"ash").expect("reads").as_deref(), Some(&b"1"[..]));
        let other = files.open(MEMORY_BYTES).expect("readers share it");
        assert!(matches!(Store::open(&path, MEMORY_BYTES), Err(Error::StoreBusy { .. })));
        let snapshot = read.snapshot().expect("taken");
        assert_eq!(snapshot.range(&trees, ..).count(), 1);
        let found = read.transaction(|transaction| transaction.get(&trees, b"ash"));
        assert_eq!(found.expect("it writes nothing").as_deref(), Some(&b"1"[..]));
        let writes: [Result<(), Error>; 7] = [
            trees.upsert(b"ash", b"2").map(drop),
            trees.insert(b"elm", b"2"),
            trees.put(b"ash", b"2"),
            trees.upsert_many(&[(b"ash", b"2"), (b"elm", b"2")]).map(drop),
            trees.remove(b"ash").map(drop),
            read.transaction(|transaction| transaction.put(&trees, b"ash", b"2")),
            read.map("other").map(drop),
        ];
        for (number, write) in writes.into_iter().enumerate() {
            assert!(matches!(write, Err(Error::StoreReadOnly)), "{number}: {write:?}");
        }
        assert_eq!(trees.len().expect("reads"), 1);
        assert!(read.check().expect("reads").is_consistent());
        drop(snapshot);
        drop(trees);
        assert!(matches!(read.drop_map("trees"), Err(Error::StoreReadOnly)));
        assert!(matches!(read.rename_map("trees", "other"), Err(Error::StoreReadOnly)));
        assert_eq!(read.maps().expect("reads").len(), 1);
        read.close().expect("nothing to write");
        other.close().expect("nothing to write");
    }
}

/// The manifest of the log in this directory, as an earlier version has written it: it does not
/// say that the log is that of a store.
fn write_manifest_of_earlier_version(log: &Path) {
    let manifest = std::fs::read(log.join("manifest")).expect("a manifest");
    let id = |at: usize| u128::from_le_bytes(*manifest[at..].first_chunk().expect("whole"));
    let segment_bytes = u64::from_le_bytes(*manifest[56..].first_chunk().expect("whole"));
    let earlier = tempfile::tempdir_in(log.parent().expect("a folder")).expect("a folder");
    let disk = Disk::open(earlier.path()).expect("a directory");
    let options = LogOptions { segment_bytes, ..LogOptions::default() };
    create_files(&disk, id(16), (id(32), 0), options).expect("created");
    std::fs::rename(earlier.path().join("proposal"), log.join("manifest")).expect("renamed");
}

/// While the store is open, and after it was closed.
#[test]
fn a_pool_refuses_the_log_of_a_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let log = path("store/log");
    Pool::create(path("other.pool"), &PoolOptions::new().log(path("other.log"))).expect("a pool");
    let opened = store(&folder);
    opened.map("trees").expect("created").insert(b"ash", b"1").expect("inserted");
    opened.sync().expect("durable");
    let mut open = Some(opened);
    for _ in 0..2 {
        let manifest = std::fs::read(log.join("manifest")).expect("a manifest");
        let options = PoolOptions::new().log(&log);
        let refused: [Result<(), Error>; 7] = [
            Pool::create(path("grove.pool"), &options).map(drop),
            Pool::open(path("grove.pool"), &options).map(drop),
            Pool::restore(path("other.log"), path("grove.pool"), &options).map(drop),
            Pool::restore(&log, path("grove.pool"), &PoolOptions::new().log(path("grove.log")))
                .map(drop),
            Pool::reset_log(path("other.pool"), &options).map(drop),
            LogFiles::at(&log).verify().map(drop),
            LogFiles::at(&log).backup(path("backup")).map(drop),
        ];
        for (number, refused) in refused.into_iter().enumerate() {
            let refused = refused.expect_err("the log of a store");
            let names_it = matches!(&refused, Error::LogOfStore { path } if *path == log);
            assert!(names_it, "{number}: {refused}");
        }
        assert!(!path("grove.pool").exists() && !path("backup").exists());
        assert_eq!(std::fs::read(log.join("manifest")).expect("a manifest"), manifest);
        if let Some(opened) = open.take() {
            opened.close().expect("durable");
        }
    }
    let trees = store(&folder).open_map("trees").expect("it is there");
    assert_eq!(trees.get(b"ash").expect("reads").as_deref(), Some(&b"1"[..]));
    Pool::open(path("other.pool"), &PoolOptions::new()).expect("it has its log");
}

/// A log without a list of maps: no pool has one, and a store has no other. This one does not say
/// that it is that of a store.
#[test]
fn commits_that_belong_to_no_map_are_an_error_and_no_empty_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let opened = store(&folder);
    opened.map("trees").expect("created").insert(b"ash", b"1").expect("inserted");
    opened.sync().expect("durable");
    drop(opened);
    write_manifest_of_earlier_version(&folder.path().join("store/log"));
    let (log, pool) = (folder.path().join("store/log"), folder.path().join("grove.pool"));
    let restored =
        Pool::restore(&log, &pool, &PoolOptions::new().log(folder.path().join("grove.log")));
    let rebuilt = Pool::open(&pool, &PoolOptions::new().log(&log));
    for refused in [restored, rebuilt] {
        let refused = refused.expect_err("a pool without its maps");
        assert!(matches!(&refused, Error::LogDamaged { path, .. } if *path == log), "{refused}");
        assert!(refused.to_string().contains("belong to no map"), "{refused}");
        assert!(!pool.exists());
    }
    let trees = store(&folder).open_map("trees").expect("it is there");
    assert_eq!(trees.get(b"ash").expect("reads").as_deref(), Some(&b"1"[..]));
}

/// Keys and values that are too long for a commit, and pages that are too many.
#[test]
fn a_transaction_that_a_store_cannot_take_is_too_long() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store(&folder);
    let map = store.map("trees").expect("created");
    for (records, value_bytes) in [(40, 4 << 10), (400, 8)] {
        let value = vec![7; value_bytes];
        let refused = store.transaction(|transaction| {
            (0..records).try_for_each(|key: u32| transaction.put(&map, key.to_be_bytes(), &value))
        });
        let refused = refused.expect_err("it is too long");
        let is_over = |error: &Error| match error {
            Error::TransactionTooLong { found_bytes, max_bytes } => found_bytes > max_bytes,
            _ => false,
        };
        assert!(is_over(&refused), "{records} records: {refused:?}");
        assert!(map.is_empty().expect("reads"));
    }
}

/// The thread of the store clears, also without a call that waits for it.
#[test]
fn a_drop_does_not_wait_until_the_records_are_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = store(&folder);
    let dropped_maps = || store.stat().expect("reads").store.expect("a store").dropped_maps;
    let fill = |name: &str| {
        let map = store.map(name).expect("created");
        (0..15_000_u32).for_each(|key| map.put(key.to_be_bytes(), [7; 100]).expect("written"));
    };
    let kept = store.map("kept").expect("created");
    kept.insert(b"ash", b"1").expect("inserted");
    // If this thread is stopped between the calls, the other one may have cleared the map.
    let left = ["first", "second", "third"].map(|name| {
        fill(name);
        store.drop_map(name).expect("dropped");
        dropped_maps()
    });
    assert!(left.iter().any(|&maps| maps > 0), "{left:?}");
    store.clear_dropped().expect("cleared");
    assert_eq!(dropped_maps(), 0);
    fill("first");
    store.drop_map("first").expect("dropped");
    let deadline = Instant::now() + Duration::from_secs(120);
    while dropped_maps() > 0 {
        assert!(Instant::now() < deadline, "the thread has not cleared the map");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(kept.len().expect("reads"), 1);
    assert!(store.check().expect("reads").is_consistent());
}
