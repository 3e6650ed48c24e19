//! The map of an opened store, as a system of `pando-bench`.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use pando_index::RangeIndex;
use pando_store::{DataStat, MIN_MEMORY_BYTES, Store, StoreOptions};
use tempfile::TempDir;

use crate::error::Error;
use crate::experiment::Settings;
use pando_bench::error::Fault;
use pando_bench::key_sampler::{KeyChoice, KeySampler, Picked};
use pando_bench::keys::value_of;
use pando_bench::machine;
use pando_bench::operation_mix::OperationMix;
use pando_bench::record::{Buffers, Records, Shape};
use pando_bench::rng::Rng;
use pando_bench::slice::Slice;
use pando_bench::subject::Subject;
use pando_bench::systems::BuildError;
use pando_bench::systems::index::Indexed;

/// The records of these experiments: with about 30 bytes of the store for each.
pub const RECORDS: Records =
    Records { shape: Shape { key_bytes: 8, value_bytes: 100 }, is_monotonic: false };
/// No log is as long, so the store makes no checkpoint by itself.
pub const NO_CHECKPOINTS: u64 = 1 << 60;
/// Slices of a fill; they exist only for the progress bar.
pub const FILL_TICKS: u64 = 20;

const MAP: &str = "records";
/// Of pages that are half empty, with the bytes of their records in the store.
const MOST_RECORD_BYTES: u64 = 512;

/// The error that something was refused.
pub fn refused<E: Into<BuildError>>(what: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Refused { what, source: source.into() }
}

/// A new folder for the files of an experiment.
pub fn folder(settings: &Settings) -> Result<TempDir, Error> {
    tempfile::tempdir_in(&settings.build.pool_dir).map_err(refused("a folder for the store"))
}

/// Options with memory for all of so many records, without checkpoints but those that are asked
/// for.
pub fn roomy(records: u64) -> StoreOptions {
    StoreOptions {
        memory_bytes: records * MOST_RECORD_BYTES + 4 * MIN_MEMORY_BYTES,
        checkpoint_log_bytes: NO_CHECKPOINTS,
        ..StoreOptions::default()
    }
}

/// The most threads of a run: of the numbers that are set, or as many as there are cores.
pub fn most_threads(settings: &Settings) -> usize {
    settings.threads_or_cores().into_iter().max().unwrap_or(1)
}

/// Updates of a run.
#[derive(Clone, Copy, Debug)]
pub struct Updates<'run> {
    /// The distribution of the keys.
    pub keys: &'run KeySampler,
    /// Records of the map; each is there.
    pub records: u64,
    /// How many, of all threads together.
    pub count: u64,
    /// Threads that make them.
    pub threads: usize,
    /// Seed of keys and values.
    pub seed: u64,
}

/// An opened store, and its one map. Updates are puts, which do not read what they replace.
pub struct Opened {
    // Dropped first: the store is closed after the last handle of its map.
    map: Arc<dyn RangeIndex>,
    /// The map as a system.
    pub system: Indexed<true>,
    /// The store.
    pub store: Store,
}

impl Opened {
    /// Opens the store at `path`, and creates it if there is none.
    pub fn open(path: &Path, options: &StoreOptions) -> Result<Self, Error> {
        let failed = || refused("opening a store");
        let store = Store::open(path, options).map_err(failed())?;
        if store.find_map(MAP).map_err(failed())?.is_none() {
            store.create_map(MAP).map_err(failed())?;
        }
        let map: Arc<dyn RangeIndex> = Arc::new(store.map(MAP).map_err(failed())?);
        Ok(Self { system: Indexed::with_puts(map.clone()), map, store })
    }

    /// A slice of `mix` on so many records, without a warm-up.
    pub fn slice<'run>(
        (mix, records): (OperationMix, u64),
        threads: usize,
        time: Duration,
        sampler: &'run KeySampler,
        seed: u64,
    ) -> Slice<'run> {
        Slice {
            mix,
            threads,
            records: RECORDS,
            live: 0..records,
            target: 0..0,
            time,
            warm_up: Duration::ZERO,
            keys: KeyChoice::Uniform,
            sampler,
            seed,
            sample_every: 16,
            rate_ops_per_second: None,
        }
    }

    /// Inserts so many records, and makes a checkpoint. [`FILL_TICKS`] ticks of `progress`.
    pub fn fill(&self, records: u64, threads: usize, progress: &ProgressBar) -> Result<(), Error> {
        let mix = (OperationMix::LOAD, 0);
        for part in 0..FILL_TICKS {
            let slice = Self::slice(mix, threads, Duration::ZERO, &KeySampler::Uniform, 0);
            let target = records * part / FILL_TICKS..records * (part + 1) / FILL_TICKS;
            self.system.run(&Slice { target, ..slice }).map_err(refused("a fill"))?;
            progress.inc(1);
        }
        self.checkpoint()
    }

    /// Makes the updates.
    pub fn update(&self, updates: &Updates<'_>) -> Result<(), Error> {
        let cores = &machine::cores();
        let work = |thread: usize| -> Result<(), Fault> {
            machine::pin_one_of(updates.threads, thread, cores);
            let mut rng = Rng::new(updates.seed ^ (thread as u64) << 32);
            let mut buffers = Buffers::new(RECORDS.shape);
            let share = (thread as u64..updates.count).step_by(updates.threads);
            for _ in share {
                let picked = updates.keys.pick(&mut rng, &(0..updates.records), 0);
                let (Picked::Live(number) | Picked::Added(number)) = picked;
                let key = RECORDS.key(number);
                let (bytes, value) = buffers.record::<false>(key, value_of(key, rng.bits()));
                self.map.put(bytes, value).map_err(|error| Fault::Refused {
                    key,
                    operation: "an update",
                    source: error.into(),
                })?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let running: Vec<_> =
                (0..updates.threads).map(|thread| scope.spawn(move || work(thread))).collect();
            running.into_iter().try_for_each(|running| match running.join() {
                Ok(done) => done.map_err(refused("an update")),
                Err(_) => Err(Error::Panicked),
            })
        })
    }

    /// Reads the record with this number, which must be there, and checks it.
    pub fn read(&self, number: u64) -> Result<(), Error> {
        let (key, operation) = (RECORDS.key(number), "a get");
        let (mut buffers, mut checked) = (Buffers::new(RECORDS.shape), Ok(()));
        let found = self.map.read(buffers.key::<false>(key), &mut |value| {
            checked = RECORDS.check_value::<false>(key, value, operation);
        });
        let found = found.map_err(refused("a get"))?;
        let checked = if found { checked } else { Err(RECORDS.lost(key, operation)) };
        checked.map_err(refused("a get"))
    }

    /// Makes all commits durable, and writes all pages that have changed.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.store.sync().map_err(refused("a sync"))?;
        self.store.checkpoint().map_err(refused("a checkpoint"))
    }

    /// The store's numbers of its cache and of its pages.
    pub fn stat(&self) -> Result<DataStat, Error> {
        Ok(self.store.stat().map_err(refused("the numbers of a store"))?.data)
    }

    /// Checks that the store has exactly so many records, each with a value that was written.
    pub fn verify_all(&self, records: u64) -> Result<(), Error> {
        let verified = self.system.verify(RECORDS, &(0..records), true);
        verified.map_err(refused("the final check"))
    }
}
