//! `schedule`: many schedules, with a few crashes of each.
//!
//! Every trial has three parts:
//!
//! 1. All schedules with few preemptions, for one set of operations.
//! 2. *Stopped for ever*: one thread runs first and is stopped at its step 0, 1, 2 and so on; each
//!    thread in turn. The others must complete their operations without it, in a bounded number of
//!    steps. Then the stopped thread continues, as a late helper.
//! 3. Random schedules, and schedules by priorities, each with other operations. In a third of them
//!    a thread is stopped at a random step.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use pando_index::random::Random;

use crate::campaign::{Outcome, Run, Selection, Share, Style, campaign, drive};
use crate::failure::Failure;
use crate::lab::director::{Freeze, Orders, Policy, has_frozen, is_complete};
use crate::trial::{Crashes, Plan, Trial};

/// Options of the verb.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
}

struct Schedule;

/// Most logical threads of a trial.
const MAX_TASKS: usize = 4;

fn run_of(seed: u64) -> Run {
    let mut random = Random::new(seed ^ 0xd1ce);
    let policy = match random.below(3) {
        0 => Policy::Pct { changes: 1 + random.below(4) },
        _ => Policy::Random { sojourn: 1 << random.below(8) },
    };
    let freeze = Freeze::drawn(&mut random);
    Run {
        plan: Plan {
            seed,
            crashes: Crashes { cuts: Some(2), images: 1, until: None },
            recovery_every: 50,
        },
        orders: Orders { seed, policy, freeze },
    }
}

fn exhaustive_of(seed: u64, preemptions: u32) -> Run {
    let run = run_of(seed);
    let policy = Policy::Exhaustive { preemptions };
    Run { orders: Orders { policy, freeze: None, ..run.orders }, ..run }
}

/// Stops each thread at each of its steps, one after the other. `finished` becomes true when there
/// are no more.
fn stopped(seed: u64, until: Instant, finished: Rc<Cell<bool>>) -> impl FnMut(u64) -> Option<Run> {
    let mut freeze = Freeze { task: 1, after: 0 };
    move |runs| {
        if runs > 0 {
            if has_frozen() {
                freeze.after += 1;
            } else {
                // It ended before the step.
                freeze = Freeze { task: freeze.task + 1, after: 0 };
            }
        }
        finished.set(freeze.task > MAX_TASKS);
        let goes_on = !finished.get() && (runs == 0 || Instant::now() < until);
        let run = run_of(seed);
        let policy = Policy::Led { leader: freeze.task };
        let orders = Orders { policy, freeze: Some(freeze), ..run.orders };
        goes_on.then_some(Run { orders, ..run })
    }
}

impl Style for Schedule {
    const VERB: &'static str = "schedule";

    fn work(&self, trial: Box<dyn Trial>, share: Share) -> Outcome {
        let Share { seed, until, replay } = share;
        let preemptions = trial.preemptions();
        let trial = Rc::new(RefCell::new(trial));
        let begin = Instant::now();
        let third = until.saturating_duration_since(begin) / 3;
        let first = replay.unwrap_or(seed);
        let drawn = |share: Share| drive(&trial, share.runs(run_of), <dyn Trial>::run);

        // First, because a replay is most likely and quickest to find the fault here.
        let mut outcome = drawn(Share { until: begin + third, ..share });
        if outcome.found.is_some() {
            return outcome;
        }
        let finished = Rc::new(Cell::new(false));
        let each = stopped(first, begin + third * 2, Rc::clone(&finished));
        let part = drive(&trial, each, <dyn Trial>::run);
        outcome.stopped = Some((part.tally.runs, finished.get()));
        outcome.tally.add(&part.tally);
        if part.found.is_some() {
            return Outcome { found: part.found, ..outcome };
        }
        let all = move |runs| {
            (runs == 0 || Instant::now() < until).then(|| exhaustive_of(first, preemptions))
        };
        let part = drive(&trial, all, <dyn Trial>::run);
        outcome.exhaustive = Some((part.tally.runs, is_complete()));
        outcome.tally.add(&part.tally);
        if part.found.is_some() || replay.is_some() {
            return Outcome { found: part.found, ..outcome };
        }
        // The rest of the time.
        let part = drawn(Share { seed: !seed, ..share });
        outcome.tally.add(&part.tally);
        Outcome { found: part.found, ..outcome }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<(), Failure> {
    campaign(&args.selection, &Schedule)
}
