//! What others do between two steps of an operation: a domain in which something is done to its end before a chosen
//! access of a thread.

use std::cell::RefCell;

use crate::domain::{Domain, DomainKind};

type Work = Box<dyn FnOnce()>;

thread_local! {
    /// After how many accesses of this thread what is to be done.
    static MEANWHILE: RefCell<Option<(u64, Work)>> = const { RefCell::new(None) };
}

/// As `Adr`, with something done before one access of a thread: to a word of the pool, or to one of process
/// memory by which threads meet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Between;

/// Runs `work`, and in another thread `meanwhile` before its access number `access`; false if `work` has fewer.
pub fn between(
    access: u64,
    meanwhile: impl FnOnce() + Send + 'static,
    work: impl FnOnce(),
) -> bool {
    let meanwhile = move || {
        if let Err(panic) = std::thread::spawn(meanwhile).join() {
            std::panic::resume_unwind(panic);
        }
    };
    MEANWHILE.set(Some((access, Box::new(meanwhile))));
    work();
    MEANWHILE.take().is_none()
}

fn step() {
    // A thread that ends gives its participant slots back when its own variables may be gone.
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
    if let Ok(Some((_, work))) = due {
        work();
    }
}

impl Domain for Between {
    const KIND: DomainKind = DomainKind::Adr;
    const WRITE_BACK: bool = true;

    unsafe fn write_back(_address: *const u8) {}

    fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    }

    fn admit_store(_address: usize, _bytes: usize) -> bool {
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
