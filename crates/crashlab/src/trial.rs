//! One scenario of one subject under one domain: runs of it, and the crashes of each run.
//!
//! A run opens the prepared pool, lets several logical threads perform their operations at once,
//! and keeps what they were answered. Then three things are judged: what is there at the end;
//! whether the answers, and the end, are those of some order of the operations (linearizability);
//! and what every crash of the run could leave (durable linearizability: what had returned is
//! there, what was in flight is there or not).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use pando_index::conformance::history::{Event, explains};
use pando_pmem::Pool;
use pando_pmem::testing::Arena;

use crate::lab::LabDomain;
use crate::lab::domain::{Mode, install, run_as, set_mode, task, with_recorder};
use crate::lab::medium::Medium;
use crate::lab::panics::{attempt, listen};
use crate::lab::recorder::{Entry, LINE_BYTES, Recorder, Site};
use crate::random::Random;
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
        let (name, preemptions) = (scenario.name, scenario.preemptions);
        let setup = scenario.set_up();
        let prepared = attempt(|| {
            run_as(0, || {
                let pool = Pool::<LabDomain<WRITE_BACK>>::create_in(&arena);
                let open = S::open(pool.map_err(|error| error.to_string())?)?;
                for op in &setup.prepare {
                    open.perform(op);
                }
                open.audit()?;
                open.observe()
            })
        });
        let initial = prepared?.unwrap_or_default();
        let base = words_of(&arena);
        let programs = setup.programs;
        Ok(Self { name, preemptions, programs, arena, base, initial, recorder: None, medium: None })
    }

    fn open(&self) -> Result<S::Open<LabDomain<WRITE_BACK>>, String> {
        let pool = Pool::<LabDomain<WRITE_BACK>>::open_in(&self.arena);
        S::open(pool.map_err(|error| error.to_string())?)
    }

    /// Runs the programs; what happened, and the log.
    fn record(
        &self,
        programs: &[Vec<S::Op>],
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
        let threads: Vec<_> = programs.iter().enumerate().map(spawn).collect();
        for thread in threads {
            thread.join().map_err(|_| "a logical thread panicked")?;
        }
        set_mode(Mode::Idle, 0);
        if let Some(found) = fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(found);
        }
        tally.runs += 1;
        tally.steps += with_recorder(|recorder| recorder.steps());
        let log = with_recorder(|recorder| recorder.finish(tally.runs % 8 == 1))?;
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

fn words_of(arena: &Arena) -> Vec<u64> {
    (0..arena.bytes() / 8).map(|index| arena.word(index * 8)).collect()
}

fn lay_out(arena: &Arena, lines: &[u32], word_of: impl Fn(usize, usize) -> u64) {
    for &line in lines {
        for word in 0..8 {
            let off = u64::from(line) * LINE_BYTES + word as u64 * 8;
            arena.set_word(off, word_of(line as usize, word));
        }
    }
}

/// A hash of one word in its place; a hash of all is the exclusive or of these.
fn hash_of(off: u64, value: u64) -> u64 {
    Random::new(off.rotate_left(32) ^ value.wrapping_mul(0x9E37_79B9_7F4A_7C15)).draw()
}

/// Which content of some late lines an image has; the others are as the run saw them.
type Choice = Vec<(u32, usize)>;

/// The images to be judged at one cut, given the late lines and how many contents each has.
fn choices(late: &[(u32, usize)], crashes: Crashes, random: &mut Random) -> Vec<Choice> {
    let images = crashes.images;
    if images == 1 {
        let any = late.iter().map(|&(line, of)| (line, random.below(of as u64) as usize));
        return vec![any.collect()];
    }
    let all = late.iter().try_fold(1_usize, |all, &(_, of)| all.checked_mul(of));
    if all.is_some_and(|all| all <= images) {
        // Few enough to have them all.
        return late.iter().fold(vec![Vec::new()], |choices: Vec<Choice>, &(line, of)| {
            let longer = |choice: &Choice| {
                let choice = choice.clone();
                (0..of).map(move |version| [&choice[..], &[(line, version)]].concat())
            };
            choices.iter().flat_map(longer).collect()
        });
    }
    // The newest of all, the oldest of all, each line alone late, each alone early, mixtures.
    let mut choices = vec![Vec::new(), late.iter().map(|&(line, _)| (line, 0)).collect()];
    for &(line, of) in late {
        choices.push(vec![(line, random.below(of as u64 - 1) as usize)]);
        let others = late.iter().filter(|&&(other, _)| other != line);
        choices.push(others.map(|&(other, _)| (other, 0)).collect());
    }
    while choices.len() > images.max(3) {
        let extra = 2 + random.below(choices.len() as u64 - 2) as usize;
        choices.swap_remove(extra);
    }
    for _ in 0..images.saturating_sub(choices.len()).clamp(1, 8) {
        let any = late.iter().map(|&(line, of)| (line, random.below(of as u64) as usize));
        choices.push(any.collect());
    }
    choices
}

/// The entries of a log after which it is cut: so many, or all after which anything is different.
fn draw_cuts(log: &[Entry], count: Option<usize>, random: &mut Random) -> HashSet<usize> {
    let is_cut = |entry: &Entry| matches!(entry, Entry::Store { .. } | Entry::Return);
    let all: Vec<usize> = (0..log.len()).filter(|&index| is_cut(&log[index])).collect();
    match count {
        Some(count) if count < all.len() => (0..count).map(|_| *random.pick(&all)).collect(),
        _ => all.into_iter().collect(),
    }
}

fn site_of(entry: &Entry) -> Option<Site> {
    match entry {
        Entry::WriteBack { site, .. } | Entry::Fence { site, .. } => Some(site),
        Entry::Store { .. } | Entry::Return => None,
    }
}

/// The crashes of one log.
struct Playback<'run, S: Subject> {
    happened: &'run [Happened<S>],
    plan: &'run Plan,
    /// Where runs are cut, by the log's entries, and what is left out; in the crashes of a
    /// recovery, what is left out there.
    cuts: &'run HashSet<usize>,
    without: Option<Site>,
    /// In the crashes of a recovery: the cut of the run that was recovered from.
    recovering: Option<u64>,
}

impl<S: Subject, const WRITE_BACK: bool> Lab<S, WRITE_BACK> {
    /// Plays `log` back over `base`, which the arena and `words` hold, and judges its crashes. At
    /// the end both hold `base` again, unless something was found.
    fn play_back(
        &self,
        base: &[u64],
        words: Vec<u64>,
        log: &[Entry],
        playback: &Playback<'_, S>,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Result<Vec<u64>, String> {
        let mut stored: Vec<u32> = Vec::new();
        let mut medium = Medium::new(words, WRITE_BACK);
        let mut hash = 0;
        let mut seen = HashSet::new();
        let crashes = playback.plan.crashes;
        for (index, entry) in log.iter().enumerate() {
            if let Entry::Store { off, value } = *entry {
                let off = u64::from(off);
                hash ^= hash_of(off, medium.word(off)) ^ hash_of(off, value);
                self.arena.set_word(off, value);
                stored.push((off / LINE_BYTES) as u32);
            }
            medium.play(entry, playback.without);
            if !playback.cuts.contains(&index) {
                continue;
            }
            tally.cuts += 1;
            let cut = playback.recovering.unwrap_or(index as u64 + 1);
            for choice in choices(&medium.late(), crashes, random) {
                let mut image = hash ^ hash_of(u64::MAX, cut);
                for &(line, version) in &choice {
                    let content = medium.content(line, version);
                    for (word, &value) in content.iter().enumerate() {
                        let off = u64::from(line) * LINE_BYTES + word as u64 * 8;
                        image ^= hash_of(off, medium.word(off)) ^ hash_of(off, value);
                    }
                }
                if !seen.insert(image) {
                    tally.repeated += 1;
                    continue;
                }
                self.judge_image(&medium, &choice, cut, playback, random, tally).map_err(
                    |what| {
                        let late: Vec<String> =
                            choice.iter().map(|(line, _)| format!("{:#x}", line * 64)).collect();
                        let whose = if playback.recovering.is_some() { "recovery" } else { "run" };
                        format!(
                            "a crash of the {whose} after entry {index} of {}, with older lines at \
                             {late:?}: {what}",
                            log.len()
                        )
                    },
                )?;
            }
        }
        stored.sort_unstable();
        stored.dedup();
        lay_out(&self.arena, &stored, |line, word| base[line * 8 + word]);
        let mut words = medium.into_words();
        for line in stored {
            let line = line as usize * 8..line as usize * 8 + 8;
            words[line.clone()].copy_from_slice(&base[line]);
        }
        Ok(words)
    }

    /// Lays out one image, judges it, and lays out again what the run saw.
    fn judge_image(
        &self,
        medium: &Medium,
        choice: &Choice,
        cut: u64,
        playback: &Playback<'_, S>,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let mut lines: Vec<u32> = choice.iter().map(|&(line, _)| line).collect();
        for &(line, version) in choice {
            let content = medium.content(line, version);
            lay_out(&self.arena, &[line], |_, word| content[word]);
        }
        tally.images += 1;
        tally.of_recovery += u64::from(playback.recovering.is_some());
        if playback.recovering.is_none() && random.one_in(playback.plan.recovery_every) {
            self.cut_recovery(cut, playback, random, tally)?;
        }
        set_mode(Mode::Track, PATIENCE);
        let judged = self.judge(playback.happened, cut, random.one_in(4));
        set_mode(Mode::Idle, 0);
        lines.extend(with_recorder(Recorder::take_touched));
        let seen = |line: usize, word: usize| medium.word((line * 8 + word) as u64 * 8);
        lay_out(&self.arena, &lines, seen);
        judged
    }

    /// Recovers from what lies in the arena, and judges the crashes of that.
    fn cut_recovery(
        &self,
        cut: u64,
        playback: &Playback<'_, S>,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let base = words_of(&self.arena);
        let outer = install(Some(Recorder::new(Rc::clone(&self.arena))));
        set_mode(Mode::Record, PATIENCE);
        let recovered = attempt(|| run_as(0, || self.open().map(drop)));
        set_mode(Mode::Idle, 0);
        let log = recovered.and_then(|_| with_recorder(|recorder| recorder.finish(true)));
        let touched = with_recorder(Recorder::take_touched);
        lay_out(&self.arena, &touched, |line, word| base[line * 8 + word]);
        let judged = log.and_then(|log| {
            let cuts = draw_cuts(&log, playback.plan.crashes.cuts, random);
            let inner = Playback { recovering: Some(cut), cuts: &cuts, ..*playback };
            self.play_back(&base, base.clone(), &log, &inner, random, tally).map(drop)
        });
        install(outer);
        judged
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
            let cuts = draw_cuts(log, plan.crashes.cuts, random);
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

/// After how many entries behind a missing fence its absence is looked for.
const BEHIND: usize = 60;

impl<S: Subject, const WRITE_BACK: bool> Lab<S, WRITE_BACK> {
    /// Plays back without `site`, with cuts behind it; then some that have their recovery cut,
    /// with `site` missing there.
    fn without(
        &self,
        site: Site,
        plan: &Plan,
        random: &mut Random,
        happened: &[Happened<S>],
        log: &[Entry],
        tally: &mut Tally,
    ) -> Result<(), String> {
        let places: Vec<usize> =
            (0..log.len()).filter(|&index| site_of(&log[index]) == Some(site)).collect();
        let drawn: Vec<usize> = (0..3).map(|_| *random.pick(&places)).collect();
        let cuts = draw_cuts(log, None, random)
            .into_iter()
            .filter(|index| drawn.iter().any(|place| (*place..place + BEHIND).contains(index)))
            .collect();
        let recovery_cuts = draw_cuts(log, Some(4), random);
        let attempts = [(u64::MAX, &cuts), (1, &recovery_cuts)];
        for (recovery_every, cuts) in attempts {
            let plan = Plan { recovery_every, ..*plan };
            let playback =
                Playback { happened, plan: &plan, cuts, without: Some(site), recovering: None };
            let words = self.base.clone();
            let seen = self.play_back(&self.base, words, log, &playback, random, tally);
            if let Err(what) = seen {
                self.lay_out_base();
                return Err(what);
            }
        }
        Ok(())
    }

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
        let recorder = self.recorder.take();
        install(Some(recorder.unwrap_or_else(|| Recorder::new(Rc::clone(&self.arena)))));
        let result = self.record(&programs, tally).and_then(|(happened, log)| {
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
            format!("{}, {what}\nprograms:\n{}", self.name(), list.collect::<String>())
        })
    }
}
