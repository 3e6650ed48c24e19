//! The emulated domain: `Adr` on a slow medium, with delays that are set.
//!
//! Two delays, in nanoseconds, hold for the whole process: one for each line that is written back,
//! one for each line that is read from the medium. A thread waits them out busily, as it would wait
//! for memory. The results say what a slower medium *would* cost, not what a real one did cost:
//!
//! * **Write-back.** `write_back` only notes the line: the instruction does not wait. The next
//!   [`fence`](Domain::fence) of the thread waits the delay for each line that was noted since the
//!   last fence. So lines are written one after the other, as by a medium without parallelism.
//! * **Read.** Each thread has a cache of [`CACHED_LINES`] lines, direct-mapped, which stands for
//!   the processor's own. A load of a line that is not in it waits, and puts the line in. A store
//!   puts its line in and does not wait (a store buffer hides it). A write-back does not remove the
//!   line (`clwb`). Lines that other threads write stay in: the real machine has its own coherence
//!   traffic.
//! * **Not emulated.** Prefetches do not hide a read here, and threads do not share bandwidth.
//!
//! The bookkeeping itself costs a few nanoseconds for each access. So compare with this domain with
//! both delays 0, not with `Adr`.
//!
//! None of this is compiled into the other domains.

use std::cell::RefCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::domain::{Adr, Domain};
use crate::write_back::LINE_BYTES;

/// Lines that each thread's emulated cache holds: 512 KiB.
pub const CACHED_LINES: usize = 8192;

/// The longest allowed delay of one line, in nanoseconds.
pub const MAX_DELAY_NS: u64 = 1_000_000;

/// Like [`Adr`], with delays; see the page of this module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emulated;

/// The delays of the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Nanoseconds for each line written back.
    pub write_back_ns: u64,
    /// Nanoseconds for each line read that is not in the thread's emulated cache.
    pub read_line_ns: u64,
}

/// A delay that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the delay {delay} is {found} ns; allowed is 0 to {MAX_DELAY_NS} ns")]
pub struct BadDelay {
    /// The delay's name.
    pub delay: &'static str,
    /// The value that was given, in nanoseconds.
    pub found: u64,
}

/// What one thread has paid for since its start, or since its last [`take_charges`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    /// Lines that were written back, and that a fence has waited for.
    pub lines_written_back: u64,
    /// Lines that were read, and were not in the emulated cache.
    pub lines_read: u64,
    /// The delays for these lines, in nanoseconds.
    pub waited_ns: u64,
}

// Relaxed everywhere: each number is independent. A change that is seen a little later changes the
// delay a little later.
static WRITE_BACK_NS: AtomicU64 = AtomicU64::new(0);
static READ_LINE_NS: AtomicU64 = AtomicU64::new(0);

/// Sets the delays of all emulated pools of this process.
pub fn set_delays(delays: Delays) -> Result<(), BadDelay> {
    let named = [("write_back_ns", delays.write_back_ns), ("read_line_ns", delays.read_line_ns)];
    if let Some((delay, found)) = named.into_iter().find(|&(_, found)| found > MAX_DELAY_NS) {
        return Err(BadDelay { delay, found });
    }
    WRITE_BACK_NS.store(delays.write_back_ns, Ordering::Relaxed);
    READ_LINE_NS.store(delays.read_line_ns, Ordering::Relaxed);
    Ok(())
}

/// The current delays.
pub fn delays() -> Delays {
    Delays {
        write_back_ns: WRITE_BACK_NS.load(Ordering::Relaxed),
        read_line_ns: READ_LINE_NS.load(Ordering::Relaxed),
    }
}

/// What the calling thread has paid for since its last call of this function.
pub fn take_charges() -> Charges {
    THREAD.with_borrow_mut(|thread| std::mem::take(&mut thread.charges))
}

/// Empties the calling thread's emulated cache, so that each line is read from the medium again.
pub fn forget_cached_lines() {
    THREAD.with_borrow_mut(|thread| thread.cached.clear());
}

/// The state of one thread.
#[derive(Default)]
struct Thread {
    /// The number of the line at each place of the cache, plus one; empty before the first access.
    cached: Vec<usize>,
    /// Lines whose write-back has begun, and that no fence has waited for.
    pending: u64,
    charges: Charges,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(Thread::default());
}

impl Thread {
    /// Puts the lines of a range into the cache; returns how many were not there.
    fn touch(&mut self, address: usize, bytes: usize) -> u64 {
        if self.cached.is_empty() {
            self.cached.resize(CACHED_LINES, 0);
        }
        let line_bytes = LINE_BYTES as usize;
        let (first, last) = (address / line_bytes, (address + bytes.max(1) - 1) / line_bytes);
        let mut missed = 0;
        for line in first..=last {
            let place = &mut self.cached[line % CACHED_LINES];
            missed += u64::from(*place != line + 1);
            *place = line + 1;
        }
        missed
    }
}

/// Calls `work` with the thread's state, and waits for the nanoseconds that it returns.
#[inline]
fn charge(work: impl FnOnce(&mut Thread) -> u64) {
    // A thread that ends gives its participant slots back, perhaps after this state was dropped.
    let due_ns = THREAD.try_with(|thread| {
        let thread = &mut thread.borrow_mut();
        let due_ns = work(thread);
        thread.charges.waited_ns += due_ns;
        due_ns
    });
    if let Ok(due_ns @ 1..) = due_ns {
        wait(Duration::from_nanos(due_ns));
    }
}

#[cold]
fn wait(due: Duration) {
    let start = Instant::now();
    while start.elapsed() < due {
        spin_loop();
    }
}

impl Domain for Emulated {
    // It behaves as `Adr`: an `Adr` pool may be opened under it, and the other way round.
    fn needs_write_back() -> bool {
        true
    }

    unsafe fn write_back(address: *const u8) {
        charge(|thread| {
            thread.pending += 1;
            0
        });
        // SAFETY: the caller guarantees that the address is mapped.
        unsafe { Adr::write_back(address) }
    }

    fn fence() {
        Adr::fence();
        charge(|thread| {
            let lines = std::mem::take(&mut thread.pending);
            thread.charges.lines_written_back += lines;
            lines * WRITE_BACK_NS.load(Ordering::Relaxed)
        });
    }

    fn admit_store(address: usize, bytes: usize) -> bool {
        charge(|thread| {
            thread.touch(address, bytes);
            0
        });
        true
    }

    fn observe_load(address: usize, bytes: usize) {
        charge(|thread| {
            let lines = thread.touch(address, bytes);
            thread.charges.lines_read += lines;
            lines * READ_LINE_NS.load(Ordering::Relaxed)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::layout::CATALOG_OFF;
    use crate::{CreateOptions, Pool};

    /// The delays hold for the process, so tests that depend on them run one at a time.
    static TURN: Mutex<()> = Mutex::new(());

    fn under<R>(write_back_ns: u64, read_line_ns: u64, work: impl FnOnce() -> R) -> R {
        let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        set_delays(Delays { write_back_ns, read_line_ns }).unwrap();
        let result = work();
        set_delays(Delays::default()).unwrap();
        result
    }

    fn pool() -> Arc<Pool<Emulated>> {
        let options = CreateOptions { max_bytes: 4 << 20, ..Default::default() };
        Pool::anonymous(&options).unwrap()
    }

    fn charges_of(work: impl FnOnce()) -> Charges {
        take_charges();
        work();
        take_charges()
    }

    #[test]
    fn a_fence_waits_for_each_line_written_back_before_it() {
        let pool = pool();
        let word = |line: u64| pool.word(CATALOG_OFF + line * LINE_BYTES);
        under(300, 0, || {
            Emulated::fence();
            let charges = charges_of(|| {
                for line in 0..3 {
                    word(line).store(1, Ordering::Release);
                    word(line).flush();
                }
            });
            assert_eq!(charges, Charges::default(), "the write-back itself does not wait");
            let charges = charges_of(Emulated::fence);
            let due = Charges { lines_written_back: 3, lines_read: 0, waited_ns: 900 };
            assert_eq!(charges, due);
            assert_eq!(charges_of(Emulated::fence), Charges::default(), "and none twice");
        });
    }

    #[test]
    fn a_line_is_read_once_while_it_is_cached() {
        let pool = pool();
        let load = |off: u64| {
            pool.word(off).load(Ordering::Acquire);
        };
        under(0, 70, || {
            forget_cached_lines();
            let charges = charges_of(|| {
                load(CATALOG_OFF);
                load(CATALOG_OFF + 8);
                load(CATALOG_OFF + LINE_BYTES);
            });
            assert_eq!(charges, Charges { lines_written_back: 0, lines_read: 2, waited_ns: 140 });
            // The line that is one cache size further takes the same place, so each load misses.
            let far = CATALOG_OFF + CACHED_LINES as u64 * LINE_BYTES;
            let charges = charges_of(|| {
                for off in [far, CATALOG_OFF, far] {
                    load(off);
                }
            });
            assert_eq!(charges.lines_read, 3);
        });
    }

    #[test]
    fn a_line_that_was_stored_to_is_not_read() {
        let pool = pool();
        let word = pool.word(CATALOG_OFF);
        under(0, 0, || {
            forget_cached_lines();
            let charges = charges_of(|| {
                word.store(1, Ordering::Release);
                word.flush();
                Emulated::fence();
                word.load(Ordering::Acquire);
            });
            assert_eq!(charges, Charges { lines_written_back: 1, lines_read: 0, waited_ns: 0 });
        });
    }

    #[test]
    fn a_delay_out_of_range_is_named_and_changes_nothing() {
        under(5, 6, || {
            let error = set_delays(Delays { write_back_ns: 1, read_line_ns: 1 << 40 }).unwrap_err();
            assert_eq!(error.delay, "read_line_ns");
            assert!(error.to_string().contains("0 to 1000000 ns"), "{error}");
            assert_eq!(delays(), Delays { write_back_ns: 5, read_line_ns: 6 });
        });
    }
}
