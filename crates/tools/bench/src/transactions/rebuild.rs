//! The rebuild of a pool whose file is gone, as tmpfs leaves it after a power cut: from an image of
//! its records alone, and from the image and a log that writes as many records again, in no order.
//!
//! The pool says how long each part takes. The rest of the opening is a measure of its own.

use std::time::{Duration, Instant};

use pando::{Pool, RecoveryStat};

use super::loaded::{Hands, Loaded, Place};
use crate::machine;
use crate::measure::{Figure, Measure, Plan, Row};
use crate::systems::entry::BuildError;

/// Measures rebuilds.
pub fn measure(plan: &Plan) -> Result<Vec<Row>, BuildError> {
    let records = plan.records;
    let mut replay = Measure::new("commits of the log that are replayed", None);
    let mut image = Measure::new("records of an image that are loaded", None);
    let mut rest = Measure::new("the rest of the opening", None);
    let rate = |ns: u64, on_core: Duration| Figure::Rate {
        per_second: records as f64 * 1e9 / ns.max(1) as f64,
        per_core_second: records as f64 / on_core.as_secs_f64().max(1e-9),
    };
    for _ in 0..plan.rounds {
        let of_image = rebuilt(plan, 0)?;
        let of_both = rebuilt(plan, records)?;
        let on_core = of_both.on_core.saturating_sub(of_image.on_core);
        image.rounds.push((rate(of_image.recovery.image_ns, of_image.on_core), None));
        replay.rounds.push((rate(of_both.recovery.log_ns, on_core), None));
        let parts_ns = of_both.recovery.image_ns + of_both.recovery.log_ns;
        let elapsed_ns = of_both.elapsed.as_nanos() as f64;
        rest.rounds.push((Figure::Latency(elapsed_ns - parts_ns as f64), None));
    }
    Ok([replay, image, rest].into_iter().map(|measure| measure.row(records, plan)).collect())
}

/// A rebuild.
struct Rebuilt {
    elapsed: Duration,
    /// Of all threads.
    on_core: Duration,
    recovery: RecoveryStat,
}

/// Opens a pool whose file was removed, with an image of all records and `commits` in the log.
fn rebuilt(plan: &Plan, commits: u64) -> Result<Rebuilt, BuildError> {
    let place = Place::new(plan)?;
    let options = place.with_log(plan);
    let loaded = Loaded::new(place, &options, plan.records, plan)?;
    // The log is replayed from the last sync before the image on.
    loaded.pool.sync()?;
    loaded.pool.write_image()?;
    let mut hands = Hands::new(plan, 0, plan.records);
    for _ in 0..commits {
        let (key, value) = hands.record();
        loaded.map.upsert(key, value)?;
    }
    let place = loaded.close()?;
    std::fs::remove_file(place.path())?;

    let (core_time_before, start) = (machine::process_time(), Instant::now());
    let pool = Pool::open(place.path(), &options)?;
    let elapsed = start.elapsed();
    // Several threads rebuild it. Other threads of this process have nothing to do meanwhile.
    let on_core = machine::process_time().saturating_sub(core_time_before);
    let recovery = pool.stat()?.recovery;
    let found = (recovery.image_records, recovery.commits);
    if found != (plan.records, commits) {
        let expected = (plan.records, commits);
        let what =
            format!("found (records of the image, commits) {found:?}; expected {expected:?}");
        return Err(format!("a rebuild {what}").into());
    }
    Ok(Rebuilt { elapsed, on_core, recovery })
}
