//! Times: 12 bytes. The seconds since the beginning of 1970 (UTC, without leap seconds) as an
//! `i64`, rounded down; then the nanoseconds behind them as a `u32` below 1,000,000,000.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{AsKey, Key, KeyError};

const NANOSECONDS: u32 = 1_000_000_000;

impl AsKey<SystemTime> for SystemTime {
    fn encode_element(&self, bytes: &mut Vec<u8>) -> Result<(), KeyError> {
        let (seconds, nanoseconds) = match self.duration_since(UNIX_EPOCH) {
            Ok(after) => (i128::from(after.as_secs()), after.subsec_nanos()),
            Err(error) => {
                let before = error.duration();
                let (seconds, nanoseconds) = (i128::from(before.as_secs()), before.subsec_nanos());
                match nanoseconds {
                    0 => (-seconds, 0),
                    _ => (-seconds - 1, NANOSECONDS - nanoseconds),
                }
            }
        };
        let seconds = i64::try_from(seconds).map_err(|_| KeyError::NoTime { seconds })?;
        AsKey::<(i64, u32)>::encode_element(&(seconds, nanoseconds), bytes)
    }
}

impl Key for SystemTime {
    fn decode_element(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        let (seconds, nanoseconds) = <(i64, u32)>::decode_element(bytes)?;
        if nanoseconds >= NANOSECONDS {
            return Err(KeyError::TooManyNanoseconds { found: nanoseconds });
        }
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let begin = match seconds < 0 {
            true => UNIX_EPOCH.checked_sub(whole),
            false => UNIX_EPOCH.checked_add(whole),
        };
        let time = begin.and_then(|begin| begin.checked_add(Duration::new(0, nanoseconds)));
        time.ok_or(KeyError::NoTime { seconds: seconds.into() })
    }
}
