//! The bar that every verb shows.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error with the elapsed and the remaining time. It is drawn only on a terminal.
/// The message shows the count so far (images, kills).
pub fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let shape = "{bar:24} {percent:>3} % {elapsed_precise} (about {eta} left) {msg}";
    if let Ok(style) = ProgressStyle::with_template(shape) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
