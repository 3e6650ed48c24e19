//! The thread of a process that shares a pool: it recovers processes that have died, gives back the
//! blocks that this process has removed, and takes part in the census of lost blocks.
//!
//! The thread looks at regular times, and as soon as the kernel says that a process has ended
//! (`pidfd_open`). That news only wakes the thread: the process ids may be those of another
//! namespace, so the proof of death is the lock (`pando-pmem`, `processes.rs`).

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use pando_pmem::{Domain, Pool, ProcessSeen};
use pando_tree::maps::Catalog;
use procfs::process::Process;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::Error;
use crate::report::ProcessStat;

/// The time between two looks. A look costs a system call for each other process.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long [`evict`] waits for a process to end, and to be recovered.
const EVICTION_WAIT: Duration = Duration::from_secs(5);
/// The pause between two looks at a recovery by another process.
const RECOVERY_PAUSE: Duration = Duration::from_millis(1);

/// The thread, which ends when this is dropped.
pub(super) struct Recoverer {
    is_enough: Arc<AtomicBool>,
    /// Wakes the thread.
    wakes: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Recoverer {
    /// Starts the thread if the pool is shared.
    pub fn begin<D: Domain>(catalog: &Arc<Catalog<D>>) -> Result<Option<Self>, Error> {
        if !catalog.pool().is_shared() {
            return Ok(None);
        }
        let refused = |cause: std::io::Error| Error::Io {
            action: "start a thread for a shared pool",
            path: catalog.pool().path().to_owned(),
            cause,
        };
        let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wakes = Arc::new(wakes.map_err(|error| refused(error.into()))?);
        let is_enough = Arc::new(AtomicBool::new(false));
        let (asked, woken) = (Arc::clone(&is_enough), Arc::clone(&wakes));
        let looks_at = Arc::clone(catalog);
        let look = move || {
            let mut ends = Ends::default();
            // Relaxed: it orders nothing; the thread is joined.
            while !asked.load(Ordering::Relaxed) {
                let pool = looks_at.pool();
                ends.watch(pool.other_processes());
                // After an error, the next look tries again, and so do the other processes.
                if looks_at.recover_dead().is_ok_and(|count| count > 0)
                    && looks_at.slots().has_dropped_maps()
                {
                    // A process may have died while it freed a map.
                    let _ = looks_at.free_dropped(&|| asked.load(Ordering::Relaxed));
                }
                // This process may be idle, and no other one can reuse the blocks that it retired.
                let _ = pool.reclaim();
                let _ = pool.step_census();
                ends.wait(&woken, LOOK_EVERY);
            }
        };
        let thread = Builder::new().name("pando-processes".to_owned()).spawn(look);
        let thread = thread.map_err(refused)?;
        Ok(Some(Self { is_enough, wakes, thread: Some(thread), pid: std::process::id() }))
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
            // If this fails, the thread wakes at its next look.
            let _ = rustix::io::write(&self.wakes, &1_u64.to_le_bytes());
            // It panics only because of a bug, and the panic was reported.
            let _ = thread.join();
        }
    }
}

/// The other processes, and the news of their ends.
#[derive(Default)]
struct Ends {
    watched: Vec<Watched>,
}

struct Watched {
    process: (usize, u32),
    /// None if the process has ended, or cannot be watched.
    handle: Option<OwnedFd>,
}

impl Ends {
    /// Watches these processes, each by its number and its id, and no others.
    fn watch(&mut self, processes: Vec<(usize, u32)>) {
        self.watched.retain(|watched| processes.contains(&watched.process));
        for process in processes {
            if !self.watched.iter().any(|watched| watched.process == process) {
                self.watched.push(Watched { process, handle: handle_of(process.1).ok() });
            }
        }
    }

    /// Waits until one of them ends, or `wakes` is written to, or until `time` is over.
    fn wait(&mut self, wakes: &OwnedFd, time: Duration) {
        let handles = self.watched.iter().filter_map(|watched| watched.handle.as_ref());
        let mut polled: Vec<_> =
            handles.chain([wakes]).map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
        let is_woken = poll_for(&mut polled, time);
        let has_ended: Vec<_> = polled.iter().map(|handle| !handle.revents().is_empty()).collect();
        if !is_woken {
            return;
        }
        // An end is news once: the recovery may be another process's, and take time.
        let watched = self.watched.iter_mut().filter(|watched| watched.handle.is_some());
        for (watched, has_ended) in watched.zip(has_ended) {
            if has_ended {
                watched.handle = None;
            }
        }
    }
}

/// Waits for one of these for at most `time`; whether there is news. After an error there is none,
/// and the time is over all the same: a caller that repeats this does not spin.
fn poll_for(polled: &mut [PollFd<'_>], time: Duration) -> bool {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match poll(polled, Some(&Timespec::try_from(left).unwrap_or_default())) {
            Ok(count) => return count > 0,
            Err(Errno::INTR) => {}
            Err(_) => {
                std::thread::sleep(left);
                return false;
            }
        }
    }
}

/// A handle that stays that of this process when its id is used again.
fn handle_of(pid: u32) -> std::io::Result<OwnedFd> {
    let no_process = || std::io::Error::from(Errno::SRCH);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(no_process)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// The processes that share the pool.
pub(super) fn processes<D: Domain>(pool: &Pool<D>) -> Result<Vec<ProcessStat>, Error> {
    let seen = pool.processes().map_err(Error::of_pool)?;
    let stat = |seen: ProcessSeen| ProcessStat {
        pid: seen.pid,
        name: name_of(seen.pid).unwrap_or_default(),
        is_alive: seen.is_alive,
        threads: seen.slots as u64,
        threads_inside: seen.pinned as u64,
        holds_space_back_ms: seen
            .holds_epoch
            .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
    };
    Ok(seen.into_iter().map(stat).collect())
}

/// The name of a process, if the system tells it.
fn name_of(pid: u32) -> Option<String> {
    Some(Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?.comm)
}

/// Kills the process `pid`, which shares the pool, and recovers it.
pub(super) fn evict<D: Domain>(catalog: &Catalog<D>, pid: u32) -> Result<(), Error> {
    let pool = catalog.pool();
    let refused = |action| {
        let path = pool.path().to_owned();
        move |cause: std::io::Error| Error::Io { action, path, cause }
    };
    // Before it is looked up: after that, this handle is that of the process that is found.
    let handle = handle_of(pid);
    let processes = pool.processes().map_err(Error::of_pool)?;
    let is_this = pid == std::process::id();
    let is_there = processes.iter().any(|process| process.is_alive && process.pid == pid);
    let has_it_open =
        || has_open(pid, pool.path()).map_err(refused("read the open files of a process of"));
    if is_this || !is_there || !has_it_open()? {
        let others = processes.into_iter().filter(|process| process.is_alive);
        let present = others.map(|process| process.pid).filter(|&pid| pid != std::process::id());
        let (path, present) = (pool.path().to_owned(), present.collect());
        return Err(Error::ProcessNotFound { path, pid, present });
    }
    let handle = handle.map_err(refused("find a process of"))?;
    let killed = pidfd_send_signal(&handle, Signal::KILL);
    killed.map_err(|error| refused("end a process of")(error.into()))?;
    let begin = Instant::now();
    let mut has_ended = poll_for(&mut [PollFd::new(&handle, PollFlags::IN)], EVICTION_WAIT);
    while has_ended {
        catalog.recover_dead().map_err(Error::of_pmwcas)?;
        // Another process, or another thread, may be recovering it.
        if !pool.other_processes().iter().any(|&(_, other)| other == pid) {
            return Ok(());
        }
        has_ended = begin.elapsed() < EVICTION_WAIT;
        std::thread::sleep(RECOVERY_PAUSE);
    }
    Err(refused("wait for the recovery of a process of")(Errno::TIMEDOUT.into()))
}

/// Whether the process `pid`, as this namespace of process ids has it, has the file at `path` open.
fn has_open(pid: u32, path: &std::path::Path) -> std::io::Result<bool> {
    let file = std::fs::metadata(path)?;
    for descriptor in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // It may be closed meanwhile.
        let Ok(open) = std::fs::metadata(descriptor?.path()) else { continue };
        if (open.dev(), open.ino()) == (file.dev(), file.ino()) {
            return Ok(true);
        }
    }
    Ok(false)
}
