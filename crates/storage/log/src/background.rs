//! The log writer of a process, which writes the records that no thread waits for.
//!
//! It is one thread in `Log::write_until` (`write.rs`). A thread that waits for a record writes the
//! log itself, so the writer gathers: it looks at the tail [`PAUSE`] after the first record that is
//! not durable, or when the tail is long. Each block costs a sync, which takes the processor from
//! other threads. When the tail is written, the writer sleeps.
//!
//! A thread that has decided a record wakes it. No order of memory connects `state` and the tail,
//! so a wake-up may be missed. So a sleeping writer looks at the tail after [`NAP`] too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// The time from one block to the next.
const PAUSE: Duration = Duration::from_millis(1);
/// How long the writer sleeps when there is nothing to write.
const NAP: Duration = Duration::from_millis(100);
/// The longest time between two attempts that fail.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The writer is at work, or was woken.
const AWAKE: u8 = 0;
/// It waits for more records.
const GATHERING: u8 = 1;
/// It waits for a record.
const IDLE: u8 = 2;

/// The log writer of this process.
#[derive(Debug, Default)]
pub(crate) struct Background {
    thread: Mutex<Option<Thread>>,
    state: AtomicU8,
}

impl Background {
    /// Wakes the writer, if it sleeps because there was no record, or if the tail is long.
    pub fn wake(&self, is_long: bool) {
        // Relaxed, here and below, and no wait for the lock: a missed wake-up costs a nap.
        let state = self.state.load(Ordering::Relaxed);
        if state == IDLE || (state == GATHERING && is_long) {
            self.state.store(AWAKE, Ordering::Relaxed);
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

    /// Waits until there may be enough to write.
    pub fn gather(&self) {
        self.sleep(GATHERING, PAUSE);
    }

    /// Sleeps until there may be something to write.
    pub fn nap(&self) {
        self.sleep(IDLE, NAP);
    }

    fn sleep(&self, state: u8, at_most: Duration) {
        self.state.store(state, Ordering::Relaxed);
        thread::park_timeout(at_most);
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    /// Sleeps after an error, for longer after each; the time of the next sleep.
    pub fn pause(&self, pause: Duration) -> Duration {
        let pause = pause.clamp(NAP, MAX_PAUSE);
        thread::park_timeout(pause);
        pause * 2
    }
}
