//! Processes that share a map: their rates beside those of threads and of a peer, and the effects
//! of deaths on the others.
//!
//! Each round takes a measure and the one that it is divided by one after the other. A process
//! begins its work when all of the slice have opened the map and, where deaths are not measured,
//! have read all records once.
//!
//! | file, from the lowest up | content |
//! | --- | --- |
//! | `place` | the map and its records |
//! | `child` | the process that works on the map |
//! | `group` | processes that are started, asked, killed, or told to leave |

mod child;
mod group;
mod place;

use std::thread::sleep;
use std::time::{Duration, Instant};

pub use child::be_child;
pub use place::Kept;

use self::child::{Done, Request};
use self::group::{Worker, sum};
use self::place::Place;
use crate::error::Error;
use crate::measure::{Figure, Measure, Plan, Row};
use crate::program::Program;
use crate::systems::entry::BuildError;

/// Operations, and the upserts among 100 of them.
const OPERATIONS: [(&str, u64); 3] = [("gets", 0), ("upserts", 100), ("half and half", 50)];
/// Numbers of processes that are compared with threads.
const PROCESSES: [usize; 2] = [2, 4];
/// Processes beside which one dies or leaves again and again.
const OTHERS: usize = 15;
/// The time between two deaths.
const DEATHS_EVERY: Duration = Duration::from_millis(100);
/// Processes that have the map open and do nothing.
const IDLE: usize = 14;
/// Openings and deaths that are timed in a round.
const TIMED: usize = 10;

/// How a process ends beside others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Leaves,
}

/// Takes all measures of `plan`, with LMDB if `with_lmdb`.
///
/// # Errors
///
/// Those of a system, and a process that ends by itself.
pub fn measure(plan: &Plan, program: &Program, with_lmdb: bool) -> Result<Vec<Row>, BuildError> {
    let run = Run { plan, program };
    let pando = Place::new(Kept::Pando, plan)?;
    let lmdb = if with_lmdb { Some(Place::new(Kept::Lmdb, plan)?) } else { None };
    let mut measures = Measures::default();
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        run.beside_threads(&pando, &mut measures)?;
        if let Some(lmdb) = &lmdb {
            run.beside_peer(&pando, lmdb, &mut measures)?;
        }
        run.beside_deaths(&pando, &mut measures)?;
        run.beside_idle(&pando, &mut measures)?;
        run.openings_and_deaths(&pando, &mut measures)?;
    }
    Ok(measures.0.into_iter().map(|(_, measure)| measure.row(plan.records, plan)).collect())
}

/// The measures, in the order of their first round.
#[derive(Default)]
struct Measures(Vec<(String, Measure)>);

impl Measures {
    fn add(&mut self, name: String, figure: Figure, base: Option<(&str, Figure)>) {
        if !self.0.iter().any(|(known, _)| *known == name) {
            let measure = Measure::new(name.clone(), base.map(|(base, _)| base));
            self.0.push((name.clone(), measure));
        }
        let found = self.0.iter_mut().find(|(known, _)| *known == name);
        if let Some((_, measure)) = found {
            measure.rounds.push((figure, base.map(|(_, figure)| figure)));
        }
    }
}

fn rate(done: &Done) -> Figure {
    Figure::Rate {
        per_second: done.per_second,
        per_core_second: done.operations as f64 / done.on_core_seconds.max(1e-9),
    }
}

struct Run<'run> {
    plan: &'run Plan,
    program: &'run Program,
}

impl Run<'_> {
    fn start(&self, place: &Place, threads: usize, touches: bool) -> Result<Worker, Error> {
        Worker::start(self.program, place, self.plan, threads, touches)
    }

    fn start_all(&self, place: &Place, count: usize, touches: bool) -> Result<Vec<Worker>, Error> {
        (0..count).map(|_| self.start(place, 1, touches)).collect()
    }

    fn request(&self, upserts: u64, number: usize) -> Request {
        let time_ms = self.plan.time.as_millis() as u64;
        Request { upserts, time_ms, seed: self.plan.seed ^ (number as u64) << 32 }
    }

    /// Lets all work at the same time; what each has done.
    fn work(&self, workers: &mut [Worker], upserts: u64) -> Result<Vec<Done>, Error> {
        for (number, worker) in workers.iter_mut().enumerate() {
            worker.ask(self.request(upserts, number))?;
        }
        workers.iter_mut().map(Worker::answer).collect()
    }

    fn beside_threads(&self, place: &Place, measures: &mut Measures) -> Result<(), Error> {
        for count in PROCESSES {
            let mut threads = [self.start(place, count, true)?];
            let of_threads: Result<Vec<_>, Error> = OPERATIONS
                .iter()
                .map(|&(_, upserts)| Ok(sum(&self.work(&mut threads, upserts)?)))
                .collect();
            drop(threads);
            let mut processes = self.start_all(place, count, true)?;
            for (&(operations, upserts), base) in OPERATIONS.iter().zip(of_threads?) {
                let done = sum(&self.work(&mut processes, upserts)?);
                measures.add(
                    format!("{operations}, {count} processes"),
                    rate(&done),
                    Some((&format!("{operations}, {count} threads of one process"), rate(&base))),
                );
            }
        }
        Ok(())
    }

    fn beside_peer(&self, pando: &Place, lmdb: &Place, all: &mut Measures) -> Result<(), Error> {
        const COUNT: usize = 4;
        let of = |place: &Place| -> Result<Vec<Done>, Error> {
            let mut workers = self.start_all(place, COUNT, true)?;
            let done = OPERATIONS[..2].iter();
            done.map(|&(_, upserts)| Ok(sum(&self.work(&mut workers, upserts)?))).collect()
        };
        for ((&(operations, _), base), done) in OPERATIONS.iter().zip(of(lmdb)?).zip(of(pando)?) {
            let base =
                (&*format!("{operations}, {COUNT} processes, LMDB without sync"), rate(&base));
            all.add(
                format!("{operations}, {COUNT} processes, beside LMDB"),
                rate(&done),
                Some(base),
            );
        }
        Ok(())
    }

    /// What [`OTHERS`] processes do while one more ends and is replaced, again and again.
    fn others_beside(&self, place: &Place, end: End) -> Result<Done, Error> {
        let mut others = self.start_all(place, OTHERS, false)?;
        for (number, other) in others.iter_mut().enumerate() {
            other.ask(self.request(100, number))?;
        }
        let (begin, mut ends) = (Instant::now(), 0);
        while begin.elapsed() + DEATHS_EVERY < self.plan.time {
            let mut one = self.start(place, 1, false)?;
            one.ask(self.request(100, OTHERS))?;
            ends += 1;
            sleep((DEATHS_EVERY * ends).saturating_sub(begin.elapsed()));
            match end {
                End::Killed => one.kill()?,
                End::Leaves => one.leave()?,
            }
        }
        let done: Result<Vec<_>, Error> = others.iter_mut().map(Worker::answer).collect();
        Ok(sum(&done?))
    }

    fn beside_deaths(&self, place: &Place, measures: &mut Measures) -> Result<(), Error> {
        let base = self.others_beside(place, End::Leaves)?;
        let done = self.others_beside(place, End::Killed)?;
        let figures = [
            ("upserts", rate(&done), rate(&base)),
            ("p99 of an upsert", latency(done.p99_ns), latency(base.p99_ns)),
            ("the longest upsert", latency(done.longest_ns), latency(base.longest_ns)),
        ];
        for (what, figure, base) in figures {
            let often = format!("every {} ms", DEATHS_EVERY.as_millis());
            measures.add(
                format!("{what}, {OTHERS} processes, another is killed {often}"),
                figure,
                Some((&format!("{what}, {OTHERS} processes, another leaves {often}"), base)),
            );
        }
        Ok(())
    }

    fn beside_idle(&self, place: &Place, measures: &mut Measures) -> Result<(), Error> {
        let mut busy = self.start_all(place, 2, false)?;
        let base = sum(&self.work(&mut busy, 100)?);
        let idle = self.start_all(place, IDLE, false)?;
        let done = sum(&self.work(&mut busy, 100)?);
        drop(idle);
        measures.add(
            format!("the longest upsert, 2 processes, {IDLE} idle ones"),
            latency(done.longest_ns),
            Some(("the longest upsert, 2 processes", latency(base.longest_ns))),
        );
        Ok(())
    }

    /// Processes that open the map beside this one, work, and are killed.
    fn openings_and_deaths(
        &self,
        place: &Place,
        measures: &mut Measures,
    ) -> Result<(), BuildError> {
        let Some(pool) = &place.pool else { return Ok(()) };
        for number in 0..TIMED {
            let mut worker = self.start(place, 1, false)?;
            measures.add("opening up to the first get".to_owned(), latency(worker.opened_ns), None);
            worker.ask(Request { time_ms: 60_000, ..self.request(100, number) })?;
            sleep(Duration::from_millis(20));
            let pid = worker.pid();
            let begin = Instant::now();
            worker.kill()?;
            let has_ended = begin.elapsed();
            while pool.processes()?.iter().any(|process| process.pid == pid) {
                std::hint::spin_loop();
            }
            measures.add("from kill to the end".to_owned(), latency(nanoseconds(has_ended)), None);
            let until_recovered = latency(nanoseconds(begin.elapsed()));
            measures.add("from kill to recovered".to_owned(), until_recovered, None);
        }
        Ok(())
    }
}

fn latency(ns: u64) -> Figure {
    Figure::Latency(ns as f64)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
