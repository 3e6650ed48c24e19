//! Several processes share a pool: all write, and they are killed, stopped and forked.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod drops;
mod forks;
mod kills;
mod refusals;
mod worker;

use std::path::Path;
use std::time::{Duration, Instant};

use pando::{Pool, PoolOptions};

fn shared() -> PoolOptions {
    PoolOptions::new().shared(true)
}

fn open(path: &Path) -> Pool {
    Pool::open(path, &shared()).unwrap()
}

/// Waits until `is_so`; panics if it is not so after a long time.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Nothing is damaged or leaked when one process has the pool alone again.
fn check_alone(path: &Path) {
    let pool = Pool::open(path, &PoolOptions::new()).unwrap();
    assert_eq!(pool.stat().unwrap().recovery.rolled_forward, 0, "an operation was left");
    let report = pool.check().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
