//! Group commit: which thread of the process writes the next block.
//!
//! One thread is the *leader* and writes. All records that are appended meanwhile go into the next
//! block. There is no delay: a block is sealed as soon as the one before is durable.
//!
//! `leader` is zero, or the number of a leadership. Other threads wait for `writes`, a counter that
//! a leader raises when it has written (a futex). If it does not change for [`PATIENCE`], one of
//! them takes the leadership over, by CAS from the number that it saw: the leader may have stopped.
//! If it continues, both write the same bytes to the same place. Each take-over doubles the time to
//! the next one, so a slow disk gets few writes more. When all [`WRITERS`] are at work, after about
//! 13 seconds, waits end with an error. A commit that finds no room in the tail takes over only if
//! no other thread has done so, because it would wait in the device for as long as a disk does not
//! answer. Its wait for room ends after ten seconds. All these words are in process memory.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pando_pmem::Domain;
use rustix::thread::futex;

use crate::control::WRITERS;

/// How long threads wait for a leader that makes no progress, at first: many times what a sync
/// takes.
const PATIENCE: Duration = Duration::from_millis(50);

/// The leader among the threads of this process.
#[derive(Debug, Default)]
pub(crate) struct Leadership {
    leader: AtomicU32,
    /// Numbers of leaderships so far.
    terms: AtomicU32,
    /// Writes that have ended.
    writes: AtomicU32,
    /// Threads that wait for a write.
    waiting: AtomicU32,
    /// Take-overs since a write has ended.
    takeovers: AtomicU32,
}

impl Leadership {
    /// The present leader's number; zero if there is none.
    pub fn leader(&self) -> u32 {
        // Acquire: pairs with the end of a leadership.
        self.leader.load(Ordering::Acquire)
    }

    /// The number of writes that have ended.
    pub fn writes(&self) -> u32 {
        // Acquire: pairs with the end of a leadership.
        self.writes.load(Ordering::Acquire)
    }

    /// Takes the leadership from `seen`, which is zero if it is free; its number.
    pub fn take(&self, seen: u32) -> Option<u32> {
        // Relaxed: a number that no other thread gets soon. Zero is none.
        let term = self.terms.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let taken = self.leader.compare_exchange(seen, term, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() && seen != 0 {
            self.takeovers.fetch_add(1, Ordering::Relaxed);
        }
        taken.ok().map(|_| term)
    }

    /// Whether a thread has taken over since a write has ended.
    pub fn was_taken_over(&self) -> bool {
        // Relaxed: a thread that sees it late may take over too.
        self.takeovers.load(Ordering::Relaxed) > 0
    }

    /// Ends the leadership `term`, unless another thread has taken it over, and wakes the threads
    /// that wait.
    pub fn end(&self, term: u32) {
        let _ = self.leader.compare_exchange(term, 0, Ordering::AcqRel, Ordering::Relaxed);
        self.takeovers.store(0, Ordering::Relaxed);
        // Release: a thread that sees the new count sees that the leadership is free. Sequentially
        // consistent, as in `wait`: either this thread sees the one that waits, or that one sees
        // the new count.
        self.writes.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(&self.writes, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }

    /// Waits until a write has ended since the count was `writes`; false if none did for a long
    /// time.
    ///
    /// A domain that gives other threads no time ([`Domain::SPINS`]) does not wait: it explores
    /// what a thread does that has waited in vain.
    pub fn wait<D: Domain>(&self, writes: u32) -> bool {
        if D::SPINS == 0 {
            return self.writes() != writes;
        }
        let takeovers = self.takeovers.load(Ordering::Relaxed).min(WRITERS as u32);
        let patience = PATIENCE * (1 << takeovers);
        let timeout = futex::Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waited = futex::wait(&self.writes, futex::Flags::PRIVATE, writes, Some(&timeout));
        // Relaxed: a count that is too high costs a call.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        // Woken, changed before, or interrupted: the caller looks again.
        waited != Err(rustix::io::Errno::TIMEDOUT)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use pando_pmem::Process;

    use super::*;

    /// A thread that is not woken waits for its whole patience.
    #[test]
    fn the_end_of_a_write_wakes_the_threads_that_wait() {
        const ROUNDS: usize = 20;
        let leadership = Leadership::default();
        let woken = (0..ROUNDS).filter(|_| {
            let (writes, term) = (leadership.writes(), leadership.take(0).expect("it is free"));
            thread::scope(|scope| {
                let waiter = scope.spawn(|| leadership.wait::<Process>(writes));
                while leadership.waiting.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
                // It has begun to sleep by then.
                thread::sleep(Duration::from_millis(2));
                leadership.end(term);
                waiter.join().expect("joins")
            })
        });
        // On a busy machine some may sleep that long.
        assert!(woken.count() > ROUNDS / 2, "threads were not woken");
    }
}
