//! The domain of pools in the crash lab, and its hooks.
//!
//! All state belongs to one system thread. The logical threads of a run are coroutines on it, so
//! several trials can run at the same time on different system threads.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use pando_device::Operation;
use pando_device::simulated::Simulated;
use pando_pmem::Domain;
use pando_pmem::testing::LogicalThread;

use super::recorder::Recorder;

/// The work of the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Idle,
    /// Note the lines that are stored to, so that they can be restored, and count steps.
    Track,
    /// Record one thread.
    Record,
    /// Record, and let the scheduler choose the next thread at each step.
    Schedule,
    /// A fault was found: no store takes place, and a thread that takes a step unwinds.
    Abort,
}

/// The payload with which logical threads unwind when a run is aborted.
#[derive(Debug)]
pub struct Aborted;

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Idle) };
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
    /// The running logical thread.
    static TASK: Cell<usize> = const { Cell::new(0) };
    /// Steps after which a run, or a check, counts as endless.
    static PATIENCE: Cell<u64> = const { Cell::new(0) };
    /// Whether the running logical thread holds a lock, so that no other one may run.
    static HOLDS_LOCK: Cell<bool> = const { Cell::new(false) };
    /// Whether lines of the pools of this thread must be written back.
    static WRITE_BACK: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether lines must be written back in pools that this thread creates or opens from now on.
/// No other pool of the thread may be in use.
pub fn set_write_back(is_needed: bool) {
    WRITE_BACK.set(is_needed);
}

/// Sets the work of the hooks, and the limit of steps.
pub fn set_mode(mode: Mode, patience: u64) {
    MODE.set(mode);
    PATIENCE.set(patience);
}

/// Installs `recorder` for this thread, and returns the previous one.
pub fn install(recorder: Option<Recorder>) -> Option<Recorder> {
    RECORDER.replace(recorder)
}

/// Runs `work` on this thread's recorder.
///
/// # Panics
///
/// If there is none.
pub fn with_recorder<R>(work: impl FnOnce(&mut Recorder) -> R) -> R {
    RECORDER.with_borrow_mut(|recorder| {
        work(recorder.as_mut().expect("the pool of a finished trial is still in use"))
    })
}

/// The running logical thread.
pub fn task() -> usize {
    TASK.get()
}

/// Runs `work` as logical thread `task`, which is a separate participant in every pool.
pub fn run_as<R>(task: usize, work: impl FnOnce() -> R) -> R {
    struct Impersonation {
        others: Option<LogicalThread>,
        before: usize,
    }
    impl Drop for Impersonation {
        fn drop(&mut self) {
            if let Some(own) = self.others.take() {
                own.swap();
                if MODE.get() == Mode::Abort || std::thread::panicking() {
                    // Dropping it would take steps.
                    std::mem::forget(own);
                } else {
                    // Dropping it releases its participant slots, which takes steps too.
                    drop(own);
                }
            }
            TASK.set(self.before);
        }
    }
    let others = LogicalThread::default();
    others.swap();
    let _impersonation = Impersonation { others: Some(others), before: TASK.replace(task) };
    work()
}

/// Runs `work` as steps at which no other logical thread may run.
pub fn uninterrupted<R>(work: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            HOLDS_LOCK.set(self.0);
        }
    }
    let _before = Before(HOLDS_LOCK.replace(true));
    work()
}

/// Lets the scheduler choose the next thread.
fn switch() {
    let task = TASK.get();
    let parked = LogicalThread::default();
    parked.swap();
    shuttle::thread::yield_now();
    parked.swap();
    TASK.set(task);
}

/// The access of a step.
#[derive(Clone, Copy)]
enum Access {
    Load,
    /// To the word at this address.
    Store(usize),
    /// To bytes of a block that no other thread sees.
    Exclusive(usize, usize),
    /// A change of the files.
    Files,
}

/// One step; whether it may take place.
fn step(access: Access) -> bool {
    match MODE.get() {
        Mode::Idle => return true,
        Mode::Abort if std::thread::panicking() => return false,
        Mode::Abort => std::panic::resume_unwind(Box::new(Aborted)),
        Mode::Track | Mode::Record | Mode::Schedule => {}
    }
    let unwinding = std::thread::panicking();
    match PATIENCE.get().checked_sub(1) {
        Some(left) => PATIENCE.set(left),
        None if unwinding => {}
        None => panic!("does not end"),
    }
    if MODE.get() == Mode::Track {
        with_recorder(|recorder| match access {
            Access::Load | Access::Files => {}
            Access::Store(address) => recorder.touch(address, 8),
            Access::Exclusive(address, bytes) => recorder.touch(address, bytes),
        });
        return true;
    }
    let publishes = matches!(access, Access::Store(_) | Access::Files);
    with_recorder(|recorder| recorder.settle(TASK.get(), publishes));
    if MODE.get() == Mode::Schedule && !unwinding && !HOLDS_LOCK.get() {
        switch();
        if MODE.get() == Mode::Abort {
            std::panic::resume_unwind(Box::new(Aborted));
        }
    }
    with_recorder(|recorder| {
        // Stores of other threads.
        recorder.settle(TASK.get(), false);
        recorder.step(TASK.get());
        match access {
            Access::Load => {}
            Access::Files => recorder.expect_files(),
            Access::Store(address) => recorder.expect_store(address),
            Access::Exclusive(address, bytes) => {
                recorder.expect_exclusive(TASK.get(), address, bytes);
            }
        }
    });
    true
}

/// A copy of `files` for a run. Each operation on it is a step.
pub fn files_of_run(files: &Simulated) -> Simulated {
    use Operation::{List, Open, Read};
    let copy = files.after_kill();
    copy.on_operation(|operation, _| {
        let is_read = matches!(operation, List | Open | Read);
        step(if is_read { Access::Load } else { Access::Files });
        Ok(())
    });
    copy
}

/// As `Process`, or as `Adr` with write-backs, in the crash lab: see [`set_write_back`]. Two types
/// would each compile every index.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabDomain;

impl Domain for LabDomain {
    fn needs_write_back() -> bool {
        WRITE_BACK.get()
    }
    // Other threads run at any step, so looking again shows nothing new.
    const SPINS: u32 = 0;

    #[track_caller]
    unsafe fn write_back(address: *const u8) {
        if WRITE_BACK.get() && matches!(MODE.get(), Mode::Record | Mode::Schedule) {
            let site = Location::caller();
            // Other threads may run between a store and its write-back, and use data that are not
            // durable. Between the write-back and the fence they see nothing new: that is no step.
            step(Access::Load);
            with_recorder(|recorder| recorder.write_back(TASK.get(), address as usize, site));
        }
    }

    #[track_caller]
    fn fence() {
        if WRITE_BACK.get() && matches!(MODE.get(), Mode::Record | Mode::Schedule) {
            let site = Location::caller();
            with_recorder(|recorder| recorder.fence(TASK.get(), site));
        }
    }

    fn admit_store(address: usize, _bytes: usize) -> bool {
        step(Access::Store(address))
    }

    fn admit_exclusive_store(address: usize, bytes: usize) -> bool {
        step(Access::Exclusive(address, bytes))
    }

    fn admit_transient_store(address: usize) -> bool {
        step(Access::Store(address))
    }

    fn observe_load(_address: usize, bytes: usize) {
        // Bytes that are not a word do not change while a thread reads them.
        if bytes == 8 {
            step(Access::Load);
        }
    }

    fn observe_process_memory() {
        step(Access::Load);
    }
}
