//! A reset of a log that is killed at its writes to the pool, and done again. A commit that is
//! killed, at a map that is damaged then.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_bztree::BzTrees;
use pando_device::Disk;
use pando_log::{Log, LogOptions};
use pando_pmem::layout::{CATALOG_OFF, CATALOG_VERSION_OFF, LOG_OFF, LOGGED_VERSION_OFF};
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::testing::{folder, kill_after};
use pando_pmem::{CreateOptions, LogName, OpenPool};
use pando_tc::TransactionComponent;
use pando_tree::maps::Catalog;
use pando_tree::maps::slots::{HEADER_BYTES, MapHeader};

use super::kinds::kind_of;
use super::log_directory::LogDirectory;
use super::map_list::{header_of, map_list};
use super::pooled::Pooled;
use super::rebuild_kill::{Killed, lost, records};
use super::transactional::Numbered;
use crate::{Error, LogFiles, MapOptions, Pool, PoolOptions};

/// Kills before each third write: each step has many.
const EVERY: u64 = 3;

/// Creates a pool with a log whose last commit is killed after `writes` writes. Returns whether the
/// commit has ended, and how many commits are undecided.
fn create(path: &Path, log: &Path, writes: u64) -> (bool, u64) {
    let options = CreateOptions { max_bytes: 1 << 24, ..CreateOptions::default() };
    let name = LogName { id: 7, path: log.to_owned() };
    let pool = pando_pmem::Pool::<Killed>::prepare(path, &options, Some(name));
    let pool = pool.and_then(|new| new.publish(false)).expect("a pool");
    let catalog = Arc::new(Catalog::open(pool.clone()).expect("recovers"));
    let created =
        catalog.find_or_create_entry::<BzTrees>("trees", Default::default(), MapHeader::NEW_NUMBER);
    let entry = created.expect("the map");
    let other = MapHeader::NEW_NUMBER;
    catalog.find_or_create_entry::<BzTrees>("other", Default::default(), other).expect("a map");
    let header = header_of(&entry).expect("a header");
    let index = kind_of::<Killed>(header).expect("known").open(&catalog, &entry).expect("opens");
    let _ = std::fs::remove_dir_all(log);
    let disk = Disk::open_or_create(log).expect("a directory");
    let new = Log::create(pool.clone(), LOG_OFF, Arc::new(disk), (7, 0), LogOptions::default());
    let maps = [(header.number, index)].into_iter().collect::<Numbered>();
    let component = TransactionComponent::open(new.expect("a log"), maps).expect("opens");
    // Nothing is left to be written to the log by an opening.
    let version = map_list(&catalog).expect("listed").version;
    pool.word(LOGGED_VERSION_OFF).store(version, Ordering::Release);
    let commit = |keys: &[&[u8]], value: &[u8]| {
        let mut transaction = component.begin();
        keys.iter().try_for_each(|key| transaction.put(header.number, key, value))?;
        transaction.commit()
    };
    for key in [&b"ash"[..], b"elm", b"oak"] {
        commit(&[key], b"before").expect("commits");
    }
    let keys: [&[u8]; 4] = [b"ash", b"elm", b"fir", b"oak"];
    let has_ended = kill_after(writes, || commit(&keys, b"after").expect("commits")).is_some();
    let undecided = component.undecided().expect("counted");
    drop((component, catalog));
    pool.abandon();
    (has_ended, undecided)
}

/// Whether the pool, of which a copy is opened, has the control block of this log.
fn has_control_of(path: &Path, log_id: u128) -> bool {
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).expect("copied");
    let pool = pando_pmem::Pool::<Killed>::open(&copy, &OpenPool::default()).expect("opens");
    let has_it = Log::has_id(&pool, LOG_OFF, log_id).expect("a log");
    pool.abandon();
    has_it
}

/// Creates a pool whose last commit is killed, undecided, in the middle of its installs.
fn create_undecided(path: &Path, log: &Path) {
    let undecided: Vec<u64> = (0..)
        .map(|writes| {
            let _ = std::fs::remove_file(path);
            (writes, create(path, log, writes))
        })
        .take_while(|(_, (has_ended, _))| !has_ended)
        .filter(|(_, (_, undecided))| *undecided == 1)
        .map(|(writes, _)| writes)
        .collect();
    std::fs::remove_file(path).expect("removed");
    create(path, log, undecided[undecided.len() / 2]);
}

/// The other maps can be used, and transactional ones again when the damaged one is dropped.
#[test]
fn a_commit_in_flight_at_a_map_that_cannot_be_opened_is_undone_elsewhere() {
    let folder = folder();
    let (path, log) = (folder.path().join("pool"), folder.path().join("log"));
    create_undecided(&path, &log);
    let mut image = std::fs::read(&path).expect("read");
    let slot = CATALOG_OFF as usize;
    let word: [u8; 8] = image[slot..slot + 8].try_into().expect("a word");
    let header = (u64::from_le_bytes(word) & ((1 << 48) - 1)) as usize;
    image[header + 64..header + HEADER_BYTES as usize].fill(0xA5);
    // As a kill leaves it before the log has the list after a drop.
    image[CATALOG_VERSION_OFF as usize] += 1;
    std::fs::write(&path, &image).expect("written");

    let open = || {
        let pool = || {
            let options = OpenPool::default();
            pando_pmem::Pool::<Killed>::open(&path, &options).map_err(Error::of_pool)
        };
        let engine = Pooled::start(pool, || Ok(()), false, None, &mut None)?;
        Pool::from_engine(engine, &PoolOptions::new())
    };
    let pool = open().expect("opens beside the damaged map");
    let other = pool.open_map("other").expect("a map");
    let refused = other.insert(b"ash", b"new");
    assert!(matches!(refused, Err(Error::UndoNeedsMap)), "{refused:?}");
    assert_eq!(other.get(b"ash").expect("read"), None);
    pool.drop_slot(0, &MapOptions::new().index("bztree")).expect("dropped");
    other.insert(b"ash", b"new").expect("written");
    drop(other);
    pool.close().expect("its log is written");
    let pool = open().expect("opens");
    let found = pool.open_map("other").and_then(|map| map.get(b"ash")).expect("read");
    assert_eq!(found.as_deref(), Some(&b"new"[..]));
    assert!(pool.check().expect("checked").is_consistent());
}

#[test]
fn a_kill_at_each_write_of_a_reset_leaves_a_pool_whose_reset_goes_on() {
    let folder = folder();
    let place = |name: &str| folder.path().join(name);
    let (path, log, new) = (place("pool"), place("log"), place("new"));
    create_undecided(&path, &log);
    let image = std::fs::read(&path).expect("read");
    let expected: BTreeMap<_, _> =
        ["ash", "elm", "oak"].map(|key| (key.into(), b"before".to_vec())).into();

    // All in the domain `Killed`: each further one would compile all indexes once more.
    let pool_of = |engine| Pool::from_engine(engine, &PoolOptions::new());
    let open_file =
        || pando_pmem::Pool::<Killed>::open(&path, &OpenPool::default()).map_err(Error::of_pool);
    let reset = || pool_of(Pooled::reset_log(open_file, Some(&new))?);
    let open = || pool_of(Pooled::start(open_file, || Ok(()), false, None, &mut None)?);
    let (mut before, mut decided, mut complete) = (0, 0, 0);
    for writes in (0..).step_by(EVERY as usize) {
        std::fs::write(&path, &image).expect("written");
        let _ = std::fs::remove_dir_all(&new);
        let ended = kill_after(writes, || reset().map(drop));
        // The pool opens with the log that it has, and so does a reset that goes on.
        let of_superblock = super::read_superblock(&path).expect("a pool").log.expect("a log");
        let is_former = of_superblock.path == log;
        if is_former {
            // No superblock names a log there.
            assert!(LogFiles::at(&new).verify().is_err(), "{writes} writes");
        }
        if !is_former && !has_control_of(&path, of_superblock.id) {
            // The process may have died before the name was durable: nothing goes on without that.
            let (opened, _) = refuse(Resource::Sync, 0, u64::MAX, open);
            let refused = opened.map(drop);
            assert!(matches!(refused, Err(Error::Io { .. })), "{writes} writes: {refused:?}");
        }
        match reset() {
            Ok(pool) if is_former => {
                before += 1;
                assert_eq!(records(&pool), expected, "before, {writes} writes");
            }
            Ok(pool) => {
                decided += 1;
                assert_eq!(records(&pool), expected, "decided, {writes} writes");
            }
            Err(refused) => {
                complete += 1;
                assert!(!is_former && matches!(refused, Error::LogNotEmpty { .. }), "{refused}");
                let pool = open().expect("opens");
                assert_eq!(records(&pool), expected, "complete, {writes} writes");
            }
        }
        if let Some(ended) = ended {
            ended.expect("a new log");
            break;
        }
    }
    assert!(before > 20 && decided > 2 && complete > 2, "{before}, {decided}, {complete}");
    // The log rebuilds the pool alone.
    std::fs::remove_file(&path).expect("removed");
    let lost = lost(&path);
    let log = LogDirectory::open(&path, &new).expect("a log");
    let rebuilt = Pooled::<Killed>::rebuild(&lost, log, None).and_then(pool_of);
    assert_eq!(records(&rebuilt.expect("recovers")), expected);
}
