//! Threads that start together, and run until each of them has done its share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::random::Random;

/// Runs `body` in `threads` threads that start together, each with its number and random numbers of
/// its own; returns their results. A panic in one is a panic here.
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
                    // A condition variable would wake them one after the other. This starts them as
                    // close to each other as the cores allow.
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

/// Threads that all run until each has done its share.
///
/// It is not enough that one kind of thread does its share: on a busy machine, readers may finish
/// before the writers have run at all, and then nothing is tested.
pub(super) struct Together {
    unfinished: AtomicUsize,
    failed: AtomicBool,
}

impl Together {
    pub(super) fn new(workers: usize) -> Self {
        Self { unfinished: AtomicUsize::new(workers), failed: AtomicBool::new(false) }
    }

    /// One of the workers, whose share is `share` steps.
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
    /// Called before each step: whether to run it. False if all have done their share, or one has
    /// failed.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.steps == self.share {
            self.together.unfinished.fetch_sub(1, Ordering::SeqCst);
        }
        self.steps += 1;
        // With more threads than cores, this switches threads more often than the scheduler does.
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
