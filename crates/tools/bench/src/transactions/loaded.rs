//! A pool with records, and threads that use it for a time.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pando::{Map, MapOptions, Pool, PoolOptions};
use tempfile::TempDir;

use crate::keys::{key_of, value_of};
use crate::latency::empty_histogram;
use crate::machine;
use crate::measure::Plan;
use crate::record::{Buffers, Shape};
use crate::rng::Rng;
use crate::systems::entry::BuildError;

/// The map of the records.
const MAP: &str = "bench";

/// Folders for a pool and its log, which are removed with it.
pub struct Place {
    pool: TempDir,
    log: TempDir,
}

/// A pool with one transactional map.
pub struct Loaded {
    // Dropped first: the pool is closed before its folders are removed.
    /// The map.
    pub map: Map,
    /// The pool.
    pub pool: Pool,
    place: Place,
}

impl Place {
    /// New folders, where `plan` says.
    pub fn new(plan: &Plan) -> Result<Self, BuildError> {
        Ok(Self {
            pool: tempfile::tempdir_in(&plan.build.pool_dir)?,
            log: tempfile::tempdir_in(plan.build.log_dir())?,
        })
    }

    /// The pool's file.
    pub fn path(&self) -> PathBuf {
        self.pool.path().join("bench.pando")
    }

    /// The options of a pool with a log.
    pub fn with_log(&self, plan: &Plan) -> PoolOptions {
        options(plan).log(self.log.path().join("bench.log"))
    }
}

/// The options of a pool without a log.
pub fn options(plan: &Plan) -> PoolOptions {
    PoolOptions::new().max_bytes(plan.build.max_pool_bytes)
}

impl Loaded {
    /// A pool with the records 0 to `records` of `plan`.
    pub fn new(
        place: Place,
        options: &PoolOptions,
        records: u64,
        plan: &Plan,
    ) -> Result<Self, BuildError> {
        let pool = Pool::create(place.path(), options)?;
        let map = pool.map_with(MAP, &MapOptions::new().transactional(true))?;
        fill(&map, records, plan.shape)?;
        Ok(Self { map, pool, place })
    }

    /// Closes the pool; its folders stay.
    pub fn close(self) -> Result<Place, BuildError> {
        let Self { map, pool, place } = self;
        drop(map);
        pool.close()?;
        Ok(place)
    }
}

/// Inserts the records 0 to `records`.
pub fn fill(map: &Map, records: u64, shape: Shape) -> Result<(), BuildError> {
    let mut buffers = Buffers::new(shape);
    for number in 0..records {
        let key = key_of(number);
        let (key_bytes, value) = buffers.record::<false>(key, value_of(key, 0));
        map.insert(key_bytes, value)?;
    }
    Ok(())
}

/// The random choices and the buffers of a thread.
pub struct Hands {
    rng: Rng,
    buffers: Buffers,
    /// The records are chosen below this number.
    pub records: u64,
}

impl Hands {
    /// The hands of a thread of `plan`, for the records 0 to `records`.
    pub fn new(plan: &Plan, thread: usize, records: u64) -> Self {
        let rng = Rng::new(plan.seed ^ (thread as u64) << 32);
        Self { rng, buffers: Buffers::new(plan.shape), records }
    }

    /// A random record with a new value.
    pub fn record(&mut self) -> (&[u8], &[u8]) {
        let key = key_of(self.rng.below(self.records));
        self.buffers.record::<false>(key, value_of(key, self.rng.bits()))
    }
}

/// What threads have done.
pub struct Done {
    /// Operations of all threads per second.
    pub per_second: f64,
    /// Operations per second of core time.
    pub per_core_second: f64,
    /// The latency of the timed operations in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

/// Repeats `operation` on `threads` threads for the time of `plan`. One operation in `sample_every`
/// is timed.
pub fn repeat(
    plan: &Plan,
    threads: usize,
    records: u64,
    sample_every: u64,
    operation: impl Fn(&mut Hands) -> Result<(), pando::Error> + Sync,
) -> Result<Done, BuildError> {
    let (stop, cores) = (&AtomicBool::new(false), &machine::cores());
    let work = |thread: usize| -> Result<(f64, f64, Duration, Histogram<u64>), pando::Error> {
        machine::pin_one_of(threads, thread, cores);
        let mut hands = Hands::new(plan, thread, records);
        let mut latency_ns = empty_histogram();
        let core_time_before = machine::thread_time();
        let (start, mut operations) = (Instant::now(), 0_u64);
        // Relaxed: if the stop is seen a little later, the thread works a little longer.
        while operations == 0 || !stop.load(Ordering::Relaxed) {
            let before = Instant::now();
            operation(&mut hands)?;
            latency_ns.saturating_record(before.elapsed().as_nanos() as u64);
            for _ in 1..sample_every {
                operation(&mut hands)?;
            }
            operations += sample_every;
        }
        let (seconds, operations) = (start.elapsed().as_secs_f64(), operations as f64);
        let on_core = machine::thread_time().saturating_sub(core_time_before);
        Ok((operations, operations / seconds, on_core, latency_ns))
    };
    let work = &work;
    let mut all = Done { per_second: 0.0, per_core_second: 0.0, latency_ns: empty_histogram() };
    let (mut all_operations, mut all_on_core) = (0.0, Duration::ZERO);
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        thread::sleep(plan.time);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let (operations, per_second, on_core, latency_ns) =
                thread.join().map_err(|_| "a thread panicked")??;
            all.per_second += per_second;
            all.latency_ns += latency_ns;
            all_operations += operations;
            all_on_core += on_core;
        }
        all.per_core_second = all_operations / all_on_core.as_secs_f64().max(1e-9);
        Ok(all)
    })
}
