//! Threads that answer long reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The most jobs that wait. Each keeps a snapshot.
const MOST_WAITING: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// The queue, and the threads that work on it.
#[derive(Debug, Default)]
struct Pool {
    queue: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// The threads. They start with the first job.
#[derive(Debug, Default)]
pub struct Workers {
    pool: Mutex<Pool>,
    /// Relaxed: it orders nothing, and a thread may see it late.
    is_stopping: AtomicBool,
}

impl Workers {
    pub const fn new() -> Self {
        let pool = Pool { queue: None, threads: Vec::new() };
        Self { pool: Mutex::new(pool), is_stopping: AtomicBool::new(false) }
    }

    fn work(&self, jobs: &Mutex<Receiver<Job>>) {
        loop {
            let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            match next {
                Ok(_) if self.is_stopping() => {}
                Ok(job) => job(),
                Err(mpsc::RecvError) => return,
            }
        }
    }

    /// Runs a job on one of `count` threads. The job is handed back if there is no thread, or
    /// if too many wait.
    pub fn run(&'static self, count: usize, job: Job) -> Result<(), Job> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.queue.is_none() {
            let (queue, jobs) = mpsc::sync_channel(MOST_WAITING);
            let jobs = Arc::new(Mutex::new(jobs));
            for _ in 0..count {
                let jobs = jobs.clone();
                let builder = std::thread::Builder::new().name("pando-read".to_owned());
                pool.threads.extend(builder.spawn(move || self.work(&jobs)));
            }
            if !pool.threads.is_empty() {
                pool.queue = Some(queue);
            }
        }
        match &pool.queue {
            Some(queue) => queue.try_send(job).map_err(|unsent| match unsent {
                TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
            }),
            None => Err(job),
        }
    }

    /// Whether the threads are to end. A job that runs looks at this.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Ends the threads after the jobs that run. Those that are queued are dropped.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.queue = None;
        for thread in pool.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// A job that is dropped gives its snapshot back as one that has run.
    #[test]
    fn a_stop_cuts_the_job_that_runs_and_drops_the_queued_ones() {
        static WORKERS: Workers = Workers::new();
        let (ran, kept) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let (started, starts) = mpsc::channel();
        let job = Box::new(move || {
            started.send(()).expect("the test waits");
            while !WORKERS.is_stopping() {
                std::thread::yield_now();
            }
        });
        assert!(WORKERS.run(1, job).is_ok());
        starts.recv().expect("the job runs");
        for _ in 0..10 {
            let (ran, kept) = (ran.clone(), kept.clone());
            let job = Box::new(move || {
                let _kept = kept;
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert!(WORKERS.run(1, job).is_ok());
        }
        WORKERS.stop();
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
