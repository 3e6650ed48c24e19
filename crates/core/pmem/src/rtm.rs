//! Restricted transactional memory (RTM, Intel TSX): short sections that the processor commits as a
//! whole or not at all.
//!
//! The processor never *has* to commit a transaction: a conflict, one line too many, an interrupt
//! or a system call aborts it. So every user needs another way to finish, after a bounded number of
//! attempts. A write-back aborts a transaction, too. So the stores of a transaction are durable
//! only after a write-back that follows it.

use std::sync::atomic::{AtomicU8, Ordering};

/// The processor has undone the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

/// 0 until the processor was tested; then [`NO`] or [`YES`]. A thread that sees 0 tests it too, so
/// no thread waits. Relaxed suffices: no other data depends on the result.
static FOUND: AtomicU8 = AtomicU8::new(0);
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether the processor has RTM and commits transactions. On many processors RTM is switched off,
/// and each transaction aborts. Tested once in a process.
#[inline]
pub fn is_available() -> bool {
    match FOUND.load(Ordering::Relaxed) {
        0 => test(),
        found => found == YES,
    }
}

#[cold]
fn test() -> bool {
    /// How many transactions are tried.
    const ATTEMPTS: usize = 64;
    let available = imp::is_supported() && (0..ATTEMPTS).any(|_| imp::attempt(|| ()).is_ok());
    let answer = if available { YES } else { NO };
    // Two threads may find different results by chance; the first result is kept.
    match FOUND.compare_exchange(0, answer, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => available,
        Err(found) => found == YES,
    }
}

/// Runs `work` in a transaction. If it aborts, no other thread ever sees a store of it.
///
/// The transaction is atomic for other threads: their accesses to the lines that `work` read or
/// wrote come before or after it. `work` should be short, and only read and write memory: a system
/// call in it aborts, and so does an allocation that needs one. Always [`Aborted`] where RTM is not
/// available.
#[inline]
pub fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, Aborted> {
    if is_available() { imp::attempt(work) } else { Err(Aborted) }
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::arch::asm;

    use super::Aborted;

    /// The content of the status register after `xbegin`, in a transaction that has begun.
    const BEGUN: u32 = u32::MAX;

    pub fn is_supported() -> bool {
        std::arch::is_x86_feature_detected!("rtm")
    }

    #[inline]
    pub fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, Aborted> {
        let mut status = BEGUN;
        // SAFETY: the processor has RTM (`is_available` has tested it). An abort returns to the
        // label here, with all memory and all registers except the status as they were before
        // `xbegin`. For the program, the instruction has just returned that status.
        unsafe { asm!("xbegin 2f", "2:", inout("eax") status) };
        if status != BEGUN {
            return Err(Aborted);
        }
        let result = work();
        // SAFETY: in the transaction that was begun above. (If `work` unwinds, this is not reached.
        // The transaction continues until something aborts it, at the latest the next interrupt.
        // Then the thread is at the label above, and all stores are undone.)
        unsafe { asm!("xend") };
        Ok(result)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod imp {
    use super::Aborted;

    pub fn is_supported() -> bool {
        false
    }

    pub fn attempt<R>(_work: impl FnOnce() -> R) -> Result<R, Aborted> {
        Err(Aborted)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn what_is_aborted_was_never_there() {
        let word = AtomicU64::new(1);
        let aborted = attempt(|| {
            word.store(2, Ordering::Relaxed);
            // A system call.
            std::thread::yield_now();
        });
        assert_eq!((aborted, word.load(Ordering::Relaxed)), (Err(Aborted), 1));
    }

    #[test]
    fn transactions_come_one_after_the_other() {
        const EACH: u64 = 20_000;
        let (left, right, by_transaction) =
            (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let add = || {
            let both = || {
                // Relaxed: the transaction orders them.
                left.store(left.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                right.store(right.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            };
            for _ in 0..EACH {
                let done = (0..8).any(|_| attempt(both).is_ok());
                by_transaction.fetch_add(u64::from(done), Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(add))));
        let done = by_transaction.load(Ordering::Relaxed);
        assert_eq!((left.into_inner(), right.into_inner()), (done, done));
        assert!(!is_available() || done > 0);
    }
}
