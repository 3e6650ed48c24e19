//! A process that works on a map which other processes use too.
//!
//! It opens the map, prints a line, and then answers each line of standard input, a request, with a
//! line, the figures of its work. It works with one thread or several. At the end of its input it
//! stops its work, closes the map and ends.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pando::{Map, Pool, PoolOptions};
use serde::{Deserialize, Serialize};

use super::place::{Kept, MAP, lmdb};
use crate::args::ProcessesChildArgs;
use crate::error::Failure;
use crate::keys::{belongs, key_of, value_of};
use crate::latency::empty_histogram;
use crate::machine;
use crate::record::{Buffers, Shape};
use crate::rng::Rng;
use crate::system::AnySystem;
use crate::systems::entry::BuildError;

/// A request.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Request {
    /// Upserts among 100 operations; the others are gets.
    pub upserts: u64,
    /// For how long, in milliseconds.
    pub time_ms: u64,
    /// Seed of the operations.
    pub seed: u64,
}

/// The answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Done {
    /// Operations of all threads per second.
    pub per_second: f64,
    /// Core time of all threads, in seconds.
    pub on_core_seconds: f64,
    /// Operations of all threads.
    pub operations: u64,
    /// The latency of one operation in a hundred is longer, in nanoseconds.
    pub p99_ns: u64,
    /// The longest latency, in nanoseconds.
    pub longest_ns: u64,
}

/// What the process says when it is ready.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Ready {
    /// How long the opening of the map took, up to the answer of the first get, in nanoseconds.
    pub opened_ns: u64,
}

/// The map of a process, opened.
enum Opened {
    // The pool is closed after its map.
    Pando(Map, #[expect(dead_code, reason = "it keeps the pool open")] Pool),
    Peer(Box<dyn AnySystem>),
}

impl Opened {
    fn new(args: &ProcessesChildArgs, shape: Shape) -> Result<Self, BuildError> {
        Ok(match args.system {
            Kept::Pando => {
                let pool = Pool::open(&args.file, &PoolOptions::new().shared(true))?;
                Self::Pando(pool.open_map(MAP)?, pool)
            }
            Kept::Lmdb => Self::Peer(lmdb(&args.file, args.records, shape)?),
        })
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), BuildError> {
        match self {
            Self::Pando(map, _) => Ok(map.upsert(key, value).map(drop)?),
            Self::Peer(peer) => peer.upsert(key, value),
        }
    }

    /// Reads the value of a key, which is there, and checks it.
    fn get(&self, key: u64, key_bytes: &[u8]) -> Result<(), BuildError> {
        let mut is_right = false;
        let mut check = |value: &[u8]| {
            let first = value.first_chunk().copied().map(u64::from_le_bytes);
            is_right = first.is_some_and(|first| belongs(key, first));
        };
        match self {
            Self::Pando(map, _) => {
                map.read(key_bytes, &mut check)?;
            }
            Self::Peer(peer) => {
                peer.get(key_bytes, &mut check)?;
            }
        }
        if is_right {
            Ok(())
        } else {
            Err(format!("key {key:#018x} is lost or has a wrong value").into())
        }
    }
}

/// The process.
///
/// # Errors
///
/// Those of the system, and a lost or wrong record.
pub fn be_child(args: &ProcessesChildArgs) -> Result<(), Failure> {
    machine::die_with_parent();
    let shape = Shape { key_bytes: 8, value_bytes: args.value_bytes };
    let begin = Instant::now();
    let opened = Opened::new(args, shape)?;
    let mut buffers = Buffers::new(shape);
    opened.get(key_of(0), buffers.key::<false>(key_of(0)))?;
    let opened_ns = begin.elapsed().as_nanos() as u64;
    if args.touches {
        for key in (0..args.records).map(key_of) {
            opened.get(key, buffers.key::<false>(key))?;
        }
    }
    let mut out = std::io::stdout();
    writeln!(out, "{}", serde_json::to_string(&Ready { opened_ns })?)?;
    let (has_ended, requests) = input();
    for request in requests {
        let done = work(&opened, &request, args, shape, has_ended)?;
        writeln!(out, "{}", serde_json::to_string(&done)?)?;
    }
    Ok(())
}

/// Whether the input has ended, and the requests, which another thread reads.
fn input() -> (&'static AtomicBool, Receiver<Request>) {
    static HAS_ENDED: AtomicBool = AtomicBool::new(false);
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if let Ok(request) = serde_json::from_str(&line)
                && sender.send(request).is_err()
            {
                break;
            }
        }
        // Relaxed: if the end is seen a little later, the work is a little longer.
        HAS_ENDED.store(true, Ordering::Relaxed);
    });
    (&HAS_ENDED, requests)
}

fn work(
    opened: &Opened,
    request: &Request,
    args: &ProcessesChildArgs,
    shape: Shape,
    has_ended: &AtomicBool,
) -> Result<Done, BuildError> {
    let time = Duration::from_millis(request.time_ms);
    let one = |thread: u64| -> Result<(Done, Histogram<u64>), BuildError> {
        let mut rng = Rng::new(request.seed ^ thread << 48);
        let (mut buffers, mut latency_ns) = (Buffers::new(shape), empty_histogram());
        let core_time_before = machine::thread_time();
        let (start, mut operations) = (Instant::now(), 0);
        let mut before = start;
        while before - start < time && !has_ended.load(Ordering::Relaxed) {
            let key = key_of(rng.below(args.records));
            if rng.below(100) < request.upserts {
                let value = value_of(key, rng.bits());
                let (key_bytes, value_bytes) = buffers.record::<false>(key, value);
                opened.upsert(key_bytes, value_bytes)?;
            } else {
                opened.get(key, buffers.key::<false>(key))?;
            }
            operations += 1;
            let after = Instant::now();
            latency_ns.saturating_record((after - before).as_nanos() as u64);
            before = after;
        }
        let on_core = machine::thread_time().saturating_sub(core_time_before);
        let per_second = operations as f64 / (before - start).as_secs_f64().max(1e-9);
        let on_core_seconds = on_core.as_secs_f64();
        Ok((Done { per_second, on_core_seconds, operations, ..Done::default() }, latency_ns))
    };
    let (mut all, mut latency_ns) = (Done::default(), empty_histogram());
    thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> =
            (0..args.threads as u64).map(|thread| scope.spawn(move || one(thread))).collect();
        for thread in threads {
            let (done, latency) = thread.join().map_err(|_| "a thread panicked")??;
            all.per_second += done.per_second;
            all.on_core_seconds += done.on_core_seconds;
            all.operations += done.operations;
            latency_ns += latency;
        }
        Ok::<(), BuildError>(())
    })?;
    (all.p99_ns, all.longest_ns) = (latency_ns.value_at_quantile(0.99), latency_ns.max());
    Ok(all)
}
