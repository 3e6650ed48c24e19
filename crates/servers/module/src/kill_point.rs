//! The places at which tests kill the server, or let a commit fail. A build without the feature
//! `testing` has none.
//!
//! `PANDO_KILL_AT` is the name of a place and a number: `names after commit:2` kills the process
//! when it is there for the second time.
//!
//! `PANDO_FAIL_BY` is a file. While it is there, and has the name of a place, that place fails as
//! in a full file system.

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

/// A place at which a test may let a commit fail.
#[cfg(not(feature = "testing"))]
pub fn fail_point(_: impl std::fmt::Display) -> Result<(), pando::Error> {
    Ok(())
}

/// Fails while the file has the name of this place.
#[cfg(feature = "testing")]
pub fn fail_point(place: impl std::fmt::Display) -> Result<(), pando::Error> {
    use std::path::PathBuf;
    use std::sync::OnceLock;

    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(file) = FILE.get_or_init(|| std::env::var_os("PANDO_FAIL_BY").map(PathBuf::from))
    else {
        return Ok(());
    };
    match std::fs::read_to_string(file) {
        Ok(wanted) if wanted == place.to_string() => Err(pando::Error::FileSystemFull {
            from_bytes: 0,
            to_bytes: 0,
            cause: std::io::Error::other("a test"),
        }),
        _ => Ok(()),
    }
}
