//! The examples run, and their assertions hold. The asynchronous pattern keeps its limits.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pando::{Pool, PoolOptions};

use async_tokio::{AsyncMap, CallError};

#[path = "../examples/async_tokio.rs"]
mod async_tokio;
#[path = "../examples/atomic_updates.rs"]
mod atomic_updates;
#[path = "../examples/exactly_once.rs"]
mod exactly_once;
#[path = "../examples/larger_than_memory.rs"]
mod larger_than_memory;
#[path = "../examples/many_writers.rs"]
mod many_writers;
#[path = "../examples/power_safety.rs"]
mod power_safety;
#[path = "../examples/quick_start.rs"]
mod quick_start;
#[path = "../examples/ranges.rs"]
mod ranges;
#[path = "../examples/snapshots.rs"]
mod snapshots;
#[path = "../examples/transactions.rs"]
mod transactions;
#[path = "../examples/typed_keys.rs"]
mod typed_keys;

macro_rules! runs {
    ($($test:ident: $example:ident,)*) => {
        $(
            #[test]
            fn $test() {
                $example::main().unwrap();
            }
        )*
    };
}

runs! {
    quick_start_runs: quick_start,
    typed_keys_runs: typed_keys,
    ranges_runs: ranges,
    many_writers_runs: many_writers,
    atomic_updates_runs: atomic_updates,
    transactions_runs: transactions,
    snapshots_runs: snapshots,
    power_safety_runs: power_safety,
    larger_than_memory_runs: larger_than_memory,
    exactly_once_runs: exactly_once,
    async_tokio_runs: async_tokio,
}

fn runtime(most_calls: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).max_blocking_threads(most_calls).enable_time().build().unwrap()
}

#[test]
fn a_thousand_tasks_use_at_most_512_threads() {
    const TASKS: usize = 1_000;
    const MOST_CALLS: usize = 512;
    let pool = Pool::volatile(&PoolOptions::new()).unwrap();
    let map = AsyncMap::new(pool.map("tasks").unwrap(), MOST_CALLS, Duration::from_secs(600));
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    runtime(MOST_CALLS).block_on(async {
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (map, threads) = (map.clone(), threads.clone());
                let (inside, most) = (inside.clone(), most.clone());
                tokio::spawn(async move {
                    for step in 0..3 {
                        let (threads, inside, most) =
                            (threads.clone(), inside.clone(), most.clone());
                        let work = move |map: &pando::Map| {
                            most.fetch_max(
                                inside.fetch_add(1, Ordering::SeqCst) + 1,
                                Ordering::SeqCst,
                            );
                            threads.lock().unwrap().insert(thread::current().id());
                            // So that many calls are in progress at once.
                            thread::yield_now();
                            let written = map.insert(format!("{task} {step}"), "done");
                            inside.fetch_sub(1, Ordering::SeqCst);
                            written
                        };
                        map.call(work).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(pool.open_map("tasks").unwrap().len().unwrap(), 3 * TASKS as u64);
    let (threads, most) = (threads.lock().unwrap().len(), most.load(Ordering::SeqCst));
    assert!(most <= MOST_CALLS, "{most} calls were in progress, on {threads} threads");
}

#[test]
fn above_the_limit_a_task_waits_until_its_deadline_and_gets_a_typed_error() {
    const MOST_CALLS: usize = 4;
    let pool = Pool::volatile(&PoolOptions::new()).unwrap();
    let map = AsyncMap::new(pool.map("tasks").unwrap(), MOST_CALLS, Duration::from_millis(20));
    let (begun, has_begun) = channel();
    let may_end = Arc::new(AtomicBool::new(false));
    runtime(MOST_CALLS).block_on(async {
        let tasks: Vec<_> = (0..MOST_CALLS)
            .map(|_| {
                let (map, begun, may_end) = (map.clone(), begun.clone(), may_end.clone());
                let work = move |map: &pando::Map| {
                    begun.send(()).unwrap();
                    while !may_end.load(Ordering::SeqCst) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    map.len()
                };
                tokio::spawn(async move { map.call(work).await })
            })
            .collect();
        (0..MOST_CALLS).for_each(|_| has_begun.recv().unwrap());
        let refused = map.call(|map| map.insert("late", "1")).await.unwrap_err();
        assert!(matches!(refused, CallError::Busy { most_calls: MOST_CALLS, .. }), "{refused}");
        // A task that is gone gives its place back when its call ends, and not before.
        tasks[0].abort();
        let refused = map.call(|map| map.insert("late", "1")).await.unwrap_err();
        assert!(matches!(refused, CallError::Busy { .. }), "{refused}");
        may_end.store(true, Ordering::SeqCst);
        for task in tasks.into_iter().skip(1) {
            task.await.unwrap().unwrap();
        }
        while map.call(|map| map.upsert("late", "1")).await.is_err() {}
    });
    assert_eq!(pool.open_map("tasks").unwrap().len().unwrap(), 1);
}
