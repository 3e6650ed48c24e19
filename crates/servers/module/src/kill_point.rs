//! The places at which tests kill the server. A build without the feature `testing` has none.
//!
//! `PANDO_KILL_AT` is the name of a place and a number: `names after commit:2` kills the process
//! when it is there for the second time.

/// A place at which a test may kill the process.
#[cfg(not(feature = "testing"))]
pub fn kill_point(_: &str) {}

/// Kills the process, if the environment names this place.
#[cfg(feature = "testing")]
pub fn kill_point(place: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static WANTED: OnceLock<Option<(String, AtomicU64)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("PANDO_KILL_AT").ok()?;
        let (place, times) = text.rsplit_once(':')?;
        Some((place.to_owned(), AtomicU64::new(times.parse().ok()?)))
    });
    if let Some((wanted, times)) = wanted
        && wanted == place
        && times.fetch_sub(1, Ordering::Relaxed) == 1
    {
        crate::redis::kill_this_process();
    }
}
