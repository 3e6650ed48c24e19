//! The thread of a process that shares a pool: it recovers processes that have died, gives back the
//! blocks that this process has removed, and takes part in the census of lost blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use pando_pmem::{Domain, Pool};
use pando_tree::maps::Catalog;
use procfs::process::Process;

use crate::Error;
use crate::report::ProcessStat;

/// The time between two looks. A look costs a system call for each other process.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The thread, which ends when this is dropped.
pub(super) struct Recoverer {
    is_enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Recoverer {
    /// Starts the thread if the pool is shared.
    pub fn begin<D: Domain>(catalog: &Arc<Catalog<D>>) -> Result<Option<Self>, Error> {
        if !catalog.pool().is_shared() {
            return Ok(None);
        }
        let is_enough = Arc::new(AtomicBool::new(false));
        let (catalog, asked) = (Arc::clone(catalog), Arc::clone(&is_enough));
        let path = catalog.pool().path().to_owned();
        let look = move || {
            // Relaxed: it orders nothing; the thread is joined.
            while !asked.load(Ordering::Relaxed) {
                // After an error, the next look tries again, and so do the other processes.
                let _ = catalog.recover_dead();
                // This process may be idle, and no other one can reuse the blocks that it retired.
                let _ = catalog.pool().reclaim();
                let _ = catalog.pool().step_census();
                std::thread::park_timeout(LOOK_EVERY);
            }
        };
        let thread = Builder::new().name("pando-processes".to_owned()).spawn(look);
        let thread = thread.map_err(|cause| Error::Io {
            action: "start a thread for a shared pool",
            path,
            cause,
        })?;
        Ok(Some(Self { is_enough, thread: Some(thread), pid: std::process::id() }))
    }
}

impl Drop for Recoverer {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.is_enough.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // A forked child does not have the thread.
            std::mem::forget(thread);
        } else {
            thread.thread().unpark();
            // It panics only because of a bug, and the panic was reported.
            let _ = thread.join();
        }
    }
}

/// The processes that share the pool.
pub(super) fn processes<D: Domain>(pool: &Pool<D>) -> Result<Vec<ProcessStat>, Error> {
    let seen = pool.processes().map_err(Error::of_pool)?;
    let stat = |seen: pando_pmem::ProcessSeen| ProcessStat {
        pid: seen.pid,
        name: name_of(seen.pid).unwrap_or_default(),
        is_alive: seen.is_alive,
        threads: seen.slots as u64,
        threads_inside: seen.pinned as u64,
        holds_space_back: seen.holds_epoch,
    };
    Ok(seen.into_iter().map(stat).collect())
}

/// The name of a process, if the system tells it.
fn name_of(pid: u32) -> Option<String> {
    Some(Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?.comm)
}
