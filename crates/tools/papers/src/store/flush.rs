//! `bwtree:flush`: pages that are written as deltas, against whole pages.
//!
//! # Question
//!
//! "When flushing a page, the LSS need only flush the deltas that represent the changes made to the
//! page since its previous flush" (section II.E). How many bytes does that save for an update? What
//! is the rate of updates? And what does it cost a read, which must read all parts of a page?
//!
//! # Method
//!
//! Two stores have the same records, `--records` of them with keys of 8 and values of 100 bytes.
//! One writes pages as it always does: up to three deltas, then the whole page. The other one
//! writes each page whole (`Store::write_whole_pages`, a hook of the feature `papers`). Both make
//! the same updates: puts of records that are there, in random order, with as many threads as the
//! greatest of `--threads`. They take turns.
//!
//! | flushes | memory | updates |
//! | --- | --- | --- |
//! | by checkpoints | for all pages | 1/4, 1 or 4 for each page of the store, and then a checkpoint, which writes all pages that have changed; four times |
//! | by evictions | for a quarter of the data | 4 for each page of the store, without a checkpoint |
//!
//! The first round is not counted: it brings pages to the number of parts that they have later. A
//! put does not read its page. So without memory for a page, the store of deltas writes a delta
//! without a read, and the other one must read the page to write it.
//!
//! The work is counted, so `--seconds` has no effect. At the end, both caches of the first two
//! stores are emptied, and random records are read: four gets for each page. Then all records are
//! checked.
//!
//! # Units
//!
//! | line | unit | what it is |
//! | --- | --- | --- |
//! | bytes of pages | bytes an update | bytes of images and deltas that were given to the page store |
//! | bytes written | bytes an update | the same with heads of blocks, padding, pages that cleaning has moved, and checkpoints of the page store; without the log, which is the same in both |
//! | rate | k updates/s | updates of all threads in a second of the clock, with their flushes |
//! | disk reads | reads a load | parts of a page that a load reads |
//! | ratios | x | deltas by whole pages, in the same round |
//!
//! # Limits of memory
//!
//! "For all pages" is 512 bytes for each record, and 64 MiB. A quarter is of the bytes that pages
//! have on disk after the fill, but 16 MiB at least, the least memory of a store. If that is not
//! less than the data, as with 100 thousand records, there are no lines of evictions. It is a
//! quarter from 500 thousand records on.
//!
//! # What the paper shows
//!
//! No figure. Section V.B says that a flush buffer then holds far more updates, and that cleaning
//! has less to do; section II.E, that reads pay for it.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pando_store::{DataStat, MIN_MEMORY_BYTES, StoreOptions};

use super::opened::{
    FILL_TICKS, NO_CHECKPOINTS, Opened, Updates, folder, most_threads, refused, roomy,
};
use super::rounds::{Rounds, share};
use crate::error::Error;
use crate::experiment::{Settings, in_threads};
use crate::outcome::{Outcome, Published};
use pando_bench::key_sampler::KeySampler;
use pando_bench::rng::Rng;
use pando_bench::units::count;

/// Records, where none are asked for.
const RECORDS: u64 = 500_000;
/// The two stores.
const SYSTEMS: [&str; 2] = ["deltas", "whole pages"];
/// Checkpoints of a round.
const CHECKPOINTS: u64 = 4;
/// Memory for one part of the data.
const EVICTING_PART: u64 = 4;
/// Updates for each page in a round of evictions, and reads for each page at the end.
const PER_PAGE: u64 = 4;

/// How pages come to be written.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// Updates for four pages between two flushes.
    updates_per_four_pages: u64,
    /// By evictions, and not by checkpoints.
    evicts: bool,
}

const CASES: [Case; 4] = [
    Case { name: "checkpoints, 1/4 update a page", updates_per_four_pages: 1, evicts: false },
    Case { name: "checkpoints, 1 update a page", updates_per_four_pages: 4, evicts: false },
    Case { name: "checkpoints, 4 updates a page", updates_per_four_pages: 16, evicts: false },
    Case { name: "evictions", updates_per_four_pages: 4 * PER_PAGE, evicts: true },
];

/// The figures of the updates of a round.
struct Flushed {
    bytes_of_pages: f64,
    bytes_written: f64,
    updates_per_second: f64,
}

/// A figure: its name, its unit, how it is read, and the paper's words of the ratio.
type Figure = (&'static str, &'static str, fn(&Flushed) -> f64, Option<Published>);

const FIGURES: [Figure; 3] = [
    (
        "bytes of pages",
        "bytes an update",
        |flushed| flushed.bytes_of_pages,
        Some(Published::text("below 1", "\"consumes much less storage\"; no figure")),
    ),
    ("bytes written", "bytes an update", |flushed| flushed.bytes_written, None),
    ("rate", "k updates/s", |flushed| flushed.updates_per_second / 1e3, None),
];

/// A filled store. `whole`: of whole pages.
fn filled(
    path: &Path,
    options: &StoreOptions,
    (records, threads, whole): (u64, usize, bool),
    progress: &ProgressBar,
) -> Result<Opened, Error> {
    let opened = Opened::open(path, options)?;
    if whole {
        opened.store.write_whole_pages();
    }
    opened.fill(records, threads, progress)?;
    Ok(opened)
}

/// The updates of one round.
fn flushed(opened: &Opened, case: &Case, updates: &Updates<'_>) -> Result<Flushed, Error> {
    let (before, begin) = (opened.stat()?, Instant::now());
    let turns = if case.evicts { 1 } else { CHECKPOINTS };
    for turn in 0..turns {
        opened.update(&Updates { seed: updates.seed ^ turn << 16, ..*updates })?;
        if !case.evicts {
            opened.checkpoint()?;
        }
    }
    let (elapsed, after) = (begin.elapsed(), opened.stat()?);
    let all = turns * updates.count;
    let written = |of: fn(&DataStat) -> u64| share(of(&after) - of(&before), all);
    Ok(Flushed {
        bytes_of_pages: written(|stat| stat.pages.appended_bytes),
        bytes_written: written(|stat| stat.pages.block_bytes + stat.pages.checkpoint_bytes),
        updates_per_second: all as f64 / elapsed.max(Duration::from_nanos(1)).as_secs_f64(),
    })
}

/// Adds the lines of a case in one round: the stores', in the order of [`SYSTEMS`].
fn add(lines: &mut Rounds, case: &Case, both: &[Flushed; 2]) {
    for (what, unit, figure, _) in &FIGURES {
        for (system, flushed) in SYSTEMS.iter().zip(both) {
            lines.add(&format!("{}, {system}: {what}", case.name), unit, figure(flushed));
        }
    }
    for (what, _, figure, paper) in &FIGURES {
        let [deltas, whole] = both.each_ref().map(figure);
        // Nothing was written if memory is hardly less than the data.
        if whole > 0.0 {
            let what = format!("{}: {what}, ratio", case.name);
            let of = ("deltas / whole pages", paper.clone());
            lines.add_with(&what, "x", of, deltas / whole);
        }
    }
}

/// Runs the experiment.
pub fn run(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(RECORDS);
    let rounds = settings.rounds.unwrap_or(3);
    let threads = most_threads(settings);
    let folder = folder(settings)?;
    let fill = |name: &str, options: &StoreOptions| {
        progress.inc_length(SYSTEMS.len() as u64 * FILL_TICKS);
        progress.set_message(format!("fill {name}"));
        let store = |whole: bool| {
            let path = folder.path().join(format!("{name}, {}", SYSTEMS[usize::from(whole)]));
            filled(&path, options, (records, threads, whole), progress)
        };
        Ok::<_, Error>([store(false)?, store(true)?])
    };
    // The reads at the end, and the checks of these two.
    progress.set_length(2 * SYSTEMS.len() as u64);
    let roomy_stores = fill("all", &roomy(records))?;
    let stat = roomy_stores[0].stat()?.pages;
    let memory_bytes = (stat.live_bytes / EVICTING_PART).max(MIN_MEMORY_BYTES);
    let checkpoint_log_bytes = NO_CHECKPOINTS;
    let options = StoreOptions { memory_bytes, checkpoint_log_bytes, ..StoreOptions::default() };
    // A store with memory for all of its pages evicts none.
    let evicts = memory_bytes < stat.live_bytes;
    let evicting_stores = evicts.then(|| fill("a quarter", &options)).transpose()?;
    let stores_of = |case: &Case| match case.evicts {
        true => evicting_stores.as_ref(),
        false => Some(&roomy_stores),
    };
    let cases = CASES.iter().filter(|case| stores_of(case).is_some()).count();
    let work = (rounds + 1) * cases * SYSTEMS.len() + evicting_stores.iter().flatten().count();
    progress.inc_length(work as u64);

    let mut lines = Rounds::default();
    for round in 0..=rounds {
        for (at, case) in CASES.iter().enumerate() {
            let Some(stores) = stores_of(case) else { continue };
            let updates = Updates {
                keys: &KeySampler::Uniform,
                records,
                count: (stat.pages * case.updates_per_four_pages / 4).max(1),
                threads,
                seed: settings.seed ^ ((round * CASES.len() + at) as u64) << 40,
            };
            let mut both = [None, None];
            for turn in 0..SYSTEMS.len() {
                let system = (round + turn) % SYSTEMS.len();
                progress.set_message(format!(
                    "{}, {}, round {round} of {rounds}",
                    case.name, SYSTEMS[system]
                ));
                both[system] = Some(flushed(&stores[system], case, &updates)?);
                progress.inc(1);
            }
            // The first round only brings pages to their usual number of parts.
            if let ([Some(deltas), Some(whole)], true) = (both, round > 0) {
                add(&mut lines, case, &[deltas, whole]);
            }
        }
    }

    for (opened, system) in roomy_stores.iter().zip(SYSTEMS) {
        progress.set_message(format!("read {system}"));
        opened.store.empty_cache().map_err(refused("emptying a cache"))?;
        let before = opened.stat()?;
        let mut rng = Rng::new(settings.seed);
        for _ in 0..PER_PAGE * stat.pages {
            opened.read(rng.below(records))?;
        }
        let after = opened.stat()?;
        let reads = after.pages.part_reads - before.pages.part_reads;
        let loads = after.cache.loads - before.cache.loads;
        let what = format!("after all updates, {system}: disk reads");
        lines.add(&what, "reads a load", share(reads, loads));
        progress.inc(1);
    }
    for opened in roomy_stores.iter().chain(evicting_stores.iter().flatten()) {
        progress.set_message("check");
        opened.verify_all(records)?;
        progress.inc(1);
    }

    let mut outcome = Outcome {
        conditions: format!(
            "{} records of 8-byte keys and 100-byte values, {} pages of {:.1} KiB on disk, {} MiB of memory for evictions, {}, {rounds} rounds",
            count(records),
            stat.pages,
            share(stat.live_bytes, stat.pages) / 1024.0,
            memory_bytes >> 20,
            in_threads(threads),
        ),
        ..Outcome::default()
    };
    lines.push_to(&mut outcome);
    Ok(outcome)
}
