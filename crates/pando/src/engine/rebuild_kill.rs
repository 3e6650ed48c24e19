//! Rebuilds of a lost pool that are killed at their writes to the pool, one after the other, until
//! the pool has its name.

use std::collections::BTreeMap;
use std::path::Path;

use pando_pmem::OpenPool;
use pando_pmem::testing::{CutShort, folder, kill_after};

use super::log_directory::LogDirectory;
use super::pooled::Pooled;
use super::rebuild::Lost;
use crate::{Error, MapOptions, Pool, PoolOptions};

/// The domain of all tests here: each further one would compile all indexes once more.
pub(super) type Killed = CutShort<false>;

/// A pool without a file.
pub(super) fn lost(path: &Path) -> Lost<'_> {
    Lost { path, pool_id: None, max_bytes: None, initial_bytes: None, on_recovery: None }
}

pub(super) fn records(pool: &Pool) -> BTreeMap<Vec<u8>, Vec<u8>> {
    assert!(pool.check().expect("checked").is_consistent());
    let records = pool.open_map("trees").and_then(|trees| trees.range(..).collect());
    records.expect("read")
}

/// The distance between the kills of one run. All are before a rebuild appends to its log, a few
/// writes behind the name: a killed thread ends its use of the pool in vain from then on, for ever.
const EVERY: u64 = 17;

/// A rebuild is killed before its write number `first`, the next rebuild of the same log `EVERY`
/// writes later, and so on until the pool has its name. The runs together kill one at each write up
/// to then: in the loading of the image, in the replay, and in the new generation of the log. All
/// rebuilds make the same writes, so heights of nodes may not be drawn.
fn kill_rebuilds(index: &str, settings: &[(&str, u64)]) {
    let folder = folder();
    let place = |name: &str| folder.path().join(name);
    let (path, log) = (place("pool"), place("log"));
    let pool = Pool::create(&path, &PoolOptions::new().max_bytes(1 << 24).log(&log));
    let pool = pool.expect("a pool");
    let options = MapOptions::new().index(index).transactional(true);
    let options = settings.iter().fold(options, |options, &(name, value)| options.set(name, value));
    let trees = pool.map_with("trees", &options).expect("a map");
    for key in 0..15_u8 {
        if key == 10 {
            pool.write_image().expect("an image");
        }
        // From the image on, some of the first keys are replaced.
        trees.upsert([key % 12], [key; 50]).expect("written");
    }
    for key in (0..12_u8).step_by(3) {
        trees.remove([key]).expect("removed");
    }
    let expected = records(&pool);
    assert_eq!(expected.len(), 8);
    drop(trees);
    pool.close().expect("closed");
    // Without the zeros behind the last block of a segment, each recovery reads less.
    let files: Vec<_> = std::fs::read_dir(&log)
        .expect("listed")
        .map(|file| {
            let path = file.expect("a file").path();
            let mut bytes = std::fs::read(&path).expect("read");
            if bytes.len() > 1 << 20 {
                let end = bytes.iter().rposition(|&byte| byte != 0).expect("a block") + 1;
                bytes.truncate(end.next_multiple_of(4096));
            }
            (path, bytes)
        })
        .collect();
    let lose_pool = || {
        let _ = std::fs::remove_file(&path);
        std::fs::remove_dir_all(&log).expect("removed");
        std::fs::create_dir(&log).expect("created");
        files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).expect("written"));
    };

    let lost = lost(&path);
    let pool_of = |engine| Pool::from_engine(engine, &PoolOptions::new());
    let rebuild = || {
        let log = LogDirectory::open(&path, &log)?;
        pool_of(Pooled::<Killed>::rebuild(&lost, log, None)?)
    };
    let open_file =
        || pando_pmem::Pool::<Killed>::open(&path, &OpenPool::default()).map_err(Error::of_pool);
    let open = || pool_of(Pooled::start(open_file, || Ok(()), false, None, &mut None)?);
    let (mut unnamed, mut named) = (0, 0);
    for first in 0..EVERY {
        lose_pool();
        for writes in (first..).step_by(EVERY as usize) {
            let ended = kill_after(writes, || rebuild().map(drop));
            if path.exists() {
                named += u64::from(ended.is_none());
                break;
            }
            assert!(ended.is_none(), "{writes} writes: rebuilt without a name");
            unnamed += 1;
        }
        let again = open().unwrap_or_else(|error| panic!("from write {first} on: {error}"));
        assert_eq!(records(&again), expected, "from write {first} on");
    }
    println!("{index}: {unnamed} kills before the name, {named} behind it");
    assert!(unnamed > 20 * EVERY && named == EVERY, "{unnamed}, {named}");
}

#[test]
fn rebuilds_of_a_bztree_killed_one_after_the_other_at_each_write_up_to_the_name_lose_nothing() {
    kill_rebuilds("bztree", &[]);
}

#[test]
fn rebuilds_of_a_skip_list_killed_one_after_the_other_at_each_write_up_to_the_name_lose_nothing() {
    kill_rebuilds("skiplist", &[("height_seed", 1)]);
}
