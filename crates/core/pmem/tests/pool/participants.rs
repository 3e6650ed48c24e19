//! Slots of the table of participants: a thread has a slot while it is inside an operation, and the
//! table grows.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::testing::{
    CutShort, LogicalThread, Paused, between, count_writes, kill_after, with_few_slots,
};
use pando_pmem::{Domain, Error, Guard, Pool, Process};

use crate::common::{active, create, folder, free, give, open, options, room};

/// Pins as another logical thread, which becomes `thread`.
fn pin_as<'pool, D: Domain>(
    thread: &LogicalThread,
    pool: &'pool Pool<D>,
) -> Result<Guard<'pool, D>, Error> {
    thread.swap();
    let pinned = pool.pin();
    thread.swap();
    pinned
}

fn threads(count: usize) -> Vec<LogicalThread> {
    (0..count).map(|_| LogicalThread::default()).collect()
}

/// Guards of threads that each hold one, until no thread can pin any more.
fn pin_all<'pool, D: Domain>(
    pool: &'pool Pool<D>,
    threads: &[LogicalThread],
) -> (Vec<Guard<'pool, D>>, Option<Error>) {
    let mut guards = Vec::new();
    for thread in threads {
        match pin_as(thread, pool) {
            Ok(guard) => guards.push(guard),
            Err(error) => return (guards, Some(error)),
        }
    }
    (guards, None)
}

fn segment_offs<D: Domain>(pool: &Pool<D>) -> Vec<u64> {
    pool.segment_spans().iter().map(|span| span.off).collect()
}

/// All threads are alive and have used the pool; one at a time is inside an operation.
#[test]
fn threads_that_idle_hold_no_slot() {
    let pool = Pool::<Process>::anonymous(&options(1)).unwrap();
    let threads = threads(1000);
    for round in 0..3 {
        for thread in &threads {
            thread.swap();
            give(&pool, 0, 1000, round);
            free(&pool, 0);
            thread.swap();
        }
    }
    assert_eq!((pool.participant_slots(), pool.segment_spans().len()), (128, 0));
    assert!(pool.participants_claimed() <= 128);
}

/// More working threads than slots: a slot has one thread at a time.
#[test]
fn threads_that_take_slots_from_each_other_are_never_in_one_at_once() {
    let pool = with_few_slots(2, || Pool::<Process>::anonymous(&options(4)).unwrap());
    let inside: Vec<_> = (0..128).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for turn in 0..2_000 {
                    let guard = pool.pin().unwrap();
                    let slot = &inside[guard.slot()];
                    assert_eq!(slot.fetch_add(1, Ordering::SeqCst), 0);
                    drop(pool.pin().unwrap());
                    if turn % 64 == 0 {
                        std::thread::yield_now();
                        guard.collect();
                    }
                    slot.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(pool.participant_slots() <= 16, "{}", pool.participant_slots());
}

#[test]
fn as_many_threads_are_pinned_at_once_as_the_largest_table_has_slots() {
    let pool = Pool::<Process>::anonymous(&options(64)).unwrap();
    let threads = threads(8193);
    let (guards, refused) = pin_all(&pool, &threads);
    assert_eq!(guards.len(), 8192);
    let slots: HashSet<_> = guards.iter().map(Guard::slot).collect();
    assert_eq!(slots.len(), guards.len());
    let refused = refused.unwrap();
    let message = refused.to_string();
    assert!(matches!(refused, Error::NoParticipantSlot { threads: 8192, .. }), "{message}");
    assert!(message.contains("8192 threads are inside operations at once"), "{message}");
    assert!(message.contains("largest size"), "{message}");
    // Every slot counts for the epoch, also the last one.
    let epoch = pool.epoch();
    guards.iter().take(10).for_each(Guard::collect);
    assert_eq!(pool.epoch(), epoch + 1);
    let mut guards = guards;
    let last = guards.pop();
    drop(guards);
    (0..5).for_each(|_| pool.pin().unwrap().collect());
    assert_eq!(pool.epoch(), epoch + 1);
    drop(last);
    (0..5).for_each(|_| pool.pin().unwrap().collect());
    assert_eq!(pool.epoch(), epoch + 6);
    assert!(pin_as(&threads[8192], &pool).is_ok());
}

#[test]
fn a_small_pool_that_cannot_grow_its_table_says_so_and_goes_on() {
    let new = || Pool::<Process>::anonymous(&options(1)).unwrap();
    let (pool, before) = (new(), room(&new(), 4000));
    let threads = threads(400);
    let (guards, refused) = pin_all(&pool, &threads);
    assert_eq!((guards.len(), pool.segment_spans().len()), (256, 1));
    let message = refused.unwrap().to_string();
    assert!(message.contains("256 threads are inside operations at once"), "{message}");
    assert!(message.contains("the pool is full"), "{message}");
    drop(guards);
    // The segment takes five of eleven chunks, each with room for 16 such blocks.
    assert!(room(&pool, 4000) >= before - 5 * 16);
    assert!(threads.iter().all(|thread| pin_as(thread, &pool).is_ok()));
    // A full pool.
    let pool = new();
    let guard = pool.pin().unwrap();
    let blocks: Vec<_> = std::iter::from_fn(|| guard.reserve(4000).ok()).collect();
    let (guards, refused) = pin_all(&pool, &threads);
    assert_eq!(guards.len(), 127);
    assert!(matches!(refused, Some(Error::NoParticipantSlot { threads: 128, .. })));
    drop(blocks);
}

#[test]
fn a_table_whose_growth_is_refused_grows_later() {
    let threads = threads(20);
    for granted in 0..4 {
        let pool = with_few_slots(2, || Pool::<Process>::anonymous(&options(4)).unwrap());
        let ((guards, refused), _) =
            refuse(Resource::Block, granted, u64::MAX, || pin_all(&pool, &threads));
        assert_eq!(guards.len(), 2 << granted);
        assert!(matches!(refused, Some(Error::NoParticipantSlot { .. })));
        assert_eq!(active(&pool), pool.segment_spans());
        let more = pin_as(&threads[19], &pool).unwrap();
        drop((guards, more));
        let (guards, refused) = pin_all(&pool, &threads);
        assert!(refused.is_none());
        assert_eq!((guards.len(), pool.participant_slots()), (20, 32));
        assert_eq!(active(&pool), pool.segment_spans());
    }
}

/// Killed at each write: the table then has a whole segment, which recovery reads, or none.
#[test]
fn a_crash_at_any_write_of_the_growth_leaves_the_whole_segment_or_none() {
    type Cut = CutShort<true>;
    let folder = folder();
    let (mut with, mut without) = (0, 0);
    for writes in 0.. {
        let path = folder.path().join(format!("pool-{writes}"));
        let pool = with_few_slots(2, || create::<Cut>(&path, 4));
        // Content that a segment must not keep.
        let dirty = give(&pool, 0, 60_000, 0xFF);
        free(&pool, 0);
        (0..8).for_each(|_| pool.pin().unwrap().collect());
        assert_eq!(pool.active_block(dirty), None);
        let threads = threads(3);
        let held = [0, 1].map(|index| pin_as(&threads[index], &pool).unwrap());
        let done = kill_after(writes, || pin_as(&threads[2], &pool).map(drop));
        drop(held);
        drop(threads);
        pool.abandon();
        let pool = with_few_slots(2, || open::<Cut>(&path));
        let segments = segment_offs(&pool);
        assert_eq!(active(&pool), pool.segment_spans(), "cut at write {writes}");
        assert_eq!(pool.participant_slots(), 2 << segments.len());
        match segments[..] {
            [] => without += 1,
            [off] => {
                with += 1;
                let bytes = pool.load_bytes(off, 2 * (128 + 2048));
                // Three of the slot's words: it is prepared, pinned, and owned.
                let is_of_slot = |at| at < 16 || (24..32).contains(&at);
                let content =
                    bytes.iter().enumerate().filter(|&(at, &byte)| !is_of_slot(at) && byte != 0);
                assert_eq!(content.count(), 0, "cut at write {writes}");
            }
            _ => panic!("{segments:?}"),
        }
        let threads = self::threads(4);
        let (guards, refused) = pin_all(&pool, &threads);
        assert!(guards.len() == 4 && refused.is_none(), "cut at write {writes}");
        drop(guards);
        if done.is_some() {
            break;
        }
    }
    assert!(with > 2 && without > 2, "{with} with, {without} without");
}

/// Two threads find a segment at once, and both mark it in the chunk table.
#[test]
fn a_segment_that_two_threads_mark_is_counted_once() {
    for access in 0.. {
        let pool = with_few_slots(1, || Pool::<CutShort<true>>::anonymous(&options(1)).unwrap());
        // Used bytes are counted from the start, also in the chunks of the table.
        give(&pool, 0, 5 * 65_536, 1);
        free(&pool, 0);
        pool.reclaim().unwrap();
        assert_eq!(pool.used_bytes(), 0);
        let thread = LogicalThread::default();
        let held = pin_as(&thread, &pool).unwrap();
        let other = Arc::clone(&pool);
        let meanwhile = move || drop(other.pin().unwrap());
        let has_met = between(access, meanwhile, || drop(pool.pin().unwrap()));
        drop(held);
        let bytes: u64 = pool.segment_spans().iter().map(|span| span.bytes).sum();
        assert!(bytes > 0);
        assert_eq!(pool.used_bytes(), bytes, "the other thread comes before access {access}");
        if !has_met {
            return;
        }
    }
}

/// One thread stalls at each write of the growth; other threads grow the table themselves.
#[test]
fn a_thread_that_stops_while_the_table_grows_holds_nobody_up() {
    let grow = |pool: &Arc<Pool<CutShort>>, stop: u64| {
        let threads = threads(4);
        let held = [0, 1].map(|index| pin_as(&threads[index], pool).unwrap());
        let stops = Paused::start(stop, {
            let pool = Arc::clone(pool);
            move || drop(pool.pin().unwrap())
        });
        let is_done = stops.is_done();
        let more = [2, 3].map(|index| pin_as(&threads[index], pool).unwrap());
        assert_ne!(more[0].slot(), more[1].slot());
        assert_eq!(active(pool), pool.segment_spans());
        drop((held, more));
        stops.resume();
        assert_eq!(active(pool), pool.segment_spans());
        is_done
    };
    let new = || with_few_slots(2, || Pool::<CutShort>::anonymous(&options(4)).unwrap());
    let mut stops = 0;
    while !grow(&new(), stops) {
        stops += 1;
    }
    assert!(stops > 4, "{stops}");
}

/// A thread that stalls forever inside an operation keeps its slot, and no other.
#[test]
fn a_thread_that_stops_inside_an_operation_keeps_its_slot_alone() {
    let pool = with_few_slots(2, || Pool::<CutShort>::anonymous(&options(4)).unwrap());
    let stops = Paused::start(0, {
        let pool = pool.clone();
        move || give(&pool, 0, 64, 1)
    });
    assert!(!stops.is_done());
    let threads = threads(50);
    let slots: HashSet<_> =
        threads.iter().map(|thread| pin_as(thread, &pool).unwrap().slot()).collect();
    assert_eq!(slots.len(), 1, "{slots:?}");
    let (_, writes) = count_writes(|| drop(pool.pin().unwrap()));
    assert_eq!(writes, 0, "a slot that is taken costs no durable write");
    stops.resume();
}

/// Real threads that end: they read and write, and are idle most of the time.
#[test]
fn hundreds_of_threads_share_the_slots_of_those_that_are_at_work() {
    let pool = Pool::<Process>::anonymous(&options(4)).unwrap();
    let turn = Mutex::new(());
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut wake = Vec::new();
        for index in 0..400 {
            let (go, wait) = mpsc::channel::<()>();
            let (pool, turn, sender) = (&pool, &turn, sender.clone());
            wake.push(go);
            let work = move || {
                while wait.recv().is_ok() {
                    let turn = turn.lock().unwrap();
                    give(pool, index, 100, index as u8);
                    free(pool, index);
                    drop(turn);
                    sender.send(()).unwrap();
                }
            };
            std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, work).unwrap();
        }
        for _ in 0..3 {
            wake.iter().for_each(|go| go.send(()).unwrap());
            (0..400).for_each(|_| receiver.recv().unwrap());
        }
    });
    assert_eq!(pool.participant_slots(), 128);
    assert_eq!(active(&pool), []);
}
