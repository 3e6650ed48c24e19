//! The end of threads.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time after which the log says that the server waits for a thread.
const TOLD_AFTER: Duration = Duration::from_secs(5);
/// The time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Waits for the end of a thread, and logs its name if that takes long. A panic of the thread is
/// not an error here.
pub fn join(thread: JoinHandle<()>) {
    let begun_at = Instant::now();
    let mut is_told = false;
    while !thread.is_finished() {
        if !is_told && begun_at.elapsed() > TOLD_AFTER {
            let name = thread.thread().name().unwrap_or("without a name");
            tracing::warn!(name, "the end waits for a thread");
            is_told = true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let _ = thread.join();
}
