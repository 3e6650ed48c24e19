//! A thread that pauses before a chosen write to its pool, and goes on when it is told to.

use std::sync::mpsc::{Sender, channel};

use pando_pmem::testing::{never_stop, pause_after};

/// A thread that pauses in the middle of its work.
pub struct Victim<R> {
    thread: std::thread::JoinHandle<R>,
    go: Sender<()>,
    /// It was done before it came to the write at which it was to pause.
    pub done: bool,
}

impl<R: Send + 'static> Victim<R> {
    /// Runs `work` in a thread of its own up to its write `writes`.
    pub fn pause(writes: u64, work: impl FnOnce() -> R + Send + 'static) -> Self {
        let ((stopped, stops), (go, goes)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            pause_after(writes, stopped.clone(), goes);
            let result = work();
            never_stop();
            // The test may have heard of the pause already.
            let _ = stopped.send(true);
            result
        });
        let done = stops.recv().expect("it stops or is done");
        Self { thread, go, done }
    }

    /// Lets it go on to its end.
    pub fn go_on(self) -> R {
        // If it is done it does not listen.
        let _ = self.go.send(());
        self.thread.join().expect("it goes on")
    }
}
