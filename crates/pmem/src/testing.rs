//! A domain for tests: [`CutShort`] is `Process` (or, by its flag, pays write-backs as `Adr`) and
//! stops a thread before its N-th write to a pool.
//!
//! *Killed*: the write and all later ones of that thread do not take place, and the thread
//! unwinds with [`Killed`]. What is in the pool then is what a `kill -9` at that instruction
//! leaves. *Stopped*: the thread sleeps for ever, and the others must go on.

use std::cell::Cell;

use crate::domain::{Domain, DomainKind};

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
}

/// `Process` with a thread's end at a chosen write.
#[derive(Clone, Copy, Debug, Default)]
pub struct CutShort;

impl Domain for CutShort {
    const KIND: DomainKind = DomainKind::Process;
    const WRITE_BACK: bool = false;

    unsafe fn write_back(_address: *const u8) {}

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
            Fate::StopAfter(0) => loop {
                std::thread::park();
            },
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

/// How many pool writes `work` makes.
pub fn count_writes<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let before = WRITES.get();
    let result = work();
    (result, WRITES.get() - before)
}
