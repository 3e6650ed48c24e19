//! The histogram of latencies.

use hdrhistogram::Histogram;

/// Greatest latency of the histogram; longer ones are recorded as this one.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// An empty histogram of nanoseconds.
pub fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)
        .expect("the bounds and the three digits are in range")
}
