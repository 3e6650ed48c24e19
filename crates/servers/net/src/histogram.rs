//! Latencies: counts per bucket. A bucket is as wide as an eighth of the power of two below it.
//!
//! ```text
//! nanoseconds   0 1 2 ... 7 | 8 9 ... 15 | 16 18 ... 30 | 32 36 ... 60 | ...
//! each          1           | 1          | 2            | 4            |
//! ```
//!
//! So a quantile is at most an eighth too large, and never too small. A time above `MOST` counts
//! as `MOST`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed};

/// Buckets per power of two, as a power of two.
const STEP_BITS: u32 = 3;
/// The longest time with a bucket of its own, in nanoseconds: more than a minute.
const MOST: u64 = (1 << 36) - 1;
const BUCKETS: usize = bucket_of(MOST) + 1;

/// The bucket of a time.
#[inline]
const fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds < 1 << STEP_BITS {
        return nanoseconds as usize;
    }
    let power = nanoseconds.ilog2() - STEP_BITS;
    // The upper bits, whose first is always set, continue the numbers of the powers before.
    ((power as usize) << STEP_BITS) + (nanoseconds >> power) as usize
}

/// The longest time in a bucket.
const fn longest_in(bucket: usize) -> u64 {
    if bucket < 2 << STEP_BITS {
        return bucket as u64;
    }
    let power = (bucket >> STEP_BITS) - 1;
    let upper = (bucket - (power << STEP_BITS)) as u64;
    ((upper + 1) << power) - 1
}

/// Adds to a counter. If it is not shared, only this thread writes it.
#[inline]
pub(crate) fn add_to(counter: &AtomicU64, by: u64, is_shared: bool) {
    // Relaxed: each counter is read independently of others. With a single writer, no addition is
    // lost between the load and the store.
    if is_shared {
        counter.fetch_add(by, Ordering::Relaxed);
    } else {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }
}

/// Counted times of one thread, or of several.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn note(&self, nanoseconds: u64, is_shared: bool) {
        add_to(&self.buckets[bucket_of(nanoseconds.min(MOST))], 1, is_shared);
        add_to(&self.sum, nanoseconds, is_shared);
    }

    pub(crate) fn add_to(&self, latencies: &mut Latencies) {
        for (sum, bucket) in latencies.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Relaxed);
        }
        latencies.sum = latencies.sum.wrapping_add(self.sum.load(Relaxed));
    }
}

/// A copy of counted times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    buckets: Vec<u64>,
    sum: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], sum: 0 }
    }
}

impl Latencies {
    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Subtracts the counts of an earlier copy.
    pub fn subtract(&mut self, earlier: &Self) {
        for (now, before) in self.buckets.iter_mut().zip(&earlier.buckets) {
            *now = now.saturating_sub(*before);
        }
        self.sum = self.sum.saturating_sub(earlier.sum);
    }

    /// The number of times counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum, in nanoseconds.
    pub fn sum_nanoseconds(&self) -> u64 {
        self.sum
    }

    /// The exact number of times of at most `2^power - 1` nanoseconds.
    pub fn below_power(&self, power: u32) -> u64 {
        let end = bucket_of((1 << power.min(36)) - 1);
        self.buckets.iter().take(end + 1).sum()
    }

    /// The quantile for `share`, in nanoseconds; `None` if nothing was counted.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.buckets
            .iter()
            .position(|&bucket| {
                seen += bucket;
                seen >= wanted
            })
            .map(longest_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gap() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(next), bucket, "{next}");
            assert_eq!(bucket_of(longest_in(bucket)), bucket);
            assert!(longest_in(bucket) - next <= next / 8);
            next = longest_in(bucket) + 1;
        }
        assert_eq!(next, MOST + 1);
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_large() {
        let histogram = Histogram::new();
        for time in 1..=10_000_u64 {
            histogram.note(time * 100, false);
        }
        histogram.note(u64::MAX / 4, false);
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        histogram.add_to(&mut latencies);
        assert_eq!(latencies.count(), 10_001);
        for (share, exact) in [(0.0, 100), (0.5, 500_000), (0.99, 990_000), (0.999, 999_000)] {
            let found = latencies.quantile(share).unwrap();
            assert!(found >= exact && found <= exact + exact / 8, "{share}: {found}");
        }
        assert_eq!(latencies.quantile(1.0), Some(MOST));
        assert_eq!(latencies.below_power(10), 10);
        assert_eq!(latencies.below_power(36), 10_001);
    }
}
