//! Many trials, for a given time: the common part of `explore`, `schedule` and `mutate`.

use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::kill::fresh_seed;
use crate::lab::director::{Orders, direct};
use crate::progress;
use crate::subjects::Subject;
use crate::subjects::blocks::Blocks;
use crate::subjects::catalog::Catalog;
use crate::subjects::dropped::Dropped;
use crate::subjects::indexes::{
    BitmapOnlyWbTrees, BwTrees, BzTrees, CasBwTrees, FixedWbTrees, NbTrees, PlainBwTrees,
    RangedBzTrees, SkipLists, SlotOnlyWbTrees, SortedArrays, WbTrees,
};
use crate::subjects::map::Map;
use crate::subjects::renamed::Renamed;
use crate::subjects::roots::Roots;
use crate::subjects::stores::Stores;
use crate::subjects::transactions::Transactions;
use crate::subjects::words::Words;
use crate::trial::{Lab, Plan, Tally, Trial};
use pando_index::random::Random;

/// Which trials, and for how long.
#[derive(Clone, Debug, clap::Args)]
pub struct Selection {
    /// Total time in minutes, shared evenly among the trials
    #[arg(long, default_value_t = 1.0)]
    pub minutes: f64,
    /// Only this subject, such as pmwcas or an index; an unknown name prints the list
    #[arg(long)]
    pub index: Option<String>,
    /// Only this scenario of it
    #[arg(long)]
    pub scenario: Option<String>,
    /// Only this domain: adr (lines must be written back) or process
    #[arg(long)]
    pub domain: Option<String>,
    /// Seed of all runs [default: random]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Only the run of that seed, as a failure names it
    #[arg(long)]
    pub replay: Option<u64>,
    /// Trials at the same time [default: the number of cores]
    #[arg(long)]
    pub jobs: Option<usize>,
}

impl Selection {
    fn wants(&self, name: &str) -> bool {
        let parts = [&self.index, &self.scenario, &self.domain];
        name.split('/').zip(parts).all(|(part, want)| want.as_ref().is_none_or(|want| want == part))
    }

    /// The names of the selected trials.
    pub fn names(&self) -> Result<Vec<String>, Failure> {
        let names: Vec<String> = subjects().into_iter().map(|(name, _)| name).collect();
        let wanted: Vec<String> = names.iter().filter(|name| self.wants(name)).cloned().collect();
        if wanted.is_empty() {
            let all = names.join("\n  ");
            return Err(Failure::Trouble(format!("there is no such trial; these are:\n  {all}")));
        }
        Ok(wanted)
    }

    /// How many trials run at the same time.
    pub fn jobs(&self, trials: usize) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.unwrap_or(cores).clamp(1, trials)
    }

    /// The seed of all runs.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(fresh_seed)
    }
}

/// Makes a trial.
pub type Maker = Box<dyn FnOnce() -> Result<Box<dyn Trial>, String>>;

fn add<S: Subject>(list: &mut Vec<(String, Maker)>) {
    fn make<S: Subject>(name: &'static str, needs_write_back: bool) -> Maker {
        Box::new(move || {
            let scenario = S::scenarios().into_iter().find(|scenario| scenario.name == name);
            let scenario = scenario.ok_or("the scenario went away")?;
            Ok(Box::new(Lab::of::<S>(scenario, needs_write_back)?))
        })
    }
    for scenario in S::scenarios() {
        let name = scenario.name;
        for &needs_write_back in S::NEEDS_WRITE_BACK {
            let domain = if needs_write_back { "adr" } else { "process" };
            list.push((format!("{}/{name}/{domain}", S::NAME), make::<S>(name, needs_write_back)));
        }
    }
}

/// Every trial, by name. A new subject is one line here.
pub fn subjects() -> Vec<(String, Maker)> {
    let mut list = Vec::new();
    add::<Words<false>>(&mut list);
    add::<Words<true>>(&mut list);
    add::<Blocks<false>>(&mut list);
    add::<Blocks<true>>(&mut list);
    add::<Roots>(&mut list);
    add::<Catalog>(&mut list);
    add::<Renamed>(&mut list);
    add::<Map<BzTrees>>(&mut list);
    add::<Map<RangedBzTrees>>(&mut list);
    add::<Map<NbTrees>>(&mut list);
    add::<Map<WbTrees>>(&mut list);
    add::<Map<FixedWbTrees>>(&mut list);
    add::<Map<BitmapOnlyWbTrees>>(&mut list);
    add::<Map<SlotOnlyWbTrees>>(&mut list);
    add::<Map<SkipLists>>(&mut list);
    add::<Map<BwTrees>>(&mut list);
    add::<Map<PlainBwTrees>>(&mut list);
    add::<Map<CasBwTrees>>(&mut list);
    add::<Map<SortedArrays>>(&mut list);
    add::<Transactions<BzTrees, false>>(&mut list);
    add::<Transactions<BzTrees, true>>(&mut list);
    add::<Stores>(&mut list);
    add::<Dropped<BzTrees>>(&mut list);
    add::<Dropped<NbTrees>>(&mut list);
    add::<Dropped<WbTrees>>(&mut list);
    add::<Dropped<SkipLists>>(&mut list);
    add::<Dropped<BwTrees>>(&mut list);
    list
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The checks.
    pub plan: Plan,
    /// The schedule of the threads.
    pub orders: Orders,
}

/// The result of a trial.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// The counts.
    pub tally: Tally,
    /// The number of exhaustive schedules, and whether these were all.
    pub exhaustive: Option<(u64, bool)>,
    /// The number of steps at which a thread was stopped for ever, and whether these were all.
    pub stopped: Option<(u64, bool)>,
    /// The fault that was found, and the seed of the run.
    pub found: Option<(String, u64)>,
}

/// Calls `work` on `trial` for each run that `next` returns, within the scheduler, until `next`
/// returns none or `work` fails. The argument of `next` is the number of runs before.
pub fn drive(
    trial: &Rc<RefCell<Box<dyn Trial>>>,
    mut next: impl FnMut(u64) -> Option<Run> + 'static,
    mut work: impl FnMut(&mut (dyn Trial + 'static), &Plan, &mut Tally) -> Result<(), String> + 'static,
) -> Outcome {
    #[derive(Default)]
    struct State {
        run: Option<Run>,
        asked: u64,
        outcome: Outcome,
    }
    let state = Rc::new(RefCell::new(State::default()));
    state.borrow_mut().outcome.name = trial.borrow().name();
    let (ordering, working) = (Rc::clone(&state), Rc::clone(&state));
    let trial = Rc::clone(trial);
    let order = move || {
        let mut state = ordering.borrow_mut();
        if state.outcome.found.is_some() {
            return None;
        }
        state.run = next(state.asked);
        state.asked += 1;
        state.run.as_ref().map(|run| run.orders.clone())
    };
    let body = move || {
        let run = working.borrow().run.clone();
        let Some(run) = run else { return };
        let mut tally = Tally::default();
        let result = work(&mut **trial.borrow_mut(), &run.plan, &mut tally);
        let mut state = working.borrow_mut();
        state.outcome.tally.add(&tally);
        state.outcome.found = result.err().map(|what| (what, run.plan.seed));
    };
    direct(order, body);
    state.take().outcome
}

/// The share of one trial in a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The seed from which the seeds of its runs are drawn.
    pub seed: u64,
    /// No run starts later.
    pub until: Instant,
    /// Only the run of this seed.
    pub replay: Option<u64>,
}

impl Share {
    /// One run after the other, each with a seed of its own.
    pub fn runs(self, run_of: impl Fn(u64) -> Run) -> impl FnMut(u64) -> Option<Run> {
        move |runs| match self.replay {
            Some(seed) => (runs == 0).then(|| run_of(seed)),
            None => {
                let next = Random::new(self.seed ^ runs).draw();
                (runs == 0 || Instant::now() < self.until).then(|| run_of(next))
            }
        }
    }
}

/// Makes the runs of one trial.
pub trait Style: Sync {
    /// The verb, for the replay command.
    const VERB: &'static str;

    /// The options of this verb alone, for the replay command.
    fn options(&self) -> String {
        String::new()
    }

    /// Runs the trial for its share of the time.
    fn work(&self, trial: Box<dyn Trial>, share: Share) -> Outcome;
}

/// Runs every selected trial, prints the results, and fails with the first fault found.
pub fn campaign<T: Style>(selection: &Selection, style: &T) -> Result<(), Failure> {
    let wanted = selection.names()?;
    let jobs = selection.jobs(wanted.len());
    let seed = selection.seed();
    let total = Duration::from_secs_f64(selection.minutes * 60.0);
    let time = total.mul_f64(jobs as f64 / wanted.len() as f64);
    println!(
        "{} trials, seed {seed}, {:.1} s each, {jobs} at a time",
        wanted.len(),
        time.as_secs_f64()
    );
    let bar = progress::bar(wanted.len() as u64);
    let (taken, images) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let outcomes: Mutex<Vec<Outcome>> = Mutex::default();
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            // Relaxed: the counter orders no other memory.
            let index = taken.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(name) = wanted.get(index) else { break };
            let maker = subjects().into_iter().find(|(known, _)| known == name);
            let made = maker.map_or(Err("no such trial".into()), |(_, make)| make());
            let outcome = match made {
                Ok(trial) => {
                    let seed = name
                        .bytes()
                        .fold(seed, |mix, byte| Random::new(mix ^ u64::from(byte)).draw());
                    let (until, replay) = (Instant::now() + time, selection.replay);
                    style.work(trial, Share { seed, until, replay })
                }
                Err(what) => Outcome {
                    name: name.clone(),
                    found: Some((format!("{name} could not be prepared: {what}"), seed)),
                    ..Outcome::default()
                },
            };
            let images = images.fetch_add(outcome.tally.images, Ordering::Relaxed);
            bar.set_message(format!("{} images; {name}", images + outcome.tally.images));
            bar.inc(1);
            stop.fetch_or(outcome.found.is_some(), Ordering::Relaxed);
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(worker);
        }
    });
    bar.finish_and_clear();
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|outcome| wanted.iter().position(|name| *name == outcome.name));
    print!("{}", table(&outcomes));
    match outcomes.into_iter().find(|outcome| outcome.found.is_some()) {
        Some(Outcome { name, found: Some((what, run)), .. }) => {
            let mut parts = name.split('/');
            let mut part = || parts.next().unwrap_or_default();
            let replay = format!(
                "cargo run --release -p pando-crashlab -- {} --index {} --scenario {} --domain {} \
                 --replay {run}{}",
                T::VERB,
                part(),
                part(),
                part(),
                style.options()
            );
            Err(Failure::Found { what, replay })
        }
        _ => Ok(()),
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| trial | schedules | of these exhaustive | stopped at each step | steps | cuts | images | of recoveries | repeated |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let mut all = Tally::default();
    let mut line = |name: &str, exhaustive: String, stopped: String, tally: &Tally| {
        let Tally { runs, steps, cuts, images, repeated, of_recovery } = tally;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {name} | {runs} | {exhaustive} | {stopped} | {steps} | {cuts} | {images} | {of_recovery} | {repeated} |"
        );
    };
    for outcome in outcomes {
        all.add(&outcome.tally);
        let part = |part: Option<(u64, bool)>| match part {
            Some((runs, true)) => format!("{runs}, all"),
            Some((runs, false)) => format!("{runs}, not all"),
            None => "-".into(),
        };
        line(&outcome.name, part(outcome.exhaustive), part(outcome.stopped), &outcome.tally);
    }
    line("all", "-".into(), "-".into(), &all);
    text
}
