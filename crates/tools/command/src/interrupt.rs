//! The end of a command by SIGINT (`^C`) or SIGTERM.
//!
//! A command that would leave something behind, or that its user waits for, says its last words
//! first. Then the signal ends the process, as it would have without this. A pool survives that end
//! at any instruction, so nothing waits for a thread of the command. Only the tour waits until the
//! pool, or the process, that it is just creating is there, because it removes both.

use std::fs;
use std::io::{IsTerminal, Write};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::Failure;

/// Calls `last_words` when one of the signals comes, in a thread of its own, says what it returns,
/// and then ends the process by the signal. A signal that the process ignores, as a background job
/// of a script does SIGINT, is ignored further on.
pub fn before_the_end(
    last_words: impl FnOnce() -> Option<String> + Send + 'static,
) -> Result<(), Failure> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let watched = [SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(&status, *signal));
    let mut signals = Signals::new(watched).map_err(Failure::system("cannot watch for signals"))?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            if let Some(words) = last_words() {
                // A terminal has shown `^C`, and maybe a bar, in the present line.
                let gap = if std::io::stderr().is_terminal() { "\n" } else { "" };
                // If standard error is closed, no message is possible.
                let _ = writeln!(std::io::stderr(), "{gap}pando: interrupted{words}");
            }
            // It returns only if the system refuses; the command then goes on.
            let _ = emulate_default_handler(signal);
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
    thread.map(drop).map_err(Failure::system("cannot start a thread"))
}

/// Whether the mask of ignored signals in a text of `/proc/PID/status` has this one.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "SigBlk:\t0000000000000002\nSigIgn:\t0000000000001002\n";
        assert!(is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGINT));
    }
}
