//! A domain in which another thread acts between two steps of an operation: before a chosen access
//! of the operation's thread.

use std::cell::RefCell;

use crate::domain::Domain;

/// The work of the other thread. Returns after how many more accesses it runs again, if it does.
type Work = Box<dyn FnMut() -> Option<u64>>;

thread_local! {
    /// The work, and after how many accesses of this thread it runs.
    static MEANWHILE: RefCell<Option<(u64, Work)>> = const { RefCell::new(None) };
}

/// Like `Adr`, and runs work before a chosen access of a thread: to a word of the pool, or to a
/// word of process memory that threads share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Between;

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
    MEANWHILE.set(Some((access, Box::new(once))));
    work();
    MEANWHILE.take().is_none()
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
    MEANWHILE.set(Some((first, Box::new(again))));
    work();
    MEANWHILE.take();
}

fn in_another_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let done = std::thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn step() {
    // A thread that ends gives its participant slots back, perhaps after this variable was dropped.
    let due = MEANWHILE.try_with(|meanwhile| {
        let mut meanwhile = meanwhile.borrow_mut();
        match &mut *meanwhile {
            Some((0, _)) => meanwhile.take(),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        }
    });
    if let Ok(Some((_, mut work))) = due
        && let Some(accesses) = work()
    {
        MEANWHILE.set(Some((accesses, work)));
    }
}

impl Domain for Between {
    const WRITE_BACK: bool = true;

    unsafe fn write_back(_address: *const u8) {}

    fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    }

    fn admit_store(_address: usize, _bytes: usize) -> bool {
        step();
        true
    }

    fn admit_transient_store(_address: usize) -> bool {
        step();
        true
    }

    fn observe_load(_address: usize, _bytes: usize) {
        step();
    }

    fn observe_process_memory() {
        step();
    }
}
