//! The format's promise: each fixture was written by a program of its version. The pool of the
//! present version has its records. Those of earlier versions are refused, and not changed.
//!
//! `PANDO_BLESS=1 cargo test -p pando-kv --test formats` writes the fixture of the present version.
//! That is for a new version alone: then the former fixture stays.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use pando::{Error, MapOptions, Pool, PoolOptions};

const PRESENT: u32 = 5;
const EARLIER: [u32; 3] = [2, 3, 4];
const INDEXES: [&str; 5] = ["bztree", "nbtree", "wbtree", "skiplist", "bwtree"];
const RECORDS: u32 = 100;
/// The number of a record that was removed.
const REMOVED: u32 = 7;

fn fixture(version: u32) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    folder.join(format!("format-{version}.pool"))
}

fn key(number: u32) -> String {
    format!("key {number:04}")
}

fn value(number: u32, index: &str) -> String {
    format!("value {number} of {index}")
}

fn write(path: &Path) {
    let options = PoolOptions::new().max_bytes(2 << 20).initial_bytes(0);
    let pool = Pool::create(path, &options).unwrap();
    for index in INDEXES {
        let map = pool.map_with(index, &MapOptions::new().index(index)).unwrap();
        for number in 0..RECORDS {
            map.upsert(key(number), value(number, index)).unwrap();
        }
        map.remove(key(REMOVED)).unwrap();
    }
    let map = pool.map_with("transactional", &MapOptions::new().transactional(true)).unwrap();
    map.upsert("ash", "Fraxinus").unwrap();
    map.upsert("elm", "Ulmus").unwrap();
    drop(map);
    pool.close().unwrap();
}

#[test]
fn the_pool_of_the_present_version_has_its_records_and_is_used() {
    let fixture = fixture(PRESENT);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    if std::env::var_os("PANDO_BLESS").is_some() {
        write(&path);
        fs::copy(&path, &fixture).unwrap();
    }
    fs::copy(&fixture, &path).unwrap();
    let pool = Pool::open(&path, &PoolOptions::new()).unwrap();
    assert!(pool.check().unwrap().is_consistent());
    for index in INDEXES {
        let map = pool.open_map(index).unwrap();
        assert_eq!(map.len().unwrap(), u64::from(RECORDS) - 1, "{index}");
        for number in (0..RECORDS).filter(|&number| number != REMOVED) {
            let found = map.get(key(number)).unwrap().unwrap();
            assert_eq!(found, value(number, index).into_bytes());
        }
        map.insert(key(REMOVED), "again").unwrap();
    }
    let map = pool.open_map("transactional").unwrap();
    assert_eq!(map.get("elm").unwrap(), Some(b"Ulmus".to_vec()));
    pool.transaction(|transaction| transaction.put(&map, "oak", "Quercus")).unwrap();
    assert_eq!(map.len().unwrap(), 3);
    assert!(pool.check().unwrap().is_consistent());
}

#[test]
fn pools_of_earlier_versions_are_refused_with_the_commands_that_copy_them() {
    for version in EARLIER {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.pool");
        let old = fs::read(fixture(version)).unwrap();
        fs::write(&path, &old).unwrap();
        for options in [PoolOptions::new(), PoolOptions::new().salvage(true)] {
            let Err(error) = Pool::open(&path, &options) else { panic!("it was opened") };
            assert!(
                matches!(error, Error::OlderPool { found, .. } if found == version),
                "{error:?}"
            );
            let message = error.to_string();
            let named = format!("version {version}");
            for part in [path.to_str().unwrap(), &named, "dump", "load", "not damaged"] {
                assert!(message.contains(part), "{part:?} is missing: {message}");
            }
        }
        assert!(fs::read(&path).unwrap() == old, "the pool of version {version} was changed");
    }
}
