//! Replays a trace on systems, interleaved and checked.
//!
//! Each system is filled by the load of the trace. Then the timed steps are cut into parts. Each
//! part runs on every system in turn before the next one begins, so that the compared times are
//! close together. The first system changes from part to part. At the end every system must hold
//! exactly the records of the trace's end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;

use super::{Action, Step, Trace};
use pando_bench::machine;
use pando_bench::plan::NamedSystem;
use pando_bench::spread::Spread;
use pando_bench::subject::Subject;
use pando_bench::system::{AnySystem, Refusal};
use pando_bench::verify::{self, Stray};

/// Why a replay gave no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system could not be built.
    #[error("cannot build the system {system}: {source}")]
    Build {
        /// The system.
        system: String,
        /// The reason given.
        source: Refusal,
    },
    /// A system broke its word.
    #[error("{system}, trace {trace}: {fault}")]
    Fault {
        /// The system.
        system: String,
        /// The trace.
        trace: String,
        /// What was found.
        fault: Fault,
    },
}

/// A system did not do what the trace says must come of a step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A record that is due was not found.
    #[error("lost key {key}: {operation} did not find it")]
    Lost {
        /// The key in hexadecimal digits.
        key: String,
        /// What looked for it.
        operation: &'static str,
    },
    /// A record was found that must not be there.
    #[error("invented key {key}: {operation} found it, but it must not be there")]
    Invented {
        /// The key in hexadecimal digits.
        key: String,
        /// What found it.
        operation: &'static str,
    },
    /// The full scan at the end gave a key a second time, or after a greater one.
    #[error("the full scan gave key {key} twice, or after a greater one")]
    Disorder {
        /// The key in hexadecimal digits.
        key: String,
    },
    /// A get found another value than the last that was written.
    #[error(
        "key {key}: a get found another value than version {version}, the last that was written"
    )]
    WrongValue {
        /// The key in hexadecimal digits.
        key: String,
        /// The version that is due.
        version: u32,
    },
    /// The number of records at the end is wrong.
    #[error("{found} records are there at the end; {due} are due")]
    Count {
        /// What was counted.
        found: u64,
        /// What the trace amounts to.
        due: u64,
    },
    /// An error where none is due.
    #[error("{operation} was refused, key {key}: {source}")]
    Refused {
        /// The key in hexadecimal digits; empty where it is all of them.
        key: String,
        /// What was refused.
        operation: &'static str,
        /// The reason given.
        source: Refusal,
    },
    /// A thread panicked.
    #[error("a thread panicked")]
    Panicked,
}

/// How a trace is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Threads that share the steps, by key.
    pub threads: usize,
    /// Parts that the timed steps are cut into.
    pub parts: usize,
}

/// One system's replay; one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The system.
    pub system: String,
    /// The trace.
    pub trace: String,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Records loaded before the timed steps.
    pub records: u64,
    /// Timed steps.
    pub operations: u64,
    /// Gets for each write among them.
    pub reads_a_write: f64,
    /// Threads.
    pub threads: usize,
    /// Median over the parts.
    pub ops_per_second: f64,
    /// Median over the parts of the throughput divided by the first system's in the same part.
    pub ratio_to_first: f64,
    /// The least ratio of a part.
    pub ratio_min: f64,
    /// The greatest ratio of a part.
    pub ratio_max: f64,
    /// Parts.
    pub parts: usize,
}

/// Runs `steps` of `trace` on `system`; how long that took.
pub fn run_steps(
    system: &dyn AnySystem,
    trace: &Trace,
    steps: &[Step],
    threads: usize,
) -> Result<Duration, Fault> {
    let threads = threads.max(1);
    let cores = &machine::cores();
    let (barrier, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let (barrier, stop) = (&barrier, &stop);
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    machine::pin_one_of(threads, thread, cores);
                    // Taken apart before the start: choosing one's own steps is not the system's
                    // work.
                    let own: Vec<Step> = steps
                        .iter()
                        .filter(|step| Trace::thread_of(step.key, threads) == thread)
                        .copied()
                        .collect();
                    barrier.wait();
                    let start = Instant::now();
                    let work = AssertUnwindSafe(|| run_own(system, trace, &own, stop));
                    let done = catch_unwind(work).unwrap_or(Err(Fault::Panicked));
                    if done.is_err() {
                        // Relaxed: the others only have to see it at some time.
                        stop.store(true, Ordering::Relaxed);
                    }
                    done.map(|()| (start, Instant::now()))
                })
            })
            .collect();
        barrier.wait();
        let done = handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or(Err(Fault::Panicked)))
            .collect::<Result<Vec<_>, Fault>>()?;
        // By the threads' own clocks: this one may get its core back long after they began.
        let start = done.iter().map(|(start, _)| *start).min();
        let end = done.iter().map(|(_, end)| *end).max();
        Ok(start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start))
    })
}

fn run_own(
    system: &dyn AnySystem,
    trace: &Trace,
    steps: &[Step],
    stop: &AtomicBool,
) -> Result<(), Fault> {
    let mut value = Vec::with_capacity(trace.value_bytes());
    for step in steps {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        one(system, trace, step, &mut value)?;
    }
    Ok(())
}

fn name(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[inline]
fn one(
    system: &dyn AnySystem,
    trace: &Trace,
    step: &Step,
    value: &mut Vec<u8>,
) -> Result<(), Fault> {
    let (key, action) = (trace.key(step.key), step.action);
    let operation = action.name();
    let refused = |source| Fault::Refused { key: name(key), operation, source };
    let lost = || Fault::Lost { key: name(key), operation };
    let invented = || Fault::Invented { key: name(key), operation };
    match (action, step.version()) {
        (Action::Get, due) => {
            let mut is_right = false;
            let mut check = |found: &[u8]| {
                is_right = due.is_some_and(|due| trace.is_value(step.key, due, found));
            };
            match (system.get(key, &mut check).map_err(refused)?, due) {
                (true, Some(_)) if is_right => Ok(()),
                (false, None) => Ok(()),
                (true, Some(version)) => Err(Fault::WrongValue { key: name(key), version }),
                (true, None) => Err(invented()),
                (false, Some(_)) => Err(lost()),
            }
        }
        (Action::Insert, Some(version)) => {
            trace.fill_value(step.key, version, value);
            let is_new = system.insert_new(key, value).map_err(refused)?;
            if is_new { Ok(()) } else { Err(invented()) }
        }
        (Action::Update, Some(version)) => {
            trace.fill_value(step.key, version, value);
            system.upsert(key, value).map_err(refused)
        }
        (Action::Delete, _) => {
            let was_there = system.delete(key).map_err(refused)?;
            if was_there { Ok(()) } else { Err(lost()) }
        }
        // A trace makes no write without a version.
        (Action::Insert | Action::Update, None) => Ok(()),
    }
}

/// Compares all records of `system` with those of the trace's end, by gets, by a full scan and by
/// its count.
pub fn check(system: &dyn AnySystem, trace: &Trace) -> Result<(), Fault> {
    let mut value = Vec::new();
    for (key, version) in trace.final_records() {
        one(system, trace, &Step { action: Action::Get, key, version }, &mut value)?;
    }
    let refused =
        |operation| move |source| Fault::Refused { key: String::new(), operation, source };
    let mut due: Vec<&[u8]> = trace.final_records().map(|(key, _)| trace.key(key)).collect();
    due.sort_unstable();
    let operation = "the full scan";
    let stray = verify::keys(system, &vec![0; trace.key_bytes()], &due);
    match stray.map_err(refused(operation))? {
        None => {}
        Some(Stray::Lost(key)) => return Err(Fault::Lost { key: name(&key), operation }),
        Some(Stray::Invented(key)) => return Err(Fault::Invented { key: name(&key), operation }),
        Some(Stray::Disorder(key)) => return Err(Fault::Disorder { key: name(&key) }),
    }
    let due = due.len() as u64;
    match system.count().map_err(refused("the count of records"))? {
        found if found == due => Ok(()),
        found => Err(Fault::Count { found, due }),
    }
}

/// Replays `trace` on all of `systems`; each tick of `progress` is a part on a system.
pub fn run(
    trace: &Trace,
    systems: &[NamedSystem],
    plan: &Plan,
    progress: &ProgressBar,
) -> Result<Vec<Row>, Error> {
    let parts = plan.parts.max(1);
    progress.set_length(((parts + 2) * systems.len()) as u64);
    let fault = |system: &NamedSystem| {
        let (system, trace) = (system.name.clone(), trace.name().to_owned());
        move |fault| Error::Fault { system, trace, fault }
    };
    let mut loaded: Vec<Box<dyn Subject>> = Vec::new();
    for system in systems {
        progress.set_message(format!("load {}", system.name));
        let subject = (system.build)()
            .map_err(|source| Error::Build { system: system.name.clone(), source })?;
        run_steps(subject.any(), trace, trace.load(), plan.threads).map_err(fault(system))?;
        loaded.push(subject);
        progress.inc(1);
    }
    // By system: the throughput of each part.
    let mut found = vec![Vec::with_capacity(parts); systems.len()];
    let steps = trace.steps();
    for part in 0..parts {
        let steps = &steps[steps.len() * part / parts..steps.len() * (part + 1) / parts];
        for turn in 0..systems.len() {
            let at = (part + turn) % systems.len();
            progress.set_message(format!("{}, part {} of {parts}", systems[at].name, part + 1));
            let elapsed = run_steps(loaded[at].any(), trace, steps, plan.threads)
                .map_err(fault(&systems[at]))?;
            found[at].push(steps.len() as f64 / elapsed.as_secs_f64().max(1e-9));
            progress.inc(1);
        }
    }
    for (system, subject) in systems.iter().zip(&loaded) {
        progress.set_message(format!("verify {}", system.name));
        check(subject.any(), trace).map_err(fault(system))?;
        progress.inc(1);
    }
    let row = |(system, own): (&NamedSystem, &Vec<f64>)| {
        let ratios: Vec<_> = own.iter().zip(&found[0]).map(|(own, first)| own / first).collect();
        let ratio = Spread::of(&ratios);
        Row {
            system: system.name.clone(),
            trace: trace.name().to_owned(),
            key_bytes: trace.key_bytes(),
            value_bytes: trace.value_bytes(),
            records: trace.load().len() as u64,
            operations: steps.len() as u64,
            reads_a_write: trace.reads_a_write(),
            threads: plan.threads,
            ops_per_second: Spread::of(own).median,
            ratio_to_first: ratio.median,
            ratio_min: ratio.min,
            ratio_max: ratio.max,
            parts,
        }
    };
    Ok(systems.iter().zip(&found).map(row).collect())
}
