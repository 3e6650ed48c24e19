//! `bwtree:cache`: throughput and misses of the store, by the share of the data that memory holds.
//!
//! # Question
//!
//! The cache layer of the Bw-tree "reads, flushes and swaps pages between memory and flash"
//! (section V), page by page. How much throughput is left if memory holds only a part of the data?
//! How many operations need the disk, and how often do they read it?
//!
//! # Method
//!
//! 1. A store is filled with `--records` records with keys of 8 and values of 100 bytes, in random
//!    order, and gets a checkpoint. Then it is opened again and read whole, with memory for all.
//!    The memory that its pages take then is the *data*.
//! 2. In each round, the store is opened once with memory for each share of the data: 10, 25, 50,
//!    75, 100 and 150 %. The order rotates from round to round.
//! 3. After each opening, one scan of all records fills the cache. Then each mix runs twice for
//!    `--seconds`, with as many threads as the greatest of `--threads`. Only the second run counts:
//!    in the first one, the clock learns which pages are used. Then all pages are written. The
//!    store makes checkpoints meanwhile, as by default.
//! 4. At the end the store is checked: it must have exactly the records, with values that were
//!    written.
//!
//! | mix | operations |
//! | --- | --- |
//! | gets, uniform | each record has the same probability |
//! | gets, zipfian | the popular records are spread over all pages (skew 0.99) |
//! | half puts, zipfian | half gets, and half puts, which do not read what they replace |
//!
//! # Units
//!
//! | line | unit | what it is |
//! | --- | --- | --- |
//! | throughput | k ops/s | operations of all threads in a second of the clock |
//! | misses | % | pages that were loaded, by operations; the store counts loads, so that a hit costs nothing. A put of an absent page is no miss |
//! | disk reads | reads an op | parts of pages that were read, without those of cleaning, by operations. A page with deltas on disk has up to four parts |
//! | by the greatest memory | x | throughput by that of the greatest memory in the same round |
//!
//! # Limits of memory
//!
//! The memory is that of the cache. A store takes more beside it (`StoreOptions::memory_bytes`),
//! and 16 MiB at least: smaller shares are raised to that, and then there are fewer lines. So 10 %
//! needs a million records. The system's cache of files is not limited: see [`super`]. With memory
//! for 100 % there are misses too: the cache also has its mapping table and a reserve, its blocks
//! have fixed lengths, and a thread that finds no room evicts 1/64 of the memory. With 150 % there
//! should be none.
//!
//! # What the paper shows
//!
//! Nothing: "performance evaluation on secondary storage will be the topic of future work".

use std::time::Duration;

use indicatif::ProgressBar;
use pando_store::{MIN_MEMORY_BYTES, StoreOptions};

use super::opened::{FILL_TICKS, Opened, folder, most_threads, refused, roomy};
use super::rounds::{Rounds, share};
use crate::error::Error;
use crate::experiment::{Settings, in_threads};
use crate::outcome::Outcome;
use pando_bench::key_sampler::{KeyChoice, KeySampler};
use pando_bench::operation_mix::OperationMix;
use pando_bench::subject::Subject;
use pando_bench::system::System;
use pando_bench::units::count;

/// Shares of the data, in percent.
const SHARES: [u64; 6] = [10, 25, 50, 75, 100, 150];
/// Records, where none are asked for.
const RECORDS: u64 = 1_000_000;
const ZIPFIAN: KeyChoice = KeyChoice::Zipfian { theta: 0.99 };

/// The mixes, with the distributions of their keys.
const MIXES: [(&str, OperationMix, KeyChoice); 3] = [
    ("gets, uniform", OperationMix::READ, KeyChoice::Uniform),
    ("gets, zipfian", OperationMix::READ, ZIPFIAN),
    ("half puts, zipfian", OperationMix::HALF, ZIPFIAN),
];

/// The figures of a slice.
struct Shown {
    ops_per_second: f64,
    misses_percent: f64,
    reads_an_op: f64,
}

/// The memories of the run in bytes, descending: the ratios are to the first one.
fn memories(data_bytes: u64) -> Vec<u64> {
    let mut memories: Vec<_> = SHARES
        .iter()
        .rev()
        .map(|percent| (data_bytes * percent / 100).max(MIN_MEMORY_BYTES))
        .collect();
    memories.dedup();
    memories
}

/// Runs the experiment.
pub fn run(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let records = settings.records.unwrap_or(RECORDS);
    let time = settings.time.unwrap_or(Duration::from_secs(1));
    let rounds = settings.rounds.unwrap_or(3);
    let threads = most_threads(settings);
    let folder = folder(settings)?;
    let path = folder.path().join("store");

    progress.set_length(FILL_TICKS);
    progress.set_message("fill");
    Opened::open(&path, &roomy(records))?.fill(records, threads, progress)?;
    let data_bytes = {
        let opened = Opened::open(&path, &roomy(records))?;
        System::count(&opened.system).map_err(refused("a scan"))?;
        opened.stat()?.cache.used_bytes
    };
    let memories = memories(data_bytes);
    progress.inc_length((rounds * memories.len() * MIXES.len()) as u64 + 1);
    let samplers = MIXES.map(|(_, _, keys)| KeySampler::new(keys, records));

    // By round, memory and mix.
    let mut shown = Vec::new();
    for round in 0..rounds {
        let mut of_round: Vec<_> = memories.iter().map(|_| Vec::new()).collect();
        for turn in 0..memories.len() {
            let turn = (round + turn) % memories.len();
            let memory_bytes = memories[turn];
            let opened = Opened::open(&path, &StoreOptions { memory_bytes, ..Default::default() })?;
            System::count(&opened.system).map_err(refused("a scan"))?;
            for ((name, mix, _), sampler) in MIXES.iter().zip(&samplers) {
                progress.set_message(format!(
                    "{name}, {} MiB, round {} of {rounds}",
                    memory_bytes >> 20,
                    round + 1
                ));
                let seed = settings.seed ^ (round as u64) << 32;
                let slice = |seed| Opened::slice((*mix, records), threads, time, sampler, seed);
                opened.system.run(&slice(!seed)).map_err(refused("a slice"))?;
                let before = opened.stat()?;
                let outcome = opened.system.run(&slice(seed)).map_err(refused("a slice"))?;
                let after = opened.stat()?;
                let loads = after.cache.loads - before.cache.loads;
                let reads = |stat: &pando_store::DataStat| {
                    stat.pages.part_reads - stat.pages.moved_part_reads
                };
                of_round[turn].push(Shown {
                    ops_per_second: outcome.ops_per_second(),
                    misses_percent: 100.0 * share(loads, outcome.operations),
                    reads_an_op: share(reads(&after) - reads(&before), outcome.operations),
                });
                progress.inc(1);
            }
            // So that the next opening has nothing to replay.
            opened.checkpoint()?;
        }
        shown.push(of_round);
    }
    progress.set_message("check");
    Opened::open(&path, &roomy(records))?.verify_all(records)?;
    progress.inc(1);

    let mut outcome = Outcome {
        conditions: format!(
            "{} records of 8-byte keys and 100-byte values, {:.0} MiB in memory, {}, {rounds} rounds of {} ms",
            count(records),
            data_bytes as f64 / f64::from(1 << 20),
            in_threads(threads),
            time.as_millis(),
        ),
        ..Outcome::default()
    };
    let mut lines = Rounds::default();
    for (at, (name, ..)) in MIXES.iter().enumerate() {
        for (turn, &memory_bytes) in memories.iter().enumerate() {
            let what = format!(
                "{name}, memory for {:.0} % of the data",
                100.0 * share(memory_bytes, data_bytes)
            );
            for of_round in &shown {
                let Shown { ops_per_second, misses_percent, reads_an_op } = &of_round[turn][at];
                lines.add(&format!("{what}: throughput"), "k ops/s", ops_per_second / 1e3);
                lines.add(&format!("{what}: misses"), "%", *misses_percent);
                lines.add(&format!("{what}: disk reads"), "reads an op", *reads_an_op);
                if turn > 0 {
                    let ratio = ops_per_second / of_round[0][at].ops_per_second;
                    lines.add(&format!("{what}: by the greatest memory"), "x", ratio);
                }
            }
        }
    }
    lines.push_to(&mut outcome);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_few_records_has_the_least_memory_once() {
        assert_eq!(memories(1 << 20), [MIN_MEMORY_BYTES]);
        let data_bytes = 100 << 20;
        let mib = [150, 100, 75, 50, 25, 16];
        assert_eq!(memories(data_bytes), mib.map(|mib| mib << 20));
    }
}
