//! The histogram in which latencies are counted.

use hdrhistogram::Histogram;

/// Longest latency that is told from longer ones.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// A histogram of nanoseconds with nothing in it.
pub fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)
        .expect("the bounds and the three digits are in range")
}
