//! A time limit for tests: a test that waits too long fails instead of hanging.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Longer than any bounded work takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `work` in a thread of its own and returns its result. Panics if it does not finish in time;
/// the thread is then abandoned.
///
/// # Panics
///
/// If the time is over, or if `work` panics.
pub fn within_bounds<R: Send + 'static>(
    label: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (done, wait) = mpsc::channel();
    let worker = thread::spawn(move || {
        let result = work();
        // The waiting thread may have stopped waiting.
        let _ = done.send(());
        result
    });
    match wait.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{label}: not done in {PATIENCE:?}"),
        // It has finished or panicked: `join` says which.
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Ok(result) => result,
            Err(payload) => std::panic::resume_unwind(payload),
        },
    }
}

/// The seed of a test: `PANDO_SEED`, or the id of the process. It is printed, so that a failure can
/// be replayed.
///
/// # Panics
///
/// If the variable is set to something else than a number.
pub fn seed(test: &str) -> u64 {
    let seed = match std::env::var("PANDO_SEED") {
        Ok(text) => text.parse().expect("PANDO_SEED is a number"),
        Err(_) => std::process::id().into(),
    };
    println!("{test}: PANDO_SEED={seed}");
    seed
}
