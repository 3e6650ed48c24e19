//! The open loop: operations start at a rate, also while earlier ones are still running.
//!
//! Each operation has a scheduled start, and its latency is measured from there. So the latency of
//! an operation includes its wait for a stall before it, as its user would see it. A closed loop
//! would start the operation later and hide the wait (coordinated omission).
//!
//! An operation that was due but not started at the end of a slice has waited too. It does not
//! count as an operation, but its wait so far, the least latency that it can have, is recorded.
//! Without these waits, a system that is too slow for the rate would show only the latencies of the
//! few operations that it did.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// The kernel may wake a thread this much too late, so that the end of a wait is a busy loop.
const WAKE_SLACK: Duration = Duration::from_micros(150);
/// Maximum length of one sleep, so that the thread sees a stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// Maximum number of recorded waits at the end of a slice. If more operations wait, several of them
/// are recorded with the wait of the last of these.
const MAX_WAITING_TOLD: u64 = 100_000;

/// The scheduled starts of the operations of one thread.
pub struct ArrivalSchedule {
    next: Instant,
    interval: Duration,
}

impl ArrivalSchedule {
    /// The schedule of `thread` among `threads` threads, which take turns and together start
    /// `rate_ops_per_second` operations per second.
    pub fn new(start: Instant, rate_ops_per_second: f64, thread: usize, threads: usize) -> Self {
        let turn = Duration::from_secs_f64(1.0 / rate_ops_per_second);
        Self { next: start + turn.mul_f64(thread as f64), interval: turn.mul_f64(threads as f64) }
    }

    /// Waits for the start of the next operation, if it is not in the past, and returns it. `None`
    /// if `stop` is set.
    #[inline]
    pub fn wait_for_next(&mut self, stop: &AtomicBool) -> Option<Instant> {
        loop {
            // Relaxed: if the stop is seen a little later, the slice is a little longer.
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

    /// Adds the waits of the operations that were due by `end` and have not started to
    /// `latency_ns`; returns their number.
    pub fn charge_waiting(&self, end: Instant, latency_ns: &mut Histogram<u64>) -> u64 {
        let Some(longest) = end.checked_duration_since(self.next) else { return 0 };
        let (longest, interval) =
            (longest.as_nanos() as u64, self.interval.as_nanos().max(1) as u64);
        let waiting = longest / interval + 1;
        let together = waiting.div_ceil(MAX_WAITING_TOLD);
        for first in (0..waiting).step_by(together as usize) {
            let alike = together.min(waiting - first);
            let waited = longest - (first + alike - 1) * interval;
            latency_ns.saturating_record_n(waited, alike);
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::empty_histogram;

    #[test]
    fn a_stall_is_charged_to_those_who_wait_for_it() {
        let start = Instant::now();
        let mut schedule = ArrivalSchedule::new(start, 1_000.0, 0, 1);
        let go_on = AtomicBool::new(false);
        assert_eq!(schedule.wait_for_next(&go_on), Some(start));
        thread::sleep(Duration::from_millis(10));
        // The second was scheduled during the stall: it starts now, nine milliseconds late.
        let second = schedule.wait_for_next(&go_on);
        assert_eq!(second, Some(start + Duration::from_millis(1)));
        assert!(start.elapsed() >= Duration::from_millis(10));
        assert_eq!(schedule.wait_for_next(&AtomicBool::new(true)), None);
    }

    #[test]
    fn what_was_due_and_has_not_begun_is_charged_for_its_wait() {
        let start = Instant::now();
        let mut schedule = ArrivalSchedule::new(start, 1_000.0, 0, 1);
        schedule.wait_for_next(&AtomicBool::new(false));
        let charged = |schedule: &ArrivalSchedule, end_us| {
            let mut latency_ns = empty_histogram();
            let end = start + Duration::from_micros(end_us);
            (schedule.charge_waiting(end, &mut latency_ns), latency_ns)
        };
        let (waiting, none) = charged(&schedule, 900);
        assert_eq!((waiting, none.len()), (0, 0));
        // Due at 1, 2, ... 10 ms: they have waited for 9.5, 8.5, ... 0.5 ms.
        let (waiting, latency_ns) = charged(&schedule, 10_500);
        assert_eq!((waiting, latency_ns.len()), (10, 10));
        assert!(latency_ns.equivalent(latency_ns.max(), 9_500_000), "{}", latency_ns.max());
        let median = latency_ns.value_at_quantile(0.5);
        assert!(latency_ns.equivalent(median, 4_500_000), "{median}");
        let fast = ArrivalSchedule::new(start, 1e8, 0, 1);
        let (waiting, latency_ns) = charged(&fast, 10);
        assert_eq!((waiting, latency_ns.len()), (1_001, 1_001));
        // More than are recorded one by one: each is counted, and none with a longer wait than it
        // had.
        let (waiting, latency_ns) = charged(&fast, 9_000_000);
        assert_eq!((waiting, latency_ns.len()), (900_000_001, 900_000_001));
        assert!(latency_ns.lowest_equivalent(latency_ns.max()) <= 9_000_000_000);
    }

    #[test]
    fn threads_take_turns() {
        let start = Instant::now();
        let go_on = AtomicBool::new(false);
        let first = |thread| ArrivalSchedule::new(start, 1e6, thread, 3).wait_for_next(&go_on);
        assert_eq!(first(2), Some(start + Duration::from_micros(2)));
    }
}
