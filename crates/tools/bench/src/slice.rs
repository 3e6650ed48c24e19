//! One timed slice: some threads do one mix on one side.
//!
//! Threads meet at a barrier and start together; each is kept on a core of its own when there
//! are enough. A slice's time runs from the first thread's start to the last one's end. Before
//! the barrier each thread warms up with reads, because the side before it has had the cache.
//!
//! Latency is taken of one operation in [`Slice::sample_every`]: two readings of the clock for
//! each would add a twentieth to a fast operation. The loop is closed, each thread waiting for
//! its own operation only, so a long stall is one long sample; with a rate it is open, every
//! operation is timed, and a stall is charged to all that had to wait for it
//! ([`arrival_schedule`](crate::arrival_schedule)).

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::error::Fault;
use crate::key_sampler::KeySampler;
use crate::machine;
use crate::mix::{MAX_SCAN_RECORDS, Mix};
use crate::record::{Buffers, Records};
use crate::side::{Order, Side};
use crate::worker::{Done, Worker, refused};

/// Longest latency that is told from longer ones.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// What to run.
#[derive(Clone, Debug)]
pub struct Slice<'run> {
    /// The operations.
    pub mix: Mix,
    /// Threads that run them.
    pub threads: usize,
    /// Which keys the records have.
    pub records: Records,
    /// Records that are there when the slice begins.
    pub live: Range<u64>,
    /// Records to be inserted or deleted, for the mixes that do.
    pub target: Range<u64>,
    /// How long the other mixes run.
    pub time: Duration,
    /// How long each thread reads before the start.
    pub warm_up: Duration,
    /// Which records are met.
    pub sampler: &'run KeySampler,
    /// Seed of the operations; the same on every side.
    pub seed: u64,
    /// One operation in so many is timed, if the loop is closed.
    pub sample_every: u64,
    /// How many operations all threads together begin a second, if the loop is open.
    pub rate_ops_per_second: Option<f64>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations done by all threads.
    pub operations: u64,
    /// Operations that were due in an open loop when the slice ended, and had not begun.
    pub due_not_begun: u64,
    /// From the first start to the last end.
    pub elapsed: Duration,
    /// Time that the threads had a core, together.
    pub on_core: Duration,
    /// Gets that missed a key which another thread was replacing; see
    /// [`Side::REPLACING_HIDES_KEY`].
    pub transient_misses: u64,
    /// Latencies in nanoseconds of the operations that were timed, and how long those have waited
    /// that were due and not begun.
    pub latency_ns: Histogram<u64>,
}

impl Outcome {
    /// Nothing done yet.
    pub fn none() -> Self {
        Self {
            operations: 0,
            due_not_begun: 0,
            elapsed: Duration::ZERO,
            on_core: Duration::ZERO,
            transient_misses: 0,
            latency_ns: empty_histogram(),
        }
    }

    /// Adds a slice that came after this one.
    pub fn append(&mut self, later: &Self) {
        self.operations += later.operations;
        self.due_not_begun += later.due_not_begun;
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

pub(crate) fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3)
        .expect("the bounds and the three digits are in range")
}

/// Runs `slice` on `side`.
pub fn run<S: Side>(side: &S, slice: &Slice<'_>) -> Result<Outcome, Fault> {
    if slice.records.shape.is_eight() {
        gather(side, slice, on_threads::<S, true>(side, slice)?)
    } else {
        gather(side, slice, on_threads::<S, false>(side, slice)?)
    }
}

/// Runs the threads of `slice`.
fn on_threads<S: Side, const EIGHT: bool>(side: &S, slice: &Slice<'_>) -> Result<Vec<Done>, Fault> {
    let cores = machine::cores();
    let barrier = &Barrier::new(slice.threads + 1);
    let stop = &AtomicBool::new(false);
    let edge_key = slice.mix.scan().map_or(0, |scan| edge_key(slice, scan.order));
    thread::scope(|scope| {
        let handles: Vec<_> = (0..slice.threads)
            .map(|thread| {
                let core = cores.get(thread).copied().filter(|_| slice.threads <= cores.len());
                let worker = Worker::<S, EIGHT> { side, slice, thread, stop, edge_key };
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
    })
}

/// Adds up what the threads did, and looks again for the keys that they missed.
fn gather<S: Side>(side: &S, slice: &Slice<'_>, workers: Vec<Done>) -> Result<Outcome, Fault> {
    let mut outcome = Outcome::none();
    let (Some(start), Some(end)) =
        (workers.iter().map(|done| done.start).min(), workers.iter().map(|done| done.end).max())
    else {
        return Ok(outcome);
    };
    outcome.elapsed = end - start;
    let mut buffers = Buffers::new(slice.records.shape);
    for done in workers {
        outcome.transient_misses += done.missed.len() as u64;
        for key in done.missed {
            let operation = "a get during replacements and after them";
            let found = side.get(buffers.key::<false>(key), |_| ());
            if !found.map_err(refused(key, operation))? {
                return Err(slice.records.lost(key, operation));
            }
        }
        outcome.operations += done.operations;
        outcome.due_not_begun += done.due_not_begun;
        outcome.on_core += done.on_core;
        outcome.latency_ns += done.latency_ns;
    }
    Ok(outcome)
}

/// The key of the live record from which exactly [`MAX_SCAN_RECORDS`] are left in the direction
/// of `order`, or the last one against it if there are fewer.
///
/// Keys are spread evenly or are the records' numbers, so a part of the key space that should
/// hold a few times as many is searched first.
fn edge_key(slice: &Slice<'_>, order: Order) -> u64 {
    let (records, live) = (slice.records, &slice.live);
    // The distance of a key from the end that the scan goes towards.
    let distance = |number| match order {
        Order::Ascending => u64::MAX - records.key(number),
        Order::Descending => records.key(number),
    };
    let count = (live.end - live.start).max(1);
    let near = (u64::MAX / count).saturating_mul(4 * MAX_SCAN_RECORDS);
    let within = |limit: u64| -> Vec<u64> {
        live.clone().map(distance).filter(|&distance| distance <= limit).collect()
    };
    let mut distances = within(near);
    if (distances.len() as u64) < MAX_SCAN_RECORDS {
        distances = within(u64::MAX);
    }
    let last = distances.len().min(MAX_SCAN_RECORDS as usize).saturating_sub(1);
    let Some(&mut edge) = (!distances.is_empty()).then(|| distances.select_nth_unstable(last).1)
    else {
        return 0;
    };
    match order {
        Order::Ascending => u64::MAX - edge,
        Order::Descending => edge,
    }
}

/// Runs `work`; a panic in it, whose message is on standard error by then, is a fault of the side.
fn caught<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Fault::Panicked))
}
