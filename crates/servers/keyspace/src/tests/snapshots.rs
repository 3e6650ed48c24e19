//! Snapshots.

use super::*;

#[test]
fn a_snapshot_is_of_one_moment_whatever_is_written_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("snapshot");
    let store = volatile();
    for number in 0u64..20_000 {
        set(&store, 0, &number.to_le_bytes(), &0u64.to_le_bytes(), None);
    }
    put_hash(&store, b"hash", 500);
    set(&store, 3, b"expires", b"later", Some(store.clock().now_ms() + 1_000_000));
    set(&store, 3, b"expired", b"sooner", Some(store.clock().now_ms()));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One writer increases all numbers in order. So at any point in time there are at most two
        // values, the higher one first.
        scope.spawn(|| {
            for round in 1u64.. {
                for number in 0u64..20_000 {
                    set(&store, 0, &number.to_le_bytes(), &round.to_le_bytes(), None);
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(20));
            let saved = store.save(&path, 1);
            if saved.is_err() {
                is_over.store(true, Ordering::Relaxed);
            }
            saved.expect("saves");
            let copy = volatile();
            assert_eq!(copy.restore(&path).expect("restores"), 20_002);
            let rounds: Vec<u64> = (0u64..20_000)
                .map(|number| {
                    let value = get(&copy, 0, &number.to_le_bytes()).expect("every key is there");
                    u64::from_le_bytes(value.try_into().expect("eight bytes"))
                })
                .collect();
            let is_consistent =
                rounds.is_sorted_by(|one, next| one >= next) && rounds[0] - rounds[19_999] <= 1;
            if !is_consistent {
                is_over.store(true, Ordering::Relaxed);
            }
            assert!(is_consistent, "from {} to {}", rounds[0], rounds[19_999]);
            assert_eq!(fields(&copy, b"hash"), Some(500));
            assert!(get(&copy, 3, b"expires").is_some() && get(&copy, 3, b"expired").is_none());
            assert!(copy.restore(&path).is_err(), "only into an empty store");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(!store.snapshot_state().is_writing && !store.snapshot_state().has_failed);
}

#[test]
fn after_a_panic_in_a_snapshot_others_can_be_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = volatile();
    set(&store, 0, b"key", b"old", None);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _saving = store.begin_saving().expect("none is being written");
        let path = folder.path().join("unfinished");
        store.begin_snapshot(crate::snapshot_file::Writer::begin(&path).expect("a file"));
        panic!("a snapshot that panics");
    }));
    assert!(panicked.is_err());
    assert!(!store.snapshot_state().is_writing && store.snapshot_state().has_failed);
    // Commands write nothing into it.
    assert_eq!(store.snapshots.writing.load(Ordering::Relaxed), 0);
    assert!(store.snapshots.writer.lock().is_none());
    set(&store, 0, b"key", b"new", None);
    assert_eq!(store.save(&folder.path().join("snapshot"), 1).expect("it is saved"), 1);
    assert!(!store.snapshot_state().has_failed);
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("snapshot");
    let store = volatile();
    set(&store, 0, b"key", b"value", None);
    store.save(&path, 1).expect("saves");
    let intact = std::fs::read(&path).expect("reads");
    for at in 0..intact.len() {
        // The time may be any.
        if (12..24).contains(&at) {
            continue;
        }
        let mut bytes = intact.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).expect("writes");
        assert!(volatile().restore(&path).is_err(), "byte {at}");
        std::fs::write(&path, &intact[..at]).expect("writes");
        assert!(volatile().restore(&path).is_err(), "cut at {at}");
    }
    let path = folder.path().join("store.pool");
    let snapshot = folder.path().join("snapshot");
    std::fs::write(&snapshot, &intact[..intact.len() - 1]).expect("writes");
    let cut_short = Store::open(Some(&path), &options()).expect("a store");
    assert!(cut_short.restore(&snapshot).is_err());
    cut_short.close().expect("closes");
    let refused = Store::open(Some(&path), &options()).err().expect("it has a part of the keys");
    assert!(refused.to_string().contains("cut short"), "{refused}");
    assert!(store.save(&folder.path().join("no/folder"), 1).is_err());
    assert!(store.snapshot_state().has_failed);
}

#[test]
fn earlier_snapshots_are_kept_under_numbers_as_many_as_are_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("snapshot");
    let store = volatile();
    let keys = |kept: usize| {
        let number = store.count(0).expect("counts");
        set(&store, 0, &number.to_le_bytes(), b"value", None);
        // Times have a resolution of a millisecond.
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(store.save(&path, kept).expect("saves"), number + 1);
        let all = crate::snapshot_file::all_at(&path);
        assert_eq!(all[0].0, path);
        let of = |path: &Path| volatile().restore(path).expect("restores");
        all.iter().map(|(path, _)| of(path)).collect::<Vec<_>>()
    };
    assert_eq!(keys(3), [1]);
    assert_eq!(keys(3), [2, 1]);
    assert_eq!(keys(3), [3, 2, 1]);
    assert_eq!(keys(3), [4, 3, 2]);
    // An interrupted rotation leaves a gap.
    std::fs::rename(&path, folder.path().join("snapshot.7")).expect("renames");
    let newest = crate::snapshot_file::all_at(&path)[0].0.clone();
    assert_eq!(volatile().restore(&newest).expect("restores"), 4);
    assert_eq!(keys(2), [5, 3]);
    assert_eq!(keys(1), [6]);
}

#[test]
fn a_snapshot_ends_without_a_result_when_the_server_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("snapshot");
    let store = volatile();
    put_hash(&store, b"hash", 100);
    store.save(&path, 1).expect("saves");
    let before = std::fs::read(&path).expect("reads");
    set(&store, 0, b"key", b"value", None);
    store.end_long_work();
    let failure = store.save(&path, 1).expect_err("it ends");
    assert!(failure.to_string().contains("shut down"), "{failure}");
    assert!(store.snapshot_state().has_failed);
    assert_eq!(std::fs::read(&path).expect("reads"), before);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
}
