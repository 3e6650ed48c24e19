//! The log writer of a process, which writes what no thread waits for.
//!
//! It is one thread in [`Log::write_until`]. It writes whenever there is something to write. Else
//! it sleeps, and says so in `is_idle`; a thread that has decided a record wakes it. A wake-up may
//! be missed, since `is_idle` and the tail are not ordered. So the writer looks again after
//! [`NAP`].

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use pando_pmem::Domain;

use crate::error::Result;
use crate::log::{Log, Settle};

/// How long the writer sleeps when there is nothing to write.
const NAP: Duration = Duration::from_millis(100);

/// The log writer of this process.
#[derive(Debug, Default)]
pub(crate) struct Background {
    thread: OnceLock<Thread>,
    is_idle: AtomicBool,
}

impl Background {
    /// Wakes the writer, if it sleeps.
    pub fn wake(&self) {
        // Relaxed, here and below: a wake-up that is missed costs a nap.
        if self.is_idle.load(Ordering::Relaxed) {
            self.is_idle.store(false, Ordering::Relaxed);
            self.wake_always();
        }
    }

    fn wake_always(&self) {
        self.thread.get().into_iter().for_each(Thread::unpark);
    }
}

impl<D: Domain> Log<D> {
    /// Writes whatever is appended, until `is_enough`. One thread of the process calls it.
    /// `report` gets each error; after it the thread sleeps for as long as it returns.
    pub fn write_until(
        &self,
        settle: &dyn Settle<D>,
        is_enough: &AtomicBool,
        report: &mut dyn FnMut(crate::Error) -> Duration,
    ) {
        let background = self.background();
        background.thread.get_or_init(thread::current);
        while !is_enough.load(Ordering::Relaxed) {
            match self.write_newest(settle) {
                Ok(false) => {}
                Ok(true) => {
                    background.is_idle.store(true, Ordering::Relaxed);
                    thread::park_timeout(NAP);
                    background.is_idle.store(false, Ordering::Relaxed);
                }
                Err(error) => thread::park_timeout(report(error)),
            }
        }
    }

    /// Makes the records durable that are there; whether there were none that were not.
    fn write_newest(&self, settle: &dyn Settle<D>) -> Result<bool> {
        let newest = self.newest_lsn(&self.pool().pin()?);
        let is_idle = self.durable_lsn() >= newest;
        if !is_idle {
            self.sync(newest, settle)?;
        }
        Ok(is_idle)
    }

    /// Tells the thread in [`write_until`](Self::write_until) that there is something to write.
    pub fn wake_writer(&self) {
        self.background().wake();
    }

    /// Tells it that it is enough.
    pub fn end_writer(&self) {
        self.background().wake_always();
    }
}
