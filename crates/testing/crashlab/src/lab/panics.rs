//! Panics of tested code: kept as text, not printed.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use super::domain::Aborted;

thread_local! {
    /// The text of this thread's last panic, while `attempt` is running.
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

static LISTEN: Once = Once::new();

/// From now on panics within [`attempt`] are not printed. The first call must not be within a
/// scheduled run.
pub fn listen() {
    LISTEN.call_once(|| {
        // Installs the scheduler's hook, which prints, before this one.
        shuttle::check_random(|| {}, 1);
        let before = take_hook();
        set_hook(Box::new(move |info| {
            let heard = HEARD.with_borrow_mut(|heard| {
                let listening = heard.is_some();
                if listening {
                    let place = info.location().map(ToString::to_string).unwrap_or_default();
                    let message = info.payload_as_str().unwrap_or("a panic without a message");
                    *heard = Some(format!("panic: {message} ({place})"));
                }
                listening
            });
            if !heard {
                before(info);
            }
        }));
    });
}

/// The result of `work`, or the text of its panic; `Ok(None)` if another thread's fault aborted it.
pub fn attempt<R>(work: impl FnOnce() -> Result<R, String>) -> Result<Option<R>, String> {
    let before = HEARD.replace(Some(String::new()));
    let ended = catch_unwind(AssertUnwindSafe(work));
    let heard = HEARD.replace(before);
    match ended {
        Ok(result) => result.map(Some),
        Err(payload) if payload.is::<Aborted>() => Ok(None),
        Err(_) => Err(heard.unwrap_or_default()),
    }
}
