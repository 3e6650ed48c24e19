//! The log writer of a process, which also writes the records that no thread waits for.
//!
//! It is one thread in `Log::write_until` (`write.rs`). When the tail is written, it sets `is_idle`
//! and sleeps. A thread that has decided a record wakes it. No order of memory connects `is_idle`
//! and the tail, so a wake-up may be missed. So the writer looks at the tail again after [`NAP`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// How long the writer sleeps when there is nothing to write.
const NAP: Duration = Duration::from_millis(100);
/// The longest time between two attempts that fail.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The log writer of this process.
#[derive(Debug, Default)]
pub(crate) struct Background {
    thread: Mutex<Option<Thread>>,
    is_idle: AtomicBool,
}

impl Background {
    /// Wakes the writer, if it sleeps because there is nothing to write.
    pub fn wake(&self) {
        // Relaxed, here and below, and no wait for the lock: a missed wake-up costs a nap.
        if self.is_idle.load(Ordering::Relaxed) {
            self.is_idle.store(false, Ordering::Relaxed);
            if let Ok(thread) = self.thread.try_lock() {
                thread.iter().for_each(Thread::unpark);
            }
        }
    }

    /// The calling thread is the writer from now on.
    pub fn begin(&self) {
        if let Ok(mut writer) = self.thread.lock() {
            *writer = Some(thread::current());
        }
    }

    /// Sleeps until there may be something to write.
    pub fn nap(&self) {
        self.is_idle.store(true, Ordering::Relaxed);
        thread::park_timeout(NAP);
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Sleeps after an error, for longer after each; the time of the next sleep.
    pub fn pause(&self, pause: Duration) -> Duration {
        let pause = pause.clamp(NAP, MAX_PAUSE);
        thread::park_timeout(pause);
        pause * 2
    }
}
