//! Lines in the log of the server, from any thread.

use crate::redis::{Ctx, end_at_once};

/// Something that an operator should look at.
pub fn warning(text: &str) {
    Ctx::log("warning", text);
}

/// Something that happens rarely.
pub fn notice(text: &str) {
    Ctx::log("notice", text);
}

/// The end of the server, before it replies to the command that runs.
pub fn fatal(text: &str) -> ! {
    Ctx::log("warning", text);
    end_at_once();
}
