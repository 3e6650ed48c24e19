//! Helpers of the tests of all layers: a folder for pools, blocks with known content, the allocated
//! blocks, and the free room.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::alloc::Block;
use crate::{Domain, Guard, Pool, Reservation};

/// A new folder, in memory if the system has a tmpfs, so that a pool takes no room on a disk.
pub fn folder() -> tempfile::TempDir {
    let mut named = tempfile::Builder::new();
    named.prefix("pando-test-");
    let in_memory = named.tempdir_in(Path::new("/dev/shm"));
    in_memory.or_else(|_| named.tempdir()).expect("a temporary folder")
}

/// A new folder, and the path of a pool in it.
pub fn folder_and_pool() -> (tempfile::TempDir, PathBuf) {
    let folder = folder();
    let path = folder.path().join("pool");
    (folder, path)
}

/// The allocated blocks, in order of their offsets.
pub fn active<D: Domain>(pool: &Pool<D>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut push = |block| {
        blocks.push(block);
        ControlFlow::Continue(())
    };
    pool.visit_active(&mut push).expect("a slot");
    blocks
}

/// How many more blocks of `bytes` can be allocated.
pub fn room<D: Domain>(pool: &Pool<D>, bytes: u64) -> usize {
    // Retired blocks become free as threads pin and unpin.
    let attempt = |_| {
        pool.pin().expect("a slot").collect();
        let guard = pool.pin().expect("a slot");
        std::iter::from_fn(|| guard.reserve(bytes).ok()).collect::<Vec<_>>().len()
    };
    (0..12).map(attempt).max().unwrap_or(0)
}

/// A reserved block of `bytes` full of `stamp`, flushed.
pub fn stamped<'guard, 'pool, D: Domain>(
    guard: &'guard Guard<'pool, D>,
    bytes: u64,
    stamp: u8,
) -> Reservation<'guard, 'pool, D> {
    let mut block = guard.reserve(bytes).expect("room");
    block.write(0, &vec![stamp; bytes as usize]);
    block.flush(0, bytes);
    block
}

/// Whether the first `bytes` bytes at `off` all are `stamp`.
pub fn holds<D: Domain>(pool: &Pool<D>, off: u64, bytes: u64, stamp: u8) -> bool {
    pool.load_bytes(off, bytes).iter().all(|&byte| byte == stamp)
}
