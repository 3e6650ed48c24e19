//! The thread that sweeps: it removes expired keys and records that no head refers to, begins
//! snapshots that are due, and returns unused room. A sweep may wait for the disk.

#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pando_keyspace::failure::Failure;
use pando_keyspace::{LogSync, Store};
use pando_net::stats::Count;
use tokio::sync::watch;

use crate::shared::Shared;

/// The time between two sweeps, if there is not more to do.
const INTERVAL: Duration = Duration::from_millis(100);
/// The time between two sweeps, if there is more to do.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest time of a sweep.
const TIME: Duration = Duration::from_millis(25);
/// The number of records that a sweep removes between two checks of the time.
const BUDGET: usize = 256;

/// The time between two reports of a sweep that cannot do its work.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// In a test, the next sweep panics.
#[cfg(test)]
pub(crate) static PANICS: AtomicBool = AtomicBool::new(false);

/// Sweeps until the server stops.
pub(crate) fn until_stopped(shared: &Shared, stopped: &watch::Receiver<bool>) {
    let mut told_at = None::<Instant>;
    let mut returned_at = None::<Instant>;
    // If the sender is gone, the server could not be started.
    while !*stopped.borrow() && stopped.has_changed().is_ok() {
        shared.redis.limit_memory();
        shared.redis.save_if_due();
        let (is_more, failure) =
            if must_rest(&shared.redis.store) { (false, None) } else { sweep_once(shared) };
        if let Some(error) = failure
            && told_at.is_none_or(|at| at.elapsed() > TOLD_EVERY)
        {
            tracing::warn!(%error, "the sweep was interrupted");
            told_at = Some(Instant::now());
        }
        // At most ten times a second, because writes allocate the room again.
        let is_time = returned_at.is_none_or(|at| at.elapsed() >= INTERVAL);
        if is_time && !must_rest(&shared.redis.store) {
            returned_at = Some(Instant::now());
            if let Err(error) = shared.redis.store.return_some_room() {
                tracing::warn!(%error, "unused space cannot be returned to the file system");
            }
        }
        std::thread::park_timeout(if is_more { PAUSE } else { INTERVAL });
    }
}

/// Whether the writes of a sweep would be refused, or wait for the disk, and so would the
/// connections behind them.
fn must_rest(store: &Store) -> bool {
    store.log().is_some_and(LogSync::is_behind) || store.refuses_writes()
}

/// Sweeps for a while; returns whether there is more to do, and the first error. After an error of
/// one part the others go on.
fn sweep_once(shared: &Shared) -> (bool, Option<Failure>) {
    #[cfg(test)]
    assert!(!PANICS.swap(false, Ordering::Relaxed), "as a test wants");
    let server = &shared.redis;
    server.store.keep_intent_reserve();
    server.stats.add(Count::Evicted, server.store.take_evicted_keys());
    let begin = Instant::now();
    let mut failure = pando_memcached::flush_if_due(shared.memcached()).err();
    loop {
        let sweep = server.store.sweep(BUDGET);
        server.stats.add(Count::Expired, sweep.expired_keys);
        failure = failure.or(sweep.failure);
        if !sweep.is_more || begin.elapsed() > TIME {
            return (sweep.is_more, failure);
        }
    }
}
