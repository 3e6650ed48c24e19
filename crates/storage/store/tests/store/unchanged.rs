//! Openings that change no file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pando_index::RangeIndex;
use pando_store::{Error, Store, StoreOptions};

use crate::common::options;
use crate::logged::kill;

/// The bytes of all files below a directory.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).expect("reads") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).expect("reads"))),
        }
    }
    found
}

/// A store that is open for reading alone takes no writes, and has the same records afterwards.
fn check_refusals(store: &Store, name: &str) {
    let map = store.map(name).expect("a map");
    let number = store.find_map(name).expect("reads").expect("a map");
    let before = map.len().expect("reads");
    let is_of = |error: &(dyn std::error::Error + 'static)| {
        let told = "the maps are open for reading alone; open them where they can be written";
        assert!(error.to_string() == told, "{error}");
    };
    // Present and absent keys, and one that is in a page that is not in memory.
    for key in [b"own".to_vec(), 5_u64.to_be_bytes().to_vec(), 1999_u64.to_be_bytes().to_vec()] {
        is_of(&map.upsert(&key, b"1").expect_err("a write"));
        is_of(&map.put(&key, b"1").expect_err("a write"));
        let mut transaction = store.component().begin();
        transaction.put(number, &key, b"1").expect("it is noted");
        is_of(&transaction.commit().expect_err("a write"));
    }
    is_of(&map.remove(&5_u64.to_be_bytes()).expect_err("a write"));
    is_of(&store.create_map("other").expect_err("a write"));
    is_of(&store.rename_map(name, "other").expect_err("a write"));
    is_of(&store.checkpoint().expect_err("a write"));
    is_of(&store.clear_dropped().expect_err("a write"));
    // A transaction that only reads.
    let mut transaction = store.component().begin();
    assert!(transaction.get(number, &5_u64.to_be_bytes()).expect("reads").is_some());
    transaction.commit().expect("it writes nothing");
    assert_eq!(map.len().expect("reads"), before);
    drop(map);
    is_of(&store.drop_map(name).expect_err("a write"));
    assert_eq!(store.map(name).expect("it is there").len().expect("reads"), before);
}

/// After a kill there are commits to replay; without the tail of the log, only those that are
/// durable. Without the lock's file, as in a copy.
#[test]
fn a_store_is_read_without_a_change_of_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let options = StoreOptions { memory_bytes: 16 << 20, ..options() };
    let store = Store::open(&path, &options).expect("opens");
    store.create_map("map").expect("created");
    let map = store.map("map").expect("a map");
    let insert = |from: u64, to: u64| {
        for key in from..to {
            map.insert(&key.to_be_bytes(), &[key as u8; 300]).expect("inserted");
        }
    };
    insert(0, 1000);
    store.checkpoint().expect("durable");
    insert(1000, 2000);
    store.sync().expect("durable");
    let refused = Store::open_unchanged(&path, &options).expect_err("it is open");
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    drop(map);
    kill(store);

    for without in [&[][..], &["lock"], &["lock", "control"]] {
        without.iter().for_each(|name| drop(fs::remove_file(path.join(name))));
        let before = contents(&path);
        for _ in 0..2 {
            let opened = Store::open_unchanged(&path, &options).expect("opens");
            let stat = opened.stat().expect("reads");
            assert!(stat.recovery.commits >= 1000, "{stat:?}");
            assert_eq!(stat.recovery.was_lost, without.contains(&"control"));
            check_refusals(&opened, "map");
            let map = opened.map("map").expect("a map");
            for key in 0..2000_u64 {
                let found = map.get(&key.to_be_bytes()).expect("reads");
                assert_eq!(found, Some(vec![key as u8; 300]), "{key}");
            }
            assert_eq!(opened.check().expect("reads"), [""; 0]);
            let other = Store::open_unchanged(&path, &options).expect("readers share it");
            let other_map = other.map("map").expect("a map");
            assert_eq!(other_map.len().expect("reads"), 2000);
            if without.is_empty() {
                let refused = Store::open(&path, &options).expect_err("it is open");
                assert!(matches!(refused, Error::InUse { .. }), "{refused}");
            }
            drop((map, opened));
            if without.is_empty() {
                Store::open(&path, &options).expect_err("the other reader has it");
            }
            drop(other_map);
            other.close().expect("nothing to write");
            assert!(contents(&path) == before, "a file has changed");
        }
    }
}

#[test]
fn a_directory_without_a_store_is_refused_and_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let refused = Store::open_unchanged(&path, &options()).expect_err("too small").to_string();
    assert_eq!(refused, "memory_bytes is 4194304; allowed is 16777216 or more");
    let options = StoreOptions { memory_bytes: 16 << 20, ..options() };
    Store::open_unchanged(&path, &options).expect_err("no directory");
    assert!(!path.exists());
    for name in ["pages", "log"] {
        fs::create_dir_all(path.join(name)).expect("created");
    }
    let refused = Store::open_unchanged(&path, &options).expect_err("no store").to_string();
    assert!(refused.contains("pages"), "{refused}");
    assert!(contents(&path).is_empty());
}

/// The file `control` is no file that can be copied: the error names it.
#[test]
fn a_wrong_control_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let options = StoreOptions { memory_bytes: 16 << 20, ..options() };
    Store::open(&path, &options).expect("opens").close().expect("closed");
    let control = path.join("control");
    fs::remove_file(&control).expect("removed");
    let refused = |why: &str| {
        let refused = Store::open_unchanged(&path, &options).expect_err(why).to_string();
        assert!(refused.contains(control.to_str().expect("a name")), "{refused}");
        refused
    };
    fs::create_dir(&control).expect("a directory");
    assert!(refused("a directory").contains("not a regular file"));
    fs::remove_dir(&control).expect("removed");
    fs::File::create(&control).expect("created").set_len(200 << 20).expect("its length");
    assert!(refused("too long").contains("more than 134217728 bytes"));
    fs::write(&control, [7; 100_000]).expect("written");
    refused("no pool");
    std::os::unix::fs::symlink("nowhere", path.join("link")).expect("a link");
    fs::rename(path.join("link"), &control).expect("renamed");
    refused("it leads nowhere");
}
