//! Expiry times by memcached's rules: 0 is never, a negative time is at once, up to 30 days is
//! relative to now, and a larger number is a time of the system's clock, in seconds since 1970.
//!
//! Memcached's clock has a resolution of one second. The store's has milliseconds, so a second is
//! exact here.

use pando_keyspace::clock::Clock;

/// Larger times are of the system's clock, in seconds.
const MAX_RELATIVE_SECONDS: i64 = 60 * 60 * 24 * 30;

/// The expiry time in milliseconds of the store's clock; `Some(0)` for at once.
pub(crate) fn expires_at(clock: &Clock, now_ms: u64, seconds: i32) -> Option<u64> {
    match i64::from(seconds) {
        0 => None,
        i64::MIN..0 => Some(0),
        relative @ 1..=MAX_RELATIVE_SECONDS => Some(now_ms + relative as u64 * 1000),
        absolute => Some(clock.by_store(absolute * 1000).max(0) as u64),
    }
}

/// The remaining seconds, rounded up.
pub(crate) fn seconds_left(expires_at: u64, now_ms: u64) -> u64 {
    expires_at.saturating_sub(now_ms).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_keyspace::clock::system_ms;

    #[test]
    fn times_are_memcacheds() {
        let clock = Clock::continue_or_begin(None);
        assert_eq!(expires_at(&clock, 5000, 0), None);
        assert_eq!(expires_at(&clock, 5000, -1), Some(0));
        assert_eq!(expires_at(&clock, 5000, 7), Some(12_000));
        assert_eq!(expires_at(&clock, 5000, 2_592_000), Some(2_592_005_000));
        let now_ms = clock.now_ms();
        let in_a_minute = expires_at(&clock, now_ms, (system_ms() / 1000 + 60) as i32).unwrap();
        assert!(in_a_minute.abs_diff(now_ms + 60_000) < 2000);
        assert!(expires_at(&clock, now_ms, 2_592_001).unwrap() < now_ms);
        assert_eq!([1001, 2000, 3, 0].map(|at| seconds_left(at, 1000)), [1, 1, 0, 0]);
    }
}
