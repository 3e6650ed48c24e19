//! Rounds over sides: the interleaving.
//!
//! A round takes each number of threads in turn, with each mix in turn, and within a mix one slice
//! on each side, so that what is compared lies seconds apart. The side that goes first changes
//! from round to round.
//!
//! The live records are a window of record numbers. Inserts lengthen it at its end, deletes
//! shorten it at its beginning; since keys are a mix of numbers, both fall all over the key space.
//! With both mixes in a run, the size comes back to the loaded one in every round.

use std::ops::Range;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::conditions::Conditions;
use crate::error::{Error, Fault};
use crate::key_sampler::{KeyChoice, KeySampler};
use crate::machine;
use crate::mix::{Mix, Work};
use crate::record::{Records, Shape};
use crate::report::Row;
use crate::side::Subject;
use crate::sides::Builder;
use crate::slice::{Outcome, Slice};
use crate::table::Table;
use crate::verify;

/// A fill is cut into so many slices, for the progress bar alone.
const LOAD_SLICES: u64 = 20;

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Mixes of a round.
    pub mixes: Vec<Mix>,
    /// Records loaded before the first round.
    pub records: u64,
    /// Numbers of threads, one after the other in each round.
    pub threads: Vec<usize>,
    /// Which records an operation meets; each mix's own choice, or uniform, if it is not said.
    pub keys: Option<KeyChoice>,
    /// Sizes of keys and values.
    pub shape: Shape,
    /// Rounds.
    pub rounds: usize,
    /// How long a slice of reads, upserts or scans takes.
    pub time: Duration,
    /// How many records a slice of inserts or deletes takes.
    pub batch: u64,
    /// One operation in so many is timed, if the loop is closed.
    pub sample_every: u64,
    /// Operations that all threads together begin a second, if the loop is open.
    pub rate_ops_per_second: Option<f64>,
    /// Seed of all operations.
    pub seed: u64,
    /// No round is begun that is not likely to end within this time from the start, the first
    /// excepted.
    pub time_limit: Option<Duration>,
    /// What the figures are taken on.
    pub conditions: Conditions,
}

impl Plan {
    /// Which records `mix` meets.
    pub fn keys_of(&self, mix: &Mix) -> KeyChoice {
        self.keys.or(mix.keys).unwrap_or(KeyChoice::Uniform)
    }

    /// The most records that a side can hold at once, if nothing is deleted.
    pub fn most_records(&self) -> u64 {
        let adds = |mix: &&Mix| match mix.work {
            Work::Insert => true,
            Work::Blend(blend) => blend.insert_every > 0,
            Work::Load | Work::Delete | Work::Batch => false,
        };
        let slices = self.mixes.iter().filter(adds).count() * self.rounds * self.threads.len();
        // A blend inserts once a thread at least.
        let each = self.batch.max(self.threads.iter().copied().max().unwrap_or(1) as u64);
        self.records.saturating_add(each.saturating_mul(slices as u64))
    }

    /// Which keys the records have.
    pub fn records_of_run(&self) -> Records {
        let is_monotonic = self.keys == Some(KeyChoice::Monotonic);
        Records { shape: self.shape, is_monotonic }
    }
}

/// A side by name, and how to build it.
pub struct Entrant {
    /// The name in the reports.
    pub name: String,
    /// Builds it, empty.
    pub build: Builder,
}

/// A side that is loaded.
struct Contestant<'run> {
    entrant: &'run Entrant,
    subject: Box<dyn Subject>,
    live: Range<u64>,
    space: Space,
}

/// Runs `plan` over `entrants`, the first of which the others are divided by; each tick of
/// `progress` is one slice.
pub fn run(plan: &Plan, entrants: &[Entrant], progress: &ProgressBar) -> Result<Vec<Row>, Error> {
    check_deletes(plan)?;
    let run = Run::new(plan, progress);
    progress.set_length(run.ticks(entrants.len()));

    let mut table = Table::new(plan, entrants);
    run.loads(entrants, &mut table)?;
    if plan.mixes.iter().all(|mix| mix.work == Work::Load) {
        return Ok(table.rows());
    }
    let mut contestants = entrants
        .iter()
        .map(|entrant| run.load(machine::cores().len().max(1), entrant).map(|loaded| loaded.0))
        .collect::<Result<Vec<_>, Error>>()?;
    run.rounds(&mut contestants, &mut table)?;
    for contestant in &contestants {
        progress.set_message(format!("verify {}", contestant.entrant.name));
        verify::all(contestant.subject.any(), run.records, &contestant.live)
            .map_err(|fault| failed(contestant.entrant, "the final check", 1, fault))?;
        progress.inc(1);
    }
    Ok(table.rows())
}

/// Bytes a record after the load, all that the side takes included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Of a pool what it has used, otherwise the heap's growth.
    pub used: Option<f64>,
    /// What the file system has given to the side's files, if it has any.
    pub files: Option<f64>,
    /// The heap's growth, if it is counted.
    pub heap: Option<f64>,
}

/// Loads the plan's records into a new side of `entrant`, checks it, and says how many bytes one
/// takes.
pub fn bytes_per_record(
    plan: &Plan,
    entrant: &Entrant,
    progress: &ProgressBar,
) -> Result<Space, Error> {
    let run = Run::new(plan, progress);
    progress.set_length(LOAD_SLICES);
    let (contestant, _) = run.load(machine::cores().len().max(1), entrant)?;
    verify::all(contestant.subject.any(), run.records, &contestant.live)
        .map_err(|fault| failed(entrant, "the final check", 1, fault))?;
    Ok(contestant.space)
}

/// The least that is ever live is asked for by reads and scans, so it must not be nothing.
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

fn failed(entrant: &Entrant, mix: &str, threads: usize, fault: Fault) -> Error {
    Error::Fault { side: entrant.name.clone(), mix: mix.to_owned(), threads, fault }
}

/// The sides in the order of a round: each goes first in its turn.
fn turns(round: usize, sides: usize) -> impl Iterator<Item = usize> {
    (0..sides).map(move |turn| (round + turn) % sides)
}

/// A plan under way.
struct Run<'run> {
    plan: &'run Plan,
    records: Records,
    /// What picks the records of each mix of the plan.
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

    fn ticks(&self, sides: usize) -> u64 {
        let cells = (self.plan.threads.len() * self.plan.rounds * sides) as u64;
        let sides = sides as u64;
        let loads = u64::from(self.plan.mixes.iter().any(|mix| mix.work == Work::Load));
        let others = self.plan.mixes.len() as u64 - loads;
        let verified = if others > 0 { sides * (LOAD_SLICES + 1) } else { 0 };
        loads * cells * LOAD_SLICES + others * cells + verified
    }

    fn slice<'slice>(
        &'slice self,
        mix: Mix,
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
            sampler,
            seed,
            sample_every: self.plan.sample_every.max(1),
            rate_ops_per_second: self.plan.rate_ops_per_second.filter(|_| mix.work != Work::Load),
        }
    }

    /// Builds and fills a side.
    fn load(
        &self,
        threads: usize,
        entrant: &'run Entrant,
    ) -> Result<(Contestant<'run>, Outcome), Error> {
        self.progress.set_message(format!("load {}, {threads} threads", entrant.name));
        let heap_before = machine::heap_bytes();
        let subject = (entrant.build)()
            .map_err(|source| Error::Build { side: entrant.name.clone(), source })?;
        let fault = |fault| failed(entrant, Mix::LOAD.name, threads, fault);
        let mut outcome = Outcome::none();
        let records = self.plan.records;
        for part in 0..LOAD_SLICES {
            let mut slice = self.slice(Mix::LOAD, &KeySampler::Uniform, threads, 0, 0..0);
            slice.target = records * part / LOAD_SLICES..records * (part + 1) / LOAD_SLICES;
            outcome.append(&subject.run(&slice).map_err(fault)?);
            self.progress.inc(1);
        }
        verify::count(subject.any(), self.records, &(0..records)).map_err(fault)?;
        let heap_growth = || Some(machine::heap_bytes()?.saturating_sub(heap_before?));
        let a_record = |bytes| bytes as f64 / records as f64;
        let space = Space {
            used: subject.footprint_bytes().or_else(heap_growth).map(a_record),
            files: subject.file_bytes().map(a_record),
            heap: heap_growth().map(a_record),
        };
        Ok((Contestant { entrant, subject, live: 0..records, space }, outcome))
    }

    /// Rounds of fills, each of a new side that is dropped again.
    fn loads(&self, entrants: &'run [Entrant], table: &mut Table<'_>) -> Result<(), Error> {
        let Some(mix) = self.plan.mixes.iter().position(|mix| mix.work == Work::Load) else {
            return Ok(());
        };
        let begun = Instant::now();
        for round in 0..self.plan.rounds {
            if round > 0 && self.is_too_late(begun.elapsed() / round as u32) {
                break;
            }
            for (index, &threads) in self.plan.threads.iter().enumerate() {
                for side in turns(round, entrants.len()) {
                    let (loaded, outcome) = self.load(threads, &entrants[side])?;
                    table.cell(mix, index, side).add(&outcome, loaded.space);
                }
            }
        }
        Ok(())
    }

    /// All rounds of the other mixes.
    fn rounds(
        &self,
        contestants: &mut [Contestant<'_>],
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
                    for side in turns(round, contestants.len()) {
                        let contestant = &mut contestants[side];
                        self.progress.set_message(format!(
                            "{}, {mix}, {threads} threads, round {} of {}",
                            contestant.entrant.name,
                            round + 1,
                            self.plan.rounds
                        ));
                        let outcome = self.one(mix_index, threads, round, contestant)?;
                        let space = contestant.space;
                        table.cell(mix_index, index, side).add(&outcome, space);
                        self.progress.inc(1);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether what takes `next` more would end after the time limit.
    fn is_too_late(&self, next: Duration) -> bool {
        self.plan.time_limit.is_some_and(|limit| self.begun.elapsed() + next > limit)
    }

    fn one(
        &self,
        mix_index: usize,
        threads: usize,
        round: usize,
        contestant: &mut Contestant<'_>,
    ) -> Result<Outcome, Error> {
        let mix = self.plan.mixes[mix_index];
        let batch = self.plan.batch;
        let live = contestant.live.clone();
        let sampler = &self.samplers[mix_index];
        let mut slice = self.slice(mix, sampler, threads, round, live.clone());
        let (deleted, inserted) = match mix.work {
            Work::Load | Work::Batch => (0, 0),
            Work::Insert => (0, batch),
            Work::Delete => (batch, 0),
            Work::Blend(blend) => (0, inserts_of(batch, blend.insert_every, threads as u64)),
        };
        let after = live.start + deleted..live.end + inserted;
        slice.target = if deleted > 0 { live.start..after.start } else { live.end..after.end };
        let fault = |fault| failed(contestant.entrant, mix.name, threads, fault);
        let outcome = contestant.subject.run(&slice).map_err(fault)?;
        verify::count(contestant.subject.any(), self.records, &after).map_err(fault)?;
        contestant.live = after;
        Ok(outcome)
    }
}

/// Inserts among about `batch` operations of which one in `every` inserts: as many for each of
/// `threads`, and at least one.
fn inserts_of(batch: u64, every: u64, threads: u64) -> u64 {
    match every {
        0 => 0,
        every => (batch / every / threads).max(1) * threads,
    }
}
