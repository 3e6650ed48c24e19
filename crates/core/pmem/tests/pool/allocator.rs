//! The three stages of the allocator, one at a time: the owner of a block, and refusals.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use pando_pmem::layout::{PARTICIPANT_BYTES, PARTICIPANTS_OFF};
use pando_pmem::testing::{CutShort, between, give_to, take_from};
use pando_pmem::{BLOCK_ALIGN, Error, Pool, Process};

use crate::common::{
    active, create, folder_and_pool, free, give, holds, named, open, options, room, root,
    while_paused,
};

const SIZES: [u64; 8] = [1, 64, 65, 1000, 4096, 32_512, 32_513, 200_000];

#[test]
fn a_dropped_reservation_is_free_again() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    for bytes in SIZES {
        let before = room(&pool, bytes);
        assert!(before > 0, "{bytes} bytes");
        for _ in 0..3 * before {
            let guard = pool.pin().unwrap();
            let block = guard.reserve(bytes).unwrap();
            assert!(block.bytes() >= bytes && block.off().is_multiple_of(BLOCK_ALIGN));
        }
        assert_eq!(room(&pool, bytes), before, "{bytes} bytes");
        assert_eq!(active(&pool), []);
    }
}

#[test]
fn an_activated_block_belongs_to_its_word_and_a_freed_one_to_nobody() {
    let (_folder, path) = folder_and_pool();
    for bytes in SIZES {
        let pool = create::<Process>(&path, 1);
        let off = give(&pool, 3, bytes, 9);
        assert_eq!(named(&pool, 3), off);
        assert_eq!(active(&pool).len(), 1);
        assert!(pool.active_block(off).unwrap() >= bytes);
        pool.abandon();
        let pool = open::<Process>(&path);
        assert_eq!(named(&pool, 3), off);
        assert!(holds(&pool, off, bytes, 9), "{bytes} bytes");
        let before = room(&pool, bytes);
        free(&pool, 3);
        assert_eq!((named(&pool, 3), pool.active_block(off)), (0, None));
        assert_eq!(room(&pool, bytes), before + 1, "{bytes} bytes");
        drop(pool);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn reserved_and_waiting_blocks_are_free_after_a_crash() {
    let (folder, path) = folder_and_pool();
    for bytes in [1, 64, 4096, 32_512, 32_513, 150_000] {
        let pool = create::<Process>(&path, 1);
        let most = room(&pool, bytes);
        give(&pool, 0, bytes, 1);
        give(&pool, 1, bytes, 1);
        // At the crash, one block is reserved and one is in limbo.
        let guard = pool.pin().unwrap();
        let _reserved = guard.reserve(bytes).unwrap();
        assert!(take_from(&guard, root(0)));
        let image = folder.path().join("image");
        std::fs::copy(&path, &image).unwrap();
        let after = open::<Process>(&image);
        assert_eq!(active(&after).len(), 1);
        assert_eq!(room(&after, bytes), most - 1, "{bytes} bytes");
        std::fs::remove_file(&image).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn freeing_what_is_not_allocated_is_refused_and_changes_nothing() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    let small = give(&pool, 0, 1000, 1);
    let large = give(&pool, 1, 200_000, 2);
    let freed = give(&pool, 2, 1000, 3);
    let freed_large = give(&pool, 3, 100_000, 3);
    free(&pool, 2);
    free(&pool, 3);
    let chunk = pool.geometry().chunk_off(0);
    let wrong = [
        freed,
        freed_large,
        small + 8,
        small + 64,
        small + 1024 * 40,
        large + 64,
        large + 65_536,
        chunk,
        chunk + 448,
        pool.geometry().chunk_off(9),
        pool.geometry().chunk_off(1000),
        64,
        8192,
        1 << 47,
        u64::MAX,
        0,
    ];
    let before = active(&pool);
    for off in wrong {
        let error = pool.deactivate(off).unwrap_err();
        assert!(matches!(error, Error::BadFree { off: found, .. } if found == off), "{error}");
        assert_eq!(active(&pool), before, "{off:#x}");
    }
    let reserved = pool.pin().unwrap();
    let block = reserved.reserve(1000).unwrap();
    assert!(pool.deactivate(block.off()).is_err(), "a reservation was freed as a block");
    assert!(holds(&pool, small, 1000, 1) && holds(&pool, large, 200_000, 2));
}

/// Another thread frees the block too, before each access of the first thread in turn.
#[test]
fn of_two_threads_that_free_one_block_exactly_one_succeeds() {
    for bytes in [100, 30_000, 65_536, 200_000] {
        for access in 0.. {
            let pool = Pool::<CutShort<true>>::anonymous(&options(1)).unwrap();
            let off = give(&pool, 0, bytes, 1);
            let (other, (sender, receiver)) = (Arc::clone(&pool), channel());
            let meanwhile = move || sender.send(other.deactivate(off).is_ok()).unwrap();
            let mut first = false;
            let came = between(access, meanwhile, || first = pool.deactivate(off).is_ok());
            if !came {
                assert!(first && access > 1);
                break;
            }
            let second = receiver.recv().unwrap();
            assert!(first != second, "{bytes} bytes, access {access}: {first}, {second}");
            assert_eq!(active(&pool), []);
        }
    }
}

/// A crash interrupts a reservation of three chunks, and the chunks belong to other blocks by now.
#[test]
fn freeing_a_span_of_a_former_life_is_refused() {
    let (folder, path) = folder_and_pool();
    let pool = create::<Process>(&path, 1);
    let guard = pool.pin().unwrap();
    let span = guard.reserve(3 * 65_536).unwrap();
    let stale = span.off();
    let image = folder.path().join("image");
    std::fs::copy(&path, &image).unwrap();

    let pool = open::<Process>(&image);
    for index in 0..40 {
        give(&pool, index, 30_000, index as u8);
        if active(&pool).iter().any(|block| block.off > stale + 65_536) {
            break;
        }
    }
    let before = active(&pool);
    for off in [stale, stale + 65_536] {
        assert!(pool.deactivate(off).is_err(), "{off:#x} was freed");
    }
    assert_eq!(active(&pool), before);
}

#[test]
fn an_empty_slab_dissolves_and_serves_spans_and_other_sizes() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    for round in 0..5 {
        for bytes in [64, 700, 4096, 16_000, 32_000] {
            let count = room(&pool, bytes).min(1000) as u64;
            for index in 0..count {
                give(&pool, index, bytes, index as u8);
            }
            for index in 0..count {
                assert!(holds(&pool, named(&pool, index), bytes, index as u8));
                free(&pool, index);
            }
            assert!(room(&pool, 4 * 65_536) >= 1, "round {round}: no span after {bytes} bytes");
        }
    }
    assert_eq!(active(&pool), []);
}

#[test]
fn a_span_of_many_chunks_fits_where_slabs_were() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    for index in 0..20 {
        give(&pool, index, 32_000, 1);
    }
    for index in 0..20 {
        free(&pool, index);
    }
    // At most one slab stays this thread's current slab: the first or the last.
    let longest = (1..=10).rev().find(|&chunks| room(&pool, chunks * 65_536) > 0).unwrap();
    assert!(longest >= 9, "{longest} chunks");
}

/// Idle threads have claimed empty slabs of several sizes.
#[test]
fn what_idle_threads_keep_for_other_sizes_serves_a_span() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    let (ready, wait_ready) = channel();
    std::thread::scope(|scope| {
        let mut ends = Vec::new();
        for thread in 0..3_u64 {
            let ((end, wait_end), ready, pool) = (channel::<()>(), ready.clone(), &pool);
            ends.push(end);
            scope.spawn(move || {
                for (index, bytes) in [64, 700 + 400 * thread, 4096].into_iter().enumerate() {
                    give(pool, thread * 3 + index as u64, bytes, 1);
                    free(pool, thread * 3 + index as u64);
                }
                // Its freed blocks are reused; its slabs are empty, and it keeps them.
                while pool.pin().unwrap().waiting() > 0 {
                    pool.pin().unwrap().collect();
                }
                ready.send(()).unwrap();
                let _ = wait_end.recv();
                // It continues with slabs that it no longer has.
                for index in 0..3 {
                    let index = thread * 3 + index;
                    give(pool, index, 4096, index as u8);
                }
            });
            wait_ready.recv().unwrap();
        }
        assert!(pool.usage().unwrap().slab_chunks >= 8);
        let longest = (1..=10).rev().find(|&chunks| room(&pool, chunks * 65_536) > 0).unwrap();
        assert_eq!(longest, 10, "chunks in one piece");
        drop(ends);
    });
    for index in 0..9 {
        assert!(holds(&pool, named(&pool, index), 4096, index as u8));
    }
    assert_eq!(active(&pool).len(), 9);
}

#[test]
fn a_shortage_does_not_search_the_whole_table_again_and_again() {
    use pando_pmem::counting::{Counting, measure};
    let (_folder, path) = folder_and_pool();
    let pool = create::<Counting>(&path, 256);
    for index in 0..500 {
        give(&pool, index, 65_536, 1);
    }
    drop(pool);
    let pool = open::<Counting>(&path);
    // One free chunk that is counted twice: by the thread that frees it, and by the survey of the
    // chunks of earlier generations.
    free(&pool, 3);
    for _ in 0..8 {
        pool.pin().unwrap().collect();
    }
    for index in 500..800 {
        give(&pool, index, 32_000, 1);
    }
    let (_, counts) = measure(|| {
        for index in 800..810 {
            give(&pool, index, 32_000, 1);
        }
    });
    assert!(counts.lines_read < 60, "{counts:?}: each new slab searched the chunk table");
}

/// Every eighth chunk is free, so none of these spans fits below the frontier.
#[test]
fn a_search_for_a_span_looks_at_a_part_of_the_table_that_does_not_grow_with_the_pool() {
    use pando_pmem::counting::{Counting, measure};
    const COUNT: u64 = 16_000;
    let pool = Pool::<Counting>::anonymous(&options(2048)).unwrap();
    let guard = pool.pin().unwrap();
    // The words that name the blocks lie in a block.
    let mut names = guard.reserve(COUNT * 8).unwrap();
    names.zero(0, COUNT * 8);
    let name = |index: u64, base: u64| base + index * 8;
    let base = names.off();
    give_to(&guard, root(0), names);
    for index in 0..COUNT {
        give_to(&guard, name(index, base), guard.reserve(65_536).unwrap());
    }
    (0..COUNT).step_by(8).for_each(|index| assert!(take_from(&guard, name(index, base))));
    drop(guard);
    (0..100).for_each(|_| pool.reclaim().unwrap());
    let table_lines = COUNT * 8 / 64;
    // All words are read once, for free chunks of earlier generations.
    (0..40).for_each(|_| drop(pool.pin().unwrap().reserve(2 * 65_536).unwrap()));
    for chunks in [2, 10, 16, 40] {
        let most = (0..20).map(|_| {
            let (_, counts) =
                measure(|| pool.pin().unwrap().reserve(chunks * 65_536).unwrap().off());
            counts.lines_read
        });
        let most = most.max().unwrap();
        // At most 128 words of the table, or 8 for each chunk, and the other words that a
        // reservation reads.
        assert!(most < 8 * chunks.max(16) + 32, "{chunks} chunks: {most} of {table_lines} lines");
    }
}

/// A slab is on the list of its size when it dissolves. Its chunk then serves another size, and all
/// of its room is found there.
#[test]
fn a_chunk_that_changes_its_size_is_listed_under_the_new_one() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    for index in 0..20 {
        give(&pool, index, 32_000, 1);
    }
    let chunk = pool.geometry().chunk_off(0);
    let in_it: Vec<u64> = (0..20).filter(|&index| named(&pool, index) < chunk + 65_536).collect();
    in_it.iter().for_each(|&index| free(&pool, index));
    for index in 30..34 {
        let given = (0..8).any(|_| {
            let guard = pool.pin().unwrap();
            guard.reserve(16_000).is_ok_and(|block| {
                give_to(&guard, root(index), block);
                true
            })
        });
        assert!(given, "block {index} of the new size");
    }
    assert_eq!(room(&pool, 16_000), 0);
    free(&pool, 31);
    assert_eq!(room(&pool, 16_000), 1, "the room is not found");
}

/// Two words name one block, by a bug of an index, and both are freed at once.
#[test]
fn a_free_that_another_was_faster_with_leaves_nothing_behind() {
    let pool = Pool::<CutShort>::anonymous(&options(1)).unwrap();
    let off = give(&pool, 0, 1000, 1);
    pool.word(root(1)).store(off, Ordering::Release);
    let frees = |pause: Box<dyn FnOnce(u64)>| {
        let guard = pool.pin().unwrap();
        // After the five words of the log.
        pause(5);
        (guard.slot() as u64, take_from(&guard, root(1)))
    };
    let ((slot, freed), ()) = while_paused(frees, || free(&pool, 0));
    assert!(!freed);
    assert_eq!((named(&pool, 0), named(&pool, 1)), (0, 0));
    let log = pool.word(PARTICIPANTS_OFF + slot * PARTICIPANT_BYTES + 64);
    assert_eq!(log.load(Ordering::Acquire), 0, "a log that names a block that may be reused");
}
