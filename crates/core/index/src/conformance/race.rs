//! Threads that start together, and that go on until each of them has done its share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::random::Random;

/// Runs `body` in `threads` threads that set off together, each with its number and its own
/// random numbers, and returns what they returned. A panic in one is a panic here.
pub(super) fn race<T: Send>(
    threads: usize,
    random: &mut Random,
    body: impl Fn(usize, Random) -> T + Sync,
) -> Vec<T> {
    let arrived = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (arrived, body) = (&arrived, &body);
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let random = random.fork();
                scope.spawn(move || {
                    // A condition variable would wake them one after the other; this starts them
                    // as close to each other as the cores allow.
                    arrived.fetch_add(1, Ordering::SeqCst);
                    let mut turns = 0;
                    while arrived.load(Ordering::SeqCst) < threads {
                        turns += 1;
                        if turns % 1_000 == 0 {
                            std::thread::yield_now();
                        }
                        std::hint::spin_loop();
                    }
                    body(thread, random)
                })
            })
            .collect();
        let joined = handles.into_iter().map(|handle| handle.join());
        joined
            .map(|joined| joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Threads that all go on until each has done its share.
///
/// Shares of one side alone would not do: on a busy machine, readers may be through before the
/// writers have run at all, and then nothing has been tested.
pub(super) struct Together {
    unfinished: AtomicUsize,
    failed: AtomicBool,
}

impl Together {
    pub(super) fn new(workers: usize) -> Self {
        Self { unfinished: AtomicUsize::new(workers), failed: AtomicBool::new(false) }
    }

    /// One of the workers, whose share is that many steps.
    pub(super) fn worker(&self, share: usize) -> Worker<'_> {
        Worker { together: self, steps: 0, share }
    }
}

pub(super) struct Worker<'together> {
    together: &'together Together,
    steps: usize,
    share: usize,
}

impl Worker<'_> {
    /// Before each step: whether to take it. Not if all have done their share, or one has failed.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.steps == self.share {
            self.together.unfinished.fetch_sub(1, Ordering::SeqCst);
        }
        self.steps += 1;
        // More threads than cores: let them take turns more often than the scheduler would.
        if self.steps.is_multiple_of(128) {
            std::thread::yield_now();
        }
        self.together.unfinished.load(Ordering::SeqCst) > 0
            && !self.together.failed.load(Ordering::SeqCst)
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.together.failed.store(true, Ordering::SeqCst);
        }
    }
}
