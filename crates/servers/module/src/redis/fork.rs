//! Handlers of `fork`, and the end of a child.

use std::sync::OnceLock;

/// The functions that [`watch_forks`] has got.
struct Handlers {
    before: fn(),
    in_server: fn(),
    in_child: fn(),
}

static HANDLERS: OnceLock<Handlers> = OnceLock::new();

extern "C" fn before() {
    if let Some(handlers) = HANDLERS.get() {
        (handlers.before)();
    }
}

extern "C" fn in_server() {
    if let Some(handlers) = HANDLERS.get() {
        (handlers.in_server)();
    }
}

extern "C" fn in_child() {
    if let Some(handlers) = HANDLERS.get() {
        (handlers.in_child)();
    }
}

/// Calls functions around each `fork` of this process: before it, and after it in both processes.
/// Only the first call has an effect.
pub fn watch_forks(before_fork: fn(), after_in_server: fn(), after_in_child: fn()) {
    let handlers =
        Handlers { before: before_fork, in_server: after_in_server, in_child: after_in_child };
    if HANDLERS.set(handlers).is_ok() {
        // SAFETY: the functions stay valid: the server does not unload a module with a data type.
        unsafe { libc::pthread_atfork(Some(before), Some(in_server), Some(in_child)) };
    }
}

/// Kills this process, as `kill -9` does. In a child that saves it is a failure after which Redis
/// removes the unfinished file: after an exit with an error, the file would stay.
pub fn kill_this_process() -> ! {
    // SAFETY: it has no precondition.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    end_at_once();
}

/// Ends the process with an error, without exit handlers.
pub fn end_at_once() -> ! {
    // SAFETY: it has no precondition.
    unsafe { libc::_exit(1) }
}
