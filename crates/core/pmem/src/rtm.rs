//! Restricted transactional memory (RTM, Intel TSX): short sections that the processor commits as a
//! whole or not at all, where it has them.
//!
//! It never *has* to commit one: a conflict, a line too many, an interrupt or a system call aborts.
//! So every user needs another way to its end, after a bounded number of attempts. A write-back
//! aborts a transaction, too, so nothing in one is durable until it is written back behind it.

use std::sync::atomic::{AtomicU8, Ordering};

/// The processor took back what the section did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

/// 0 until the processor was asked; then [`NO`] or [`YES`]. Nobody waits for another's answer: who
/// sees 0 asks too. Relaxed suffices: the answer is all there is to it.
static FOUND: AtomicU8 = AtomicU8::new(0);
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether the processor has RTM, and lets transactions commit; many have it switched off, so that
/// each aborts. Tried once in a process.
#[inline]
pub fn is_available() -> bool {
    match FOUND.load(Ordering::Relaxed) {
        0 => ask(),
        found => found == YES,
    }
}

#[cold]
fn ask() -> bool {
    /// How often it is tried.
    const ATTEMPTS: usize = 64;
    let available = imp::is_supported() && (0..ATTEMPTS).any(|_| imp::attempt(|| ()).is_ok());
    let answer = if available { YES } else { NO };
    // Chance may answer two threads differently; the first answer stands.
    match FOUND.compare_exchange(0, answer, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => available,
        Err(found) => found == YES,
    }
}

/// Runs `work` in a transaction. If it is aborted, nothing that it wrote was ever there.
///
/// All that other threads do to the lines that `work` read or wrote comes before or after it.
/// `work` should be short, and do nothing but read and write memory: a system call in it aborts, so
/// does an allocation that needs one. Always [`Aborted`] where RTM is not available.
#[inline]
pub fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, Aborted> {
    if is_available() { imp::attempt(work) } else { Err(Aborted) }
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::arch::asm;

    use super::Aborted;

    /// What the status register holds behind `xbegin` in a transaction that has begun.
    const BEGUN: u32 = u32::MAX;

    pub fn is_supported() -> bool {
        std::arch::is_x86_feature_detected!("rtm")
    }

    #[inline]
    pub fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, Aborted> {
        let mut status = BEGUN;
        // SAFETY: the processor has RTM (`is_available` asked). An abort comes back here, to the
        // label, with all registers but the status and all memory as they were before `xbegin`: to
        // the program it is as if the instruction had only ever returned that status.
        unsafe { asm!("xbegin 2f", "2:", inout("eax") status) };
        if status != BEGUN {
            return Err(Aborted);
        }
        let result = work();
        // SAFETY: in the transaction that was begun above. (If `work` unwinds it does not come
        // here: the transaction goes on until something aborts it, the next interrupt at the
        // latest, and then the thread is at the label above, as if nothing had been.)
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
