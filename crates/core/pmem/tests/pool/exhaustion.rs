//! Each resource runs out once: the caller gets a typed error, and there is room again afterwards.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use pando_pmem::testing::give_to;
use pando_pmem::{Error, Pool, Process};

use crate::common::{
    Mounted, active, create, folder, folder_and_pool, free, give, holds, open, options, room, root,
};

/// Fills the pool with stamped blocks of `bytes`; returns the error at the end, and their number.
fn fill(pool: &Arc<Pool<Process>>, bytes: u64) -> (Error, u64) {
    for index in 0.. {
        let guard = pool.pin().unwrap();
        let mut block = match guard.reserve(bytes) {
            Ok(block) => block,
            Err(error) => return (error, index),
        };
        block.write(0, &vec![index as u8; bytes as usize]);
        give_to(&guard, root(index), block);
    }
    unreachable!()
}

fn all_hold(pool: &Pool<Process>, count: u64, bytes: u64) {
    for index in 0..count {
        let off = crate::common::named(pool, index);
        assert!(holds(pool, off, bytes, index as u8), "block {index} changed");
    }
}

/// Reserves a block, after at most a few epochs.
fn reserve_soon(pool: &Pool<Process>, bytes: u64) {
    let given = (0..8).any(|_| pool.pin().unwrap().reserve(bytes).is_ok());
    assert!(given, "no room for {bytes} bytes although some were freed");
}

#[test]
fn a_full_pool_says_so_keeps_its_blocks_and_has_room_again_after_a_free() {
    for (bytes, most) in [(4000, 160), (30_000, 20), (65_536, 10), (200_000, 2)] {
        let (_folder, path) = folder_and_pool();
        let pool = create::<Process>(&path, 1);
        let (error, count) = fill(&pool, bytes);
        assert!(matches!(error, Error::PoolFull { max_bytes, .. } if max_bytes == 1 << 20));
        assert!(count > 0 && count <= most, "{count} blocks of {bytes}");
        all_hold(&pool, count, bytes);
        // Other sizes fail the same way; they cannot use free blocks within a slab.
        assert!(matches!(pool.pin().unwrap().reserve(262_145), Err(Error::PoolFull { .. })));
        free(&pool, count - 1);
        reserve_soon(&pool, bytes);
        all_hold(&pool, count - 1, bytes);
        assert_eq!(active(&pool).len() as u64, count - 1);
        for index in 0..count - 1 {
            free(&pool, index);
        }
        // All room serves one size, then all of it another size.
        assert_eq!(room(&pool, 65_536), 10);
        assert_eq!(room(&pool, 30_000), 20);
        drop(pool);
        assert_eq!(room(&open::<Process>(&path), bytes) as u64, count);
    }
}

/// In a full pool a longer block serves for a shorter one; a thread may say that it must fit.
#[test]
fn a_block_that_must_fit_is_not_much_longer_than_what_is_reserved() {
    let (_folder, path) = folder_and_pool();
    let pool = create::<Process>(&path, 1);
    let (_, count) = fill(&pool, 10_000);
    free(&pool, count - 1);
    reserve_soon(&pool, 10_000);
    let guard = pool.pin().unwrap();
    let found = guard.fitting(|| guard.reserve(4_000).map(|block| block.bytes()));
    assert!(matches!(found, Err(Error::PoolFull { .. })), "{found:?}");
    let bytes = |wanted| guard.fitting(|| guard.reserve(wanted).unwrap().bytes());
    assert_eq!((bytes(10_000), bytes(9_000)), (10_816, 10_816));
    assert_eq!(guard.reserve(4_000).unwrap().bytes(), 10_816);
    all_hold(&pool, count - 1, 10_000);
}

#[test]
fn a_full_file_system_refuses_a_new_pool_and_leaves_no_file() {
    let Some(mounted) = Mounted::new("tmpfs", "size=2m") else { return };
    let filler = mounted.path().join("filler");
    for left_kib in [0, 4, 100, 300, 340] {
        fs::write(&filler, vec![1; 2048 * 1024 - left_kib * 1024]).unwrap();
        let path = mounted.path().join("pool");
        let error = Pool::<Process>::create(&path, &options(64)).unwrap_err();
        assert!(matches!(error, Error::FileSystemFull { .. }), "{left_kib} KiB left: {error}");
        assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 1, "{left_kib} KiB left");
        fs::remove_file(&filler).unwrap();
    }
    drop(create::<Process>(&mounted.path().join("pool"), 64));
}

#[test]
fn a_full_file_system_refuses_growth_and_the_pool_goes_on() {
    let Some(mounted) = Mounted::new("tmpfs", "size=2m") else { return };
    let filler = mounted.path().join("filler");
    fs::write(&filler, vec![1; 1 << 20]).unwrap();
    let path = mounted.path().join("pool");
    let pool = create::<Process>(&path, 64);
    let (error, count) = fill(&pool, 30_000);
    assert!(matches!(error, Error::FileSystemFull { .. }), "{error}");
    assert!(error.to_string().contains("file system is full"), "{error}");
    all_hold(&pool, count, 30_000);
    // A free makes room within the pool. The removal of other files makes room for its growth.
    free(&pool, count - 1);
    reserve_soon(&pool, 30_000);
    fs::remove_file(&filler).unwrap();
    give(&pool, 500, 300_000, 5);
    all_hold(&pool, count - 1, 30_000);
    pool.abandon();
    let pool = open::<Process>(&path);
    all_hold(&pool, count - 1, 30_000);
    assert_eq!(active(&pool).len() as u64, count);
}

/// A pool of this size grows by huge pages, as long as the file system has much room.
#[test]
fn a_pool_that_grows_by_huge_pages_takes_no_room_behind_its_end() {
    let Some(mounted) = Mounted::new("tmpfs", "size=80m") else { return };
    let path = mounted.path().join("pool");
    let pool = create::<Process>(&path, 256);
    let (error, count) = fill(&pool, 400_000);
    assert!(matches!(error, Error::FileSystemFull { .. }), "{error}");
    all_hold(&pool, count, 400_000);
    let (size_bytes, table_bytes) = (pool.size_bytes(), pool.geometry().chunks_off);
    assert!(size_bytes > 70 << 20, "the pool has {size_bytes} bytes");
    let taken_bytes = path.metadata().unwrap().blocks() * 512;
    let all_bytes = size_bytes - table_bytes..=size_bytes;
    assert!(all_bytes.contains(&taken_bytes), "{taken_bytes} of {size_bytes} bytes");
    assert_eq!(path.metadata().unwrap().len(), size_bytes);
    drop(pool);
    let pool = open::<Process>(&path);
    all_hold(&pool, count, 400_000);
    assert_eq!(active(&pool).len() as u64, count);
}

const LIMITED_POOL: &str = "PANDO_TEST_LIMITED_POOL";

/// Not a test: the process of the test below, whose files have a limit.
#[test]
fn child_whose_files_have_a_limit() {
    let Ok(path) = std::env::var(LIMITED_POOL) else { return };
    let path = std::path::Path::new(&path);
    let limited = |bytes| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the call reads the struct. This process runs no other test.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    };
    limited(1 << 16);
    let error = Pool::<Process>::create(path, &options(64)).unwrap_err();
    assert!(matches!(error, Error::FileTooLarge { .. }), "{error}");
    assert!(!path.exists());
    limited(2 << 20);
    let pool = create::<Process>(path, 64);
    let (error, count) = fill(&pool, 30_000);
    assert!(
        matches!(&error, Error::FileTooLarge { path: named, to_bytes, .. }
            if named == path && *to_bytes > 2 << 20),
        "{error}"
    );
    assert!(error.to_string().contains("ulimit -f"), "{error}");
    all_hold(&pool, count, 30_000);
    free(&pool, count - 1);
    reserve_soon(&pool, 30_000);
    limited(libc::RLIM_INFINITY);
    give(&pool, 500, 300_000, 5);
    all_hold(&pool, count - 1, 30_000);
    println!("<done>");
}

#[test]
fn a_limit_of_file_sizes_is_named_and_the_pool_goes_on() {
    let folder = folder();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "exhaustion::child_whose_files_have_a_limit", "--nocapture"])
        .env(LIMITED_POOL, folder.path().join("pool"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("<done>"),
        "{}: {said}{errors}",
        output.status
    );
}

#[test]
fn a_file_system_that_cannot_allocate_is_not_called_full() {
    let Some(mounted) = Mounted::new("ramfs", "mode=700") else { return };
    let path = mounted.path().join("pool");
    let error = Pool::<Process>::create(&path, &options(64)).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
}

/// Like a copy that leaves out zeros: a store into a hole would find the file system full, and kill
/// the process.
#[test]
fn a_copy_with_holes_has_its_room_again_when_it_is_opened() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let folder = folder();
    let (path, copied) = (folder.path().join("pool"), folder.path().join("copy"));
    let pool = create::<Process>(&path, 64);
    give(&pool, 0, 100_000, 1);
    give(&pool, 1, 500_000, 0);
    drop(pool);
    let content = fs::read(&path).unwrap();
    let copy = fs::File::create(&copied).unwrap();
    copy.set_len(content.len() as u64).unwrap();
    for (index, page) in content.chunks(4096).enumerate() {
        if page.iter().any(|&byte| byte != 0) {
            copy.write_all_at(page, index as u64 * 4096).unwrap();
        }
    }
    let blocks = |path| fs::metadata(path).unwrap().blocks();
    assert!(blocks(&copied) < blocks(&path));
    let pool = open::<Process>(&copied);
    assert!(blocks(&copied) >= blocks(&path));
    assert!(holds(&pool, crate::common::named(&pool, 0), 100_000, 1));
}
