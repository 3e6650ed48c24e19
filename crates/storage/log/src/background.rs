//! The log writer of a process, which writes what no thread waits for.
//!
//! It is one thread in `Log::write_until` (`write.rs`). It writes whenever there is something to
//! write. Else it sleeps, and says so in `is_idle`; a thread that has decided a record wakes it. A
//! wake-up may be missed, since `is_idle` and the tail are not ordered. So the writer looks again
//! after [`NAP`].

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
    /// Wakes the writer, if it sleeps.
    pub fn wake(&self) {
        // Relaxed, here and below: a wake-up that is missed costs a nap.
        if self.is_idle.load(Ordering::Relaxed) {
            self.is_idle.store(false, Ordering::Relaxed);
            self.wake_always();
        }
    }

    /// Wakes the writer from a sleep of any kind.
    pub fn wake_always(&self) {
        // No thread waits for the lock: who misses the writer leaves it its nap.
        if let Ok(thread) = self.thread.try_lock() {
            thread.iter().for_each(Thread::unpark);
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
