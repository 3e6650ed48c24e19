//! A forked child has the handles of its parent's pool, and not the pool.

use pando::{Error, Pool};

use crate::shared;

#[test]
fn a_forked_child_is_refused_its_parents_pool() {
    let folder = tempfile::tempdir().unwrap();
    let pool = Pool::create(folder.path().join("pool"), &shared()).unwrap();
    let map = pool.map("map").unwrap();
    assert!(!pool.has_forked());
    // SAFETY: the child makes one call, which is refused, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = map.insert("ash", "1");
        let is_right = pool.has_forked() && matches!(refused, Err(Error::Forked { .. }));
        // SAFETY: ends the child, in which nothing is dropped.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: the pointer is to a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    assert!(!pool.has_forked());
    map.insert("ash", "1").unwrap();
}
