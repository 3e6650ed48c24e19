//! Files that are no pools, or that may not be opened: each gives a typed error, and stays
//! unchanged.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use pando_pmem::layout::{CHUNK_BYTES, FRONTIER_OFF, MAX_POOL_BYTES, MIN_POOL_BYTES};
use pando_pmem::{CreateOptions, Error, OpenPool, Pool, Process, superblock};

use crate::common::{Mounted, active, create, folder, folder_and_pool, give, open, options};

fn refusal(path: &Path) -> Error {
    Pool::<Process>::open(path, &OpenPool::default()).unwrap_err()
}

/// The bytes of a pool that was closed cleanly.
fn closed_pool() -> Vec<u8> {
    let (_folder, path) = folder_and_pool();
    let pool = create::<Process>(&path, 1);
    give(&pool, 0, 100, 7);
    drop(pool);
    fs::read(&path).unwrap()
}

fn check_message(error: &Error, path: &Path) {
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "no file is named: {message}");
}

#[test]
fn a_pool_truncated_at_any_length_is_refused_and_left_alone() {
    let (_folder, path) = folder_and_pool();
    let whole = closed_pool();
    let around_pages = (4096..whole.len()).step_by(4096).flat_map(|at| [at - 1, at, at + 1]);
    let lengths: Vec<usize> = (0..4096).chain(around_pages).chain([whole.len() - 1]).collect();
    for length in lengths {
        fs::write(&path, &whole[..length]).unwrap();
        let error = refusal(&path);
        match error {
            Error::NotAPool { .. } => assert!(length < 8, "{length}"),
            Error::Truncated { found_bytes, .. } => assert_eq!(found_bytes, length as u64),
            _ => panic!("{length} bytes: {error}"),
        }
        check_message(&error, &path);
        assert!(fs::read(&path).unwrap() == whole[..length], "{length} bytes: changed");
    }
}

#[test]
fn a_superblock_with_any_bit_flipped_is_refused_and_left_alone() {
    let (_folder, path) = folder_and_pool();
    let whole = closed_pool();
    // Every bit of the used part, and a sample of the reserved part. (The unit test of the decoder
    // tries every bit.)
    let used = (0..64 * 8).chain(3968 * 8..4032 * 8);
    for bit in used.chain((64 * 8..4096 * 8).step_by(61)) {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &damaged).unwrap();
        let error = refusal(&path);
        check_message(&error, &path);
        assert!(fs::read(&path).unwrap() == damaged, "bit {bit}: the file was changed: {error}");
    }
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let (_folder, path) = folder_and_pool();
    let mut newer = closed_pool();
    newer[8..12].copy_from_slice(&(superblock::FORMAT_VERSION + 1).to_le_bytes());
    fs::write(&path, &newer).unwrap();
    assert!(matches!(refusal(&path), Error::NewerVersion { found: 6, supported: 5, .. }));
    assert!(fs::read(&path).unwrap() == newer);
}

#[test]
fn what_is_no_pool_is_refused() {
    let folder = folder();
    let own_program = std::env::current_exe().unwrap();
    for (name, content) in [
        ("empty", Vec::new()),
        ("text", b"key\tvalue\n".repeat(1000)),
        ("program", fs::read(own_program).unwrap()[..1 << 20].to_vec()),
        ("zeros", vec![0; 1 << 20]),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, &content).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, Error::NotAPool { .. }), "{name}: {error}");
        check_message(&error, &path);
        assert!(fs::read(&path).unwrap() == content, "{name}");
    }
    assert!(matches!(refusal(folder.path()), Error::Io { .. }));
    assert!(matches!(refusal(&folder.path().join("missing")), Error::Io { .. }));
    assert!(matches!(refusal(Path::new("/dev/null")), Error::NotAFile(_)));
}

#[test]
fn a_pool_on_a_read_only_file_system_is_refused() {
    let Some(mounted) = Mounted::new("tmpfs", "size=4m") else { return };
    let path = mounted.path().join("pool");
    drop(create::<Process>(&path, 1));
    assert!(mounted.remount("ro"));
    assert!(matches!(refusal(&path), Error::ReadOnly(_)));
    let other = Pool::<Process>::create(&mounted.path().join("new"), &options(1)).unwrap_err();
    assert!(matches!(other, Error::Io { .. }), "{other}");
    assert!(other.to_string().contains("Read-only file system"), "{other}");
}

#[test]
fn a_second_opener_in_the_process_is_refused() {
    let (_folder, path) = folder_and_pool();
    let pool = create::<Process>(&path, 1);
    assert!(matches!(refusal(&path), Error::AlreadyOpen(_)));
    let again = Pool::<Process>::create(&path, &options(1)).unwrap_err();
    assert!(matches!(again, Error::Exists(_)));
    give(&pool, 0, 100, 7);
    drop(pool);
    assert_eq!(active(&open::<Process>(&path)).len(), 1);
}

const CHILD_POOL: &str = "PANDO_TEST_CHILD_POOL";

/// Not a test: the other process of the tests below.
#[test]
fn child_that_opens_a_pool() {
    let Ok(path) = std::env::var(CHILD_POOL) else { return };
    match Pool::<Process>::open(Path::new(&path), &OpenPool::default()) {
        Ok(_pool) => {
            println!("<opened>");
            loop {
                std::thread::park();
            }
        }
        Err(Error::AlreadyOpen(_)) => println!("<already open>"),
        Err(error) => println!("<{error}>"),
    }
}

fn child(path: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "bad_input::child_that_opens_a_pool", "--nocapture"])
        .env(CHILD_POOL, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_second_opener_in_another_process_is_refused() {
    let (_folder, path) = folder_and_pool();
    let _pool = create::<Process>(&path, 1);
    let output = child(&path).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("<already open>"), "{said}");
}

#[test]
fn the_lock_of_a_killed_process_is_gone_and_its_pool_not_clean() {
    use std::io::{BufRead, BufReader};
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 1));
    let mut holder = child(&path);
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("<opened>")));
    assert!(matches!(refusal(&path), Error::AlreadyOpen(_)));
    holder.kill().unwrap();
    holder.wait().unwrap();
    let pool = open::<Process>(&path);
    assert!(!pool.was_clean());
    assert_eq!(pool.generation(), 3);
}

#[test]
fn a_child_forked_while_the_pool_is_open_does_not_keep_its_lock() {
    use std::os::unix::process::CommandExt;
    use std::time::Duration;
    let (folder, path) = folder_and_pool();
    let forked = folder.path().join("forked");
    let pool = create::<Process>(&path, 1);
    let mut command = Command::new("true");
    let mark = forked.clone();
    // SAFETY: the child makes two system calls' worth of work and allocates from its own copy.
    unsafe {
        command.pre_exec(move || {
            fs::write(&mark, "")?;
            std::thread::sleep(Duration::from_millis(300));
            Ok(())
        });
    }
    std::thread::scope(|scope| {
        let spawned = scope.spawn(move || command.status().unwrap());
        while !forked.exists() {
            std::thread::yield_now();
        }
        drop(pool);
        // The child still has the descriptor of the pool's file.
        drop(open::<Process>(&path));
        assert!(!spawned.is_finished(), "the child was too fast to show anything");
        spawned.join().unwrap();
    });
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |max_bytes, initial_bytes| {
        let options = CreateOptions { max_bytes, initial_bytes };
        let error = Pool::<Process>::anonymous(&options).unwrap_err();
        assert!(matches!(error, Error::BadOption { .. }), "{error}");
        let (folder, path) = folder_and_pool();
        let error = Pool::<Process>::create(&path, &options).unwrap_err();
        assert!(matches!(error, Error::BadOption { .. }), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    };
    refused(0, 0);
    refused(MIN_POOL_BYTES - 1, 0);
    refused(MAX_POOL_BYTES + 1, 0);
    refused(MAX_POOL_BYTES + CHUNK_BYTES, 0);
    refused(u64::MAX, 0);
    refused(1 << 20, (1 << 20) + 1);
    refused(1 << 20, u64::MAX);
}

#[test]
fn a_block_of_any_absurd_size_is_refused_by_name() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    let guard = pool.pin().unwrap();
    for bytes in [u64::MAX, u64::MAX - CHUNK_BYTES, 1 << 63, 1 << 48, (1 << 40) + 1] {
        let error = guard.reserve(bytes).unwrap_err();
        assert!(matches!(error, Error::BlockTooLarge { .. }), "{bytes}: {error}");
    }
    let error = guard.reserve(1 << 39).unwrap_err();
    assert!(matches!(error, Error::PoolFull { .. }), "{error}");
    assert_eq!(guard.reserve(0).unwrap().bytes(), 64);
}

#[test]
fn a_log_that_names_no_word_is_passed_over() {
    use std::os::unix::fs::FileExt;
    // The log of participant 0, damaged: it describes an exchange, with wrong offsets.
    for place in [3, 7, 1 << 20, (1 << 20) + 8, 1 << 50, u64::MAX - 7, u64::MAX] {
        let (_folder, path) = folder_and_pool();
        let pool = create::<Process>(&path, 1);
        give(&pool, 0, 100, 7);
        pool.abandon();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        for (at, word) in [(64, 1), (72, place), (80, place)] {
            file.write_all_at(&u64::to_le_bytes(word), 8192 + at).unwrap();
        }
        assert_eq!(active(&open::<Process>(&path)).len(), 1, "{place:#x}");
    }
}

#[test]
fn a_frontier_beyond_the_end_of_the_file_is_taken_back() {
    use std::os::unix::fs::FileExt;
    for frontier in [200, 1 << 20, u64::MAX] {
        let (_folder, path) = folder_and_pool();
        let pool = create::<Process>(&path, 16);
        give(&pool, 0, 100, 7);
        let chunks = pool.geometry().chunk_word_off(0)..pool.geometry().chunk_word_off(150);
        pool.abandon();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&u64::to_le_bytes(frontier), FRONTIER_OFF).unwrap();
        // Far behind the end of the file: slabs and a span.
        for (word, off) in
            [2 << 24, 3 << 24 | 9].into_iter().cycle().zip(chunks.step_by(8).skip(100))
        {
            file.write_all_at(&u64::to_le_bytes(word), off).unwrap();
        }
        let pool = open::<Process>(&path);
        assert_eq!(active(&pool).len(), 1, "{frontier:#x}");
        assert!(pool.usage().unwrap().chunks < 100);
    }
}

/// A damaged offset outside the pool reads as zero, and the guard notes it until the thread pins
/// again.
#[test]
fn where_damage_leads_is_nowhere_and_noted() {
    let pools = [(); 2].map(|()| Pool::<Process>::anonymous(&options(1)).unwrap());
    let end = pools[0].size_bytes();
    for off in [end, end - 4, u64::MAX, u64::MAX - 7, 12] {
        let guard = pools[0].pin().unwrap();
        // The thread has used another pool last: the damage is noted all the same.
        let other = pools[1].pin().unwrap();
        assert_eq!((guard.damage(), other.damage()), (None, None));
        pools[0].word(off).store(7, Ordering::Relaxed);
        assert_eq!(pools[0].word(off).load(Ordering::Relaxed), 0, "{off:#x}");
        assert_eq!(pools[0].words(off, 8).load(3, Ordering::Relaxed), 0, "{off:#x}");
        pools[0].word(end).load(Ordering::Relaxed);
        assert_eq!((guard.damage(), other.damage()), (Some(off), None), "not the first note");
        let nested = pools[0].pin().unwrap();
        assert_eq!(nested.damage(), Some(off));
        guard.forget_damage();
        assert_eq!(nested.damage(), None);
        nested.note_damage(64);
    }
    // Beyond the requested words, and with a count that is too large.
    let guard = pools[0].pin().unwrap();
    assert_eq!(guard.damage(), None);
    assert_eq!(pools[0].words(4096, 2).load(2, Ordering::Relaxed), 0);
    assert_eq!(guard.damage(), Some(4096));
    drop(guard);
    pools[0].word(end).load(Ordering::Relaxed);
    assert_eq!(pools[0].pin().unwrap().damage(), None, "noted without a pin");
}
