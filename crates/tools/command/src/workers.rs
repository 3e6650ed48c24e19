//! Threads that share work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::failure::Failure;

/// Starts a thread of `scope`.
pub fn start<'scope, Answer: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> Answer + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Answer>, Failure> {
    Builder::new().spawn_scoped(scope, work).map_err(Failure::system("cannot start a thread"))
}

/// Waits for a thread; if it panicked, panics too.
pub fn join<Answer>(thread: ScopedJoinHandle<'_, Answer>) -> Answer {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Calls `work` for every number below `count` on so many threads at once. After a failure no
/// further number is started, and the first failure, in order of the threads, is returned.
pub fn each(
    count: usize,
    writers: u16,
    work: impl Fn(usize) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let is_stopped = AtomicBool::new(false);
    let worker = || {
        // Relaxed: the numbers and the flag carry no other data; the end of the scope orders.
        while !is_stopped.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            work(number).inspect_err(|_| is_stopped.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = (0..writers).map(|_| start(scope, worker)).collect::<Vec<_>>();
        let mut outcome = Ok(());
        for thread in threads {
            match thread {
                Ok(thread) => outcome = outcome.and(join(thread)),
                // The threads that did start do all the work; without any, nothing is done.
                Err(failure) if outcome.is_ok() && next.load(Ordering::Relaxed) < count => {
                    outcome = Err(failure);
                }
                Err(_) => {}
            }
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_number_is_worked_once() {
        let seen = Mutex::new(Vec::new());
        each(1000, 3, |number| {
            seen.lock().unwrap().push(number);
            Ok(())
        })
        .unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
    }

    #[test]
    fn a_failure_ends_the_work() {
        let failure = each(1000, 3, |number| {
            if number == 10 { Err(Failure::Violation("ten".to_owned())) } else { Ok(()) }
        });
        assert_eq!(failure.unwrap_err().exit_code(), 10);
    }
}
