//! What the tests share: pools in memory, seeded randomness, crash images.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use pando_index::random::Random;
use pando_pmem::layout::CATALOG_OFF;
use pando_pmem::testing::{give_to, take_from};
use pando_pmem::{Block, CreateOptions, Domain, OpenPool, Pool};

/// A folder in memory where the system has one, so that a pool costs no disk.
pub fn folder() -> tempfile::TempDir {
    let mut named = tempfile::Builder::new();
    named.prefix("pando-test-");
    named.tempdir_in("/dev/shm").or_else(|_| named.tempdir()).unwrap()
}

/// A pool that may grow to `mib` MiB.
pub fn options(mib: u64) -> CreateOptions {
    CreateOptions { max_bytes: mib << 20, initial_bytes: 0, huge_pages: false }
}

pub fn create<D: Domain>(path: &Path, mib: u64) -> Arc<Pool<D>> {
    Pool::create(path, &options(mib)).unwrap()
}

pub fn open<D: Domain>(path: &Path) -> Arc<Pool<D>> {
    Pool::open(path, &OpenPool::default()).unwrap()
}

/// The word by which test number `index` owns a block: one of the catalog's.
pub const fn root(index: u64) -> u64 {
    CATALOG_OFF + index * 8
}

/// What `root(index)` names.
pub fn named<D: Domain>(pool: &Pool<D>, index: u64) -> u64 {
    pool.word(root(index)).load(std::sync::atomic::Ordering::Acquire)
}

pub fn active<D: Domain>(pool: &Pool<D>) -> Vec<Block> {
    let mut blocks = Vec::new();
    pool.visit_active(&mut |block| {
        blocks.push(block);
        ControlFlow::Continue(())
    })
    .unwrap();
    blocks
}

/// How many more blocks of `bytes` the pool can give.
pub fn room<D: Domain>(pool: &Pool<D>, bytes: u64) -> usize {
    // What waits for its epoch comes back as guards come and go.
    let attempt = |_| {
        pool.pin().unwrap().collect();
        let guard = pool.pin().unwrap();
        std::iter::from_fn(|| guard.reserve(bytes).ok()).collect::<Vec<_>>().len()
    };
    (0..12).map(attempt).max().unwrap_or(0)
}

/// Allocates `bytes` bytes full of `stamp`, owned by `root(index)`; the offset.
pub fn give<D: Domain>(pool: &Pool<D>, index: u64, bytes: u64, stamp: u8) -> u64 {
    let guard = pool.pin().unwrap();
    let mut block = guard.reserve(bytes).unwrap();
    block.write(0, &vec![stamp; bytes as usize]);
    block.flush(0, bytes);
    give_to(&guard, root(index), block)
}

pub fn free<D: Domain>(pool: &Pool<D>, index: u64) {
    assert!(take_from(&pool.pin().unwrap(), root(index)), "no block was there");
}

/// Whether the first `bytes` bytes at `off` all are `stamp`.
pub fn holds<D: Domain>(pool: &Pool<D>, off: u64, bytes: u64, stamp: u8) -> bool {
    // SAFETY: the caller's block is active and nobody writes to it meanwhile.
    unsafe { pool.bytes(off, bytes) }.iter().all(|&byte| byte == stamp)
}

/// A stream of numbers; its seed is printed, and the same seed gives the same run.
pub fn random(seed: u64) -> Random {
    println!("seed {seed:#x}");
    Random::new(seed)
}

/// A file system of its own for one test, unmounted at its end; `None`, with a note, where this
/// process may not mount.
pub struct Mounted(tempfile::TempDir);

impl Mounted {
    pub fn new(kind: &str, options: &str) -> Option<Self> {
        let folder = folder();
        let status = std::process::Command::new("mount")
            .args(["-t", kind, "-o", options, kind])
            .arg(folder.path())
            .stderr(std::process::Stdio::null())
            .status();
        if status.is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        println!("note: skipped, this process may not mount a {kind}");
        None
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn remount(&self, options: &str) -> bool {
        let mut command = std::process::Command::new("mount");
        command.args(["-o", &format!("remount,{options}")]).arg(self.path());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
