//! Shared by the tests: pools, blocks that words own, seeded random numbers, file systems.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pando_index::random::Random;
use pando_pmem::layout::CATALOG_OFF;
pub use pando_pmem::testing::{active, folder, folder_and_pool, holds, room};
use pando_pmem::testing::{give_to, never_stop, pause_after, stamped, take_from};
use pando_pmem::{CreateOptions, Domain, Error, OpenPool, Pool};

/// A pool that may grow to `mib` MiB.
pub fn options(mib: u64) -> CreateOptions {
    CreateOptions { max_bytes: mib << 20, initial_bytes: 0 }
}

pub fn create<D: Domain>(path: &Path, mib: u64) -> Arc<Pool<D>> {
    Pool::create(path, &options(mib)).unwrap()
}

pub fn open<D: Domain>(path: &Path) -> Arc<Pool<D>> {
    Pool::open(path, &OpenPool::default()).unwrap()
}

/// Opens the pool in one more process: a handle stands for one, since locks belong to the open file
/// description. Lets others enter, as `Pmwcas::open` does when it has recovered.
pub fn share<D: Domain>(path: &Path) -> Result<Arc<Pool<D>>, Error> {
    let pool = Pool::open(path, &OpenPool { shared: true, ..OpenPool::default() })?;
    pool.admit_others()?;
    Ok(pool)
}

pub fn shared<D: Domain>(path: &Path) -> Arc<Pool<D>> {
    share(path).unwrap()
}

/// Ends the process of `pool` like a kill: it loses its locks, and nothing is closed.
pub fn kill<D: Domain>(pool: Arc<Pool<D>>) {
    pool.drop_locks_like_a_kill();
    std::mem::forget(pool);
}

/// The offset of word number `index`, which may own a block: a word of the catalog.
pub const fn root(index: u64) -> u64 {
    CATALOG_OFF + index * 8
}

/// The offset that `root(index)` names.
pub fn named<D: Domain>(pool: &Pool<D>, index: u64) -> u64 {
    pool.word(root(index)).load(std::sync::atomic::Ordering::Acquire)
}

/// Allocates `bytes` bytes full of `stamp`, owned by `root(index)`; returns the offset.
pub fn give<D: Domain>(pool: &Pool<D>, index: u64, bytes: u64, stamp: u8) -> u64 {
    let guard = pool.pin().unwrap();
    give_to(&guard, root(index), stamped(&guard, bytes, stamp))
}

pub fn free<D: Domain>(pool: &Pool<D>, index: u64) {
    assert!(take_from(&pool.pin().unwrap(), root(index)), "no block was there");
}

/// Runs `work` in a thread, and `meanwhile` while that thread is paused. `work` calls its argument
/// with N to pause before the N-th write after the call. Returns the results of both.
pub fn while_paused<R: Send, S>(
    work: impl FnOnce(Box<dyn FnOnce(u64)>) -> R + Send,
    meanwhile: impl FnOnce() -> S,
) -> (R, S) {
    let ((tell, stopped), (go_on, wait)) = (channel(), channel());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let result = work(Box::new(move |writes| pause_after(writes, tell, wait)));
            never_stop();
            result
        });
        assert!(!stopped.recv().unwrap(), "the thread is done");
        let seen = meanwhile();
        go_on.send(None).unwrap();
        (thread.join().unwrap(), seen)
    })
}

/// A stream of random numbers. Its seed is printed, and the same seed gives the same numbers.
pub fn random(seed: u64) -> Random {
    println!("seed {seed:#x}");
    Random::new(seed)
}

/// A file system for one test, which is unmounted at the end. `None`, with a note, if this process
/// may not mount.
///
/// One test at a time has one: to mount, a process is started, which has the files of all tests
/// until its `exec`. Until then, removed files take room of the file system of another test.
pub struct Mounted {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Mounted {
    pub fn new(kind: &str, options: &str) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = folder();
        let status = std::process::Command::new("mount")
            .args(["-t", kind, "-o", options, kind])
            .arg(folder.path())
            .stderr(std::process::Stdio::null())
            .status();
        if status.is_ok_and(|status| status.success()) {
            return Some(Self { folder, _turn: turn });
        }
        println!("note: skipped, this process may not mount a {kind}");
        None
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
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
