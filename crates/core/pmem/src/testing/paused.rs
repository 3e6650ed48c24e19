//! A thread that pauses before a chosen write to its pool, until the test lets it continue.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::{never_stop, pause_after};

/// A thread that pauses in the middle of its work.
#[derive(Debug)]
pub struct Paused<R> {
    thread: JoinHandle<R>,
    go_on: Sender<Option<u64>>,
    stopped: Receiver<bool>,
}

impl<R: Send + 'static> Paused<R> {
    /// Runs `work` in a thread of its own, which pauses before its `writes`-th write to a pool.
    pub fn start(writes: u64, work: impl FnOnce() -> R + Send + 'static) -> Self {
        let ((tell, stopped), (go_on, wait)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            pause_after(writes, tell.clone(), wait);
            let result = work();
            never_stop();
            // The test may not receive any more, after the pause.
            let _ = tell.send(true);
            result
        });
        Self { thread, go_on, stopped }
    }

    /// Waits until the thread pauses or finishes; returns whether it has finished.
    ///
    /// # Panics
    ///
    /// If the thread panicked.
    pub fn is_done(&self) -> bool {
        self.stopped.recv().expect("the thread pauses or finishes")
    }

    /// Lets the thread continue, and pause again before its `writes`-th write from now on.
    pub fn go_on_for(&self, writes: u64) {
        // As below.
        let _ = self.go_on.send(Some(writes));
    }

    /// Lets the thread continue, and waits for its result.
    ///
    /// # Panics
    ///
    /// If the thread panicked.
    pub fn resume(self) -> R {
        // If the thread has finished, it does not receive this.
        let _ = self.go_on.send(None);
        self.thread.join().expect("the thread does not panic")
    }
}
