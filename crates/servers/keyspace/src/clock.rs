//! The store's clock: milliseconds that are independent of changes of the system's clock.
//!
//! It is the time since the machine was booted plus an offset. At the first start after a boot, the
//! offset is chosen so that the clock equals the system's time. The offset is kept in the store
//! with the boot's id. So a key lives for its time to live, also through restarts and changes of
//! the system's clock. Timestamps of clients (EXPIREAT, TIME) are of the system's clock and are
//! translated. After a reboot a new offset is chosen, because only the system's clock knows how
//! long the machine was off.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

const BOOT_ID_BYTES: usize = 36;

/// The store's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The difference between this clock and the milliseconds since boot.
    offset_ms: u64,
}

fn since_boot_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// The system's time, in milliseconds since 1970.
pub fn system_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn boot_id() -> Vec<u8> {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.into_iter().take(BOOT_ID_BYTES).collect()
}

impl Clock {
    /// The clock that `kept` describes, if it is of this boot; otherwise a new clock.
    pub fn continue_or_begin(kept: Option<&[u8]>) -> Self {
        let of_this_boot = kept.and_then(|kept| kept.split_first_chunk::<8>()).filter(|(_, id)| {
            // Without an id the boot is unknown.
            !id.is_empty() && *id == boot_id()
        });
        match of_this_boot {
            Some((offset, _)) => Self { offset_ms: u64::from_le_bytes(*offset) },
            None => Self { offset_ms: system_ms().saturating_sub(since_boot_ms()) },
        }
    }

    /// The input of [`continue_or_begin`](Self::continue_or_begin): the offset, and the boot's id.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.offset_ms.to_le_bytes()[..], &boot_id()].concat()
    }

    /// The current time of this clock.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        since_boot_ms() + self.offset_ms
    }

    /// Translates a time of the system's clock to this clock.
    pub fn by_store(&self, at_system_ms: i64) -> i64 {
        at_system_ms.saturating_sub(self.ahead_ms())
    }

    /// Translates a time of this clock to the system's clock.
    pub fn by_system(&self, at_ms: u64) -> i64 {
        (at_ms as i64).saturating_add(self.ahead_ms())
    }

    /// The system's clock minus this clock.
    fn ahead_ms(&self) -> i64 {
        let ahead = system_ms() as i64 - self.now_ms() as i64;
        // A difference of 2 ms comes from reading the clocks one after the other.
        if ahead.abs() <= 2 { 0 } else { ahead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_this_boot_goes_on_whatever_the_systems_clock_says() {
        let stepped = Clock { offset_ms: 1_000_000 };
        let again = Clock::continue_or_begin(Some(&stepped.encode()));
        assert_eq!(again.offset_ms, 1_000_000);
        let of_another_boot = [&7u64.to_le_bytes()[..], b"another"].concat();
        for kept in [None, Some(&of_another_boot[..]), Some(&b"short"[..])] {
            let begun = Clock::continue_or_begin(kept);
            assert!(begun.now_ms().abs_diff(system_ms()) < 1000);
        }
        assert!(stepped.by_system(stepped.now_ms()).abs_diff(system_ms() as i64) < 1000);
        let soon = system_ms() as i64 + 5000;
        assert!(stepped.by_store(soon).abs_diff(stepped.now_ms() as i64 + 5000) < 1000);
    }
}
