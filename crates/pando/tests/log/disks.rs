//! Logs on disks that are full, that cannot be written, and that fail.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pando::{Acknowledge, Error, LogFiles, Outcome, Pool, Store, StoreFiles, WriteBatch};

use crate::mounted::{MemoryDisk, Mounted};
use crate::place::{Place, check_map, fill, transactional};

const ORDER: Ordering = Ordering::SeqCst;

/// A refused commit has installed nothing, and all goes on when the disk has room.
#[test]
fn a_full_disk_refuses_commits_as_a_whole_until_it_has_room() {
    let place = Place::new();
    // No room for a segment.
    let Some(mounted) = Mounted::tmpfs(&place.log(), 1 << 20) else { return };
    let options = place.options().max_bytes(1 << 28);
    let pool = Pool::create(place.pool(), &options).expect("a pool");
    let (map, other) = (transactional(&pool, "trees"), transactional(&pool, "other"));
    let session = pool.new_session().expect("a session");
    map.insert(b"removed", b"0").expect("the tail has room");
    let synced = map.clone().acknowledge(Acknowledge::Synced).expect("a log");
    let done = synced.insert(b"synced", b"1");
    assert!(matches!(done, Err(Error::AppliedNotDurable { .. })), "{done:?}");
    let mut value = vec![0; 30_000];
    let mut number = 0_u64;
    let refused = loop {
        value[..8].copy_from_slice(&number.to_le_bytes());
        match map.upsert(b"large", &value) {
            Ok(_) => number += 1,
            Err(refused) => break refused,
        }
    };
    let Error::LogFull { used_bytes, max_bytes } = refused else { panic!("{refused}") };
    assert!(used_bytes <= max_bytes && used_bytes > max_bytes / 2, "{used_bytes}");
    assert!(number > 100, "{number} commits");

    // It is too long for the room that is left, in each way to write it.
    let value = vec![1; 100_000];
    let batch = WriteBatch::new().put(&map, b"a", &value).put(&other, b"b", &value);
    let batch = batch.remove(&map, b"removed");
    let in_transaction = || {
        pool.transaction(|tx| {
            tx.put(&map, b"a", &value)?;
            tx.put(&other, b"b", &value)?;
            tx.remove(&map, b"removed")
        })
    };
    for refused in [
        in_transaction(),
        pool.write(&batch).map(drop),
        session.apply(1, &batch).map(drop),
        map.insert(b"a", &value),
        synced.insert(b"a", &value),
        other.upsert_many(&[(b"b", &value)]).map(drop),
    ] {
        assert!(matches!(refused, Err(Error::LogFull { .. })), "{refused:?}");
    }
    let snapshot = pool.snapshot().expect("a snapshot");
    for (map, key, expected) in [
        (&map, &b"a"[..], None),
        (&other, b"b", None),
        (&map, b"removed", Some(&b"0"[..])),
        (&map, b"synced", Some(b"1")),
    ] {
        assert_eq!(map.get(key).expect("read").as_deref(), expected, "{key:?}");
        assert_eq!(snapshot.get(map, key).expect("read").as_deref(), expected, "{key:?}");
    }
    let newest = || map.get(b"large").expect("read").expect("is there")[..8].to_vec();
    assert_eq!(newest(), (number - 1).to_le_bytes(), "the last one that was not refused");
    assert!(!pool.stat().expect("figures").log.expect("a log").has_stopped);
    drop(snapshot);

    mounted.remount("size=256m");
    let applied = Outcome::Applied { digest: batch.digest() };
    assert_eq!(session.apply(1, &batch).expect("there is room"), applied);
    synced.upsert(b"synced", b"2").expect("there is room");
    let id = session.id();
    drop((map, other, synced, batch, session));
    place.go_down(pool);
    let pool = Pool::open(place.pool(), &options).expect("recovers");
    let (map, other) = (transactional(&pool, "trees"), transactional(&pool, "other"));
    let large = map.get(b"large").expect("read").expect("is there");
    assert_eq!(large[..8], (number - 1).to_le_bytes());
    assert_eq!(map.get(b"synced").expect("read").as_deref(), Some(&b"2"[..]));
    assert_eq!(other.get(b"b").expect("read"), Some(value));
    assert_eq!(map.get(b"removed").expect("read"), None);
    let session = pool.session(id).expect("it is known");
    assert_eq!(session.outcome(1).expect("an outcome"), applied);
    assert!(pool.check().expect("checked").is_consistent());
    drop((map, other, session, pool));
    drop(mounted);
}

/// The file system is full in the middle of a rebuild, whose threads sort the writes of the log. A
/// rebuild in the order of the log finds room.
#[test]
fn a_rebuild_onto_a_full_file_system_begins_again() {
    const SMALL: u64 = 20_000;
    const LARGE: u64 = 400;
    let place = Place::new();
    let memory = place.path("memory");
    let Some(_mounted) = Mounted::tmpfs(&memory, 96 << 20) else { return };
    let path = memory.join("grove.pool");
    let options = place.options().initial_bytes(8 << 20);
    let pool = Pool::create(&path, &options).expect("a pool");
    let map = transactional(&pool, "trees");
    fill(&map, 0, SMALL);
    let large = |number: u64| vec![number as u8; 30_000];
    for number in 0..LARGE {
        map.upsert(number.to_le_bytes(), large(number)).expect("written");
    }
    pool.sync().expect("synced");
    drop((map, pool));
    fs::remove_file(&path).expect("removed");

    // The first report of commits fills the file system, and that of the next attempt empties it.
    let filler = memory.join("filler");
    let attempts = Arc::new(AtomicU64::new(0));
    let (noted, before) = (attempts.clone(), AtomicU64::new(u64::MAX));
    let options = options.on_recovery(move |progress| {
        if progress.commits == 0 || before.swap(progress.commits, ORDER) < progress.commits {
            return;
        }
        match noted.fetch_add(1, ORDER) {
            0 => fill_up(&filler),
            _ => fs::remove_file(&filler).expect("removed"),
        }
    });
    let pool = Pool::open(&path, &options).expect("recovers");
    assert_eq!(attempts.load(ORDER), 2);
    let map = pool.open_map("trees").expect("a map");
    assert_eq!(map.len().expect("counted"), SMALL + LARGE - 1);
    for number in 0..LARGE {
        let value = map.get(number.to_le_bytes()).expect("read");
        assert!(value == Some(large(number)), "{number}");
    }
    let names = fs::read_dir(&memory).expect("listed").count();
    assert_eq!(names, 1, "the pool alone");
}

/// Writes zeros to a new file until the file system is full.
fn fill_up(path: &Path) {
    let mut file = fs::File::create(path).expect("created");
    let mut bytes = &vec![0; 1 << 20][..];
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                bytes = &bytes[..bytes.len() / 2]
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Nothing is opened, rebuilt or created beside it.
#[test]
fn a_log_that_cannot_be_written_is_refused_and_stays_as_it_is() {
    let place = Place::new();
    let pool = place.create();
    fill(&transactional(&pool, "trees"), 0, 100);
    pool.close().expect("closed");
    let read_only = place.path("read-only");
    let Some(mounted) = Mounted::read_only(&read_only, &place.log()) else { return };
    let files = || {
        let names = fs::read_dir(place.log()).expect("listed").map(|file| file.expect("a file"));
        let mut names: Vec<_> =
            names.map(|file| (file.file_name(), fs::read(file.path()).expect("read"))).collect();
        names.sort();
        names
    };
    let before = files();
    let options = place.options().log(&read_only);
    let refused = |opened: Result<Pool, Error>| {
        let refused = opened.expect_err("it cannot be written");
        assert!(matches!(refused, Error::Log(_)), "{refused:?}");
        assert!(refused.to_string().contains("read-only"), "{refused}");
        assert!(files() == before, "{refused}");
    };
    refused(Pool::open(place.pool(), &options));
    let away = place.path("away");
    fs::rename(place.pool(), &away).expect("renamed");
    refused(Pool::open(place.pool(), &options));
    refused(Pool::open_or_create(place.pool(), &options));
    assert!(!place.pool().exists());
    fs::rename(&away, place.pool()).expect("renamed");
    let empty = place.path("empty");
    fs::create_dir(&empty).expect("created");
    let Some(_empty) = Mounted::read_only(&place.path("read-only-empty"), &empty) else { return };
    let options = place.options().log(place.path("read-only-empty"));
    refused(Pool::create(place.path("new.pool"), &options));
    assert!(!place.path("new.pool").exists());

    drop(mounted);
    check_map(&place.open(), "trees", 100);
}

/// Logs and backups that are only read need not be on a file system that can be written.
#[test]
fn a_read_only_log_is_verified_copied_and_restored() {
    let place = Place::new();
    let pool = place.create();
    let map = transactional(&pool, "trees");
    fill(&map, 0, 100);
    pool.write_image().expect("written");
    fill(&map, 100, 150);
    let lsn = pool.sync().expect("synced");
    drop(map);
    pool.close().expect("closed");
    let read_only = place.path("read-only");
    let Some(_mounted) = Mounted::read_only(&read_only, &place.log()) else { return };
    let log = LogFiles::at(&read_only);
    assert!(log.exists());
    let report = log.verify().expect("whole");
    assert_eq!((report.image_records, report.end_lsn), (100, lsn));
    // A backup of it, and the same backup where nothing can be written.
    let backup = place.path("backup");
    assert_eq!(log.backup(&backup).expect("a backup"), lsn);
    let of_backup = place.path("read-only-backup");
    let Some(_mounted) = Mounted::read_only(&of_backup, &backup) else { return };
    for from in [&read_only, &of_backup] {
        let name = from.file_name().expect("a name").to_str().expect("a text");
        let options = place.options().log(place.path(&format!("{name}.log")));
        let path = place.path(&format!("{name}.pool"));
        check_map(&Pool::restore(from, path, &options).expect("restored"), "trees", 150);
        LogFiles::at(from).verify().expect("whole, as before");
    }
}

/// A store is reported on where nothing can be written: after a kill, and after a close.
#[test]
fn a_read_only_store_is_checked() {
    const MEMORY_BYTES: u64 = 16 << 20;
    let place = Place::new();
    let path = place.path("store");
    for is_closed in [false, true] {
        let store = Store::open(&path, MEMORY_BYTES).expect("opens");
        let map = store.map("trees").expect("created");
        fill(&map, 0, 100);
        drop(map);
        match is_closed {
            true => store.close().expect("closed"),
            false => drop(store),
        }
        let files = StoreFiles::at(&path);
        assert!(files.is_writable());
        let name = if is_closed { "read-only-closed" } else { "read-only-killed" };
        let read_only = place.path(name);
        let Some(_mounted) = Mounted::read_only(&read_only, &path) else { return };
        let files = StoreFiles::at(&read_only);
        assert!(!files.is_writable());
        let stat = files.stat(MEMORY_BYTES).expect("reads");
        assert_eq!((stat.maps.len(), stat.recovery.was_clean), (1, is_closed));
        let report = files.check(MEMORY_BYTES).expect("reads");
        assert!(report.is_consistent(), "{report:?}");
        assert_eq!((report.maps, report.records), (1, 100));
        Store::open(&read_only, MEMORY_BYTES).expect_err("it cannot be written");
    }
}

/// The folder of the store can be written, and a file or a folder in it cannot.
#[test]
fn a_store_of_which_a_part_is_read_only_is_read() {
    const MEMORY_BYTES: u64 = 16 << 20;
    let place = Place::new();
    let path = place.path("store");
    let store = Store::open(&path, MEMORY_BYTES).expect("opens");
    fill(&store.map("trees").expect("created"), 0, 100);
    drop(store);
    let files = StoreFiles::at(&path);
    for part in ["lock", "control", "pages", "log", "log/lock"] {
        assert!(files.is_writable());
        let Some(_mounted) = Mounted::made_read_only(&path.join(part)) else { return };
        assert!(!files.is_writable(), "{part}");
        let report = files.check(MEMORY_BYTES).expect("reads");
        assert_eq!((report.maps, report.records), (1, 100), "{part}");
    }
    assert_eq!(Store::open(&path, MEMORY_BYTES).expect("opens").maps().expect("reads").len(), 1);
}

/// The disk answers with an error from the middle of the commits on. What it has then is all that
/// the next start finds.
#[test]
fn a_disk_that_fails_has_all_that_was_synced_and_stops_the_log() {
    let place = Place::new();
    let Some(disk) = MemoryDisk::new(128 << 20) else { return };
    let Some(mounted) = Mounted::ext4(&place.log(), &disk) else { return };
    let options = place.options().acknowledge(Acknowledge::Synced);
    let pool = Pool::create(place.pool(), &options).expect("a pool");
    let map = transactional(&pool, "trees");
    fill(&map, 0, 40);
    disk.fail();
    let first = map.insert(b"first", b"1");
    assert!(matches!(first, Err(Error::AppliedNotDurable { .. })), "{first:?}");
    assert_eq!(map.get(b"first").expect("read").as_deref(), Some(&b"1"[..]));
    let second = map.insert(b"second", b"1");
    assert!(matches!(second, Err(Error::LogStopped { .. })), "{second:?}");
    assert_eq!(map.get(b"second").expect("read"), None);
    assert!(pool.stat().expect("figures").log.expect("a log").has_stopped);

    drop(map);
    place.go_down(pool);
    let copy = disk.copied();
    drop((mounted, disk));
    fs::remove_dir(place.log()).expect("removed");
    let Some(mounted) = Mounted::ext4(&place.log(), &copy) else { return };
    let pool = place.open();
    let map = transactional(&pool, "trees");
    assert_eq!(map.get(b"first").expect("read"), None);
    check_map(&pool, "trees", 40);
    drop((map, pool));
    drop(mounted);
}
