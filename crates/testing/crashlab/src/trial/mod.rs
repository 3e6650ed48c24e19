//! One scenario of one subject under one domain: runs of it, and the crashes of each run.
//!
//! A run opens the prepared pool, lets several logical threads perform their operations at once,
//! and keeps what they were answered. Then three things are judged: what is there at the end;
//! whether the answers, and the end, are those of some order of the operations (linearizability);
//! and what every crash of the run could leave (durable linearizability: what had returned is
//! there, what was in flight is there or not).

mod playback;
mod without;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use pando_index::conformance::history::{Event, explains};
use pando_index::random::Random;
use pando_pmem::Pool;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::testing::{Arena, with_few_slots};

use self::playback::{Playback, draw_cuts, lay_out, words_of};
use self::without::site_of;
use crate::lab::LabDomain;
use crate::lab::domain::{Mode, install, run_as, set_mode, task, with_recorder};
use crate::lab::panics::{attempt, listen};
use crate::lab::recorder::{Entry, LINE_BYTES, Recorder, Site};
use crate::subjects::{Observed, Opened, Programs, Scenario, Subject};

/// Steps after which a run counts as one that never ends.
const PATIENCE: u64 = 300_000;

/// How many crashes of a run are judged.
#[derive(Clone, Copy, Debug)]
pub struct Crashes {
    /// Cuts, drawn by chance; each one if there is no number.
    pub cuts: Option<usize>,
    /// Images of one cut at most.
    pub images: usize,
    /// No further cut from then on.
    pub until: Option<Instant>,
}

/// What is to be done in one run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Everything that is drawn in the run is drawn from this.
    pub seed: u64,
    /// Which crashes are judged.
    pub crashes: Crashes,
    /// One image in so many has its recovery cut too.
    pub recovery_every: u64,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Runs: schedules that were tried.
    pub runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Points at which runs were cut.
    pub cuts: u64,
    /// Crash images judged.
    pub images: u64,
    /// Images that had been judged already in the same run.
    pub repeated: u64,
    /// Among the images, those of a crash in a recovery.
    pub of_recovery: u64,
}

impl Tally {
    /// Adds what another tried.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.cuts += other.cuts;
        self.images += other.images;
        self.repeated += other.repeated;
        self.of_recovery += other.of_recovery;
    }
}

/// A trial, whatever its subject.
pub trait Trial {
    /// `subject/scenario/domain`.
    fn name(&self) -> String;

    /// How many preemptions are few enough to try all schedules.
    fn preemptions(&self) -> u32;

    /// Runs once, as the director says; only within [`direct`](crate::lab::director::direct).
    fn run(&mut self, plan: &Plan, tally: &mut Tally) -> Result<(), String>;

    /// Runs once, and plays the run back without each of the places that wrote back or fenced in
    /// it and that `wanted` still wants: those whose absence was seen, and as what.
    fn run_without(
        &mut self,
        plan: &Plan,
        wanted: &dyn Fn(Site) -> bool,
    ) -> Result<Vec<(Site, Option<String>)>, String>;
}

/// Which requests for blocks are refused in a run.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// So many are granted first.
    granted: u64,
    /// So many are refused then; later ones are granted again.
    count: u64,
}

impl Refusal {
    fn drawn(most: u64, random: &mut Random) -> Self {
        let granted = random.below(most);
        let count = if random.one_in(2) { u64::MAX } else { 1 + random.below(3) };
        Self { granted, count }
    }
}

/// What a logical thread did.
#[derive(Debug)]
struct Happened<S: Subject> {
    part: usize,
    /// An answer of `None`: it has not returned.
    event: EventOf<S>,
}

type EventOf<S> = Event<<S as Subject>::Op, <S as Subject>::Answer>;
type History<S> = Arc<Mutex<Vec<Happened<S>>>>;

/// One scenario of `S`, with write-backs or without.
pub struct Lab<S: Subject, const WRITE_BACK: bool> {
    name: &'static str,
    preemptions: u32,
    granted: Option<u64>,
    slots: usize,
    programs: Programs<S>,
    arena: Rc<Arena>,
    /// The prepared pool.
    base: Vec<u64>,
    initial: Observed<S>,
    /// Kept from run to run: the recorder, and the words of the medium, which are the prepared
    /// pool's between two runs. A run that failed leaves neither.
    recorder: Option<Recorder>,
    medium: Option<Vec<u64>>,
}

impl<S: Subject, const WRITE_BACK: bool> Lab<S, WRITE_BACK> {
    /// Prepares the pool of a scenario.
    pub fn new(scenario: Scenario<S>) -> Result<Self, String> {
        let arena = Rc::new(Arena::new(S::POOL_BYTES).map_err(|error| error.to_string())?);
        listen();
        let Scenario { name, preemptions, granted, slots, .. } = scenario;
        let setup = scenario.set_up();
        let prepared = attempt(|| {
            run_as(0, || {
                let create = || Pool::<LabDomain<WRITE_BACK>>::create_in(&arena);
                let pool = with_few_slots(slots, create);
                let open = S::open(pool.map_err(|error| error.to_string())?)?;
                let perform = |op| drop(open.perform(op));
                setup.prepare.iter().for_each(perform);
                refuse(Resource::Block, 0, u64::MAX, || setup.cram.iter().for_each(perform));
                open.audit()?;
                open.observe()
            })
        });
        let initial = prepared?.unwrap_or_default();
        let base = words_of(&arena);
        let programs = setup.programs;
        Ok(Self {
            name,
            preemptions,
            granted,
            slots,
            programs,
            arena,
            base,
            initial,
            recorder: None,
            medium: None,
        })
    }

    fn open(&self) -> Result<S::Open<LabDomain<WRITE_BACK>>, String> {
        let open = || Pool::<LabDomain<WRITE_BACK>>::open_in(&self.arena);
        let pool = with_few_slots(self.slots, open);
        S::open(pool.map_err(|error| error.to_string())?)
    }

    /// Runs the programs; what happened, and the log.
    fn record(
        &self,
        programs: &[Vec<S::Op>],
        refusal: Option<Refusal>,
        tally: &mut Tally,
    ) -> Result<(Vec<Happened<S>>, Vec<Entry>), String> {
        set_mode(Mode::Record, PATIENCE);
        let open = Arc::new(run_as(0, || self.open())?);
        let history: History<S> = Arc::default();
        let fault: Arc<Mutex<Option<String>>> = Arc::default();
        set_mode(Mode::Schedule, PATIENCE);
        let spawn = |(index, program): (usize, &Vec<S::Op>)| {
            let (open, program) = (Arc::clone(&open), program.clone());
            let (history, fault) = (Arc::clone(&history), Arc::clone(&fault));
            shuttle::thread::spawn(move || {
                let work = || -> Result<(), String> {
                    program.iter().for_each(|op| perform::<S, WRITE_BACK>(&open, op, &history));
                    Ok(())
                };
                run_as(index + 1, || {
                    if let Err(found) = attempt(work) {
                        fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(found);
                        set_mode(Mode::Abort, 0);
                    }
                });
            })
        };
        let work = || {
            let threads: Vec<_> = programs.iter().enumerate().map(spawn).collect();
            let joined = threads.into_iter().map(|thread| thread.join().map_err(drop));
            joined.collect::<Result<(), ()>>().map_err(|()| "a logical thread panicked")
        };
        // All logical threads are this one.
        match refusal {
            Some(Refusal { granted, count }) => refuse(Resource::Block, granted, count, work).0?,
            None => work()?,
        }
        set_mode(Mode::Idle, 0);
        if let Some(found) = fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(found);
        }
        tally.runs += 1;
        tally.steps += with_recorder(|recorder| recorder.steps());
        let log = with_recorder(|recorder| recorder.finish())?;
        let happened = std::mem::take(&mut *history.lock().unwrap_or_else(PoisonError::into_inner));
        set_mode(Mode::Track, PATIENCE);
        let ended = attempt(|| {
            run_as(0, || {
                let observed = open.observe()?;
                self.explain(&happened, u64::MAX, &observed)?;
                open.audit()
            })
        });
        set_mode(Mode::Idle, 0);
        ended.map_err(|what| format!("at the end of the run: {what}"))?;
        Ok((happened, log))
    }

    /// Whether some order of what had happened before the log's entry `cut` explains the answers,
    /// and that `observed` is there.
    fn explain(
        &self,
        happened: &[Happened<S>],
        cut: u64,
        observed: &Observed<S>,
    ) -> Result<(), String> {
        let date = cut.saturating_mul(2);
        let mut parts: BTreeMap<usize, Vec<EventOf<S>>> = BTreeMap::new();
        for one in happened {
            let mut event = one.event.clone();
            if event.called >= date {
                continue;
            }
            if event.returned > date {
                event.answer = None;
            }
            // What only looked, and was not answered, says nothing.
            if event.answer.is_some() || S::changes(&event.operation).is_some() {
                parts.entry(one.part).or_default().push(event);
            }
        }
        // Where nothing happened, what was there is there.
        let differs = |part: &usize| self.initial.get(part) != observed.get(part);
        let quiet = self.initial.keys().chain(observed.keys()).filter(|part| differs(part));
        let judged: BTreeSet<usize> = quiet.chain(parts.keys()).copied().collect();
        for part in judged {
            let state = |all: &Observed<S>| all.get(&part).cloned().unwrap_or_else(S::blank);
            let (initial, last) = (state(&self.initial), state(observed));
            let events = parts.get(&part).map_or(&[][..], Vec::as_slice);
            if !explains(initial.clone(), Some(&last), events, S::after) {
                return Err(format!(
                    "part {part} was {initial:?} and is {last:?}; no order explains that with\n{}",
                    events.iter().map(|event| format!("  {event:?}\n")).collect::<String>()
                ));
            }
        }
        Ok(())
    }

    /// Lays the prepared pool out again.
    fn restore(&self) {
        let touched = with_recorder(Recorder::take_touched);
        lay_out(&self.arena, &touched, |line, word| self.base[line * 8 + word]);
        with_recorder(|recorder| recorder.follow(&touched));
    }

    /// Opens what lies in the arena, as after a crash, and judges it.
    fn judge(&self, happened: &[Happened<S>], cut: u64, exercise: bool) -> Result<(), String> {
        attempt(|| {
            run_as(0, || {
                let open = self.open()?;
                open.audit()?;
                let observed = open.observe()?;
                self.explain(happened, cut, &observed)?;
                if exercise {
                    open.exercise()?;
                    open.audit()?;
                }
                Ok(())
            })
        })
        .map(drop)
    }
}

/// One operation of a logical thread, with its place in the history.
fn perform<S: Subject, const WRITE_BACK: bool>(
    open: &S::Open<LabDomain<WRITE_BACK>>,
    op: &S::Op,
    history: &History<S>,
) {
    let locked = || history.lock().unwrap_or_else(PoisonError::into_inner);
    // Calls come between the log's entries, returns at one: no two are at the same date.
    let called = with_recorder(Recorder::now) * 2 + 1;
    let change = S::changes(op);
    let at = locked().len();
    if let Some(part) = change {
        let event = Event { operation: op.clone(), answer: None, called, returned: u64::MAX };
        locked().push(Happened { part, event });
    }
    let noted = open.perform(op);
    let returned = with_recorder(|recorder| recorder.returned(task())) * 2;
    let mut history = locked();
    for (part, operation, answer) in noted {
        let event = Event { operation, answer: Some(answer), called, returned };
        // What was in flight has an answer now.
        match history.get_mut(at) {
            Some(one) if change.is_some() && one.event.called == called => one.event = event,
            _ => history.push(Happened { part, event }),
        }
    }
}

impl<S: Subject, const WRITE_BACK: bool> Trial for Lab<S, WRITE_BACK> {
    fn name(&self) -> String {
        let domain = if WRITE_BACK { "adr" } else { "process" };
        format!("{}/{}/{domain}", S::NAME, self.name)
    }

    fn preemptions(&self) -> u32 {
        self.preemptions
    }

    fn run(&mut self, plan: &Plan, tally: &mut Tally) -> Result<(), String> {
        self.recorded(plan, tally, |lab, random, happened, log, tally| {
            let cuts = if S::SURVIVES { plan.crashes.cuts } else { Some(0) };
            let cuts = draw_cuts(log, cuts, random);
            let playback =
                Playback { happened, plan, cuts: &cuts, without: None, recovering: None };
            let words = lab.medium.take().unwrap_or_else(|| lab.base.clone());
            lab.medium = Some(lab.play_back(&lab.base, words, log, &playback, random, tally)?);
            Ok(())
        })
    }

    fn run_without(
        &mut self,
        plan: &Plan,
        wanted: &dyn Fn(Site) -> bool,
    ) -> Result<Vec<(Site, Option<String>)>, String> {
        let mut verdicts = Vec::new();
        self.recorded(plan, &mut Tally::default(), |lab, random, happened, log, tally| {
            let sites: HashSet<Site> = log.iter().filter_map(site_of).collect();
            for site in sites.into_iter().filter(|&site| wanted(site)) {
                let seen = lab.without(site, plan, random, happened, log, tally);
                verdicts.push((site, seen.err()));
            }
            Ok(())
        })?;
        Ok(verdicts)
    }
}

impl<S: Subject, const WRITE_BACK: bool> Lab<S, WRITE_BACK> {
    /// Lays out the prepared pool, whatever lies there now.
    fn lay_out_base(&self) {
        let lines: Vec<u32> = (0..(self.arena.bytes() / LINE_BYTES) as u32).collect();
        lay_out(&self.arena, &lines, |line, word| self.base[line * 8 + word]);
    }

    /// Records one run and has `work` play it back.
    fn recorded(
        &mut self,
        plan: &Plan,
        tally: &mut Tally,
        work: impl FnOnce(
            &mut Self,
            &mut Random,
            &[Happened<S>],
            &[Entry],
            &mut Tally,
        ) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut random = Random::new(plan.seed);
        let programs = (self.programs)(&mut random);
        let refusal = self.granted.map(|most| Refusal::drawn(most, &mut random));
        let recorder = self.recorder.take();
        install(Some(recorder.unwrap_or_else(|| Recorder::new(Rc::clone(&self.arena)))));
        let result = self.record(&programs, refusal, tally).and_then(|(happened, log)| {
            self.restore();
            work(self, &mut random, &happened, &log, tally)
        });
        set_mode(Mode::Idle, 0);
        let recorder = install(None);
        if result.is_ok() {
            self.recorder = recorder;
        } else {
            self.lay_out_base();
        }
        result.map_err(|what| {
            let list = programs.iter().enumerate();
            let list = list.map(|(task, ops)| format!("  thread {}: {ops:?}\n", task + 1));
            let list: String = list.collect();
            let refusal = refusal.map_or_else(String::new, |refusal| format!("{refusal:?}\n"));
            format!("{}, {what}\nprograms:\n{list}{refusal}", self.name())
        })
    }
}
