//! Lines in the log of the server, from any thread.

use crate::redis::Ctx;

/// Something that an operator should look at.
pub fn warning(text: &str) {
    Ctx::log("warning", text);
}

/// Something that happens rarely.
pub fn notice(text: &str) {
    Ctx::log("notice", text);
}
