//! The store in a record store on a disk, whose pages are mostly not in memory.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::sweeps::flush;
use super::*;
use crate::snapshot_file::Writer;

const PAGE_BYTES: u64 = 16 << 20;

pub(super) fn on_disk(path: &Path) -> Store {
    let options = StoreOptions { page_bytes: Some(PAGE_BYTES), ..StoreOptions::default() };
    Store::open(Some(path), &options).expect("a store")
}

/// A value of which a page holds few.
fn value(number: u32) -> Vec<u8> {
    format!("value {number:06} ").repeat(300).into_bytes()
}

#[test]
fn strings_of_each_length_are_there_after_an_opening() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let lengths = [0, 15_999, 16_000, 16_001, 31_999, 32_000, 32_001, 100_000];
    let string = |length: usize| vec![b'0' + (length % 10) as u8; length];
    let store = on_disk(&path);
    for length in lengths {
        set(&store, 0, format!("key {length}").as_bytes(), &string(length), None);
    }
    put_hash(&store, b"hash", 200);
    store.close().expect("closes");
    let store = on_disk(&path);
    for length in lengths {
        let found = get(&store, 0, format!("key {length}").as_bytes());
        assert!(found == Some(string(length)), "{length}");
    }
    assert_eq!(fields(&store, b"hash"), Some(200));
    let head = |length: usize| {
        let key = layout::head_key(store.space(0), format!("key {length}").as_bytes());
        store.map.read(&key, <[u8]>::len).expect("reads").expect("it is there")
    };
    assert!(head(16_000) >= 16_000 && head(16_001) < 100, "the form is determined by the length");
}

#[test]
fn a_command_that_is_too_long_does_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = on_disk(&folder.path().join("store"));
    let keys: Vec<_> = (0..40_u32).map(u32::to_be_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
    let wanted = keys.iter().map(|key| Store::stripe_of_key(key)).collect();
    let held = store.lock(wanted, Access::Exclusive).expect("locks");
    let mut transaction = store.begin(held, store.clock().now_ms());
    for key in &keys {
        let value = vec![b'x'; 15_000];
        transaction
            .put_head(transaction.space(0), key, &Head::string(&value))
            .expect("kept until the commit");
    }
    let refused = transaction.commit().expect_err("it is too long");
    assert!(refused.to_string().contains("bytes"), "{refused}");
    drop(transaction);
    assert!(keys.iter().all(|key| get(&store, 0, key).is_none()));
    set(&store, 0, b"key", b"1", None);
    assert_eq!(get(&store, 0, b"key").as_deref(), Some(&b"1"[..]));
}

/// Damages the pages of a closed store that have one of these texts.
fn damage(path: &Path, texts: &[&[u8]]) {
    let mut changed = 0;
    for file in std::fs::read_dir(path.join("pages")).expect("a folder") {
        let file = file.expect("a file").path();
        let mut bytes = std::fs::read(&file).expect("reads");
        for text in texts {
            let at: Vec<_> = (0..bytes.len().saturating_sub(text.len()))
                .filter(|&at| bytes[at..].starts_with(text))
                .collect();
            at.iter().for_each(|&at| bytes[at] ^= 1);
            changed += at.len();
        }
        std::fs::write(&file, bytes).expect("written");
    }
    assert!(changed > 0);
}

/// The sweep goes on with what can be read.
#[test]
fn a_damaged_page_stops_no_sweep() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = on_disk(&path);
    let soon = store.clock().now_ms() + 1;
    for number in 0..200_u32 {
        set(&store, 0, &number.to_be_bytes(), &value(number), Some(soon));
    }
    // Their records are garbage when they are replaced.
    for number in 0..20_u32 {
        put_hash(&store, format!("hash {number}").as_bytes(), 50);
        set(&store, 0, format!("hash {number}").as_bytes(), b"", None);
    }
    for number in 0..100_u32 {
        set(&store, 1, &number.to_be_bytes(), &value(1_000 + number), None);
    }
    flush(&store, 1);
    store.close().expect("closes");

    damage(&path, &[b"value 000007 value", b"value 001007 value"]);
    let store = on_disk(&path);
    let mut expired = 0;
    while store.has_garbage.load(Ordering::Relaxed) || expired < 150 {
        expired += store.sweep_expired(10).expect("it goes on").expired_keys;
        store.sweep_garbage(10).expect("it goes on");
        // It rests while much of the log waits for the disk.
        store.pool.sync().expect("syncs");
    }
    assert!((150..200).contains(&expired), "{expired} keys");
    let garbage = store.map.prefix(own_keys::GARBAGES).count();
    assert_eq!(garbage, 0, "dropped collections are removed");
    // A database can be flushed.
    for _ in 0..3 * u32::from(layout::SPACES) {
        set(&store, 2, b"key", b"value", None);
        flush(&store, 2);
    }
    assert_eq!(get(&store, 2, b"key"), None);
}

#[test]
fn a_damaged_page_ends_a_snapshot_and_a_count_but_no_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store");
    let store = on_disk(&path);
    for number in 0..200_u32 {
        set(&store, 0, &number.to_be_bytes(), &value(number), None);
    }
    store.close().expect("closes");
    damage(&path, &[b"value 000007 value"]);

    let store = on_disk(&path);
    let snapshot = folder.path().join("snapshot");
    store.begin_snapshot(Writer::begin(&snapshot.with_extension("new")).expect("a file"));
    for number in 0..200_u32 {
        let stripe = Store::stripe_of_key(&number.to_be_bytes());
        let locked = store.lock([stripe].into_iter().collect(), Access::Exclusive);
        drop(locked.expect("the command goes on"));
    }
    let failure = store.save_stripes().expect_err("the snapshot fails");
    assert!(failure.is_of_damaged_page(), "{failure}");
    assert!(store.save(&snapshot, 1).expect_err("it fails again").is_of_damaged_page());
    assert!(!snapshot.exists() && !snapshot.with_extension("new").exists());

    store.count_in_background();
    assert_eq!(store.known_count(), None);
    store.count_for_client(0).expect_err("the keys cannot be counted");
}
