//! Pools with a log: what is there after the file of the pool is lost, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pando::{Acknowledge, DomainChoice, Error, Isolation, LogFiles, MapOptions, Pool, PoolOptions};
use pando_bztree::BzTrees;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::{OpenPool, Process};
use pando_tree::maps::Catalog;
use pando_tree::maps::slots::MapHeader;

use crate::place::{Place, check, check_map, fill, transactional};

#[test]
fn a_pool_whose_file_is_gone_is_built_anew_from_its_log() {
    let place = Place::new();
    let pool = place.create();
    let trees = transactional(&pool, "trees");
    let other = transactional(&pool, "other");
    pool.map("plain").expect("a map").insert(b"ash", b"1").expect("inserted");
    fill(&trees, 0, 1_000);
    other.insert(b"gone", b"1").expect("inserted");
    assert!(other.remove(b"gone").expect("removed"));
    let moved = pool.transaction(|tx| {
        tx.put(&trees, 7_u64.to_be_bytes(), b"value 7")?;
        tx.put(&other, b"elm", b"2")
    });
    moved.expect("commits");
    assert_eq!(pool.sync().expect("synced"), pool.durable_lsn().expect("a log"));
    drop((trees, other, pool));
    fs::remove_file(place.pool()).expect("removed");

    // Without the log there is nothing.
    let refused = Pool::open(place.pool(), &PoolOptions::new()).expect_err("there is no file");
    assert!(matches!(refused, Error::PoolNotFound { .. }), "{refused}");
    let commits = Arc::new(AtomicU64::new(0));
    let noted = commits.clone();
    let options = place.options().on_recovery(move |progress| {
        noted.store(progress.commits, Ordering::Relaxed);
    });
    let pool = Pool::open_or_create(place.pool(), &options).expect("recovers");
    check_map(&pool, "trees", 1_000);
    let other = pool.open_map("other").expect("a map");
    assert_eq!(other.len().expect("counted"), 1);
    assert_eq!(other.get(b"elm").expect("read").as_deref(), Some(&b"2"[..]));
    assert!(pool.open_map("plain").expect("a map").is_empty().expect("counted"));
    let stat = pool.stat().expect("figures");
    assert!(stat.recovery.from_log && stat.recovery.commits > 1_000);
    assert_eq!(commits.load(Ordering::Relaxed), stat.recovery.commits);
    assert_eq!(stat.recovery.emptied_maps, ["plain"]);
    assert_eq!(stat.max_bytes, 1 << 26);
    assert!(pool.check().expect("checked").is_consistent());
    // It goes on, and a new map has a number that no other map has had.
    fill(&transactional(&pool, "third"), 0, 10);
    drop((other, pool));
    let pool = place.open();
    assert!(!pool.stat().expect("figures").recovery.from_log);
    check_map(&pool, "third", 10);
    check_map(&pool, "trees", 1_000);
}

#[test]
fn a_transaction_survives_when_the_log_is_durable_up_to_its_lsn() {
    let place = Place::new();
    let pool = place.create();
    let trees = transactional(&pool, "trees");
    fill(&trees, 0, 9);
    let committed = pool.transaction_with_lsn(Isolation::Serializable, |tx| {
        tx.put(&trees, 9_u64.to_be_bytes(), b"value 9")?;
        tx.put(&trees, 10_u64.to_be_bytes(), b"value 10")
    });
    let lsn = committed.expect("commits").lsn;
    pool.sync_to(lsn).expect("synced");
    let durable = pool.durable_lsn().expect("a log");
    // Nothing is behind it.
    assert_eq!((durable, pool.sync().expect("synced")), (lsn, lsn));
    drop(trees);
    place.go_down(pool);
    check_map(&place.open(), "trees", 11);
}

#[test]
fn a_pool_that_is_not_trusted_is_built_anew_without_being_asked() {
    let place = Place::new();
    let pool = place.create();
    let synced = transactional(&pool, "trees").acknowledge(Acknowledge::Synced).expect("a log");
    fill(&synced, 0, 50);
    drop(synced);
    place.go_down(pool);
    // The pool says where its log is.
    let pool = Pool::open(place.pool(), &PoolOptions::new()).expect("recovers");
    check_map(&pool, "trees", 50);
    assert!(pool.stat().expect("figures").recovery.from_log);
    let synced = transactional(&pool, "trees").acknowledge(Acknowledge::Synced).expect("a log");
    fill(&synced, 50, 60);
    drop(synced);
    place.go_down(pool);
    check_map(&place.open(), "trees", 60);
    let names: Vec<_> = fs::read_dir(place.folder.path()).expect("listed").collect();
    assert_eq!(names.len(), 3, "nothing is left behind: {names:?}");
}

#[test]
fn an_image_shortens_the_log_and_the_recovery() {
    let place = Place::new();
    let pool = place.create();
    let trees = transactional(&pool, "trees");
    let dropped = transactional(&pool, "dropped");
    fill(&trees, 0, 5_000);
    fill(&dropped, 0, 100);
    drop(dropped);
    pool.drop_map("dropped").expect("dropped");
    pool.write_image().expect("an image");
    let stat = pool.stat().expect("figures").log.expect("a log");
    assert!(stat.image_lsn > 0 && stat.image_bytes > 5_000 * 16, "{stat:?}");
    assert!(stat.durable_lsn >= stat.image_lsn && !stat.has_stopped);
    fill(&trees, 5_000, 5_100);
    fill(&transactional(&pool, "dropped"), 0, 3);
    pool.sync().expect("synced");
    drop(trees);
    place.go_down(pool);
    let pool = place.open();
    check_map(&pool, "trees", 5_100);
    check_map(&pool, "dropped", 3);
    let recovery = pool.stat().expect("figures").recovery;
    assert_eq!(recovery.image_records, 5_000);
    assert!(recovery.commits < 200, "{recovery:?}");
}

/// A pool that is dropped is closed, so all commits are in its log.
#[test]
fn what_was_written_right_before_a_pool_is_dropped_is_in_its_log() {
    let place = Place::new();
    for round in 0..20 {
        let pool = if round == 0 { place.create() } else { place.open() };
        let map = transactional(&pool, "trees");
        fill(&map, round * 10, round * 10 + 10);
        drop((map, pool));
        fs::remove_file(place.pool()).expect("removed");
    }
    check_map(&place.open(), "trees", 200);
}

/// A kill between the two steps of a creation leaves a map that the log does not list. The next
/// opening lists it, before anything is written to it.
#[test]
fn a_map_that_the_log_does_not_list_is_listed_by_the_next_opening() {
    let place = Place::new();
    place.create().close().expect("closed");
    let pool = pando_pmem::Pool::<Process>::open(&place.pool(), &OpenPool::default());
    let catalog = Arc::new(Catalog::open(pool.expect("opens")).expect("recovers"));
    let (options, number) = (Default::default(), MapHeader::NEW_NUMBER);
    catalog.find_or_create_entry::<BzTrees>("late", options, number).expect("the map");
    Arc::into_inner(catalog).expect("one handle").into_pool().close().expect("closed");

    let pool = place.open();
    fill(&transactional(&pool, "late"), 0, 30);
    pool.sync().expect("synced");
    place.go_down(pool);
    check_map(&place.open(), "late", 30);
}

#[test]
fn every_kind_of_index_comes_back_with_its_options() {
    let place = Place::new();
    let pool = place.create();
    let kinds: Vec<_> = pando::indexes().into_iter().map(|index| index.name).collect();
    for kind in &kinds {
        let options = MapOptions::new().index(*kind).transactional(true);
        let options = match *kind {
            "wbtree" => options.set("values", "any"),
            "bztree" => options.set("leaf_bytes", 4096),
            _ => options,
        };
        let Ok(map) = pool.map_with(kind, &options) else { continue };
        fill(&map, 0, 300);
    }
    pool.sync().expect("synced");
    let before = pool.stat().expect("figures").maps;
    assert!(before.len() >= 4, "{before:?}");
    place.go_down(pool);
    let pool = place.open();
    for map in before {
        let after = pool.stat().expect("figures").maps.into_iter().find(|m| m.name == map.name);
        let after = after.expect("it is there");
        assert_eq!((after.index, after.options), (map.index, map.options));
        check(&pool.open_map(&map.name).expect("a map"), 300);
    }
}

#[test]
fn a_log_that_is_moved_is_named_again() {
    let place = Place::new();
    let pool = place.create();
    fill(&transactional(&pool, "trees"), 0, 20);
    pool.close().expect("closed");
    fs::rename(place.path("grove.log"), place.path("elsewhere")).expect("moved");
    let refused = Pool::open(place.pool(), &PoolOptions::new()).expect_err("it is gone");
    assert!(matches!(refused, Error::LogNotFound { .. }), "{refused}");
    let options = PoolOptions::new().log(place.path("elsewhere"));
    check(&Pool::open(place.pool(), &options).expect("opens").map("trees").expect("a map"), 20);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let place = Place::new();
    let pool = place.create();
    fill(&transactional(&pool, "trees"), 0, 20);
    // The directory has a log.
    let refused = Pool::create(place.path("other.pool"), &place.options()).expect_err("in use");
    assert!(matches!(refused, Error::LogBusy { .. }), "{refused}");
    pool.close().expect("closed");
    let refused = Pool::create(place.path("other.pool"), &place.options()).expect_err("used");
    assert!(matches!(refused, Error::LogExists { .. }), "{refused}");
    assert!(!place.path("other.pool").exists());
    // A log of another pool.
    let other = PoolOptions::new().log(place.path("other.log"));
    Pool::create(place.path("other.pool"), &other).expect("a pool").close().expect("closed");
    let refused = Pool::open(place.pool(), &other).expect_err("foreign");
    assert!(matches!(refused, Error::LogForeign { .. }), "{refused}");
    assert!(refused.to_string().contains("other.log"), "{refused}");
    // A pool without a log.
    let path = place.path("plain.pool");
    let plain = Pool::create(&path, &PoolOptions::new()).expect("a pool");
    for refused in [
        plain.sync().expect_err("no log"),
        plain.durable_lsn().expect_err("no log"),
        plain.write_image().expect_err("no log"),
        transactional(&plain, "trees").acknowledge(Acknowledge::Synced).expect_err("no log"),
    ] {
        assert!(matches!(refused, Error::NoLog), "{refused}");
    }
    let mut transaction = plain.begin().expect("begins");
    transaction.acknowledge(Acknowledge::Synced);
    assert!(matches!(transaction.commit(), Err(Error::NoLog)));
    plain.close().expect("closed");
    for options in [other, PoolOptions::new().acknowledge(Acknowledge::Synced)] {
        let refused = Pool::open(&path, &options).expect_err("no log");
        assert!(matches!(refused, Error::NoLog), "{refused}");
    }
    let refused = Pool::volatile(&place.options()).expect_err("memory");
    assert!(matches!(refused, Error::Option { .. }), "{refused}");
    let plain = place.open().map("plain").expect("a map").acknowledge(Acknowledge::Synced);
    assert!(matches!(plain, Err(Error::NotTransactional { .. })));
    // All of it has changed nothing.
    check_map(&place.open(), "trees", 20);
}

/// The directory of a log with this file of another one, and the error of a new pool there.
fn refused_beside(place: &Place, file: &str) -> (PathBuf, Error) {
    let directory = place.path("grove.log");
    fs::create_dir(&directory).expect("created");
    fs::write(directory.join(file), b"of another log").expect("written");
    (directory, Pool::create(place.pool(), &place.options()).expect_err("refused"))
}

/// A pool has its name only when its log is there: else a power cut between the two would leave a
/// pool that nothing can recover.
#[test]
fn a_pool_whose_log_cannot_be_created_is_not_created() {
    let place = Place::new();
    let (directory, refused) = refused_beside(&place, "segment-0000000000000000");
    let Error::LogNotEmpty { path, found } = &refused else { panic!("{refused}") };
    assert_eq!((path, found.as_str()), (&directory, "segment-0000000000000000"));
    let names: Vec<_> = fs::read_dir(place.folder.path()).expect("listed").collect();
    assert_eq!(names.len(), 1, "nothing but the directory is left: {names:?}");
    fs::remove_file(directory.join("segment-0000000000000000")).expect("removed");
    place.create().close().expect("closed");
}

/// Bytes of the log that were durable are damaged: the lost pool is not built from a part of them.
#[test]
fn a_damaged_log_is_an_error_and_no_pool() {
    let place = Place::new();
    let pool = place.create();
    let trees = transactional(&pool, "trees");
    for round in 0..5 {
        fill(&trees, round * 100, round * 100 + 100);
        pool.sync().expect("synced");
    }
    drop((trees, pool));
    fs::remove_file(place.pool()).expect("removed");
    let segment = place.path("grove.log").join("segment-0000000000000000");
    let good = fs::read(&segment).expect("read");
    let mut bad = good.clone();
    bad[4096 + 200] ^= 1;
    fs::write(&segment, bad).expect("written");
    let refused = Pool::open(place.pool(), &place.options()).expect_err("damage");
    assert!(matches!(refused, Error::LogDamaged { .. }), "{refused}");
    assert!(refused.to_string().contains("segment-0000000000000000"), "{refused}");
    assert!(!place.pool().exists());
    fs::write(&segment, good).expect("written");
    check_map(&place.open(), "trees", 500);
}

/// A log is read and copied while its pool writes to it, and to new images.
#[test]
fn a_log_in_use_is_verified_and_copied() {
    let place = Place::new();
    let pool = place.create();
    let trees = transactional(&pool, "trees");
    fill(&trees, 0, 100);
    pool.sync().expect("synced");
    let is_over = AtomicBool::new(false);
    let log = LogFiles::of_pool(place.pool()).expect("a log");
    std::thread::scope(|scope| {
        let (trees, pool, is_over) = (&trees, &pool, &is_over);
        scope.spawn(move || {
            for round in 0_u64.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                fill(trees, 0, 10);
                pool.sync().expect("synced");
                if round % 64 == 0 {
                    pool.write_image().expect("an image");
                }
            }
        });
        // The threads end if an assertion fails.
        let _over = OnDrop(|| is_over.store(true, Ordering::Relaxed));
        let mut verified = 0;
        for attempt in 0..40 {
            let durable = pool.durable_lsn().expect("a log");
            // An image may replace the one that is read.
            if let Ok(report) = log.verify() {
                assert!(report.end_lsn >= durable, "{report:?}, {durable}");
                verified += 1;
            }
            if attempt % 10 == 0 {
                let to = place.path(&format!("backup {attempt}"));
                let durable = pool.durable_lsn().expect("a log");
                assert!(log.backup(&to).expect("a backup") >= durable);
                LogFiles::at(&to).verify().expect("verified");
            }
        }
        assert!(verified > 20, "{verified}");
    });
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A lost pool is built only from its own log, and from that only while it is the log's pool.
#[test]
fn a_pool_that_is_not_trusted_takes_no_log_of_another() {
    let place = Place::new();
    let pool = place.create();
    fill(&transactional(&pool, "trees"), 0, 20);
    pool.sync().expect("synced");
    place.go_down(pool);
    let copy = place.path("copy.pool");
    fs::copy(place.pool(), &copy).expect("copied");

    let other = PoolOptions::new().log(place.path("other.log"));
    let path = place.path("other.pool");
    let pool = Pool::create(&path, &other).expect("a pool");
    fill(&transactional(&pool, "trees"), 0, 7);
    pool.close().expect("closed");
    let refused = Pool::open(place.pool(), &other).expect_err("foreign");
    assert!(matches!(refused, Error::LogForeign { .. }), "{refused}");
    check(&Pool::open(&path, &other).expect("opens").map("trees").expect("a map"), 7);

    check_map(&place.open(), "trees", 20);
    // The copy is of the pool before it was lost.
    let refused = Pool::open(&copy, &PoolOptions::new()).expect_err("foreign");
    assert!(matches!(refused, Error::LogForeign { .. }), "{refused}");
    check_map(&place.open(), "trees", 20);
}

/// An image of another log would be in the way of a recovery.
#[test]
fn a_new_log_wants_a_directory_without_images() {
    let (_, refused) = refused_beside(&Place::new(), "image-0000000000000010");
    assert!(matches!(refused, Error::LogExists { .. }), "{refused}");
}

/// The log is in use only while its pool is.
#[test]
fn one_pool_at_a_time_uses_a_log() {
    let place = Place::new();
    let pool = place.create();
    fill(&transactional(&pool, "trees"), 0, 20);
    let copy: &Path = &place.path("copy.pool");
    fs::copy(place.pool(), copy).expect("copied");
    let refused = Pool::open(copy, &PoolOptions::new()).expect_err("in use");
    assert!(matches!(refused, Error::LogBusy { .. }), "{refused}");
    // A copy that is older than its log.
    fill(&transactional(&pool, "trees"), 20, 400);
    pool.close().expect("closed");
    let refused = Pool::open(copy, &PoolOptions::new()).expect_err("an older copy");
    assert!(refused.to_string().contains("older copy"), "{refused}");
    check_map(&place.open(), "trees", 400);
}

/// Threads that sort may need more room than the pool ever had. One thread, in the order of the
/// log, needs no more.
#[test]
fn a_recovery_that_finds_no_room_begins_again() {
    // The first block of the map; and the first room of the pool's file.
    for resource in [Resource::Block, Resource::FileRoom] {
        let place = Place::new();
        let pool = place.create();
        let trees = transactional(&pool, "trees");
        for number in 0..300_u64 {
            trees.upsert(number.to_be_bytes(), [number as u8; 3_000]).expect("written");
        }
        pool.sync().expect("synced");
        drop((trees, pool));
        fs::remove_file(place.pool()).expect("removed");
        // So no file is made before, to find out the medium.
        let options = place.options().domain(DomainChoice::Process);
        let open = || Pool::open_or_create(place.pool(), &options);
        let (opened, is_refused) = refuse(resource, 0, 1, open);
        assert!(is_refused, "{resource:?}");
        let pool = opened.expect("recovers");
        let trees = pool.open_map("trees").expect("a map");
        assert_eq!(trees.len().expect("counted"), 300);
        for number in 0..300_u64 {
            let value = trees.get(number.to_be_bytes()).expect("read").expect("is there");
            assert!(value.iter().all(|&byte| byte == number as u8), "{number}");
        }
        let names = fs::read_dir(place.folder.path()).expect("listed").count();
        assert_eq!(names, 2, "a pool and its log");
    }
}

/// Names are exchanged, so that each list of maps in the log has names that other maps had.
#[test]
fn renamed_maps_keep_their_records_when_the_pool_is_built_anew() {
    let place = Place::new();
    let pool = place.create();
    fill(&transactional(&pool, "one"), 0, 300);
    transactional(&pool, "two").insert(b"elm", b"2").expect("inserted");
    // Names that a map might have in passing are names as any others.
    let names: Vec<_> = (0..8).map(|number| format!("\0{number}")).collect();
    names.iter().for_each(|name| drop(transactional(&pool, name)));
    for (from, to) in [("one", "three"), ("two", "one"), ("three", "two")] {
        pool.rename_map(from, to).expect("renamed");
    }
    fill(&pool.open_map("two").expect("a map"), 300, 400);
    pool.sync().expect("synced");
    drop(pool);
    let pool = place.open();
    check(&pool.open_map("two").expect("a map"), 400);
    drop(pool);
    fs::remove_file(place.pool()).expect("removed");
    let pool = Pool::open_or_create(place.pool(), &place.options()).expect("recovers");
    check(&pool.open_map("two").expect("a map"), 400);
    let one = pool.open_map("one").expect("a map");
    assert_eq!(one.get(b"elm").expect("read").as_deref(), Some(&b"2"[..]));
    assert_eq!(pool.maps().expect("read").len(), 2 + names.len());
    assert!(pool.check().expect("checked").is_consistent());
}
