//! The progress of a long command: a bar on a terminal, occasional lines elsewhere, on standard
//! error in both cases.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::rate_text;

const BAR_EVERY: Duration = Duration::from_millis(100);
/// The first line comes early: a command that is killed soon after should have shown one.
const FIRST_LINE_AFTER: Duration = Duration::from_secs(1);
const LINE_EVERY: Duration = Duration::from_secs(5);
const BAR_STEPS: u64 = 1000;

/// The progress of one command.
pub struct Progress {
    what: &'static str,
    /// The total work, in any unit, if it is known.
    total: Option<u64>,
    begin: Instant,
    bar: Option<ProgressBar>,
    /// When it was shown last.
    shown: Mutex<Option<Instant>>,
}

impl Progress {
    /// Begins; `what` is one word for the work on the records.
    pub fn new(what: &'static str, total: Option<u64>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = match total {
                Some(_) => ProgressBar::new(BAR_STEPS),
                None => ProgressBar::new_spinner(),
            };
            bar.set_draw_target(ProgressDrawTarget::stderr());
            let template = if total.is_some() { "{wide_bar} {msg}" } else { "{spinner} {msg}" };
            // The templates are constants that are correct; the default would work too.
            bar.with_style(
                ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        let begin = Instant::now();
        Self { what, total, begin, bar, shown: Mutex::new(None) }
    }

    /// Reports the position within the total, and the number of finished records. It is cheap
    /// enough for frequent calls.
    pub fn update(&self, position: u64, records: u64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let every = match (&self.bar, *shown) {
            (Some(_), _) => BAR_EVERY,
            (None, None) => FIRST_LINE_AFTER,
            (None, Some(_)) => LINE_EVERY,
        };
        if shown.unwrap_or(self.begin).elapsed() < every {
            return;
        }
        *shown = Some(Instant::now());
        drop(shown);
        let text = progress_text(self.what, self.begin.elapsed(), position, self.total, records);
        match &self.bar {
            Some(bar) => {
                if let Some(total) = self.total {
                    bar.set_position(part(position, total, BAR_STEPS));
                }
                bar.set_message(text);
                bar.tick();
            }
            None => self.note(&text),
        }
    }

    /// Prints a line without disturbing the bar.
    pub fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => {
                // If standard error is closed, no message is possible.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        }
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn part(position: u64, total: u64, of: u64) -> u64 {
    (u128::from(position.min(total)) * u128::from(of) / u128::from(total.max(1))) as u64
}

fn progress_text(
    what: &str,
    elapsed: Duration,
    position: u64,
    total: Option<u64>,
    records: u64,
) -> String {
    let count = HumanCount(records);
    let rate = rate_text(records, elapsed);
    let mut text = format!("{what} {count} records, {rate} records/s");
    if let Some(total) = total {
        text += &format!(", {} %", part(position, total, 100));
        if position > 0 {
            let left = total.saturating_sub(position) as f64 / position as f64;
            text += &format!(", {:.0} s left", elapsed.as_secs_f64() * left);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_rate_part_and_time_left() {
        let two_seconds = Duration::from_secs(2);
        assert_eq!(
            progress_text("loaded", two_seconds, 250, Some(1000), 4000),
            "loaded 4,000 records, 2,000 records/s, 25 %, 6 s left"
        );
        assert_eq!(
            progress_text("loaded", two_seconds, 250, None, 4000),
            "loaded 4,000 records, 2,000 records/s"
        );
        assert!(progress_text("loaded", Duration::ZERO, 0, Some(0), 0).contains("0 %"));
    }
}
