//! Lost blocks of dead processes come back, and no block of a live process is taken for a lost one.
//! As in `processes.rs`, a handle stands for a process.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_pmem::layout::CENSUS_OFF;
use pando_pmem::testing::{CutShort, between, run_until_stopped, take_from};
use pando_pmem::{Domain, Pool, Process};

use crate::common::{create, folder_and_pool, free, give, holds, kill, random, room, root, shared};

type Tested = CutShort<false>;

/// Recovers dead processes, and takes censuses, with the help of the other processes, until none is
/// due. Returns how many lost blocks there were.
fn find_lost<D: Domain>(pools: &[&Pool<D>]) -> u64 {
    pools[0].recover_dead(|_, _| {}).unwrap();
    let step = |pool: &&Pool<D>| {
        pool.reclaim().unwrap();
        pool.step_census().unwrap()
    };
    (0..40).map(|_| pools.iter().map(step).sum::<u64>()).sum()
}

/// A process with reserved blocks of many lengths, which dies.
fn dies_with_blocks(path: &Path, retires: bool) {
    let pool = shared::<Tested>(path);
    let dies = pool.clone();
    let is_done = run_until_stopped(u64::MAX, move || {
        let guard = dies.pin().unwrap();
        let lengths = [64, 100, 700, 5000, 9000, 70_000, 400_000];
        for (index, bytes) in (40..).zip(lengths) {
            give(&dies, index, bytes, 3);
            if retires {
                assert!(take_from(&guard, root(index)));
            }
            std::mem::forget(guard.reserve(bytes).unwrap());
        }
        // So it stays pinned.
        std::mem::forget(guard);
    });
    assert!(is_done);
    kill(pool);
}

#[test]
fn lost_blocks_of_dead_processes_come_back() {
    let (_folder, path) = folder_and_pool();
    let alone = create::<Tested>(&path, 16);
    let most = room(&alone, 9000);
    drop(alone);
    let live = shared::<Tested>(&path);
    let other = shared::<Tested>(&path);
    let mut lost = 0;
    for retires in [false, true, false] {
        dies_with_blocks(&path, retires);
        lost = find_lost(&[&live, &other]);
        assert!(lost > 7, "{lost}");
        if !retires {
            (40..47).for_each(|index| free(&live, index));
        }
        // Nothing is left for another census.
        assert_eq!(find_lost(&[&live, &other]), 0);
    }
    (0..8).for_each(|_| live.reclaim().unwrap());
    assert_eq!(live.usage().unwrap().active_blocks, 0);
    assert_eq!(live.usage().unwrap().claimed_chunks, 0);
    assert_eq!(room(&live, 9000), most, "after {lost} blocks came back");
}

/// A live process that does not answer: its blocks may look like lost ones.
#[test]
fn a_census_waits_for_each_live_process() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Tested>(&path, 16));
    let live = shared::<Tested>(&path);
    let other = shared::<Tested>(&path);
    dies_with_blocks(&path, true);
    assert_eq!(find_lost(&[&live]), 0, "the other process did not answer");
    let lost = find_lost(&[&live, &other]);
    assert!(lost > 7);
}

/// A thread that is pinned keeps what it has reserved, however many censuses are taken.
#[test]
fn a_reservation_of_a_pinned_thread_is_not_lost() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Tested>(&path, 1));
    let live = shared::<Tested>(&path);
    let other = shared::<Tested>(&path);
    let guard = other.pin().unwrap();
    let kept = guard.reserve(1000).unwrap();
    let mut lost = 0;
    for _ in 0..3 {
        dies_with_blocks_of(&path, 1000);
        std::thread::scope(|scope| {
            // The thread that answers for the other process.
            lost += scope.spawn(|| find_lost(&[&live, &other])).join().unwrap();
        });
    }
    let live_guard = live.pin().unwrap();
    while let Ok(block) = live_guard.reserve(1000) {
        assert_ne!(block.off(), kept.off());
        std::mem::forget(block);
    }
    drop(kept);
    drop((guard, live_guard));
    let late = find_lost(&[&live, &other]);
    assert_eq!((lost, late >= 15), (0, true), "{late}");
}

/// While one process takes a census, another one gives back, retires or takes a block, before each
/// access of the first. No block has two owners then.
#[test]
fn a_block_that_another_process_changes_during_a_census_is_not_lost() {
    let (_folder, path) = folder_and_pool();
    for access in 0.. {
        drop(create::<Tested>(&path, 1));
        let live = shared::<Tested>(&path);
        let other = shared::<Tested>(&path);
        // Blocks of one length, some of them of the dead process.
        for index in 0..20 {
            give(&other, index, 1000, 1);
        }
        dies_with_blocks_of(&path, 1000);
        live.recover_dead(|_, _| {}).unwrap();
        let changes = other.clone();
        let change = move || {
            free(&changes, 3);
            give(&changes, 30, 1000, 1);
            std::mem::forget(changes.pin().unwrap().reserve(1000).unwrap());
        };
        let has_run = between(access, change, || {
            for _ in 0..12 {
                live.step_census().unwrap();
                let _ = other.step_census();
            }
        });
        // What each process gets now, and the blocks that it had.
        let all = |pool: &Pool<Tested>| -> BTreeSet<u64> {
            let guard = pool.pin().unwrap();
            let reserve = || {
                let block = guard.reserve(1000).ok()?;
                let off = block.off();
                std::mem::forget(block);
                Some(off)
            };
            std::iter::from_fn(reserve).collect()
        };
        let first = all(&live);
        (0..6).for_each(|_| other.reclaim().unwrap());
        let second = all(&other);
        let twice: Vec<_> = first.intersection(&second).collect();
        assert!(twice.is_empty(), "before access {access}: {twice:x?}");
        for index in (0..20).filter(|&index| index != 3).chain(has_run.then_some(30)) {
            let off = live.word(root(index)).load(Ordering::Acquire);
            assert!(!first.contains(&off) && !second.contains(&off), "before access {access}");
        }
        drop((live, other));
        std::fs::remove_file(&path).unwrap();
        if !has_run {
            assert!(access > 100, "{access}");
            return;
        }
    }
}

/// The mirror of the last test: a census begins between two accesses of a thread that gives a block
/// back. The block waits for its epoch in the process of that thread, and is not lost.
#[test]
fn a_block_that_waits_for_its_epoch_across_the_beginning_of_a_census_is_not_lost() {
    for access in 0.. {
        let (_folder, path) = folder_and_pool();
        drop(create::<Tested>(&path, 1));
        let live = shared::<Tested>(&path);
        let other = shared::<Tested>(&path);
        let off = give(&other, 0, 1000, 1);
        // Others around it, so that the slab stays.
        for index in 1..4 {
            give(&other, index, 1000, 1);
        }
        dies_with_blocks_of(&path, 1000);
        live.recover_dead(|_, _| {}).unwrap();
        let begins = live.clone();
        let begin = move || {
            begins.step_census().unwrap();
        };
        let has_run = between(access, begin, || free(&other, 0));
        // The other process answers, and does not collect.
        for _ in 0..12 {
            live.step_census().unwrap();
            other.step_census().unwrap();
        }
        let guard = live.pin().unwrap();
        while let Ok(block) = guard.reserve(1000) {
            // It has two owners otherwise: this one, and the list of the other process.
            assert!(block.off() != off || other.pin().unwrap().waiting() == 0, "access {access}");
            std::mem::forget(block);
        }
        if !has_run {
            assert!(access > 10, "{access}");
            return;
        }
    }
}

/// Processes die while they take a census. The next one goes on with it.
#[test]
fn a_census_that_a_dead_process_has_begun_is_continued() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Tested>(&path, 1));
    let live = shared::<Tested>(&path);
    let other = shared::<Tested>(&path);
    let off = give(&other, 0, 1000, 1);
    for death in 0..9 {
        dies_with_blocks_of(&path, 1000);
        let takes = shared::<Tested>(&path);
        takes.recover_dead(|_, _| {}).unwrap();
        // The other process does not answer yet.
        (0..6).for_each(|_| assert_eq!(takes.step_census().unwrap(), 0));
        if death == 0 {
            free(&other, 0);
        }
        kill(takes);
    }
    live.recover_dead(|_, _| {}).unwrap();
    for _ in 0..12 {
        live.step_census().unwrap();
        // It does not collect.
        other.step_census().unwrap();
    }
    let guard = live.pin().unwrap();
    while let Ok(block) = guard.reserve(1000) {
        assert!(block.off() != off || other.pin().unwrap().waiting() == 0);
        std::mem::forget(block);
    }
    drop(guard);
    assert!(find_lost(&[&live, &other]) >= 9 * 5);
}

fn dies_with_blocks_of(path: &Path, bytes: u64) {
    let pool = shared::<Tested>(path);
    let guard = pool.pin().unwrap();
    (0..5).for_each(|_| std::mem::forget(guard.reserve(bytes).unwrap()));
    drop(guard);
    kill(pool);
}

/// Processes allocate, fill, check and free blocks, others die with blocks, and all take censuses.
#[test]
fn no_block_has_two_owners_while_processes_die() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Process>(&path, 256));
    let pools: Vec<_> = (0..3).map(|_| shared::<Process>(&path)).collect();
    let is_enough = AtomicBool::new(false);
    let lost = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6_u64)
            .map(|worker| {
                let (pool, is_enough) = (&pools[worker as usize % 3], &is_enough);
                scope.spawn(move || {
                    let mut random = random(worker);
                    let mut given = [None; 20];
                    while !is_enough.load(Ordering::Relaxed) {
                        let at = random.below(20);
                        let index = worker * 20 + at;
                        let place = &mut given[at as usize];
                        match place.take() {
                            Some((off, bytes)) => {
                                assert!(holds(pool, off, bytes, worker as u8 + 1));
                                free(pool, index);
                            }
                            None => {
                                let bytes = 64 + random.below(2000);
                                let off = give(pool, index, bytes, worker as u8 + 1);
                                *place = Some((off, bytes));
                            }
                        }
                    }
                })
            })
            .collect();
        let mut lost = 0;
        for death in 0..60 {
            let dies = shared::<Process>(&path);
            let guard = dies.pin().unwrap();
            for bytes in [64, 300, 2000, 9000, 70_000] {
                std::mem::forget(guard.reserve(bytes).unwrap());
            }
            give(&dies, 200 + death, 500, 99);
            assert!(take_from(&guard, root(200 + death)));
            std::mem::forget(guard);
            kill(dies);
            for pool in &pools {
                pool.recover_dead(|_, _| {}).unwrap();
                lost += pool.step_census().unwrap();
            }
        }
        is_enough.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        lost
    });
    let [one, two, three] = &pools[..] else { unreachable!() };
    println!("{} chunks were used", pools[0].usage().unwrap().chunks);
    let lost = lost + find_lost(&[&**one, &**two, &**three]);
    assert!(lost >= 60 * 6, "{lost}");
    assert_eq!(find_lost(&[&**two, &**one, &**three]), 0);
}

/// A census that `taker` takes, and `other` answers; how many lost blocks it found. Between its
/// beginning and its end, `meanwhile` runs.
fn census_by(taker: &Pool<Tested>, other: &Pool<Tested>, meanwhile: impl FnOnce()) -> u64 {
    taker.step_census().unwrap();
    meanwhile();
    loop {
        [taker, other].iter().for_each(|pool| pool.reclaim().unwrap());
        let freed = taker.step_census().unwrap();
        let is_done = taker.word(CENSUS_OFF).load(Ordering::Acquire) & 3 == 2;
        if is_done {
            return freed;
        }
        other.step_census().unwrap();
    }
}

/// Several censuses must find nothing after a death, and those after an earlier death do not count.
#[test]
fn fruitless_censuses_count_for_the_deaths_before_them() {
    let (_folder, path) = folder_and_pool();
    drop(create::<Tested>(&path, 16));
    let (one, other) = (shared::<Tested>(&path), shared::<Tested>(&path));
    let dies = || {
        let pool = shared::<Tested>(&path);
        let guard = pool.pin().unwrap();
        give(&pool, 40, 64, 3);
        std::mem::forget(guard.reserve(64).unwrap());
        std::mem::forget(guard);
        kill(pool);
        one.recover_dead(|_, _| {}).unwrap();
    };
    dies();
    let found = [&one, &one, &one, &other, &other, &other].map(|taker| {
        let answers = if std::ptr::eq(taker, &one) { &other } else { &one };
        census_by(taker, answers, || ())
    });
    assert_eq!(found, [1, 0, 0, 0, 0, 0]);
    assert_eq!(one.step_census().unwrap(), 0, "none is due");
    free(&one, 40);

    dies();
    // The word of the lost block is stamped meanwhile, so this census does not find the block.
    assert_eq!(census_by(&one, &other, || free(&one, 40)), 0);
    assert_eq!(find_lost(&[&one, &other]), 1);
}
