//! `schedule`: many schedules, with a few crashes of each.
//!
//! Every trial begins with all schedules that have few preemptions, for one set of operations;
//! then come random ones, and ones by priorities, each for operations of its own. In a part of
//! these one thread is stopped at some step until all others have ended: nobody may wait for it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use crate::campaign::{Outcome, Run, Selection, Style, campaign, drive, exhausted, run_it};
use crate::failure::Failure;
use crate::lab::director::{Freeze, Orders, Policy};
use crate::random::Random;
use crate::trial::{Crashes, Plan, Trial};

/// Options of the verb.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
}

struct Schedule;

fn run_of(seed: u64) -> Run {
    let mut random = Random::new(seed ^ 0xd1ce);
    let policy = match random.below(3) {
        0 => Policy::Pct { changes: 1 + random.below(4) },
        _ => Policy::Random { sojourn: 1 << random.below(8) },
    };
    let freeze = random
        .one_in(3)
        .then(|| Freeze { task: 1 + random.below(3) as usize, after: random.below(400) });
    Run {
        plan: Plan { seed, crashes: Crashes { cuts: Some(2), images: 1 }, recovery_every: 50 },
        orders: Orders { seed, policy, freeze, expected_steps: 512 },
    }
}

fn exhaustive_of(seed: u64, preemptions: u32) -> Run {
    let run = run_of(seed);
    let policy = Policy::Exhaustive { preemptions };
    Run { orders: Orders { policy, freeze: None, ..run.orders }, ..run }
}

impl Style for Schedule {
    const VERB: &'static str = "schedule";

    fn work(
        &self,
        trial: Box<dyn Trial>,
        seed: u64,
        until: Instant,
        replay: Option<u64>,
    ) -> Outcome {
        let preemptions = trial.preemptions();
        let trial = Rc::new(RefCell::new(trial));
        let half = Instant::now() + until.saturating_duration_since(Instant::now()) / 2;
        let first = replay.unwrap_or(seed);
        let all = move |runs| {
            (runs == 0 || Instant::now() < half).then(|| exhaustive_of(first, preemptions))
        };
        let mut outcome = drive(&trial, all, run_it);
        outcome.exhaustive = Some((outcome.tally.runs, exhausted()));
        if outcome.found.is_some() {
            return outcome;
        }
        let drawn = move |runs| match replay {
            Some(seed) => (runs == 0).then(|| run_of(seed)),
            None => {
                let next = Random::new(seed ^ runs).draw();
                (runs == 0 || Instant::now() < until).then(|| run_of(next))
            }
        };
        let more = drive(&trial, drawn, run_it);
        outcome.tally.add(&more.tally);
        Outcome { found: more.found, ..outcome }
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<(), Failure> {
    campaign(&args.selection, &Schedule)
}
