//! A domain for tests: [`CutShort`] is `Process` (or, by its flag, has write-backs like `Adr`), and
//! stops a thread before its N-th write to a pool.
//!
//! *Killed*: the write and all later writes of the thread do not take place, and the thread unwinds
//! with [`Killed`]. The pool then has the content that a `kill -9` at that instruction leaves.
//! *Stopped*: the thread sleeps forever, or until the test lets it continue, and the other threads
//! must make progress. Accesses to process memory that threads share count as writes for that.
//!
//! [`between`] lets another thread act before a chosen access, also before a read.
//!
//! Under any domain, [`refusal`] refuses resources that allocation needs.

mod between;
mod few_slots;
mod owned;
mod paused;
mod pools;
pub mod refusal;
pub mod watchdog;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

pub use crate::arena::Arena;
use crate::domain::Domain;
pub use crate::lease::LogicalThread;
pub use between::{between, between_each};
pub(crate) use few_slots::first_slots;
pub use few_slots::with_few_slots;
pub use owned::{give_to, take_from};
pub use paused::Paused;
pub use pools::{active, folder, folder_and_pool, holds, room, stamped};

/// The payload with which a killed thread unwinds.
#[derive(Debug)]
pub struct Killed;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Live,
    KillAfter(u64),
    StopAfter(u64),
    Dead,
}

thread_local! {
    static FATE: Cell<Fate> = const { Cell::new(Fate::Live) };
    static WRITES: Cell<u64> = const { Cell::new(0) };
    /// The lines that this thread has written back, with their content then, if a test needs them.
    static WRITTEN_BACK: RefCell<Option<Lines>> = const { RefCell::new(None) };
    /// The channel that says that this thread has stopped.
    static WAITING: RefCell<Option<Sender<bool>>> = const { RefCell::new(None) };
    /// The channel that lets this thread continue after it has stopped, and says after how many
    /// writes it stops again, if it does.
    static GO_ON: RefCell<Option<Receiver<Option<u64>>>> = const { RefCell::new(None) };
}

/// `Process`, or `Adr` with `WRITE_BACK`, with a thread that stops before a chosen write.
#[derive(Clone, Copy, Debug, Default)]
pub struct CutShort<const WRITE_BACK: bool = false>;

impl<const WRITE_BACK: bool> Domain for CutShort<WRITE_BACK> {
    fn needs_write_back() -> bool {
        WRITE_BACK
    }

    unsafe fn write_back(address: *const u8) {
        if FATE.get() == Fate::KillAfter(0) {
            // Nothing is written before the kill, which may have come before this.
            return;
        }
        WRITTEN_BACK.with_borrow_mut(|lines| {
            let Some(lines) = lines else { return };
            let line = address as usize / 64 * 64;
            let word = |index: usize| {
                // SAFETY: the caller vouches that the address, and so its line, is mapped; words of
                // a pool are only accessed atomically.
                unsafe { AtomicU64::from_ptr((line + index * 8) as *mut u64) }
                    .load(Ordering::Relaxed)
            };
            lines.insert(line, std::array::from_fn(word));
        });
    }

    fn fence() {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    }

    fn admit_store(_address: usize, _bytes: usize) -> bool {
        between::step();
        admit_write()
    }

    fn admit_transient_store(_address: usize) -> bool {
        between::step();
        true
    }

    fn observe_load(_address: usize, _bytes: usize) {
        between::step();
    }

    /// A thread stops before such an access, too: its stores may not be durable yet. It is not
    /// killed there: that would leave the same pool as a kill at its next write.
    fn observe_process_memory() {
        between::step();
        if let Fate::StopAfter(_) = FATE.get() {
            admit_write();
        }
    }
}

/// Counts a write, and stops the thread if it is the chosen one. Whether the write takes place.
#[inline]
fn admit_write() -> bool {
    WRITES.set(WRITES.get() + 1);
    FATE.get() == Fate::Live || admit_write_of_chosen()
}

#[cold]
fn admit_write_of_chosen() -> bool {
    match FATE.get() {
        Fate::Live => true,
        Fate::Dead => false,
        Fate::KillAfter(0) => {
            FATE.set(Fate::Dead);
            std::panic::resume_unwind(Box::new(Killed));
        }
        Fate::StopAfter(0) => {
            let (waiting, go_on) = (WAITING.take(), GO_ON.take());
            // No thread may wait for this, or the waiting thread may have ended.
            let _ = waiting.as_ref().map(|waiting| waiting.send(false));
            FATE.set(Fate::Live);
            let Some(next) = go_on.as_ref().and_then(|go_on| go_on.recv().ok()) else {
                loop {
                    std::thread::park();
                }
            };
            if let Some(writes) = next {
                FATE.set(Fate::StopAfter(writes));
                WAITING.replace(waiting);
                GO_ON.replace(go_on);
            }
            true
        }
        Fate::KillAfter(left) => {
            FATE.set(Fate::KillAfter(left - 1));
            true
        }
        Fate::StopAfter(left) => {
            FATE.set(Fate::StopAfter(left - 1));
            true
        }
    }
}

/// Runs `work`, and kills the thread after `writes` pool writes. Returns the result, or `None` if
/// the thread was killed first.
pub fn kill_after<R>(writes: u64, work: impl FnOnce() -> R) -> Option<R> {
    FATE.set(Fate::KillAfter(writes));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    FATE.set(Fate::Live);
    match result {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Killed>() => None,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Makes this thread stop forever before its `writes`-th pool write from now on.
pub fn stop_after(writes: u64) {
    FATE.set(Fate::StopAfter(writes));
}

/// Runs `work` in a thread of its own, which stops forever before its `writes`-th pool write.
/// Returns when the thread has stopped or finished: whether it has finished.
pub fn run_until_stopped(writes: u64, work: impl FnOnce() + Send + 'static) -> bool {
    let (sender, receiver) = channel();
    let spawned = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
        WAITING.replace(Some(sender.clone()));
        stop_after(writes);
        work();
        FATE.set(Fate::Live);
        WAITING.take();
        // As above.
        let _ = sender.send(true);
    });
    // A thread that could not be spawned, or that panicked, has sent nothing.
    spawned.is_ok() && receiver.recv().unwrap_or(true)
}

/// Makes this thread stop before its `writes`-th pool write from now on, and send `false` by
/// `stopped`. It continues when it receives something by `go_on`: a number after how many writes it
/// stops again, or none.
pub fn pause_after(writes: u64, stopped: Sender<bool>, go_on: Receiver<Option<u64>>) {
    WAITING.replace(Some(stopped));
    GO_ON.replace(Some(go_on));
    FATE.set(Fate::StopAfter(writes));
}

/// Lets this thread run without a stop from now on.
pub fn never_stop() {
    FATE.set(Fate::Live);
    WAITING.take();
    GO_ON.take();
}

/// Lines by their addresses, with their content.
pub type Lines = BTreeMap<usize, [u64; 8]>;

/// Runs `work`; returns also the lines that this thread has written back, with their content at the
/// last write-back. If `work` is killed, nothing is written back after its last write.
pub fn written_back<R>(work: impl FnOnce() -> R) -> (R, Lines) {
    WRITTEN_BACK.set(Some(Lines::new()));
    let result = work();
    (result, WRITTEN_BACK.take().unwrap_or_default())
}

/// Writes to `medium` the lines that a thread has written back in the pool in `arena`.
pub fn reach_medium(medium: &Arena, arena: &Arena, lines: &Lines) {
    for (line, words) in lines {
        for (off, &word) in (line - arena.address()..).step_by(8).zip(words) {
            medium.set_word(off as u64, word);
        }
    }
}

/// Runs `work`; returns also the number of its pool writes.
pub fn count_writes<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = WRITES.get();
    let result = work();
    (result, WRITES.get() - before)
}
