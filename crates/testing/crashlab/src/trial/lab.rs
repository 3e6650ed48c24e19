//! One scenario: its prepared pool, a recorded run, and the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use pando_device::simulated::{Kept, Simulated};
use pando_index::conformance::history::{Event, explains};
use pando_index::random::Random;
use pando_pmem::testing::Arena;
use pando_pmem::testing::refusal::{Resource, refuse};

use super::any_subject::{AnySubject, In, Open};
use super::plan::Tally;
use crate::lab::domain::{Mode, files_of_run, run_as, set_mode, task, with_recorder};
use crate::lab::panics::{attempt, listen};
use crate::lab::recorder::{Entry, LINE_BYTES, Recorder};
use crate::subjects::{Model, Observed, Programs, Scenario, Session, Subject};

/// Steps after which a run counts as endless.
pub(super) const PATIENCE: u64 = 300_000;

/// All words of the arena.
pub(super) fn words_of(arena: &Arena) -> Vec<u64> {
    (0..arena.bytes() / 8).map(|index| arena.word(index * 8)).collect()
}

/// Overwrites `lines` of the arena with the words that `word_of` gives, by line and word.
pub(super) fn lay_out(arena: &Arena, lines: &[u32], word_of: impl Fn(usize, usize) -> u64) {
    for &line in lines {
        for word in 0..8 {
            let off = u64::from(line) * LINE_BYTES + word as u64 * 8;
            arena.set_word(off, word_of(line as usize, word));
        }
    }
}

/// The requests for blocks that are refused in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The number of requests that are granted first.
    pub(super) granted: u64,
    /// The number of requests that are refused then; later ones are granted again.
    pub(super) count: u64,
}

impl Refusal {
    pub(super) fn drawn(most: u64, random: &mut Random) -> Self {
        let granted = random.below(most);
        let count = if random.one_in(2) { u64::MAX } else { 1 + random.below(3) };
        Self { granted, count }
    }
}

/// An operation of a logical thread.
#[derive(Debug)]
pub(super) struct Happened<M: Model> {
    pub(super) part: usize,
    /// An answer of `None` means that it has not returned.
    pub(super) event: EventOf<M>,
}

pub(super) type EventOf<M> = Event<<M as Model>::Op, <M as Model>::Answer>;
pub(super) type History<M> = Arc<Mutex<Vec<Happened<M>>>>;

/// What was recorded of a run.
pub(super) struct Recorded<M: Model> {
    pub(super) happened: Vec<Happened<M>>,
    pub(super) log: Vec<Entry>,
    /// The states of the files, by number.
    pub(super) files: Vec<Simulated>,
}

/// One scenario of a subject in a domain.
pub struct Lab<M: Model> {
    pub(super) subject: Box<dyn AnySubject<M>>,
    pub(super) name: &'static str,
    pub(super) preemptions: u32,
    pub(super) granted: Option<u64>,
    pub(super) slots: usize,
    pub(super) programs: Programs<M>,
    pub(super) arena: Rc<Arena>,
    /// The prepared pool.
    pub(super) base: Vec<u64>,
    /// Its files.
    pub(super) files: Simulated,
    pub(super) initial: Observed<M>,
    /// The recorder, and the words of the medium, are kept from run to run. Between two runs the
    /// medium holds the prepared pool. A failed run leaves neither.
    pub(super) recorder: Option<Recorder>,
    pub(super) medium: Option<Vec<u64>>,
}

impl<M: Model> Lab<M> {
    /// Prepares the pool of a scenario of `S`.
    pub fn of<S: Subject<Model = M>>(
        scenario: Scenario<M>,
        needs_write_back: bool,
    ) -> Result<Self, String> {
        Self::new(Box::new(In::<S> { needs_write_back, subject: PhantomData }), scenario)
    }

    fn new(subject: Box<dyn AnySubject<M>>, scenario: Scenario<M>) -> Result<Self, String> {
        let arena = Arena::new(subject.pool_bytes()).map_err(|error| error.to_string())?;
        let arena = Rc::new(arena);
        listen();
        let Scenario { name, preemptions, granted, slots, .. } = scenario;
        let setup = scenario.set_up();
        let files = Simulated::new();
        let prepared = attempt(|| {
            run_as(0, || {
                let open = subject.create(&arena, slots, &files)?;
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
            subject,
            name,
            preemptions,
            granted,
            slots,
            programs,
            arena,
            base,
            files,
            initial,
            recorder: None,
            medium: None,
        })
    }

    /// Opens the pool in the arena.
    pub(super) fn open(&self, files: &Simulated) -> Result<Open<M>, String> {
        self.subject.open(&self.arena, self.slots, files)
    }

    /// Runs the programs, over `files`, which the recorder follows.
    pub(super) fn record(
        &self,
        programs: &[Vec<M::Op>],
        files: &Simulated,
        refusal: Option<Refusal>,
        tally: &mut Tally,
    ) -> Result<Recorded<M>, String> {
        set_mode(Mode::Record, PATIENCE);
        let open = run_as(0, || self.open(files))?;
        let history: History<M> = Arc::default();
        let fault: Arc<Mutex<Option<String>>> = Arc::default();
        set_mode(Mode::Schedule, PATIENCE);
        let spawn = |(index, program): (usize, &Vec<M::Op>)| {
            let (open, program) = (Arc::clone(&open), program.clone());
            let (history, fault) = (Arc::clone(&history), Arc::clone(&fault));
            shuttle::thread::spawn(move || {
                let work = || -> Result<(), String> {
                    let mut session = open.session();
                    program.iter().for_each(|op| perform::<M>(&mut session, op, &history));
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
        // All logical threads run on this system thread.
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
        let versions = with_recorder(Recorder::take_files);
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
        let ended =
            ended.and_then(|_| self.judge_rebuilt(&files.after_kill(), &happened, u64::MAX));
        ended.map_err(|what| format!("at the end of the run: {what}"))?;
        Ok(Recorded { happened, log, files: versions })
    }

    /// Whether some order of the operations before the log's entry `cut` explains the answers and
    /// the `observed` state.
    pub(super) fn explain(
        &self,
        happened: &[Happened<M>],
        cut: u64,
        observed: &Observed<M>,
    ) -> Result<(), String> {
        let date = cut.saturating_mul(2);
        let mut parts: BTreeMap<usize, Vec<EventOf<M>>> = BTreeMap::new();
        for one in happened {
            let mut event = one.event.clone();
            if event.called >= date {
                continue;
            }
            if event.returned > date {
                event.answer = None;
            }
            // A read without an answer gives no information.
            if event.answer.is_some() || M::changes(&event.operation).is_some() {
                parts.entry(one.part).or_default().push(event);
            }
        }
        // A part without operations must hold its initial state.
        let differs = |part: &usize| self.initial.get(part) != observed.get(part);
        let quiet = self.initial.keys().chain(observed.keys()).filter(|part| differs(part));
        let judged: BTreeSet<usize> = quiet.chain(parts.keys()).copied().collect();
        for part in judged {
            let state = |all: &Observed<M>| all.get(&part).cloned().unwrap_or_else(M::blank);
            let (initial, last) = (state(&self.initial), state(observed));
            let events = parts.get(&part).map_or(&[][..], Vec::as_slice);
            if !explains(initial.clone(), Some(&last), events, M::after) {
                return Err(format!(
                    "part {part} was {initial:?} and is {last:?}; no order of these operations explains that:\n{}",
                    events.iter().map(|event| format!("  {event:?}\n")).collect::<String>()
                ));
            }
        }
        Ok(())
    }

    /// Restores the prepared pool in the lines that the run has changed.
    pub(super) fn restore(&self) {
        let touched = with_recorder(Recorder::take_touched);
        lay_out(&self.arena, &touched, |line, word| self.base[line * 8 + word]);
        with_recorder(|recorder| recorder.follow(&touched));
    }

    /// Restores the whole prepared pool.
    pub(super) fn lay_out_base(&self) {
        let lines: Vec<u32> = (0..(self.arena.bytes() / LINE_BYTES) as u32).collect();
        lay_out(&self.arena, &lines, |line, word| self.base[line * 8 + word]);
    }

    /// Opens the pool in the arena and its files, as after a crash, and checks it. If something was
    /// `seen` before the crash, it must be there.
    pub(super) fn judge(
        &self,
        files: &Simulated,
        happened: &[Happened<M>],
        cut: u64,
        seen: Option<&Observed<M>>,
        exercise: bool,
    ) -> Result<(), String> {
        attempt(|| {
            run_as(0, || {
                let files = files_of_run(files);
                let open = self.open(&files)?;
                open.audit()?;
                let observed = open.observe()?;
                self.explain(happened, cut, &observed)?;
                if let Some(seen) = seen.filter(|&seen| *seen != observed) {
                    return Err(format!("{seen:?} was seen, and {observed:?} is there"));
                }
                if exercise {
                    open.exercise()?;
                    open.audit()?;
                    let left = files.cut_power(Kept::Nothing, &mut Random::default());
                    if self.subject.rebuild(&left)?.is_some_and(|rebuilt| rebuilt != observed) {
                        return Err("a power cut afterwards takes some of it back".into());
                    }
                }
                Ok(())
            })
        })
        .map(drop)
    }

    /// Rebuilds the subject from its files, as after a power cut in which the pool was lost, and
    /// checks it. An operation is lost or not, unless it had returned before another one began that
    /// syncs and has returned.
    pub(super) fn judge_rebuilt(
        &self,
        files: &Simulated,
        happened: &[Happened<M>],
        cut: u64,
    ) -> Result<(), String> {
        let rebuilt = attempt(|| run_as(0, || self.subject.rebuild(files)));
        let lost = |what| format!("the pool was lost, and rebuilt from its files: {what}");
        let Some(observed) = rebuilt.map_err(lost)?.flatten() else { return Ok(()) };
        let date = cut.saturating_mul(2);
        let has_returned = |event: &EventOf<M>| event.answer.is_some() && event.returned <= date;
        let syncs = |event: &EventOf<M>| has_returned(event) && M::syncs(&event.operation);
        let events = happened.iter().map(|one| &one.event);
        let synced = events.filter(|event| syncs(event)).map(|event| event.called).max();
        let left = happened.iter().map(|Happened { part, event }| {
            let is_safe = synced.is_some_and(|synced| event.returned < synced);
            let answer = event.answer.clone().filter(|_| is_safe);
            Happened { part: *part, event: Event { answer, ..event.clone() } }
        });
        let left: Vec<Happened<M>> = left.collect();
        self.explain(&left, cut, &observed).map_err(lost)
    }
}

/// One operation of a logical thread, with its place in the history.
pub(super) fn perform<M: Model>(session: &mut Session<'_, M>, op: &M::Op, history: &History<M>) {
    let locked = || history.lock().unwrap_or_else(PoisonError::into_inner);
    // A call is between two entries of the log, and a return is at an entry: no two times are
    // equal.
    let called = with_recorder(Recorder::now) * 2 + 1;
    let change = M::changes(op);
    let at = locked().len();
    if let Some(part) = change {
        let event = Event { operation: op.clone(), answer: None, called, returned: u64::MAX };
        locked().push(Happened { part, event });
    }
    let noted = session(op);
    let returned = with_recorder(|recorder| recorder.returned(task())) * 2;
    let mut history = locked();
    for (part, operation, answer) in noted {
        let event = Event { operation, answer: Some(answer), called, returned };
        // The operation in flight has an answer now.
        match history.get_mut(at) {
            Some(one) if change.is_some() && one.event.called == called => one.event = event,
            _ => history.push(Happened { part, event }),
        }
    }
}
