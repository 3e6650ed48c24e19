//! One timed slice: some threads do one mix on one side.
//!
//! Threads meet at a barrier and start together; each is kept on a core of its own when there
//! are enough. A slice's time runs from the first thread's start to the last one's end. Before
//! the barrier each thread warms up with reads, because the side before it has had the cache.
//!
//! Latency is taken of one operation in [`Slice::sample_every`]: two readings of the clock for
//! each would add a twentieth to a fast operation. The loop is closed, each thread waiting for
//! its own operation only, so a long stall is one long sample.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::chooser::Chooser;
use crate::error::Fault;
use crate::keys::{belongs, key_of, value_of};
use crate::machine;
use crate::mix::{Mix, SCAN_RECORDS};
use crate::rng::Rng;
use crate::side::{Refusal, Side};

/// Longest latency that is told from longer ones.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// What to run.
#[derive(Clone, Debug)]
pub struct Slice<'run> {
    /// The operations.
    pub mix: Mix,
    /// Threads that run them.
    pub threads: usize,
    /// Records that are there when the slice begins.
    pub live: Range<u64>,
    /// Records to be inserted or deleted, for the mixes that do.
    pub target: Range<u64>,
    /// How long the other mixes run.
    pub time: Duration,
    /// How long each thread reads before the start.
    pub warm_up: Duration,
    /// Which records are met.
    pub chooser: &'run Chooser,
    /// Seed of the operations; the same on every side.
    pub seed: u64,
    /// One operation in so many is timed.
    pub sample_every: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations done by all threads.
    pub operations: u64,
    /// From the first start to the last end.
    pub elapsed: Duration,
    /// Time that the threads had a core, together.
    pub on_core: Duration,
    /// Gets that missed a key which another thread was replacing; see
    /// [`Side::REPLACING_HIDES_KEY`].
    pub transient_misses: u64,
    /// Latencies in nanoseconds of the operations that were timed.
    pub latency_ns: Histogram<u64>,
}

impl Outcome {
    /// Nothing done yet.
    pub fn none() -> Self {
        Self {
            operations: 0,
            elapsed: Duration::ZERO,
            on_core: Duration::ZERO,
            transient_misses: 0,
            latency_ns: empty_histogram(),
        }
    }

    /// Adds a slice that came after this one.
    pub fn append(&mut self, later: &Self) {
        self.operations += later.operations;
        self.elapsed += later.elapsed;
        self.on_core += later.on_core;
        self.transient_misses += later.transient_misses;
        self.latency_ns += &later.latency_ns;
    }

    /// Operations for each second that a thread had a core.
    pub fn ops_per_core_second(&self) -> f64 {
        self.operations as f64 / self.on_core.as_secs_f64().max(1e-9)
    }

    /// Operations a second.
    pub fn ops_per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)
        .expect("the bounds and the three digits are in range")
}

/// Runs `slice` on `side`.
pub fn run<S: Side>(side: &S, slice: &Slice<'_>) -> Result<Outcome, Fault> {
    let cores = machine::cores();
    let barrier = &Barrier::new(slice.threads + 1);
    let stop = &AtomicBool::new(false);
    let workers = thread::scope(|scope| {
        let handles: Vec<_> = (0..slice.threads)
            .map(|thread| {
                let core = cores.get(thread).copied().filter(|_| slice.threads <= cores.len());
                let worker = Worker { side, slice, thread, stop };
                scope.spawn(move || {
                    if let Some(core) = core {
                        machine::pin_to(core);
                    }
                    // Even a side that panics must not keep the others at the barrier.
                    let warmed = caught(|| worker.warm_up());
                    barrier.wait();
                    let done = warmed.and_then(|()| caught(|| worker.work()));
                    if done.is_err() {
                        // Relaxed: the others only have to see it at some time.
                        stop.store(true, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        barrier.wait();
        if !slice.mix.is_counted() {
            thread::sleep(slice.time);
            stop.store(true, Ordering::Relaxed);
        }
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or(Err(Fault::Panicked)))
            .collect::<Result<Vec<_>, Fault>>()
    })?;

    let mut outcome = Outcome::none();
    let (Some(start), Some(end)) =
        (workers.iter().map(|done| done.start).min(), workers.iter().map(|done| done.end).max())
    else {
        return Ok(outcome);
    };
    outcome.elapsed = end - start;
    for done in workers {
        outcome.transient_misses += done.missed.len() as u64;
        for key in done.missed {
            let operation = "a get during replacements and after them";
            if side.get(key).map_err(refused(key, operation))?.is_none() {
                return Err(Fault::Lost { key, operation });
            }
        }
        outcome.operations += done.operations;
        outcome.on_core += done.on_core;
        outcome.latency_ns += done.latency_ns;
    }
    Ok(outcome)
}

/// Runs `work`; a panic in it, whose message is on standard error by then, is a fault of the side.
fn caught<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Fault::Panicked))
}

/// One thread of a slice.
struct Worker<'run, S> {
    side: &'run S,
    slice: &'run Slice<'run>,
    thread: usize,
    stop: &'run AtomicBool,
}

/// What one thread did.
struct Done {
    start: Instant,
    end: Instant,
    on_core: Duration,
    operations: u64,
    /// Keys to be looked for again when nobody replaces them.
    missed: Vec<u64>,
    latency_ns: Histogram<u64>,
}

fn refused(key: u64, operation: &'static str) -> impl FnOnce(Refusal) -> Fault {
    move |source| Fault::Refused { key, operation, source }
}

impl<S: Side> Worker<'_, S> {
    fn rng(&self, purpose: u64) -> Rng {
        Rng::new(self.slice.seed ^ (self.thread as u64) << 32 ^ purpose << 48)
    }

    fn warm_up(&self) -> Result<(), Fault> {
        let start = Instant::now();
        let mut rng = self.rng(1);
        while !self.slice.live.is_empty() && start.elapsed() < self.slice.warm_up {
            for _ in 0..64 {
                self.read(&mut rng)?;
            }
        }
        Ok(())
    }

    fn work(&self) -> Result<Done, Fault> {
        let mut rng = self.rng(2);
        let mix = self.slice.mix;
        match mix {
            Mix::Read => self.repeat(u64::MAX, |_| self.read(&mut rng)),
            Mix::Half => {
                let mut missed = Vec::new();
                let done = self.repeat(u64::MAX, |_| {
                    if rng.bits() & 1 == 1 {
                        return self.upsert(&mut rng);
                    }
                    match self.read(&mut rng) {
                        Err(Fault::Lost { key, .. }) if S::REPLACING_HIDES_KEY => {
                            missed.push(key);
                            Ok(())
                        }
                        done => done,
                    }
                })?;
                Ok(Done { missed, ..done })
            }
            Mix::Scan10 => {
                let late_key = self.late_key();
                self.repeat(u64::MAX, |_| self.scan(&mut rng, late_key))
            }
            Mix::Load | Mix::Insert => self.repeat(self.share(), |turn| self.insert(turn)),
            Mix::Delete => self.repeat(self.share(), |turn| self.delete(turn)),
        }
    }

    /// Calls `operation` with 0, 1, ... `limit` times or until the slice is stopped.
    #[inline]
    fn repeat(
        &self,
        limit: u64,
        mut operation: impl FnMut(u64) -> Result<(), Fault>,
    ) -> Result<Done, Fault> {
        let mut latency_ns = empty_histogram();
        let on_core_before = machine::thread_time();
        let start = Instant::now();
        let mut turn = 0;
        // Relaxed: a stop that is seen a little later is a slice that is a little longer.
        while turn < limit && !self.stop.load(Ordering::Relaxed) {
            let before = Instant::now();
            operation(turn)?;
            latency_ns.saturating_record(before.elapsed().as_nanos() as u64);
            turn += 1;
            let untimed_end = limit.min(turn + (self.slice.sample_every - 1));
            while turn < untimed_end {
                operation(turn)?;
                turn += 1;
            }
        }
        let end = Instant::now();
        let on_core = machine::thread_time().saturating_sub(on_core_before);
        Ok(Done { start, end, on_core, operations: turn, missed: Vec::new(), latency_ns })
    }

    /// How many of the slice's records are this thread's.
    fn share(&self) -> u64 {
        let all = self.slice.target.end - self.slice.target.start;
        let threads = self.slice.threads as u64;
        all / threads + u64::from((self.thread as u64) < all % threads)
    }

    #[inline]
    fn own_key(&self, turn: u64) -> u64 {
        key_of(self.slice.target.start + turn * self.slice.threads as u64 + self.thread as u64)
    }

    #[inline]
    fn live_key(&self, rng: &mut Rng) -> u64 {
        key_of(self.slice.chooser.pick(rng, &self.slice.live))
    }

    #[inline]
    fn read(&self, rng: &mut Rng) -> Result<(), Fault> {
        let key = self.live_key(rng);
        match self.side.get(key).map_err(refused(key, "a get"))? {
            Some(value) if belongs(key, value) => Ok(()),
            Some(found) => Err(Fault::WrongValue { key, found, operation: "a get" }),
            None => Err(Fault::Lost { key, operation: "a get" }),
        }
    }

    #[inline]
    fn upsert(&self, rng: &mut Rng) -> Result<(), Fault> {
        let key = self.live_key(rng);
        self.side.upsert(key, value_of(key, rng.bits())).map_err(refused(key, "an upsert"))
    }

    #[inline]
    fn insert(&self, turn: u64) -> Result<(), Fault> {
        let key = self.own_key(turn);
        match self.side.insert_new(key, value_of(key, turn)).map_err(refused(key, "an insert"))? {
            true => Ok(()),
            false => Err(Fault::Invented { key, operation: "an insert" }),
        }
    }

    #[inline]
    fn delete(&self, turn: u64) -> Result<(), Fault> {
        let key = self.own_key(turn);
        match self.side.delete(key).map_err(refused(key, "a delete"))? {
            true => Ok(()),
            false => Err(Fault::Lost { key, operation: "a delete" }),
        }
    }

    /// The first of the last keys: a scan that begins after it may end early.
    fn late_key(&self) -> u64 {
        let mut last = std::collections::BTreeSet::new();
        for key in self.slice.live.clone().map(key_of) {
            if (last.len() as u64) < SCAN_RECORDS {
                last.insert(key);
            } else if last.first().is_some_and(|&first| first < key) {
                last.pop_first();
                last.insert(key);
            }
        }
        last.pop_first().unwrap_or(0)
    }

    #[inline]
    fn scan(&self, rng: &mut Rng, late_key: u64) -> Result<(), Fault> {
        let from = self.live_key(rng);
        let (mut found, mut previous, mut fault) = (0, from, None);
        let operation = "a scan";
        self.side
            .scan(from, SCAN_RECORDS, |key, value| {
                if found == 0 && key != from {
                    fault = Some(Fault::Lost { key: from, operation });
                } else if found > 0 && key <= previous {
                    fault = Some(Fault::Disorder { previous, key });
                } else if !belongs(key, value) {
                    fault = Some(Fault::WrongValue { key, found: value, operation });
                }
                previous = key;
                found += 1;
            })
            .map_err(refused(from, operation))?;
        match fault {
            Some(fault) => Err(fault),
            None if found == SCAN_RECORDS || (found > 0 && from > late_key) => Ok(()),
            None => Err(Fault::ShortScan { from, found, due: SCAN_RECORDS }),
        }
    }
}
