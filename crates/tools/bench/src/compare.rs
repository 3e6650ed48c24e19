//! Rounds over systems: the interleaving.
//!
//! A round runs each operation mix with each number of threads. For each of these pairs it runs one
//! slice on each system, so that the slices that are compared are only seconds apart. The first
//! system changes from round to round.
//!
//! The live records are a range of record numbers. Inserts extend the range at its end, and deletes
//! shorten it at its beginning. Keys are a mix of the numbers, so that both are spread over the key
//! space. If a run has both mixes, each round ends with the number of records that were loaded.

use std::ops::Range;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::error::{Error, Fault};
use crate::key_sampler::KeySampler;
use crate::machine;
use crate::operation_mix::{OperationMix, Work};
use crate::plan::{NamedSystem, Plan, Space};
use crate::record::Records;
use crate::report::Row;
use crate::slice::{Outcome, Slice};
use crate::subject::Subject;
use crate::table::Table;

/// Slices of a load; they exist only for the progress bar.
const LOAD_SLICES: u64 = 20;

/// A loaded system.
struct LoadedSystem<'run> {
    system: &'run NamedSystem,
    subject: Box<dyn Subject>,
    live: Range<u64>,
    space: Space,
}

/// Runs `plan` on `systems`. Ratios refer to the first of them. Each tick of `progress` is one
/// slice.
pub fn run(
    plan: &Plan,
    systems: &[NamedSystem],
    progress: &ProgressBar,
) -> Result<Vec<Row>, Error> {
    check_deletes(plan)?;
    let run = Run::new(plan, progress);
    progress.set_length(run.ticks(systems.len()));

    let mut table = Table::new(plan, systems);
    run.loads(systems, &mut table)?;
    if plan.mixes.iter().all(|mix| mix.work == Work::Load) {
        return Ok(table.rows());
    }
    let mut loaded_systems = systems
        .iter()
        .map(|system| run.load(machine::cores().len().max(1), system).map(|loaded| loaded.0))
        .collect::<Result<Vec<_>, Error>>()?;
    run.rounds(&mut loaded_systems, &mut table)?;
    for loaded in &loaded_systems {
        progress.set_message(format!("verify {}", loaded.system.name));
        let verified = loaded.subject.verify(run.records, &loaded.live, true);
        verified.map_err(|fault| failed(loaded.system, "the final check", 1, fault))?;
        progress.inc(1);
    }
    Ok(table.rows())
}

/// Builds `system`, loads the plan's records into it and checks it; returns the bytes per record.
pub fn bytes_per_record(
    plan: &Plan,
    system: &NamedSystem,
    progress: &ProgressBar,
) -> Result<Space, Error> {
    let run = Run::new(plan, progress);
    progress.set_length(LOAD_SLICES);
    let (loaded, _) = run.load(machine::cores().len().max(1), system)?;
    let verified = loaded.subject.verify(run.records, &loaded.live, true);
    verified.map_err(|fault| failed(system, "the final check", 1, fault))?;
    Ok(loaded.space)
}

/// Reads and scans need at least one live record at any time.
fn check_deletes(plan: &Plan) -> Result<(), Error> {
    let slices = (plan.rounds * plan.threads.len()) as u64;
    let has = |work| plan.mixes.iter().any(|mix| mix.work == work);
    let is_steady = has(Work::Insert);
    let deleted = if is_steady { plan.batch } else { plan.batch * slices };
    if has(Work::Delete) && deleted >= plan.records {
        return Err(Error::TooManyDeletes { batch: plan.batch, slices, records: plan.records });
    }
    Ok(())
}

fn failed(system: &NamedSystem, mix: &str, threads: usize, fault: Fault) -> Error {
    Error::Fault { system: system.name.clone(), mix: mix.to_owned(), threads, fault }
}

/// The systems in the order of a round, which rotates.
fn turns(round: usize, systems: usize) -> impl Iterator<Item = usize> {
    (0..systems).map(move |turn| (round + turn) % systems)
}

/// A running plan.
struct Run<'run> {
    plan: &'run Plan,
    records: Records,
    /// For each mix of the plan, the sampler of its records.
    samplers: Vec<KeySampler>,
    progress: &'run ProgressBar,
    begun: Instant,
}

impl<'run> Run<'run> {
    fn new(plan: &'run Plan, progress: &'run ProgressBar) -> Self {
        let mut samplers: Vec<KeySampler> = Vec::with_capacity(plan.mixes.len());
        for (at, mix) in plan.mixes.iter().enumerate() {
            let keys = plan.keys_of(mix);
            let same = plan.mixes[..at].iter().position(|other| plan.keys_of(other) == keys);
            samplers.push(match same {
                Some(same) => samplers[same].clone(),
                None => KeySampler::new(keys, plan.records),
            });
        }
        let records = plan.records_of_run();
        Self { plan, records, samplers, progress, begun: Instant::now() }
    }

    fn ticks(&self, systems: usize) -> u64 {
        let cells = (self.plan.threads.len() * self.plan.rounds * systems) as u64;
        let systems = systems as u64;
        let loads = u64::from(self.plan.mixes.iter().any(|mix| mix.work == Work::Load));
        let others = self.plan.mixes.len() as u64 - loads;
        let verified = if others > 0 { systems * (LOAD_SLICES + 1) } else { 0 };
        loads * cells * LOAD_SLICES + others * cells + verified
    }

    fn slice<'slice>(
        &'slice self,
        mix: OperationMix,
        sampler: &'slice KeySampler,
        threads: usize,
        round: usize,
        live: Range<u64>,
    ) -> Slice<'slice> {
        let place = (round as u64) << 8 | mix.ordinal();
        let seed = self.plan.seed ^ place << 16 ^ (threads as u64);
        Slice {
            mix,
            threads,
            records: self.records,
            live,
            target: 0..0,
            time: self.plan.time,
            warm_up: self.plan.time / 10,
            keys: self.plan.keys_of(&mix),
            sampler,
            seed,
            sample_every: self.plan.sample_every.max(1),
            rate_ops_per_second: self.plan.rate_ops_per_second.filter(|_| mix.work != Work::Load),
        }
    }

    /// Builds and fills a system.
    fn load(
        &self,
        threads: usize,
        system: &'run NamedSystem,
    ) -> Result<(LoadedSystem<'run>, Outcome), Error> {
        self.progress.set_message(format!("load {}, {threads} threads", system.name));
        let heap_before = machine::heap_bytes();
        let subject = (system.build)()
            .map_err(|source| Error::Build { system: system.name.clone(), source })?;
        let fault = |fault| failed(system, OperationMix::LOAD.name, threads, fault);
        let mut outcome = Outcome::none();
        let records = self.plan.records;
        for part in 0..LOAD_SLICES {
            let mut slice = self.slice(OperationMix::LOAD, &KeySampler::Uniform, threads, 0, 0..0);
            slice.target = records * part / LOAD_SLICES..records * (part + 1) / LOAD_SLICES;
            outcome.append(&subject.run(&slice).map_err(fault)?);
            self.progress.inc(1);
        }
        subject.verify(self.records, &(0..records), false).map_err(fault)?;
        let heap_growth = || Some(machine::heap_bytes()?.saturating_sub(heap_before?));
        let a_record = |bytes| bytes as f64 / records as f64;
        let space = Space {
            used: subject.footprint_bytes().or_else(heap_growth).map(a_record),
            files: subject.file_bytes().map(a_record),
            heap: heap_growth().map(a_record),
        };
        Ok((LoadedSystem { system, subject, live: 0..records, space }, outcome))
    }

    /// Rounds of loads; each builds a new system and drops it.
    fn loads(&self, systems: &'run [NamedSystem], table: &mut Table<'_>) -> Result<(), Error> {
        let Some(mix) = self.plan.mixes.iter().position(|mix| mix.work == Work::Load) else {
            return Ok(());
        };
        let begun = Instant::now();
        for round in 0..self.plan.rounds {
            if round > 0 && self.is_too_late(begun.elapsed() / round as u32) {
                break;
            }
            for (index, &threads) in self.plan.threads.iter().enumerate() {
                for system in turns(round, systems.len()) {
                    let (loaded, outcome) = self.load(threads, &systems[system])?;
                    table.cell(mix, index, system).add(&outcome, loaded.space);
                }
            }
        }
        Ok(())
    }

    /// All rounds of the other mixes.
    fn rounds(
        &self,
        loaded_systems: &mut [LoadedSystem<'_>],
        table: &mut Table<'_>,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        for round in 0..self.plan.rounds {
            if round > 0 && self.is_too_late(begun.elapsed() / round as u32) {
                break;
            }
            for (index, &threads) in self.plan.threads.iter().enumerate() {
                for (mix_index, &mix) in self.plan.mixes.iter().enumerate() {
                    if mix.work == Work::Load {
                        continue;
                    }
                    for system in turns(round, loaded_systems.len()) {
                        let loaded = &mut loaded_systems[system];
                        self.progress.set_message(format!(
                            "{}, {mix}, {threads} threads, round {} of {}",
                            loaded.system.name,
                            round + 1,
                            self.plan.rounds
                        ));
                        let outcome = self.one(mix_index, threads, round, loaded)?;
                        let space = loaded.space;
                        table.cell(mix_index, index, system).add(&outcome, space);
                        self.progress.inc(1);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether work of length `next` would end after the time limit.
    fn is_too_late(&self, next: Duration) -> bool {
        self.plan.time_limit.is_some_and(|limit| self.begun.elapsed() + next > limit)
    }

    fn one(
        &self,
        mix_index: usize,
        threads: usize,
        round: usize,
        loaded: &mut LoadedSystem<'_>,
    ) -> Result<Outcome, Error> {
        let mix = self.plan.mixes[mix_index];
        let batch = self.plan.batch;
        let live = loaded.live.clone();
        let sampler = &self.samplers[mix_index];
        let mut slice = self.slice(mix, sampler, threads, round, live.clone());
        let (deleted, inserted) = match mix.work {
            Work::Load | Work::ReadBatch | Work::UpdateBatch => (0, 0),
            Work::Insert => (0, batch),
            Work::Delete => (batch, 0),
            Work::Blend(blend) => (0, inserts_of(batch, blend.insert_every, threads as u64)),
        };
        let after = live.start + deleted..live.end + inserted;
        slice.target = if deleted > 0 { live.start..after.start } else { live.end..after.end };
        let fault = |fault| failed(loaded.system, mix.name, threads, fault);
        let outcome = loaded.subject.run(&slice).map_err(fault)?;
        loaded.subject.verify(self.records, &after, false).map_err(fault)?;
        loaded.live = after;
        Ok(outcome)
    }
}

/// Number of inserts among about `batch` operations, one in `every` of which inserts: the same
/// number for each of `threads`, and at least one.
fn inserts_of(batch: u64, every: u64, threads: u64) -> u64 {
    match every {
        0 => 0,
        every => (batch / every / threads).max(1) * threads,
    }
}
