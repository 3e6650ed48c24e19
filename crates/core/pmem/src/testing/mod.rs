//! A domain for tests: [`CutShort`] is `Process` (or, by its flag, pays write-backs as `Adr`) and
//! stops a thread before its N-th write to a pool.
//!
//! *Killed*: the write and all later ones of that thread do not take place, and the thread
//! unwinds with [`Killed`]. What is in the pool then is what a `kill -9` at that instruction
//! leaves. *Stopped*: the thread sleeps for ever, or until the test lets it go on, and the others
//! must go on. Accesses to process memory by which threads meet count as writes for that.
//!
//! [`Between`] lets another thread come in before a chosen access, to reads too.
//!
//! Under any domain, [`refusal`] makes what allocation asks for run out.

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
use crate::domain::{Domain, DomainKind};
pub use crate::lease::LogicalThread;
pub use between::{Between, between, between_each};
pub(crate) use few_slots::first_slots;
pub use few_slots::with_few_slots;
pub use owned::{give_to, take_from};
pub use paused::Paused;
pub use pools::{active, folder, holds, room, stamped};

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
    /// The lines that this thread has written back, and what they held then, if a test asks.
    static WRITTEN_BACK: RefCell<Option<Lines>> = const { RefCell::new(None) };
    /// Who waits to hear that this thread has stopped.
    static WAITING: RefCell<Option<Sender<bool>>> = const { RefCell::new(None) };
    /// By what this thread, when it has stopped, is let go on.
    static GO_ON: RefCell<Option<Receiver<()>>> = const { RefCell::new(None) };
}

/// `Process`, or `Adr` if it pays for write-backs, with a thread's end at a chosen write.
#[derive(Clone, Copy, Debug, Default)]
pub struct CutShort<const WRITE_BACK: bool = false>;

impl<const WRITE_BACK: bool> Domain for CutShort<WRITE_BACK> {
    const KIND: DomainKind = if WRITE_BACK { DomainKind::Adr } else { DomainKind::Process };
    const WRITE_BACK: bool = WRITE_BACK;

    unsafe fn write_back(address: *const u8) {
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
        WRITES.set(WRITES.get() + 1);
        match FATE.get() {
            Fate::Live => true,
            Fate::Dead => false,
            Fate::KillAfter(0) => {
                FATE.set(Fate::Dead);
                std::panic::resume_unwind(Box::new(Killed));
            }
            Fate::StopAfter(0) => {
                // Nobody may be waiting, or the one that waited may have given up.
                let _ = WAITING.take().map(|waiting| waiting.send(false));
                FATE.set(Fate::Live);
                while GO_ON.take().is_none_or(|go_on| go_on.recv().is_err()) {
                    std::thread::park();
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

    /// A thread stops before such an access, too: what it has stored may not be durable yet. None
    /// is killed there, which would leave the same in the pool as at its next write.
    fn observe_process_memory() {
        // A thread that ends may have lost its variables.
        if FATE.try_with(Cell::get).is_ok_and(|fate| matches!(fate, Fate::StopAfter(_))) {
            Self::admit_store(0, 0);
        }
    }
}

/// Runs `work` and kills the thread's pool writes after `writes` of them. Returns the result, or
/// `None` if the cut came first.
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

/// From now on this thread stops for ever before its `writes`-th pool write.
pub fn stop_after(writes: u64) {
    FATE.set(Fate::StopAfter(writes));
}

/// Runs `work` in a thread of its own that stops for ever before its `writes`-th pool write.
/// Returns when the thread has stopped, or is done: whether it is done.
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

/// From now on this thread stops before its `writes`-th pool write and sends `false` by `stopped`;
/// it goes on, never to be stopped again, when something comes by `go_on`.
pub fn pause_after(writes: u64, stopped: Sender<bool>, go_on: Receiver<()>) {
    WAITING.replace(Some(stopped));
    GO_ON.replace(Some(go_on));
    FATE.set(Fate::StopAfter(writes));
}

/// From now on this thread is not stopped.
pub fn never_stop() {
    FATE.set(Fate::Live);
    WAITING.take();
    GO_ON.take();
}

/// Lines by their addresses, and what they hold.
pub type Lines = BTreeMap<usize, [u64; 8]>;

/// Runs `work`; returns also the lines that this thread has written back, with what they held when
/// it last did.
pub fn written_back<R>(work: impl FnOnce() -> R) -> (R, Lines) {
    WRITTEN_BACK.set(Some(Lines::new()));
    let result = work();
    (result, WRITTEN_BACK.take().unwrap_or_default())
}

/// How many pool writes `work` makes.
pub fn count_writes<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = WRITES.get();
    let result = work();
    (result, WRITES.get() - before)
}
