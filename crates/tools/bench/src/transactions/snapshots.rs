//! Scans of a snapshot beside two writers, divided by scans of the map beside the same writers.
//!
//! The writers upsert a part of the records. Each of this part is replaced once between the
//! snapshot and the scan, so that this part is the one for which a scan of the snapshot searches
//! kept values. Without such a part the writers upsert records of another map.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use pando::{Map, MapOptions, Snapshot};

use super::loaded::{Hands, Loaded, Place, fill, options, repeat};
use crate::keys::{key_of, value_of};
use crate::machine;
use crate::measure::{Figure, Measure, Plan, Row};
use crate::record::Buffers;
use crate::systems::entry::BuildError;

/// Percent of the records that are replaced after the snapshot.
const SHARES: [u64; 3] = [0, 5, 100];
/// Threads that write beside a scan.
const WRITERS: usize = 2;
/// A scan looks whether it is to stop after this many records.
const LOOK_EVERY: u64 = 1 << 10;

/// The name of the measure by which the scans are divided.
const PLAIN: &str = "a scan of the map, 2 writers beside it";

/// A scan and the writers beside it.
struct Beside {
    scan: Figure,
    writers_p99: Figure,
}

/// Measures scans in a pool without a log.
pub fn measure(plan: &Plan) -> Result<Vec<Row>, BuildError> {
    let loaded = Loaded::new(Place::new(plan)?, &options(plan), plan.records, plan)?;
    let (pool, map) = (&loaded.pool, &loaded.map);
    let other = pool.map_with("other", &MapOptions::new().transactional(true))?;
    let part_of = |share: u64| (plan.records * share).div_ceil(100);
    fill(&other, part_of(SHARES[1]), plan.shape)?;

    let mut all: Vec<[Measure; 2]> = SHARES
        .iter()
        .map(|share| {
            let scan = format!("a scan of a snapshot, {share} % replaced since, 2 writers");
            let writers = format!("p99 of an upsert beside a snapshot, {share} % replaced");
            [
                Measure::new(scan, Some(PLAIN)),
                Measure::new(writers, Some("p99 of an upsert beside a scan")),
            ]
        })
        .collect();
    for _ in 0..plan.rounds {
        for (&share, [scans, writers]) in SHARES.iter().zip(&mut all) {
            let (written, part) = match share {
                0 => (&other, part_of(SHARES[1])),
                share => (map, part_of(share)),
            };
            let write = |hands: &mut Hands| {
                let (key, value) = hands.record();
                written.upsert(key, value).map(drop)
            };
            let plain = beside_writers(plan, map, None, part, write)?;
            let snapshot = pool.snapshot()?;
            let mut buffers = Buffers::new(plan.shape);
            for key in (0..part_of(share)).map(key_of) {
                let (key_bytes, value) = buffers.record::<false>(key, value_of(key, 1));
                map.upsert(key_bytes, value)?;
            }
            let of_snapshot = beside_writers(plan, map, Some(&snapshot), part, write)?;
            scans.rounds.push((of_snapshot.scan, Some(plain.scan)));
            writers.rounds.push((of_snapshot.writers_p99, Some(plain.writers_p99)));
        }
    }
    Ok(all.into_iter().flatten().map(|measure| measure.row(plan.records, plan)).collect())
}

/// Scans the map, or the snapshot, again and again on one thread, for the time of `plan`. Two other
/// threads upsert the records 0 to `part`. Each whole scan must find all records.
fn beside_writers(
    plan: &Plan,
    map: &Map,
    snapshot: Option<&Snapshot<'_>>,
    part: u64,
    write: impl Fn(&mut Hands) -> Result<(), pando::Error> + Sync,
) -> Result<Beside, BuildError> {
    let stop = &AtomicBool::new(false);
    let scan_on = || -> Result<Figure, BuildError> {
        let (core_time_before, start) = (machine::thread_time(), Instant::now());
        let rate = |records: u64| {
            let on_core = machine::thread_time().saturating_sub(core_time_before);
            Figure::Rate {
                per_second: records as f64 / start.elapsed().as_secs_f64(),
                per_core_second: records as f64 / on_core.as_secs_f64().max(1e-9),
            }
        };
        let mut records = 0;
        loop {
            let mut scan = match snapshot {
                Some(snapshot) => snapshot.range(map, ..),
                None => map.range(..),
            };
            let mut found = 0;
            while scan.next_record()?.is_some() {
                found += 1;
                // Relaxed: if the stop is seen a little later, the scan is a little longer.
                if found % LOOK_EVERY == 0 && stop.load(Ordering::Relaxed) {
                    return Ok(rate(records + found));
                }
            }
            if found != plan.records {
                let due = plan.records;
                return Err(format!("a scan found {found} records; expected {due}").into());
            }
            records += found;
            if stop.load(Ordering::Relaxed) {
                return Ok(rate(records));
            }
        }
    };
    thread::scope(|scope| {
        let scanner = scope.spawn(scan_on);
        let written = repeat(plan, WRITERS, part, 1, write);
        stop.store(true, Ordering::Relaxed);
        let scan = scanner.join().map_err(|_| "a scan panicked")??;
        let p99_ns = written?.latency_ns.value_at_quantile(0.99) as f64;
        Ok(Beside { scan, writers_p99: Figure::Latency(p99_ns) })
    })
}
