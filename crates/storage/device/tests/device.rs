//! All directories keep the contract; the simulated one loses what a power cut may lose.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_device::simulated::{Kept, Simulated};
use pando_device::{Directory, Disk, Operation, Overlay, SECTOR_BYTES, copy_into_memory};
use pando_index::random::Random;
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn each_directory(test: impl Fn(&dyn Directory)) {
    let folder = tempfile::tempdir().expect("a folder");
    test(&Disk::open_or_create(&folder.path().join("log")).expect("a directory"));
    test(&Simulated::new());
    test(&Overlay::new(Arc::new(Simulated::new())));
}

fn read(directory: &dyn Directory, name: &str) -> Vec<u8> {
    let file = directory.open(name).expect("the file");
    let mut bytes = vec![0; file.size_bytes().expect("its size") as usize];
    file.read_at(&mut bytes, 0).expect("its bytes");
    bytes
}

#[test]
fn what_was_written_is_read() {
    each_directory(|directory| {
        let file = directory.create("oak").expect("a new file");
        file.write_at(b"bark", 3).expect("a write");
        assert_eq!(file.size_bytes().expect("a size"), 7);
        file.sync().expect("a sync");
        assert_eq!(read(directory, "oak"), b"\0\0\0bark");
        let error = file.read_at(&mut [0; 8], 0).expect_err("it has seven bytes");
        assert_eq!(error.operation, Operation::Read);
        assert_eq!(error.source.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("oak"), "{error}");
    });
}

#[test]
fn a_file_that_is_opened_to_be_read_is_not_written() {
    each_directory(|directory| {
        let missing = directory.open_read_only("oak").expect_err("there is none");
        assert!(missing.is_not_found(), "{missing}");
        directory.create("oak").expect("a new file").write_at(b"bark", 0).expect("a write");
        let file = directory.open_read_only("oak").expect("the file");
        let mut bytes = [0; 4];
        file.read_at(&mut bytes, 0).expect("its bytes");
        assert_eq!((&bytes, file.size_bytes().expect("a size")), (b"bark", 4));
        let refused = file.write_at(b"leaf", 0).expect_err("it is open to be read");
        assert_eq!(refused.operation, Operation::Write);
        let refused = file.allocate(8).expect_err("it is open to be read");
        assert_eq!(refused.operation, Operation::Allocate);
        assert_eq!(read(directory, "oak"), b"bark");
    });
}

#[test]
fn allocated_room_is_zero_and_keeps_what_was_written() {
    each_directory(|directory| {
        let file = directory.create("ash").expect("a new file");
        file.write_at(b"leaf", 0).expect("a write");
        file.allocate(10_000).expect("room");
        file.allocate(100).expect("it has more");
        let bytes = read(directory, "ash");
        assert_eq!(bytes.len(), 10_000);
        assert!(bytes.starts_with(b"leaf") && bytes[4..].iter().all(|&byte| byte == 0));
    });
}

#[test]
fn names_change_in_one_step() {
    each_directory(|directory| {
        for name in ["elm", "fir"] {
            let file = directory.create(name).expect("a new file");
            file.write_at(name.as_bytes(), 0).expect("a write");
        }
        let again = directory.create("elm").expect_err("the name is taken");
        assert!(again.is_taken(), "{again}");
        let kept = directory.open("fir").expect("the file");
        assert!(directory.rename("elm", "fir").expect_err("the name is taken").is_taken());
        directory.replace("elm", "fir").expect("a rename");
        directory.sync().expect("a sync");
        assert_eq!(directory.names().expect("names"), ["fir"]);
        assert_eq!(read(directory, "fir"), b"elm");
        let mut bytes = [0; 3];
        kept.read_at(&mut bytes, 0).expect("an open file outlives its name");
        assert_eq!(&bytes, b"fir");
        directory.remove("fir").expect("a removal");
        assert!(directory.names().expect("names").is_empty());
        directory.create("yew").expect("a new file");
        directory.rename("yew", "box").expect("a rename");
        assert_eq!(directory.names().expect("names"), ["box"]);
        for missing in [
            directory.remove("fir"),
            directory.rename("fir", "elm"),
            directory.replace("fir", "elm"),
        ] {
            assert!(missing.expect_err("it is gone").is_not_found());
        }
        assert!(directory.open("fir").expect_err("it is gone").is_not_found());
    });
}

#[test]
fn a_directory_that_is_missing_or_a_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = Disk::open(&folder.path().join("none")).expect_err("there is none");
    assert!(missing.is_not_found(), "{missing}");
    std::fs::write(folder.path().join("file"), b"").expect("a file");
    let error = Disk::open_or_create(&folder.path().join("file")).expect_err("it is a file");
    assert_eq!(error.operation, Operation::OpenDirectory, "{error}");
}

/// Forks a child that does `work` and ends; its process id.
fn forked(work: impl FnOnce()) -> i32 {
    // SAFETY: `work` only closes a file or sleeps, and the child ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            work();
            // SAFETY: ends the child, in which nothing else is dropped.
            unsafe { libc::_exit(0) }
        }
        child => child,
    }
}

/// Waits until a child has ended.
fn wait_for(child: i32) {
    // SAFETY: the call takes the id of a child of this process, and no pointer.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
}

/// Trap: a forked child that keeps the lock of its parent. A child has all open files of its
/// parent; a program that is started has them until its `exec`.
#[test]
fn a_forked_child_neither_keeps_nor_releases_a_lock() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = Disk::open(folder.path()).expect("a directory");
    let mut lock = directory.lock().expect("locks");
    assert!(lock.is_some() && directory.lock().expect("asks").is_none());
    wait_for(forked(|| drop(lock.take())));
    assert!(directory.lock().expect("asks").is_none(), "a child has released the lock");
    let child = forked(|| {
        // SAFETY: the call takes nothing.
        unsafe { libc::pause() };
    });
    drop(lock);
    let again = directory.lock().expect("asks");
    // SAFETY: the child is a process of this test.
    unsafe { libc::kill(child, libc::SIGKILL) };
    wait_for(child);
    assert!(again.is_some(), "a child has kept the lock");
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_any_sectors_of_the_rest() {
    let directory = Simulated::new();
    let file = directory.create("log").expect("a new file");
    file.write_at(&[1; 3 * SECTOR_BYTES], 0).expect("a write");
    file.sync().expect("a sync");
    directory.sync().expect("a sync");
    // From the middle of the first sector to the middle of the third.
    file.write_at(&[2; 2 * SECTOR_BYTES], SECTOR_BYTES as u64 / 2).expect("a write");
    let mut found = BTreeSet::new();
    let mut random = Random::new(1);
    for _ in 0..200 {
        let image = read(&directory.cut_power(Kept::Some, &mut random), "log");
        assert!(image[..SECTOR_BYTES / 2].iter().all(|&byte| byte == 1));
        let sectors: Vec<u8> = (0..3).map(|at| image[at * SECTOR_BYTES + 300]).collect();
        // Each part of a sector is old or new as a whole.
        assert_eq!(image[SECTOR_BYTES..2 * SECTOR_BYTES], [sectors[1]; SECTOR_BYTES]);
        found.insert([sectors[0], sectors[1], image[2 * SECTOR_BYTES]]);
    }
    assert_eq!(found.len(), 8, "{found:?}");
    let all = read(&directory.cut_power(Kept::All, &mut random), "log");
    assert_eq!(all, read(&directory, "log"));
    let nothing = read(&directory.cut_power(Kept::Nothing, &mut random), "log");
    assert_eq!(nothing, [1; 3 * SECTOR_BYTES]);
}

#[test]
fn a_power_cut_keeps_any_changes_of_names_that_were_not_synced() {
    let directory = Simulated::new();
    directory.create("old").expect("a new file").write_at(b"1", 0).expect("a write");
    directory.sync().expect("a sync");
    directory.create("new").expect("a new file");
    directory.rename("new", "newest").expect("a rename");
    directory.remove("old").expect("a removal");
    let mut found = BTreeSet::new();
    let mut random = Random::new(2);
    for _ in 0..200 {
        let image = directory.cut_power(Kept::Some, &mut random);
        found.insert(image.names().expect("names"));
    }
    let old = |name: &str| {
        let mut names = vec![name.to_owned(), "old".to_owned()];
        names.retain(|name| !name.is_empty());
        names
    };
    let without_old = |name: &str| old(name).into_iter().filter(|name| name != "old").collect();
    let expected: BTreeSet<Vec<String>> =
        ["", "new", "newest"].into_iter().flat_map(|name| [old(name), without_old(name)]).collect();
    assert_eq!(found, expected);
}

#[test]
fn bytes_behind_a_failed_sync_are_lost_even_if_the_next_sync_succeeds() {
    let directory = Simulated::new();
    let file = directory.create("log").expect("a new file");
    directory.sync().expect("a sync");
    file.write_at(b"synced", 0).expect("a write");
    file.sync().expect("a sync");
    file.write_at(b"lost!!", 0).expect("a write");
    let may_fail = AtomicBool::new(true);
    directory.on_operation(move |operation, _| {
        if operation == Operation::Sync && may_fail.swap(false, Ordering::Relaxed) {
            return Err(io::Error::other("the medium failed"));
        }
        Ok(())
    });
    let other = directory.open("log").expect("another handle");
    assert_eq!(file.sync().expect_err("it fails once").operation, Operation::Sync);
    file.sync().expect("the second one says nothing");
    other.sync().expect_err("each handle that was open reports it");
    directory.open("log").expect("a later handle").sync().expect("it has nothing to report");
    assert_eq!(read(&directory, "log"), b"lost!!");
    let image = directory.cut_power(Kept::All, &mut Random::new(3));
    assert_eq!(read(&image, "log"), b"synced");
}

#[test]
fn a_full_file_system_is_told_from_other_failures() {
    let directory = Simulated::new();
    let file = directory.create("log").expect("a new file");
    for (kind, is_full) in [(io::ErrorKind::StorageFull, true), (io::ErrorKind::Other, false)] {
        directory.on_operation(move |operation, name| {
            assert_eq!((operation, name), (Operation::Allocate, "log"));
            Err(kind.into())
        });
        assert_eq!(file.allocate(100).expect_err("it is refused").is_full(), is_full);
    }
}

#[test]
fn names_behind_a_failed_sync_of_the_directory_are_lost_even_if_the_next_one_succeeds() {
    let directory = Simulated::new();
    directory.create("log").expect("a new file");
    let may_fail = AtomicBool::new(true);
    directory.on_operation(move |operation, _| {
        if operation == Operation::SyncDirectory && may_fail.swap(false, Ordering::Relaxed) {
            return Err(io::Error::other("the medium failed"));
        }
        Ok(())
    });
    directory.sync().expect_err("it fails once");
    directory.create("later").expect("a new file");
    directory.sync().expect("the second one says nothing of the first file");
    let image = directory.cut_power(Kept::All, &mut Random::new(4));
    assert_eq!(image.names().expect("names"), ["later"]);
}

/// Then no sync has begun, and the caller may try again.
#[test]
fn a_directory_that_cannot_be_opened_is_told_from_a_failed_sync() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = Disk::open_or_create(&folder.path().join("log")).expect("a directory");
    std::fs::remove_dir(folder.path().join("log")).expect("removed");
    let error = directory.sync().expect_err("it is gone");
    assert_eq!(error.operation, Operation::OpenDirectory, "{error}");
}

#[test]
fn a_lack_of_descriptors_passes_and_a_failed_sync_does_not() {
    let error = |operation, code| pando_device::Error {
        operation,
        path: String::new(),
        source: io::Error::from_raw_os_error(code),
    };
    // Of Linux: EINTR, ENOMEM, ENFILE, EMFILE.
    for code in [4, 12, 23, 24] {
        assert!(error(Operation::Open, code).is_transient(), "{code}");
        assert!(!error(Operation::Sync, code).is_transient(), "{code}");
    }
    assert!(!error(Operation::Open, 5).is_transient(), "EIO");
}

/// What an overlay shows is as in one file with all writes. What is below it stays.
#[test]
fn an_overlay_shows_its_changes_and_changes_nothing() {
    const BYTES: usize = 40_000;
    let mut random = Random::new(7);
    for round in 0..50 {
        let below = Simulated::new();
        let first: Vec<u8> = (0..BYTES).map(|at| at as u8).collect();
        for name in ["elm", "fir"] {
            below.create(name).expect("a new file").write_at(&first, 0).expect("a write");
        }
        // It sees what an opening for reading sees, and no other operation.
        below.on_operation(|operation, name| match operation {
            Operation::Open | Operation::Read | Operation::List => Ok(()),
            _ => panic!("{operation:?} of {name}"),
        });
        let overlay = Overlay::new(Arc::new(below.clone()));
        let file = overlay.open("elm").expect("the file");
        let reader = overlay.open_read_only("elm").expect("the file");
        let mut expected = first.clone();
        for _ in 0..random.below(30) {
            let (at, length) = (random.below(60_000) as usize, random.below(9_000) as usize);
            if random.one_in(5) {
                file.allocate((at + length) as u64).expect("room");
                expected.resize(expected.len().max(at + length), 0);
                continue;
            }
            let bytes = vec![random.below(256) as u8; length];
            file.write_at(&bytes, at as u64).expect("a write");
            expected.resize(expected.len().max(at + length), 0);
            expected[at..at + length].copy_from_slice(&bytes);
        }
        file.sync().expect("a sync");
        assert_eq!(reader.size_bytes().expect("a size"), expected.len() as u64);
        for _ in 0..20 {
            let at = random.below(expected.len() as u64) as usize;
            let mut found = vec![0; random.below((expected.len() - at) as u64) as usize];
            reader.read_at(&mut found, at as u64).expect("its bytes");
            assert!(found == expected[at..at + found.len()], "round {round}, from byte {at}");
        }
        let past = reader.read_at(&mut [0; 2], expected.len() as u64 - 1).expect_err("its end");
        assert_eq!(past.source.kind(), io::ErrorKind::UnexpectedEof);

        overlay.remove("fir").expect("removed");
        assert!(overlay.open("fir").expect_err("it is removed").is_not_found());
        overlay.rename("elm", "fir").expect("renamed");
        overlay.create("elm").expect("the name is free").write_at(b"new", 0).expect("a write");
        overlay.replace("elm", "oak").expect("renamed");
        overlay.sync().expect("a sync");
        let names = BTreeSet::from_iter(overlay.names().expect("names"));
        assert_eq!(names, BTreeSet::from(["fir", "oak"].map(str::to_owned)));
        assert!(read(&overlay, "fir") == expected && read(&overlay, "oak") == b"new");
        for name in ["elm", "fir"] {
            assert!(read(&below, name) == first, "{name} has changed");
        }
    }
}

/// Bytes that are the same below take no memory, in whole blocks and in parts of them.
#[test]
fn an_overlay_keeps_only_what_differs() {
    let below = Simulated::new();
    let first: Vec<u8> = (0..40_000_u32).map(|at| (at / 7) as u8).collect();
    below.create("elm").expect("a new file").write_at(&first, 0).expect("a write");
    let overlay = Overlay::new(Arc::new(below));
    let file = overlay.open("elm").expect("the file");
    file.write_at(&first, 0).expect("a write");
    file.write_at(&first[100..20_000], 100).expect("a write");
    // Behind the end, all below is zero.
    file.write_at(&[0; 5000], 40_000).expect("a write");
    assert_eq!((overlay.blocks(), file.size_bytes().expect("a size")), (0, 45_000));
    let mut second = first.clone();
    second[8200] ^= 1;
    file.write_at(&second, 0).expect("a write");
    assert_eq!(overlay.blocks(), 1);
    assert_eq!(read(&overlay, "elm")[..40_000], second);
    // The block is there, and gets its first bytes again.
    file.write_at(&first, 0).expect("a write");
    assert_eq!(read(&overlay, "elm")[..40_000], first);
    overlay.remove("elm").expect("removed");
    assert_eq!(overlay.blocks(), 0);
}

/// A block that cannot be read below is written whole. Of a part of it, that is an error.
#[test]
fn an_overlay_hides_an_unreadable_block_below() {
    let below = Simulated::new();
    below.create("elm").expect("a new file").write_at(&[1; 8192], 0).expect("a write");
    below.on_operation(|operation, _| match operation {
        Operation::Read => Err(io::Error::from_raw_os_error(5)),
        _ => Ok(()),
    });
    let overlay = Overlay::new(Arc::new(below));
    let file = overlay.open("elm").expect("the file");
    let refused = file.write_at(&[0; 4095], 4096).expect_err("a part of a block");
    assert_eq!(refused.operation, Operation::Read);
    file.write_at(&[0; 4096], 4096).expect("a whole block");
    let mut found = [9; 4096];
    file.read_at(&mut found, 4096).expect("its bytes");
    assert_eq!(found, [0; 4096]);
    file.read_at(&mut found, 0).expect_err("it cannot be read");
}

/// Readers share a directory, with and without the file of the lock. A writer has it alone.
#[test]
fn readers_share_the_lock_of_a_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = Disk::open(folder.path()).expect("a directory");
    let (lock, shared) =
        (|| directory.lock().expect("answers"), || directory.lock_read_only().expect("answers"));
    let without_file = shared().expect("no writer");
    assert!(shared().is_some());
    assert!(directory.names().expect("names").is_empty(), "no file is created");
    drop(without_file);
    drop(lock().expect("it is free"));
    let readers = [shared().expect("no writer"), shared().expect("no writer")];
    assert!(lock().is_none(), "readers have it");
    drop(readers);
    let writer = lock().expect("it is free");
    assert!(shared().is_none() && lock().is_none(), "a writer has it");
    drop(writer);
    assert!(shared().is_some());
}

#[test]
fn a_copy_in_memory_has_the_bytes_and_errors_name_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("oak");
    assert!(copy_into_memory(&path, 9).expect_err("there is none").is_not_found());
    std::fs::write(&path, b"bark").expect("written");
    let copy = copy_into_memory(&path, 4).expect("four bytes");
    let mut found = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&copy, &mut found, 0).expect("its bytes");
    assert_eq!(&found, b"bark");
    std::os::unix::fs::FileExt::write_all_at(&copy, b"leaf", 0).expect("written");
    assert_eq!(std::fs::read(&path).expect("read"), b"bark");
    let pipe = folder.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    for (path, max_bytes, why) in [
        (&path, 3, "more than 3 bytes"),
        (&pipe, 9, "not a regular file"),
        (&folder.path().to_owned(), 9, "not a regular file"),
    ] {
        let refused = copy_into_memory(path, max_bytes).expect_err("it is refused").to_string();
        assert!(refused.contains(why), "{refused}");
        assert!(refused.contains(path.to_str().expect("a name")), "{refused}");
    }
}
