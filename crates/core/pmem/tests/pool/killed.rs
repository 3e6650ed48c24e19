//! A kill, an opening, an allocation, and then a power cut.
//!
//! After a kill, the caches keep a store that the thread has not written back. The next process
//! finds it, and allocates a block in a slab that the medium may not have. The power cut must not
//! take the block away.

use pando_pmem::Pool;
use pando_pmem::testing::{
    Arena, CutShort, Paused, kill_after, reach_medium, with_few_slots, written_back,
};

use crate::common::{active, free, give, holds, named};

type WithWriteBack = CutShort<true>;

const POOL_BYTES: u64 = 1 << 20;

/// Allocates a block in a new pool, and is killed before write `writes`. Returns the pool, the
/// medium, and whether the thread had finished.
fn killed(writes: u64, bytes: u64) -> (Arena, Arena, bool) {
    let arena = Arena::new(POOL_BYTES).unwrap();
    let pool = Pool::<WithWriteBack>::create_in(&arena).unwrap();
    let medium = Arena::new(POOL_BYTES).unwrap();
    medium.write(0, &arena.read(0, POOL_BYTES as usize));
    let finished =
        onto(&medium, &arena, || kill_after(writes, || give(&pool, 0, bytes, 0)).is_some());
    pool.abandon();
    (arena, medium, finished)
}

/// Runs `work` on the pool in `arena`. The lines that it writes back reach the medium.
fn onto<R>(medium: &Arena, arena: &Arena, work: impl FnOnce() -> R) -> R {
    let (result, lines) = written_back(work);
    reach_medium(medium, arena, &lines);
    result
}

#[test]
fn a_power_cut_after_a_kill_takes_no_block_away() {
    for bytes in [64, 3_000, 70_000] {
        for writes in 0.. {
            let (arena, medium, finished) = killed(writes, bytes);
            onto(&medium, &arena, || {
                let pool = Pool::<WithWriteBack>::open_in(&arena).unwrap();
                give(&pool, 1, bytes, 1);
                pool.abandon();
            });
            let label = format!("{bytes} bytes, killed at {writes}");
            let pool = Pool::<WithWriteBack>::open_in(&medium).unwrap();
            let mut owned = [named(&pool, 0), named(&pool, 1)];
            assert!(holds(&pool, owned[1], bytes, 1), "{label}: the content");
            owned.sort_unstable();
            let owned: Vec<u64> = owned.into_iter().filter(|&off| off != 0).collect();
            let found: Vec<u64> = active(&pool).iter().map(|block| block.off).collect();
            assert_eq!(found, owned, "{label}: allocated against named");
            if finished {
                break;
            }
        }
    }
}

/// The next process frees the block, and allocates it again, in another slot than the killed
/// thread's, which the medium may still have on record.
#[test]
fn a_power_cut_after_a_kill_brings_no_exchange_back() {
    let (mut writes, mut reused) = (0, 0);
    loop {
        let (arena, medium, finished) = killed(writes, 70_000);
        let opened = || Pool::<WithWriteBack>::open_in(&arena).unwrap();
        let pool = onto(&medium, &arena, opened);
        // So that the slot is taken.
        drop(pool.pin().unwrap());
        let before = named(&pool, 0);
        let again = || {
            if before != 0 {
                free(&pool, 0);
                pool.reclaim().unwrap();
            }
            [1, 2, 3, 4, 5].map(|index| give(&pool, index, 70_000, 1))
        };
        let in_another_slot = || onto(&medium, &arena, again);
        let offs = std::thread::scope(|scope| scope.spawn(in_another_slot).join().unwrap());
        reused += u64::from(offs.contains(&before));
        pool.abandon();
        let pool = Pool::<WithWriteBack>::open_in(&medium).unwrap();
        let mut found: Vec<u64> = active(&pool).iter().map(|block| block.off).collect();
        found.sort_by_key(|off| offs.iter().position(|given| given == off));
        assert_eq!(found, offs, "killed at {writes}");
        if finished {
            break;
        }
        writes += 1;
    }
    assert!(reused > 0, "no block was allocated again");
}

/// A thread stops while it prepares a slot, and another thread takes that slot, frees a block, and
/// is killed. Then the power is cut.
#[test]
fn a_slot_is_counted_durably_before_another_thread_writes_in_it() {
    let mut taken = 0;
    for writes in 0.. {
        let mut is_prepared = false;
        for killed_at in 0.. {
            let arena = Arena::new(POOL_BYTES).unwrap();
            let created = || Pool::<WithWriteBack>::create_in(&arena).unwrap();
            let pool = with_few_slots(2, created);
            give(&pool, 0, 1000, 0);
            let holder = pool.pin().unwrap();
            let medium = Arena::new(POOL_BYTES).unwrap();
            medium.write(0, &arena.read(0, POOL_BYTES as usize));
            let preparing = pool.clone();
            let paused = Paused::start(writes, move || drop(preparing.pin().unwrap()));
            is_prepared = paused.is_done();
            let freed = || kill_after(killed_at, || free(&pool, 0)).is_some();
            let in_another_slot = || onto(&medium, &arena, freed);
            let finished = std::thread::scope(|scope| scope.spawn(in_another_slot).join().unwrap());
            taken += u64::from(!is_prepared && pool.segment_spans().is_empty());
            let opened = || Pool::<WithWriteBack>::open_in(&medium).unwrap();
            let after = with_few_slots(2, opened);
            let named = Some(named(&after, 0)).filter(|&off| off != 0).into_iter();
            let reached: Vec<_> =
                named.chain(after.segment_spans().iter().map(|span| span.off)).collect();
            let found: Vec<u64> = active(&after).iter().map(|block| block.off).collect();
            let label = format!("stopped at {writes}, killed at {killed_at}");
            assert_eq!(found, reached, "{label}: allocated against reached");
            paused.resume();
            drop(holder);
            pool.abandon();
            if finished {
                break;
            }
        }
        if is_prepared {
            break;
        }
    }
    assert!(taken > 0, "no thread took a slot that was being prepared");
}
