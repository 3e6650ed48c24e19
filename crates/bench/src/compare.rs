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
use std::time::Duration;

use indicatif::ProgressBar;

use crate::chooser::{Chooser, KeyChoice};
use crate::error::{Error, Fault};
use crate::machine;
use crate::mix::Mix;
use crate::report::Row;
use crate::side::Subject;
use crate::sides::Builder;
use crate::slice::{Outcome, Slice};
use crate::table::Table;

/// A fill is cut into so many slices, for the progress bar alone.
const LOAD_SLICES: u64 = 20;

/// What is compared, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The side that the others are divided by; the first one if none is named.
    pub base: Option<String>,
    /// Mixes of a round.
    pub mixes: Vec<Mix>,
    /// Records loaded before the first round.
    pub records: u64,
    /// Numbers of threads, one after the other in each round.
    pub threads: Vec<usize>,
    /// Which records an operation meets.
    pub keys: KeyChoice,
    /// Rounds.
    pub rounds: usize,
    /// How long a slice of reads, upserts or scans takes.
    pub time: Duration,
    /// How many records a slice of inserts or deletes takes.
    pub batch: u64,
    /// One operation in so many is timed.
    pub sample_every: u64,
    /// Seed of all operations.
    pub seed: u64,
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
    bytes_per_record: Option<f64>,
}

/// Runs `plan` over `entrants`; each tick of `progress` is one slice.
pub fn run(plan: &Plan, entrants: &[Entrant], progress: &ProgressBar) -> Result<Vec<Row>, Error> {
    let base = base_of(plan, entrants)?;
    check_deletes(plan)?;
    let run = Run { plan, chooser: Chooser::new(plan.keys, plan.records), progress };
    progress.set_length(run.ticks(entrants.len()));

    let mut table = Table::new(plan, entrants, base);
    run.loads(entrants, &mut table)?;
    if plan.mixes.iter().all(|&mix| mix == Mix::Load) {
        return Ok(table.rows());
    }
    let mut contestants = entrants
        .iter()
        .map(|entrant| run.load(machine::cores().len().max(1), entrant).map(|loaded| loaded.0))
        .collect::<Result<Vec<_>, Error>>()?;
    run.rounds(&mut contestants, &mut table)?;
    for contestant in &contestants {
        progress.set_message(format!("verify {}", contestant.entrant.name));
        contestant
            .subject
            .check_all(&contestant.live)
            .map_err(|fault| failed(contestant.entrant, "the final check", 1, fault))?;
        progress.inc(1);
    }
    Ok(table.rows())
}

/// Bytes a record, all that the side takes included.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Of a pool what it has used, otherwise the heap's growth.
    pub used: Option<f64>,
    /// Of a pool's file what the file system has given to it.
    pub file: Option<f64>,
}

/// Loads the plan's records into a new side of `entrant`, checks it, and says how many bytes one
/// takes.
pub fn bytes_per_record(
    plan: &Plan,
    entrant: &Entrant,
    progress: &ProgressBar,
) -> Result<Space, Error> {
    let run = Run { plan, chooser: Chooser::Uniform, progress };
    progress.set_length(LOAD_SLICES);
    let (contestant, _) = run.load(machine::cores().len().max(1), entrant)?;
    contestant
        .subject
        .check_all(&contestant.live)
        .map_err(|fault| failed(entrant, "the final check", 1, fault))?;
    let file = contestant.subject.file_bytes().map(|bytes| bytes as f64 / plan.records as f64);
    Ok(Space { used: contestant.bytes_per_record, file })
}

fn base_of(plan: &Plan, entrants: &[Entrant]) -> Result<usize, Error> {
    let Some(base) = &plan.base else { return Ok(0) };
    entrants.iter().position(|entrant| entrant.name == *base).ok_or_else(|| Error::UnknownBase {
        base: base.clone(),
        sides: entrants.iter().map(|entrant| entrant.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

/// The least that is ever live is asked for by reads and scans, so it must not be nothing.
fn check_deletes(plan: &Plan) -> Result<(), Error> {
    let slices = (plan.rounds * plan.threads.len()) as u64;
    let is_steady = plan.mixes.contains(&Mix::Insert);
    let deleted = if is_steady { plan.batch } else { plan.batch * slices };
    if plan.mixes.contains(&Mix::Delete) && deleted >= plan.records {
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
    chooser: Chooser,
    progress: &'run ProgressBar,
}

impl<'run> Run<'run> {
    fn ticks(&self, sides: usize) -> u64 {
        let cells = (self.plan.threads.len() * self.plan.rounds * sides) as u64;
        let sides = sides as u64;
        let loads = u64::from(self.plan.mixes.contains(&Mix::Load));
        let others = self.plan.mixes.len() as u64 - loads;
        let verified = if others > 0 { sides * (LOAD_SLICES + 1) } else { 0 };
        loads * cells * LOAD_SLICES + others * cells + verified
    }

    fn slice(&self, mix: Mix, threads: usize, round: usize, live: Range<u64>) -> Slice<'_> {
        let seed = self.plan.seed ^ ((round as u64) << 8 | mix as u64) << 16 ^ (threads as u64);
        Slice {
            mix,
            threads,
            live,
            target: 0..0,
            time: self.plan.time,
            warm_up: self.plan.time / 10,
            chooser: &self.chooser,
            seed,
            sample_every: self.plan.sample_every.max(1),
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
        let fault = |fault| failed(entrant, Mix::Load.name(), threads, fault);
        let mut outcome = Outcome::none();
        let records = self.plan.records;
        for part in 0..LOAD_SLICES {
            let mut slice = self.slice(Mix::Load, threads, 0, 0..0);
            slice.target = records * part / LOAD_SLICES..records * (part + 1) / LOAD_SLICES;
            outcome.append(&subject.run(&slice).map_err(fault)?);
            self.progress.inc(1);
        }
        subject.check_count(records).map_err(fault)?;
        let heap_growth = || Some(machine::heap_bytes()?.saturating_sub(heap_before?));
        let bytes_per_record = subject
            .footprint_bytes()
            .or_else(heap_growth)
            .map(|bytes| bytes as f64 / records as f64);
        Ok((Contestant { entrant, subject, live: 0..records, bytes_per_record }, outcome))
    }

    /// Rounds of fills, each of a new side that is dropped again.
    fn loads(&self, entrants: &'run [Entrant], table: &mut Table<'_>) -> Result<(), Error> {
        let Some(mix) = self.plan.mixes.iter().position(|&mix| mix == Mix::Load) else {
            return Ok(());
        };
        for round in 0..self.plan.rounds {
            for (index, &threads) in self.plan.threads.iter().enumerate() {
                for side in turns(round, entrants.len()) {
                    let (loaded, outcome) = self.load(threads, &entrants[side])?;
                    table.cell(mix, index, side).add(&outcome, loaded.bytes_per_record);
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
        for round in 0..self.plan.rounds {
            for (index, &threads) in self.plan.threads.iter().enumerate() {
                for (mix_index, &mix) in self.plan.mixes.iter().enumerate() {
                    if mix == Mix::Load {
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
                        let outcome = self.one(mix, threads, round, contestant)?;
                        let bytes = contestant.bytes_per_record;
                        table.cell(mix_index, index, side).add(&outcome, bytes);
                        self.progress.inc(1);
                    }
                }
            }
        }
        Ok(())
    }

    fn one(
        &self,
        mix: Mix,
        threads: usize,
        round: usize,
        contestant: &mut Contestant<'_>,
    ) -> Result<Outcome, Error> {
        let batch = self.plan.batch;
        let live = contestant.live.clone();
        let mut slice = self.slice(mix, threads, round, live.clone());
        let after = match mix {
            Mix::Insert => {
                slice.target = live.end..live.end + batch;
                live.start..live.end + batch
            }
            Mix::Delete => {
                slice.target = live.start..live.start + batch;
                live.start + batch..live.end
            }
            Mix::Load | Mix::Read | Mix::Half | Mix::Scan10 => live,
        };
        let fault = |fault| failed(contestant.entrant, mix.name(), threads, fault);
        let outcome = contestant.subject.run(&slice).map_err(fault)?;
        contestant.subject.check_count(after.end - after.start).map_err(fault)?;
        contestant.live = after;
        Ok(outcome)
    }
}
