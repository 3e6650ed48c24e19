//! Reclamation: a block that a participant may still read is not reused, whether threads stall, end
//! or die.

use std::sync::{Arc, Barrier, mpsc};

use pando_pmem::testing::{CutShort, between, give_to, take_from};
use pando_pmem::{Pool, Process};

use crate::common::{active, create, folder_and_pool, free, give, open, options, root};

/// Frees and allocates until `off` is allocated again; false if that takes more than `rounds`.
pub fn comes_back(pool: &Pool<Process>, off: u64, bytes: u64, rounds: u64) -> bool {
    (0..rounds).any(|_| {
        let guard = pool.pin().unwrap();
        guard.collect();
        let block = guard.reserve(bytes).unwrap();
        let found = block.off() == off;
        give_to(&guard, root(50), block);
        assert!(take_from(&guard, root(50)));
        found
    })
}

#[test]
fn a_stalled_participant_keeps_blocks_from_reuse_and_shows_while_others_go_on() {
    let pool = Pool::<Process>::anonymous(&options(64)).unwrap();
    let off = give(&pool, 0, 32_000, 1);
    let (pinned, wait_pinned) = mpsc::channel();
    let (go_on, wait_go_on) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let pool = &pool;
        let stalled = scope.spawn(move || {
            let guard = pool.pin().unwrap();
            pinned.send(guard.slot()).unwrap();
            let _ = wait_go_on.recv();
        });
        let slot = wait_pinned.recv().unwrap();
        free(pool, 0);
        // Far more rounds than the reuse of the block would need; each block of these waits as
        // well.
        assert!(!comes_back(pool, off, 32_000, 500), "a block came back under a pinned reader");
        let shown = pool.participants();
        let shown = shown.iter().find(|found| found.slot == slot).unwrap();
        assert_eq!(shown.pinned_for_epochs, Some(1), "the epoch stands one ahead of it");
        assert!(pool.pin().unwrap().waiting() >= 500);
        drop(go_on);
        stalled.join().unwrap();
        assert!(comes_back(pool, off, 32_000, 500), "the block never came back");
        for _ in 0..100 {
            pool.pin().unwrap().collect();
        }
        assert_eq!(pool.pin().unwrap().waiting(), 0);
    });
    assert_eq!(active(&pool), []);
}

/// A lease has 16 bits of the epoch. A thread stalls between its load of the epoch and its
/// announcement, while the epoch rises so often that the announcement looks like one of the next
/// epoch. Then it pins while another thread raises the epoch.
#[test]
fn a_pin_that_comes_late_lets_the_epoch_rise_once_more_however_late_it_is() {
    /// Accesses of a pin before its announcement: the load of the epoch.
    const ANNOUNCEMENT: u64 = 1;
    let pool = Pool::<CutShort<true>>::anonymous(&options(1)).unwrap();
    let advance = || pool.pin().unwrap().collect();
    drop(pool.pin().unwrap());
    for access in 0.. {
        let (stops, wait_stops) = mpsc::channel();
        let (goes_on, wait_goes_on) = mpsc::channel::<()>();
        let (pins, wait_pins) = mpsc::channel();
        let (ends, wait_ends) = mpsc::channel::<()>();
        let risen = std::thread::scope(|scope| {
            let (pool, ends) = (&pool, ends);
            scope.spawn(move || {
                drop(pool.pin().unwrap());
                let stop = move || {
                    stops.send(()).unwrap();
                    let _ = wait_goes_on.recv();
                };
                between(ANNOUNCEMENT, stop, || {
                    let guard = pool.pin().unwrap();
                    let _ = pins.send(pool.epoch());
                    let _ = wait_ends.recv();
                    drop(guard);
                });
            });
            wait_stops.recv().unwrap();
            (0..u16::MAX).for_each(|_| advance());
            let (pinned, wait_pinned) = mpsc::channel();
            let meanwhile = move || {
                drop(goes_on);
                pinned.send(wait_pins.recv().unwrap()).unwrap();
            };
            between(access, meanwhile, advance);
            (0..4).for_each(|_| advance());
            let risen = wait_pinned.recv().ok().map(|epoch| pool.epoch() - epoch);
            drop(ends);
            risen
        });
        // An advance has fewer accesses.
        let Some(risen) = risen else {
            assert!(access >= 8, "{access}");
            return;
        };
        assert!(
            risen <= 1,
            "the epoch rose by {risen} while a thread was pinned, at access {access}"
        );
    }
}

#[test]
fn a_nested_guard_does_not_unpin() {
    let pool = Pool::<Process>::anonymous(&options(64)).unwrap();
    let off = give(&pool, 0, 32_000, 1);
    let outer = pool.pin().unwrap();
    drop(pool.pin().unwrap());
    std::thread::scope(|scope| {
        let freed = scope.spawn(|| {
            free(&pool, 0);
            comes_back(&pool, off, 32_000, 200)
        });
        assert!(!freed.join().unwrap(), "the outer guard did not hold");
    });
    drop(outer);
    let shown = pool.participants();
    assert!(shown.iter().all(|found| found.pinned_for_epochs.is_none()), "{shown:?}");
}

#[test]
fn threads_that_end_give_their_slots_and_their_blocks_back() {
    // A sixth of the bytes that the threads allocate together.
    let pool = Pool::<Process>::anonymous(&options(16)).unwrap();
    for round in 0..400 {
        std::thread::scope(|scope| {
            let ends = scope.spawn(|| {
                for _ in 0..10 {
                    give(&pool, 0, 30_000, round as u8);
                    free(&pool, 0);
                }
            });
            // Returns when the thread has ended, and its slot is free.
            ends.join().unwrap();
        });
    }
    assert_eq!(pool.participants_claimed(), 0);
    assert_eq!(pool.participants().len(), 1, "one slot served all");
}

/// A leaked guard protects blocks forever.
#[test]
fn a_thread_that_ends_with_a_leaked_guard_stays_pinned() {
    let pool = Pool::<Process>::anonymous(&options(64)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| std::mem::forget(pool.pin().unwrap())).join().unwrap();
    });
    let off = give(&pool, 0, 32_000, 1);
    free(&pool, 0);
    assert!(!comes_back(&pool, off, 32_000, 200));
    assert_eq!(
        (pool.participants_claimed(), pool.participants()[0].pinned_for_epochs),
        (2, Some(1))
    );
}

#[test]
fn two_pools_in_one_process_keep_their_epochs_apart() {
    let stalled = Pool::<Process>::anonymous(&options(64)).unwrap();
    let moving = Pool::<Process>::anonymous(&options(64)).unwrap();
    let held = stalled.pin().unwrap();
    let off = give(&moving, 0, 32_000, 1);
    free(&moving, 0);
    assert!(comes_back(&moving, off, 32_000, 200), "another pool's guard held the block");
    let off = give(&stalled, 0, 32_000, 1);
    free(&stalled, 0);
    assert!(!comes_back(&stalled, off, 32_000, 200));
    drop(held);
    assert!(comes_back(&stalled, off, 32_000, 200));
}

#[test]
fn a_thread_outlives_its_pools() {
    for _ in 0..300 {
        let pools: Vec<_> =
            (0..4).map(|_| Pool::<Process>::anonymous(&options(1)).unwrap()).collect();
        for pool in pools.iter().chain(&pools) {
            give(pool, 0, 64, 1);
            free(pool, 0);
            assert_eq!(pool.participants_claimed(), 1);
        }
    }
}

/// Threads die while they are pinned (an image of the pool is taken meanwhile). After that, no
/// thread has their slots.
#[test]
fn a_participant_that_died_pinned_does_not_hold_back_reclamation() {
    let (folder, path) = folder_and_pool();
    let image = folder.path().join("image");
    let pool = create::<Process>(&path, 64);
    let others = 3;
    let all_pinned = Barrier::new(others + 1);
    std::thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|| {
                let _guard = pool.pin().unwrap();
                all_pinned.wait();
                all_pinned.wait();
            });
        }
        all_pinned.wait();
        std::fs::copy(&path, &image).unwrap();
        all_pinned.wait();
    });
    let pool = open::<Process>(&image);
    give(&pool, 0, 32_000, 1);
    free(&pool, 0);
    for _ in 0..10 {
        pool.pin().unwrap().collect();
    }
    assert_eq!(pool.pin().unwrap().waiting(), 0, "the dead hold the epoch");
}

/// The thread that frees blocks ends at once. Another thread collects its blocks.
#[test]
fn blocks_that_wait_with_an_ended_thread_are_not_lost() {
    let pool: Arc<Pool<Process>> = Pool::anonymous(&options(64)).unwrap();
    let off = give(&pool, 0, 32_000, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| free(&pool, 0)).join().unwrap();
    });
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            for _ in 0..10 {
                pool.pin().unwrap().collect();
            }
            pool.pin().unwrap().waiting()
        });
        assert_eq!(next.join().unwrap(), 0);
    });
    assert!(comes_back(&pool, off, 32_000, 10));
}

/// The thread that frees blocks stays alive, and does not use the pool any more.
#[test]
fn blocks_that_an_idle_thread_freed_serve_others() {
    let pool = Pool::<Process>::anonymous(&options(16)).unwrap();
    let (large, small) = (10 << 20, 30_000);
    let (freed, idle) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let (pool, freed, idle) = (&pool, &freed, &idle);
        scope.spawn(move || {
            give(pool, 0, large, 1);
            free(pool, 0);
            (1..9).for_each(|index| {
                give(pool, index, small, 1);
            });
            (1..9).for_each(|index| free(pool, index));
            freed.wait();
            idle.wait();
        });
        freed.wait();
        // The second call is for the slabs that dissolved in the first.
        (0..2).for_each(|_| pool.reclaim().unwrap());
        let guard = pool.pin().unwrap();
        let (waiting, serves) = (guard.waiting(), guard.reserve(large).is_ok());
        idle.wait();
        assert_eq!((waiting, serves), (0, true));
    });
}

/// Whether a thread is pinned.
fn is_pinned(pool: &Pool<Process>) -> bool {
    pool.participants().iter().any(|participant| participant.pinned_for_epochs.is_some())
}

#[test]
fn a_pin_for_a_read_lasts_as_long_as_its_guards() {
    let pool = Pool::<Process>::anonymous(&options(16)).unwrap();
    assert!(pool.pin_for_read().is_none(), "the thread has no slot");
    let guard = pool.pin().unwrap();
    assert!(pool.pin_for_read().is_none(), "it is pinned");
    drop(guard);
    assert!(!is_pinned(&pool));
    let pin = pool.pin_for_read().expect("a slot");
    assert!(is_pinned(&pool) && pool.pin_for_read().is_none());
    let guard = pool.pin().unwrap();
    drop(pin);
    assert!(is_pinned(&pool), "the guard is left");
    drop(guard);
    assert!(!is_pinned(&pool));
    let guard = pool.pin_for_read().expect("a slot").into_guard();
    assert!(is_pinned(&pool));
    drop(guard);
    assert!(!is_pinned(&pool));
}

#[test]
fn a_guard_of_a_pin_for_a_read_begins_without_a_note() {
    let pool = Pool::<Process>::anonymous(&options(16)).unwrap();
    drop(pool.pin().unwrap());
    let pin = pool.pin_for_read().expect("a slot");
    let _ = pool.word(1 << 50);
    let guard = pin.into_guard();
    assert_eq!(guard.damage(), None);
    guard.note_damage(128);
    assert_eq!(guard.damage(), Some(128));
}
