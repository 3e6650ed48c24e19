//! Limits the models that run at once to the number of processors. Loom maps new memory for each
//! thread of each schedule, and the kernel maps memory of one process for one thread at a time. So
//! more models at once make all of them slower.

use std::sync::{Condvar, Mutex, PoisonError};

/// The number of models that run.
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// The right to run a model. A model may end in a panic.
pub struct Turn;

/// Waits until fewer models run than there are processors.
pub fn take() -> Turn {
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = ENDED
        .wait_while(running, |running| *running >= most)
        .unwrap_or_else(PoisonError::into_inner);
    *running += 1;
    Turn
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}
