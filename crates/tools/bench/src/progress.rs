//! The progress bar of a run.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error with elapsed and remaining time; it is drawn on a terminal only.
pub fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let shape = "{bar:30} {percent:>3} % {elapsed_precise} (about {eta} left) {msg}";
    if let Ok(style) = ProgressStyle::with_template(shape) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
