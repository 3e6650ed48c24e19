//! Pools that get a new log: what is there afterwards, what a crash leaves, and what is refused.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pando::{Error, LogFiles, Pool, PoolOptions};
use pando_log::{Log, LogOptions};
use pando_pmem::layout::LOG_OFF;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::{LogName, OpenPool, Process};

use crate::place::{Place, check_map, fill, transactional};

/// A pool with 100 records in `trees`, one in `plain`, and a tail that is not empty. It is closed.
fn closed_pool(place: &Place) -> u64 {
    let pool = place.create();
    let trees = transactional(&pool, "trees");
    fill(&trees, 0, 101);
    assert!(trees.remove(100_u64.to_be_bytes()).expect("removed"));
    pool.map("plain").expect("a map").insert(b"ash", b"1").expect("inserted");
    let lsn = pool.sync().expect("synced");
    drop(trees);
    pool.close().expect("closed");
    lsn
}

fn check_all(pool: &Pool) {
    check_map(pool, "trees", 100);
    let plain = pool.open_map("plain").expect("a map");
    assert_eq!(plain.get(b"ash").expect("read").as_deref(), Some(&b"1"[..]));
    assert!(pool.check().expect("checked").is_consistent());
}

/// The names and sizes of the files in a directory.
fn files(directory: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry"));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let name = entry.file_name().into_string().expect("text");
            (name, entry.metadata().expect("measured").len())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_lost_log_is_replaced_and_the_new_one_rebuilds_the_pool_alone() {
    let place = Place::new();
    let lsn = closed_pool(&place);
    let former = LogFiles::of_pool(place.pool()).and_then(|log| log.verify()).expect("a log");
    fs::remove_dir_all(place.path("grove.log")).expect("removed");
    let refused = Pool::open(place.pool(), &PoolOptions::new()).expect_err("it is gone");
    assert!(refused.to_string().contains("pando log reset"), "{refused}");

    let pool = Pool::reset_log(place.pool(), &PoolOptions::new()).expect("a new log");
    check_all(&pool);
    assert!(pool.durable_lsn().expect("a log") >= lsn);
    // Nothing was committed since: the image is all that the log has.
    place.go_down(pool);
    let pool = place.open();
    let recovery = pool.stat().expect("figures").recovery;
    assert_eq!((recovery.image_records, recovery.commits), (100, 0));
    check_map(&pool, "trees", 100);
    let log = LogFiles::of_pool(place.pool()).and_then(|log| log.verify()).expect("a log");
    assert!(log.log_id != former.log_id && log.end_lsn >= lsn, "{log:?}");

    // Numbers go on, and so do recoveries.
    let trees = transactional(&pool, "trees");
    let mut transaction = pool.begin().expect("begins");
    transaction.put(&trees, 100_u64.to_be_bytes(), b"value 100").expect("put");
    assert!(transaction.commit().expect("commits") > lsn);
    fill(&transactional(&pool, "new"), 0, 30);
    pool.sync().expect("synced");
    drop(trees);
    place.go_down(pool);
    let pool = place.open();
    check_map(&pool, "trees", 101);
    check_map(&pool, "new", 30);
}

/// A backup of a log that has only an image is one.
#[test]
fn a_new_log_is_copied_and_restored() {
    let place = Place::new();
    closed_pool(&place);
    fs::remove_dir_all(place.path("grove.log")).expect("removed");
    let pool = Pool::reset_log(place.pool(), &place.options()).expect("a new log");
    let lsn = pool.backup(place.path("backup")).expect("a backup");
    let again = pool.backup(place.path("backup")).expect_err("it is there");
    assert!(matches!(again, Error::LogNotEmpty { .. }), "{again}");
    let options = PoolOptions::new().log(place.path("other.log"));
    let restored = Pool::restore(place.path("backup"), place.path("other.pool"), &options);
    let restored = restored.expect("restored");
    check_map(&restored, "trees", 100);
    assert!(restored.durable_lsn().expect("a log") >= lsn);
}

#[test]
fn a_log_of_another_pool_is_left_alone() {
    let place = Place::new();
    closed_pool(&place);
    let directory = place.path("grove.log");
    fs::remove_dir_all(&directory).expect("removed");
    let other = Pool::create(place.path("other.pool"), &place.options()).expect("a pool");
    fill(&transactional(&other, "trees"), 0, 7);
    let refused = Pool::reset_log(place.pool(), &PoolOptions::new()).expect_err("in use");
    assert!(matches!(refused, Error::LogBusy { .. }), "{refused}");
    other.close().expect("closed");
    let before = files(&directory);
    for _ in 0..2 {
        let refused = Pool::reset_log(place.pool(), &PoolOptions::new()).expect_err("foreign");
        assert!(matches!(refused, Error::LogNotEmpty { .. }), "{refused}");
        assert!(refused.to_string().contains("name another directory"), "{refused}");
        assert_eq!(files(&directory), before);
    }
    let elsewhere = PoolOptions::new().log(place.path("new.log"));
    check_all(&Pool::reset_log(place.pool(), &elsewhere).expect("a new log"));
    assert_eq!(files(&directory), before);
    // The pool has stored where its log is now.
    check_all(&Pool::open(place.pool(), &PoolOptions::new()).expect("opens"));
    let other = Pool::open(place.path("other.pool"), &PoolOptions::new()).expect("opens");
    check_map(&other, "trees", 7);
}

#[test]
fn a_damaged_log_is_moved_away_and_replaced() {
    let place = Place::new();
    closed_pool(&place);
    let directory = place.path("grove.log");
    // The blocks are lost.
    let segment = directory.join("segment-0000000000000000");
    let file = fs::OpenOptions::new().write(true).open(&segment).expect("opens");
    file.set_len(0).expect("cut");
    let refused = Pool::open(place.pool(), &PoolOptions::new()).expect_err("damage");
    assert!(matches!(refused, Error::LogDamaged { .. }), "{refused}");
    let refused = Pool::reset_log(place.pool(), &PoolOptions::new()).expect_err("not empty");
    assert!(refused.to_string().contains("move these files away"), "{refused}");
    fs::rename(&directory, place.path("damaged.log")).expect("moved");
    let pool = Pool::reset_log(place.pool(), &PoolOptions::new()).expect("a new log");
    check_all(&pool);
    place.go_down(pool);
    check_map(&place.open(), "trees", 100);
}

#[test]
fn a_log_that_is_fine_is_replaced_only_in_another_directory() {
    let place = Place::new();
    closed_pool(&place);
    let before = files(&place.path("grove.log"));
    let refused = Pool::reset_log(place.pool(), &place.options()).expect_err("it is there");
    assert!(matches!(refused, Error::LogNotEmpty { .. }), "{refused}");
    check_all(&place.open());
    let elsewhere = PoolOptions::new().log(place.path("new.log"));
    let pool = Pool::reset_log(place.pool(), &elsewhere).expect("a new log");
    check_all(&pool);
    place.go_down(pool);
    // The former log is that of no pool.
    let refused = Pool::open(place.pool(), &place.options()).expect_err("foreign");
    assert!(matches!(refused, Error::LogForeign { .. }), "{refused}");
    assert_eq!(files(&place.path("grove.log")).len(), before.len());
    let pool = Pool::open(place.pool(), &elsewhere).expect("recovers");
    check_map(&pool, "trees", 100);
}

#[test]
fn what_has_no_whole_pool_or_no_log_is_refused() {
    let place = Place::new();
    closed_pool(&place);
    let elsewhere = PoolOptions::new().log(place.path("new.log"));
    let reset = |path: &Path| Pool::reset_log(path, &elsewhere).expect_err("refused");
    // Open elsewhere.
    let pool = place.open();
    let refused = reset(&place.pool());
    assert!(matches!(refused, Error::PoolBusy { .. }), "{refused}");
    // Not trusted: only its log can rebuild it.
    pool.sync().expect("synced");
    place.go_down(pool);
    let refused = reset(&place.pool());
    assert!(matches!(refused, Error::NotTrusted { .. }), "{refused}");
    // Missing: the log is the only copy.
    fs::remove_file(place.pool()).expect("removed");
    let refused = reset(&place.pool());
    assert!(matches!(refused, Error::LogIsOnlyCopy { .. }), "{refused}");
    let refused = Pool::reset_log(place.pool(), &place.options()).expect_err("refused");
    assert!(refused.to_string().contains("which rebuilds it"), "{refused}");
    check_map(&place.open(), "trees", 100);
    // Without a log.
    let plain = place.path("plain.pool");
    Pool::create(&plain, &PoolOptions::new()).expect("a pool").close().expect("closed");
    let refused = reset(&plain);
    assert!(matches!(refused, Error::NoLog), "{refused}");
    assert!(!place.path("new.log").exists());
}

/// A reset that was cut short has proposed a log, and has left a part of its files. Meanwhile the
/// pool is used with its former log, and then the reset is done again.
#[test]
fn a_reset_that_was_cut_short_is_done_again() {
    let place = Place::new();
    closed_pool(&place);
    let directory = place.path("new.log");
    fs::create_dir(&directory).expect("created");
    let pool = pando_pmem::Pool::<Process>::open(&place.pool(), &OpenPool::default());
    let pool = pool.expect("opens");
    let name = LogName { id: 77, path: directory.canonicalize().expect("a path") };
    pool.propose_log(&name).expect("proposed");
    let disk = pando_device::Disk::open(&directory).expect("opens");
    let pool_id = pool.pool_id();
    pando_log::create_files(&disk, pool_id, (77, 5), LogOptions::default()).expect("created");
    fs::write(directory.join("image-0000000000000005"), b"of the same log").expect("written");
    pool.close().expect("closed");

    let former = place.open();
    check_all(&former);
    fill(&transactional(&former, "trees"), 100, 120);
    former.close().expect("closed");
    let elsewhere = PoolOptions::new().log(&directory);
    let pool = Pool::reset_log(place.pool(), &elsewhere).expect("a new log");
    check_map(&pool, "trees", 120);
    place.go_down(pool);
    let log = LogFiles::at(&directory).verify().expect("a log");
    assert_eq!((log.log_id, log.image_records), (77, 120));
    let names: Vec<_> = files(&directory).into_iter().map(|(name, _)| name).collect();
    assert!(!names.contains(&"image-0000000000000005".to_owned()), "{names:?}");
    let pool = Pool::open(place.pool(), &elsewhere).expect("recovers");
    check_map(&pool, "trees", 120);
}

/// The control block of the new log names the former one, until its blocks are freed.
#[test]
fn a_reset_that_was_cut_short_after_its_deciding_step_is_completed_by_the_next_opening() {
    let place = Place::new();
    closed_pool(&place);
    let pool = Pool::reset_log(place.pool(), &PoolOptions::new().log(place.path("new.log")));
    pool.expect("a new log").close().expect("closed");
    let cut_short = |id| {
        let pool = pando_pmem::Pool::<Process>::open(&place.pool(), &OpenPool::default());
        let pool = pool.expect("opens");
        // What no opening has recovered, the next one does.
        let path = place.path(&format!("log {id}"));
        fs::create_dir(&path).expect("created");
        let disk = pando_device::Disk::open(&path).expect("opens");
        let name = LogName { id, path };
        pool.propose_log(&name).expect("proposed");
        let tail = Log::open_tail(Arc::clone(&pool), LOG_OFF, LogOptions::default());
        let lsn = tail.expect("a tail").newest_lsn(&pool.pin().expect("a slot"));
        let numbers = (id, lsn);
        pando_log::create_files(&disk, pool.pool_id(), numbers, LogOptions::default())
            .expect("created");
        pool.replace_log().expect("replaced");
        (pool, disk)
    };
    let (pool, _) = cut_short(5);
    pool.close().expect("closed");
    check_all(&Pool::open(place.pool(), &PoolOptions::new()).expect("opens"));
    let (pool, disk) = cut_short(6);
    Log::replace(&pool, LOG_OFF, &disk, 6).expect("replaced");
    pool.close().expect("closed");
    check_all(&Pool::open(place.pool(), &PoolOptions::new()).expect("opens"));
    // The same command completes it too.
    let (pool, disk) = cut_short(7);
    pool.close().expect("closed");
    check_all(&Pool::reset_log(place.pool(), &PoolOptions::new()).expect("completes"));
    assert_eq!(pando_log::log_id_of(&disk).expect("a log"), 7, "the named log was overwritten");
}

/// Resets the log to `new.log`, and lets all syncs of the pool fail behind the first `granted`
/// ones. Returns whether that failed.
fn fails_at_sync(place: &Place, granted: u64) -> bool {
    let elsewhere = PoolOptions::new().log(place.path("new.log"));
    let reset = || Pool::reset_log(place.pool(), &elsewhere).map(drop);
    refuse(Resource::Sync, granted, u64::MAX, reset).0.is_err()
}

/// Whether the superblock names the log in `new.log`.
fn names_the_new_log(place: &Place) -> bool {
    LogFiles::of_pool(place.pool()).expect("a log").path().ends_with("new.log")
}

/// A pool whose reset to `new.log` was cut short when the superblock named the new log, and the
/// bytes of the pool before the reset.
fn cut_short_at_the_deciding_step() -> (Place, Vec<u8>) {
    let place = Place::new();
    closed_pool(&place);
    let before = fs::read(place.pool()).expect("read");
    for granted in 0.. {
        assert!(fails_at_sync(&place, granted), "the reset has ended");
        if names_the_new_log(&place) {
            break;
        }
        fs::write(place.pool(), &before).expect("written");
        let _ = fs::remove_dir_all(place.path("new.log"));
    }
    (place, before)
}

#[track_caller]
fn is_refused_as_proposed<T: std::fmt::Debug>(found: Result<T, Error>) {
    let refused = found.expect_err("refused");
    assert!(matches!(refused, Error::LogDamaged { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("`proposal`") && text.contains("its former log"), "{text}");
}

/// Else a power cut could leave a log that no superblock names.
#[test]
fn a_directory_becomes_a_log_when_the_superblock_names_it_durably() {
    let place = Place::new();
    closed_pool(&place);
    let before = fs::read(place.pool()).expect("read");
    let (mut former, mut new) = (0, 0);
    for granted in 0.. {
        fs::write(place.pool(), &before).expect("written");
        let _ = fs::remove_dir_all(place.path("new.log"));
        if !fails_at_sync(&place, granted) {
            break;
        }
        if names_the_new_log(&place) {
            new += 1;
            let open = || Pool::open(place.pool(), &PoolOptions::new()).map(drop);
            let opened = refuse(Resource::Sync, 0, u64::MAX, open).0;
            assert!(matches!(opened, Err(Error::Io { .. })), "{granted}: {opened:?}");
        } else {
            former += 1;
        }
        assert!(!place.path("new.log").join("manifest").exists(), "after {granted} syncs");
        check_all(&Pool::open(place.pool(), &PoolOptions::new()).expect("opens"));
    }
    assert!(former > 1 && new > 1, "{former} and {new}");
}

/// The pool's file is lost, and its former log is not.
#[test]
fn a_proposal_that_no_superblock_names_is_no_log() {
    let (place, _) = cut_short_at_the_deciding_step();
    let directory = place.path("new.log");
    let elsewhere = PoolOptions::new().log(&directory);
    let proposed = files(&directory);
    fs::remove_file(place.pool()).expect("removed");
    is_refused_as_proposed(Pool::open(place.pool(), &elsewhere));
    is_refused_as_proposed(Pool::create(place.pool(), &elsewhere));
    is_refused_as_proposed(LogFiles::at(&directory).verify());
    assert!(!place.pool().exists());
    let pool = place.open();
    check_map(&pool, "trees", 100);
    is_refused_as_proposed(LogFiles::at(&directory).backup(place.path("backup")));
    let other = PoolOptions::new().log(place.path("other.log"));
    is_refused_as_proposed(Pool::restore(&directory, place.path("other.pool"), &other));
    fill(&transactional(&pool, "trees"), 100, 120);
    pool.sync().expect("synced");
    place.go_down(pool);
    is_refused_as_proposed(Pool::open(place.pool(), &elsewhere));
    let pool = place.open();
    check_map(&pool, "trees", 120);
    pool.close().expect("closed");
    // It is that of the lost pool.
    let refused = Pool::reset_log(place.pool(), &elsewhere).expect_err("of another pool");
    assert!(refused.to_string().contains("move these files away"), "{refused}");
    assert_eq!(files(&directory), proposed);
    // The last resort, if the former log is lost too.
    fs::rename(directory.join("proposal"), directory.join("manifest")).expect("renamed");
    let pool = Pool::open(place.path("new.pool"), &elsewhere).expect("recovers");
    check_map(&pool, "trees", 100);
}

/// A power cut has undone the deciding step and the number that was proposed. The pool is used with
/// its former log, and the same command is run again.
#[test]
fn a_proposal_of_the_same_pool_is_replaced() {
    let (place, before) = cut_short_at_the_deciding_step();
    fs::write(place.pool(), &before).expect("written");
    let elsewhere = PoolOptions::new().log(place.path("new.log"));
    is_refused_as_proposed(Pool::open(place.pool(), &elsewhere));
    let pool = place.open();
    check_all(&pool);
    fill(&transactional(&pool, "trees"), 100, 120);
    pool.close().expect("closed");
    let pool = Pool::reset_log(place.pool(), &elsewhere).expect("a new log");
    check_map(&pool, "trees", 120);
    place.go_down(pool);
    let pool = Pool::open(place.pool(), &elsewhere).expect("recovers");
    check_map(&pool, "trees", 120);
}

/// A power cut follows the deciding step.
#[test]
fn a_proposal_that_an_untrusted_pool_names_rebuilds_it() {
    let (place, _) = cut_short_at_the_deciding_step();
    place.lose_memory();
    let refused = Pool::reset_log(place.pool(), &PoolOptions::new()).expect_err("not trusted");
    assert!(matches!(refused, Error::NotTrusted { .. }), "{refused}");
    is_refused_as_proposed(LogFiles::of_pool(place.pool()).and_then(|log| log.verify()));
    let pool = Pool::open(place.pool(), &PoolOptions::new()).expect("recovers");
    check_map(&pool, "trees", 100);
    assert!(pool.stat().expect("figures").recovery.from_log);
    fill(&transactional(&pool, "trees"), 100, 120);
    pool.sync().expect("synced");
    place.go_down(pool);
    let elsewhere = PoolOptions::new().log(place.path("new.log"));
    let pool = Pool::open(place.pool(), &elsewhere).expect("recovers");
    check_map(&pool, "trees", 120);
}
