//! A forked child has the memory of its parent's pool handle, and must not change the pool.

use std::sync::Arc;

use pando_pmem::superblock::{SUPERBLOCK_BYTES, Superblock};
use pando_pmem::{Error, Pool, Process};

use crate::common::{create, folder, folder_and_pool, free, give, named, open, options};

/// Runs `work` in a forked child. If `in_order`, the child then ends like a program that returns
/// from `main`, otherwise at once. Returns its exit status, or minus the signal that ended it.
fn in_child(in_order: bool, work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child has one thread, takes no lock that another thread of its parent may have
    // held (glibc prepares its allocator for the child), and ends below.
    match unsafe { libc::fork() } {
        0 => {
            let status = work();
            // SAFETY: ends the child; with `exit` the thread's destructors run.
            unsafe { if in_order { libc::exit(status) } else { libc::_exit(status) } }
        }
        child => {
            let mut status = 0;
            // SAFETY: the pointer is to a local variable.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                -libc::WTERMSIG(status)
            }
        }
    }
}

fn words(pool: &Pool<Process>) -> Vec<u8> {
    pool.load_bytes(0, pool.geometry().chunks_off)
}

#[test]
fn a_forked_child_that_ends_gives_nothing_back() {
    let folder = folder();
    let pool = create::<Process>(&folder.path().join("pool"), 4);
    std::thread::scope(|scope| {
        let (pool, claims) = (&pool, scope);
        let forks = scope.spawn(move || {
            let guard = pool.pin().unwrap();
            let before = words(pool);
            assert_eq!(in_child(true, || 0), 0);
            assert!(words(pool) == before, "the child wrote into its parent's pool");
            let other = claims.spawn(|| pool.pin().unwrap().slot()).join().unwrap();
            assert_ne!(other, guard.slot());
            assert_eq!(pool.participants()[guard.slot()].pinned_for_epochs, Some(0));
        });
        forks.join().unwrap();
    });
}

#[test]
fn a_forked_child_ends_no_hold_of_its_parent_and_gets_none() {
    let (_folder, path) = folder_and_pool();
    let pool = create::<Process>(&path, 4);
    let mut hold = Some(pool.begin_hold().unwrap());
    let before = words(&pool);
    let child = || {
        drop(hold.take());
        i32::from(!matches!(pool.begin_hold(), Err(Error::Forked(_))))
    };
    assert_eq!(in_child(false, child), 0);
    assert!(words(&pool) == before, "the child wrote into its parent's pool");
    assert_eq!(pool.participants()[0].pinned_for_epochs, Some(0));
    drop(hold);
    assert_eq!(pool.participants()[0].pinned_for_epochs, None);
}

#[test]
fn a_forked_child_neither_closes_nor_uses_its_parents_pool() {
    let (_folder, path) = folder_and_pool();
    let pool = create::<Process>(&path, 4);
    drop(pool.pin().unwrap());
    let before = std::fs::read(&path).unwrap();
    let refused = |result| i32::from(!matches!(result, Err(Error::Forked(_))));
    let handle = Arc::clone(&pool);
    assert_eq!(in_child(true, || refused(pool.pin().map(drop))), 0);
    assert_eq!(in_child(false, || refused(pool.pin().map(drop))), 0);
    let in_another_thread = || {
        std::thread::scope(|scope| scope.spawn(|| refused(pool.pin().map(drop))).join().unwrap())
    };
    assert_eq!(in_child(false, in_another_thread), 0);
    drop(handle);
    let mut pool = Some(pool);
    assert_eq!(in_child(true, || refused(pool.take().unwrap().close())), 0);
    let dropped = in_child(true, || {
        drop(pool.take());
        0
    });
    assert_eq!(dropped, 0);
    assert!(std::fs::read(&path).unwrap() == before);
    let block = Superblock::decode(&path, &before[..SUPERBLOCK_BYTES]).unwrap();
    assert!(!block.clean);
    let pool = pool.unwrap();
    assert!(matches!(
        Pool::<Process>::open(&path, &Default::default()),
        Err(Error::AlreadyOpen(_))
    ));
    drop(pool);
    assert!(open::<Process>(&path).was_clean());
}

#[test]
fn a_forked_child_has_anonymous_memory_as_its_own() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    give(&pool, 0, 1000, 7);
    let status = in_child(true, || {
        free(&pool, 0);
        give(&pool, 1, 1000, 7);
        i32::from(named(&pool, 0) != 0)
    });
    assert_eq!(status, 0);
    assert_ne!(named(&pool, 0), 0);
    assert_eq!((named(&pool, 1), pool.participants_claimed()), (0, 1));
}

/// A thread forks in the middle of its work. Its copy in the child cannot continue the work.
#[test]
fn a_forked_child_reaches_no_byte_of_its_parents_pool() {
    let folder = folder();
    let pool = create::<Process>(&folder.path().join("pool"), 4);
    give(&pool, 0, 1000, 7);
    let guard = pool.pin().unwrap();
    let reserved = guard.reserve(1000).unwrap();
    let before = words(&pool);
    let mut reserved = Some(reserved);
    let status = in_child(false, || {
        drop(reserved.take());
        0
    });
    assert_eq!(status, -libc::SIGSEGV);
    drop(reserved);
    let mut guard = Some(guard);
    let status = in_child(false, || {
        drop(guard.take());
        0
    });
    assert_eq!(status, -libc::SIGSEGV);
    assert_eq!(pool.participants()[0].pinned_for_epochs, Some(0));
    assert_ne!(named(&pool, 0), 0);
    assert_eq!(before.len(), words(&pool).len());
}
