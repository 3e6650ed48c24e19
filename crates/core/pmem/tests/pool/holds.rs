//! Holds: pins that belong to no thread.

use pando_pmem::testing::CutShort;
use pando_pmem::{Error, Pool, Process};

use crate::common::{active, create, folder_and_pool, free, give, kill, open, options, shared};
use crate::epochs::comes_back;

#[test]
fn a_hold_keeps_blocks_from_reuse_until_any_thread_drops_it() {
    let pool = Pool::<Process>::anonymous(&options(64)).unwrap();
    let off = give(&pool, 0, 32_000, 1);
    let hold = pool.begin_hold().unwrap();
    let second = pool.begin_hold().unwrap();
    free(&pool, 0);
    assert!(!comes_back(&pool, off, 32_000, 300), "a block came back under a hold");
    // Each has a slot of its own, beside that of this thread.
    assert_eq!(pool.participants_claimed(), 3);
    std::thread::scope(|scope| {
        scope.spawn(move || drop(hold));
    });
    assert!(!comes_back(&pool, off, 32_000, 100), "the second one did not hold");
    drop(second);
    assert!(comes_back(&pool, off, 32_000, 500), "the block never came back");
    assert_eq!(pool.participants_claimed(), 1, "their slots are free");
    assert_eq!(active(&pool), []);
}

#[test]
fn a_hold_lets_its_thread_pin_anew() {
    let pool = Pool::<Process>::anonymous(&options(64)).unwrap();
    let hold = pool.begin_hold().unwrap();
    let slot = {
        let guard = pool.pin().unwrap();
        guard.note_damage(64);
        guard.slot()
    };
    // The thread is pinned in its own slot, so a new guard has no note of the former one.
    let guard = pool.pin().unwrap();
    assert_eq!((guard.slot(), guard.damage()), (slot, None));
    drop((guard, hold));
}

#[test]
fn many_holds_need_many_slots_and_give_them_back() {
    let pool = Pool::<Process>::anonymous(&options(64)).unwrap();
    for _ in 0..3 {
        let holds: Vec<_> = (0..500).map(|_| pool.begin_hold().unwrap()).collect();
        assert!(pool.participants_claimed() >= holds.len());
    }
    assert_eq!(pool.participants_claimed(), 0);
    assert!(pool.participants().len() <= 501, "{}", pool.participants().len());
}

#[test]
fn a_process_has_a_limited_number_of_holds() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 64));
    for (is_shared, most) in [(false, 1024), (true, 128)] {
        let pool = if is_shared { shared::<Process>(&path) } else { open::<Process>(&path) };
        let mut holds: Vec<_> = (0..most).map(|_| pool.begin_hold().unwrap()).collect();
        let refused = pool.begin_hold();
        assert!(matches!(refused, Err(Error::NoParticipantSlot { .. })), "{refused:?}");
        holds.pop();
        holds.push(pool.begin_hold().unwrap());
        // Threads still have slots.
        std::thread::scope(|scope| {
            scope.spawn(|| drop(pool.pin().unwrap()));
        });
    }
}

#[test]
fn a_hold_covers_the_bytes_of_its_pool_alone() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    let other = Pool::<Process>::anonymous(&options(1)).unwrap();
    let off = give(&pool, 0, 64, 1);
    let guard = pool.pin().unwrap();
    // SAFETY: the block is allocated, and no thread writes to it.
    let bytes = unsafe { pool.bytes(off, 64) };
    let (own, others) = (pool.begin_hold().unwrap(), other.begin_hold().unwrap());
    assert!(own.covers(bytes) && !others.covers(bytes));
    assert!(!own.covers(&[1; 64]) && !own.covers(&[]));
    drop(guard);
}

#[test]
fn the_epoch_rises_once_at_most_under_a_hold() {
    let pool = Pool::<CutShort<true>>::anonymous(&options(1)).unwrap();
    let advance = || pool.pin().unwrap().collect();
    let hold = pool.begin_hold().unwrap();
    let epoch = pool.epoch();
    (0..10).for_each(|_| advance());
    assert!(pool.epoch() <= epoch + 1);
    drop(hold);
    (0..10).for_each(|_| advance());
    assert!(pool.epoch() >= epoch + 5);
}

#[test]
fn a_hold_ends_with_its_process() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 64));
    let pool = shared::<Process>(&path);
    std::mem::forget(pool.begin_hold().unwrap());
    kill(pool);
    let pool = open::<Process>(&path);
    let off = give(&pool, 0, 32_000, 1);
    free(&pool, 0);
    assert!(comes_back(&pool, off, 32_000, 500));
}
