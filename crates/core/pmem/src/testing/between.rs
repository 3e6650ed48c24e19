//! Another thread acts between two steps of an operation: before a chosen access of the operation's
//! thread to a word of the pool, or to a word of process memory that threads share.

use std::cell::{Cell, RefCell};

/// The work of the other thread. Returns after how many more accesses it runs again, if it does.
type Work = Box<dyn FnMut() -> Option<u64>>;

/// No access of this thread is chosen.
const NONE: u64 = u64::MAX;

thread_local! {
    /// How many accesses this thread makes before the work runs.
    static LEFT: Cell<u64> = const { Cell::new(NONE) };
    /// The work.
    static MEANWHILE: RefCell<Option<Work>> = const { RefCell::new(None) };
}

/// Runs `work`, and before its access number `access`, runs `meanwhile` in another thread. False if
/// `work` has fewer accesses.
pub fn between(
    access: u64,
    meanwhile: impl FnOnce() + Send + 'static,
    work: impl FnOnce(),
) -> bool {
    let mut meanwhile = Some(meanwhile);
    let once = move || {
        meanwhile.take().map(in_another_thread);
        None
    };
    run(access, Box::new(once), work)
}

/// Runs `work`, and runs `meanwhile` in another thread: before access number `first` of `work`, and
/// then each time after `every` further accesses, until `meanwhile` returns false or `work` ends.
pub fn between_each(
    first: u64,
    every: u64,
    mut meanwhile: impl FnMut() -> bool + Send + 'static,
    work: impl FnOnce(),
) {
    let again = move || in_another_thread(&mut meanwhile).then_some(every);
    run(first, Box::new(again), work);
}

/// Returns whether `meanwhile` has run for the last time.
fn run(first: u64, meanwhile: Work, work: impl FnOnce()) -> bool {
    MEANWHILE.set(Some(meanwhile));
    LEFT.set(first);
    work();
    LEFT.set(NONE);
    MEANWHILE.take().is_none()
}

fn in_another_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Called before each access.
#[inline]
pub(super) fn step() {
    match LEFT.get() {
        NONE => {}
        0 => act(),
        left => LEFT.set(left - 1),
    }
}

#[cold]
fn act() {
    // Further accesses of this thread run nothing until the work is put back.
    LEFT.set(NONE);
    let Some(mut work) = MEANWHILE.take() else { return };
    if let Some(accesses) = work() {
        MEANWHILE.set(Some(work));
        LEFT.set(accesses);
    }
}
