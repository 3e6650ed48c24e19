//! Threads that answer long reads.

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
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => job(),
            Err(mpsc::RecvError) => return,
        }
    }
}

impl Workers {
    pub const fn new() -> Self {
        Self { pool: Mutex::new(Pool { queue: None, threads: Vec::new() }) }
    }

    /// Runs a job on one of `count` threads. The job is handed back if there is no thread, or
    /// if too many wait.
    pub fn run(&self, count: usize, job: Job) -> Result<(), Job> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.queue.is_none() {
            let (queue, jobs) = mpsc::sync_channel(MOST_WAITING);
            let jobs = Arc::new(Mutex::new(jobs));
            for _ in 0..count {
                let jobs = jobs.clone();
                let builder = std::thread::Builder::new().name("pando-read".to_owned());
                pool.threads.extend(builder.spawn(move || work(&jobs)));
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

    /// Ends the threads after the jobs that are queued.
    pub fn stop(&self) {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.queue = None;
        for thread in pool.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
