//! The open loop: operations begin at a rate, whether or not those before them are done.
//!
//! Each operation has a moment at which it is meant to begin, and its latency runs from that
//! moment. So an operation that had to wait for a stall before it is charged for the wait, as its
//! user would be; a closed loop would have begun it later and not noticed (coordinated omission).
//! What has not begun when a slice ends is not counted: a side that cannot keep up with the rate
//! shows it in its throughput.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The kernel may wake a thread so much late; the rest of a wait is spent awake.
const WAKE_SLACK: Duration = Duration::from_micros(150);
/// The longest sleep in one piece, so that a stop is seen.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// The moments at which one thread's operations are meant to begin.
pub struct Pace {
    next: Instant,
    interval: Duration,
}

impl Pace {
    /// The share of `thread` among `threads` in `rate_ops_per_second` operations a second; the
    /// threads take turns.
    pub fn new(start: Instant, rate_ops_per_second: f64, thread: usize, threads: usize) -> Self {
        let turn = Duration::from_secs_f64(1.0 / rate_ops_per_second);
        Self { next: start + turn.mul_f64(thread as f64), interval: turn.mul_f64(threads as f64) }
    }

    /// Waits for the moment of the next operation and returns it; at once if it has passed. `None`
    /// as soon as `stop` is set.
    #[inline]
    pub fn wait_for_next(&mut self, stop: &AtomicBool) -> Option<Instant> {
        loop {
            // Relaxed: a stop that is seen a little later is a slice that is a little longer.
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let left = self.next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let intended = self.next;
                self.next += self.interval;
                return Some(intended);
            }
            match left.checked_sub(WAKE_SLACK) {
                Some(sleep) => thread::sleep(sleep.min(LONGEST_SLEEP)),
                None => hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_charged_to_those_who_wait_for_it() {
        let start = Instant::now();
        let mut pace = Pace::new(start, 1_000.0, 0, 1);
        let go_on = AtomicBool::new(false);
        assert_eq!(pace.wait_for_next(&go_on), Some(start));
        thread::sleep(Duration::from_millis(10));
        // The second was meant to begin during the stall: it begins now, nine milliseconds late.
        let second = pace.wait_for_next(&go_on);
        assert_eq!(second, Some(start + Duration::from_millis(1)));
        assert!(start.elapsed() >= Duration::from_millis(10));
        assert_eq!(pace.wait_for_next(&AtomicBool::new(true)), None);
    }

    #[test]
    fn threads_take_turns() {
        let start = Instant::now();
        let go_on = AtomicBool::new(false);
        let first = |thread| Pace::new(start, 1e6, thread, 3).wait_for_next(&go_on);
        assert_eq!(first(2), Some(start + Duration::from_micros(2)));
    }
}
