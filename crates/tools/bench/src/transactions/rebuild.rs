//! The rebuild of a pool whose file is gone, as tmpfs leaves it after a power cut: from its log
//! alone, and from an image.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pando::{Pool, RecoveryProgress};

use super::loaded::{Loaded, Place};
use crate::machine;
use crate::measure::{Figure, Measure, Plan, Row};
use crate::systems::entry::BuildError;

/// Bytes of the log, at most: for a longer one the pool writes an image by itself.
const MOST_LOG_BYTES: u64 = 32 << 20;
/// Bytes of a record in the log beside its key and its value, at most.
const RECORD_OVERHEAD_BYTES: u64 = 80;

/// Measures rebuilds.
pub fn measure(plan: &Plan) -> Result<Vec<Row>, BuildError> {
    let record_bytes =
        (plan.shape.key_bytes + plan.shape.value_bytes) as u64 + RECORD_OVERHEAD_BYTES;
    let records = plan.records.min(MOST_LOG_BYTES / record_bytes);
    let mut replay = Measure::new("commits of the log that are replayed", None);
    let mut image = Measure::new("records of an image that are loaded", None);
    for _ in 0..plan.rounds {
        replay.rounds.push((rebuilt(plan, records, false)?, None));
        image.rounds.push((rebuilt(plan, records, true)?, None));
    }
    Ok([replay, image].into_iter().map(|measure| measure.row(records, plan)).collect())
}

/// Opens a pool whose file was removed; the records per second of the opening.
fn rebuilt(plan: &Plan, records: u64, has_image: bool) -> Result<Figure, BuildError> {
    let place = Place::new(plan)?;
    let options = place.with_log(plan);
    let loaded = Loaded::new(place, &options, records, plan)?;
    // The log is replayed from the last sync before the image on.
    loaded.pool.sync()?;
    if has_image {
        loaded.pool.write_image()?;
    }
    let place = loaded.close()?;
    std::fs::remove_file(place.path())?;

    let progress = Arc::new(Mutex::new(RecoveryProgress::default()));
    let seen = progress.clone();
    let options =
        options.on_recovery(move |now| *seen.lock().unwrap_or_else(PoisonError::into_inner) = now);
    let (core_time_before, start) = (machine::process_time(), Instant::now());
    let pool = Pool::open(place.path(), &options)?;
    let elapsed = start.elapsed();
    // Several threads rebuild it. Other threads of this process have nothing to do meanwhile.
    let on_core = machine::process_time().saturating_sub(core_time_before);
    drop(pool);
    let found = *progress.lock().unwrap_or_else(PoisonError::into_inner);
    let due = if has_image { (records, 0) } else { (0, records) };
    let found = (found.image_records, found.commits);
    if found != due {
        let what = format!("found (records of the image, commits) {found:?}; expected {due:?}");
        return Err(format!("a rebuild {what}").into());
    }
    Ok(Figure::Rate {
        per_second: records as f64 / elapsed.as_secs_f64(),
        per_core_second: records as f64 / on_core.as_secs_f64().max(1e-9),
    })
}
