//! One slice: some threads on one array, for a time or for a number of attempts.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pando_pmem::Domain;
use pando_pmem::counting::{self, Counting, Counts};

use super::array::{Array, Method};
use crate::error::Error;
use pando_bench::machine;
use pando_bench::rng::Rng;
use pando_bench::systems::BuildError;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// How words are changed, and how many at once.
    pub method: Method,
    /// Threads at work.
    pub threads: usize,
    /// How long they are.
    pub time: Duration,
    /// Seed of the words that they pick.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Operations tried.
    pub attempts: u64,
    /// Operations that succeeded.
    pub successes: u64,
    /// From the first start to the last end.
    pub elapsed: Duration,
}

/// What one attempt took on average, in the counting domain.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Cost {
    /// Atomic read-modify-writes, those that failed included.
    pub swaps: f64,
    /// Cache-line write-backs.
    pub flushes: f64,
    /// Store fences.
    pub fences: f64,
    /// Words written.
    pub words_written: f64,
    /// Distinct lines written.
    pub lines_written: f64,
    /// Distinct lines read.
    pub lines_read: f64,
}

/// An array with its domain forgotten.
pub trait Subject {
    /// Runs one slice.
    fn slice(&self, slice: &Slice) -> Result<Outcome, Error>;
    /// Compares the sum of all words with what is due.
    fn check(&self) -> Result<(), Error>;
}

/// An array and what its words have to add up to.
pub struct Checked<D: Domain> {
    array: Array<D>,
    due: AtomicU64,
}

fn refused(source: BuildError) -> Error {
    Error::Refused { what: "a PMwCAS on an array", source }
}

impl<D: Domain> Checked<D> {
    /// `array`, whose words must be zero.
    pub fn new(array: Array<D>) -> Self {
        Self { array, due: AtomicU64::new(0) }
    }

    /// The array.
    pub fn array(&self) -> &Array<D> {
        &self.array
    }

    /// Starts the threads together; each calls `work` with its number.
    fn together<T: Send>(
        &self,
        threads: usize,
        time: Option<Duration>,
        work: impl Fn(usize, &AtomicBool) -> Result<T, BuildError> + Sync,
    ) -> Result<(Vec<T>, Duration), Error> {
        let cores = &machine::cores();
        let (barrier, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
        let (barrier, stop, work) = (&barrier, &stop, &work);
        thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        machine::pin_one_of(threads, thread, cores);
                        barrier.wait();
                        let start = Instant::now();
                        let done = work(thread, stop);
                        let end = Instant::now();
                        if done.is_err() {
                            // Relaxed: the others only have to see it at some time.
                            stop.store(true, Ordering::Relaxed);
                        }
                        done.map(|done| (start, end, done))
                    })
                })
                .collect();
            barrier.wait();
            if let Some(time) = time {
                thread::sleep(time);
                stop.store(true, Ordering::Relaxed);
            }
            let mut done = Vec::with_capacity(threads);
            for handle in handles {
                done.push(handle.join().map_err(|_| Error::Panicked)?.map_err(refused)?);
            }
            // By the threads' own clocks: this one may get its core back long after they began.
            let start = done.iter().map(|(start, ..)| *start).min();
            let end = done.iter().map(|(_, end, _)| *end).max();
            let elapsed = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
            Ok((done.into_iter().map(|(.., done)| done).collect(), elapsed))
        })
    }

    fn note(&self, method: Method, successes: u64) {
        // Relaxed: asked for when the threads have been joined.
        self.due.fetch_add(successes * method.words() as u64, Ordering::Relaxed);
    }
}

fn rng_of(seed: u64, thread: usize) -> Rng {
    Rng::new(seed ^ (thread as u64) << 32)
}

impl<D: Domain> Subject for Checked<D> {
    fn slice(&self, slice: &Slice) -> Result<Outcome, Error> {
        let work = |thread, stop: &AtomicBool| {
            let mut rng = rng_of(slice.seed, thread);
            let (mut attempts, mut successes) = (0, 0);
            // One success at least: without it a system has no rate to compare with. Relaxed: a
            // stop that is seen a little later is a slice that is a little longer.
            while successes == 0 || !stop.load(Ordering::Relaxed) {
                attempts += 1;
                successes += u64::from(self.array.change(slice.method, &mut rng)?);
            }
            Ok((attempts, successes))
        };
        let (done, elapsed) = self.together(slice.threads, Some(slice.time), work)?;
        let mut outcome = Outcome { elapsed, ..Outcome::default() };
        for (attempts, successes) in done {
            outcome.attempts += attempts;
            outcome.successes += successes;
        }
        self.note(slice.method, outcome.successes);
        Ok(outcome)
    }

    fn check(&self) -> Result<(), Error> {
        let due = self.due.load(Ordering::Relaxed);
        match self.array.sum().map_err(refused)? {
            found if found == due => Ok(()),
            found => Err(Error::WrongSum { words: self.array.len(), found, due }),
        }
    }
}

impl Checked<Counting> {
    /// What an attempt takes, on average over `attempts` of each thread; waits of one for another
    /// and what they do to help included.
    pub fn count(
        &self,
        method: Method,
        threads: usize,
        attempts: u64,
        seed: u64,
    ) -> Result<Cost, Error> {
        let work = |thread, stop: &AtomicBool| {
            let mut rng = rng_of(seed, thread);
            let (mut all, mut done) = (Counts::default(), 0);
            // Not counted: the first operation of a thread claims its place in the pool.
            let mut successes = u64::from(self.array.change(method, &mut rng)?);
            while done < attempts && !stop.load(Ordering::Relaxed) {
                let (changed, counts) = counting::measure(|| self.array.change(method, &mut rng));
                successes += u64::from(changed?);
                all.swaps += counts.swaps;
                all.flushes += counts.flushes;
                all.fences += counts.fences;
                all.words_written += counts.words_written;
                all.lines_written += counts.lines_written;
                all.lines_read += counts.lines_read;
                done += 1;
            }
            Ok((all, successes))
        };
        let (done, _) = self.together(threads, None, work)?;
        self.note(method, done.iter().map(|(_, successes)| successes).sum());
        let mean = |field: fn(&Counts) -> u64| {
            let sum: u64 = done.iter().map(|(counts, _)| field(counts)).sum();
            sum as f64 / (attempts.max(1) * threads.max(1) as u64) as f64
        };
        Ok(Cost {
            swaps: mean(|counts| counts.swaps),
            flushes: mean(|counts| counts.flushes),
            fences: mean(|counts| counts.fences),
            words_written: mean(|counts| counts.words_written),
            lines_written: mean(|counts| counts.lines_written),
            lines_read: mean(|counts| counts.lines_read),
        })
    }
}
