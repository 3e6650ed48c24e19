//! `explore`: every crash of many runs.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use crate::campaign::{Outcome, Run, Selection, Style, campaign, drive, run_it};
use crate::failure::Failure;
use crate::lab::director::{Orders, Policy};
use crate::random::Random;
use crate::trial::{Crashes, Plan, Trial};

/// Options of the verb.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Images of each cut at most; all, while there are fewer
    #[arg(long, default_value_t = 24)]
    images: usize,
}

struct Explore {
    images: usize,
}

/// Among how many steps changes of priority are placed: a round number, so that a seed alone
/// replays a run.
const EXPECTED_STEPS: u64 = 512;

/// The run of a seed.
pub(crate) fn run_of(seed: u64, images: usize) -> Run {
    let mut random = Random::new(seed ^ 0x5ced);
    let policy = match random.below(3) {
        0 => Policy::Random { sojourn: 1 << random.below(7) },
        1 => Policy::Pct { changes: 1 + random.below(4) },
        // Long stays: one operation after the other, now and then into each other.
        _ => Policy::Random { sojourn: 200 },
    };
    Run {
        plan: Plan { seed, crashes: Crashes { cuts: None, images }, recovery_every: 200 },
        orders: Orders { seed, policy, freeze: None, expected_steps: EXPECTED_STEPS },
    }
}

impl Style for Explore {
    const VERB: &'static str = "explore";

    fn work(
        &self,
        trial: Box<dyn Trial>,
        seed: u64,
        until: Instant,
        replay: Option<u64>,
    ) -> Outcome {
        let images = self.images;
        let trial = Rc::new(RefCell::new(trial));
        let next = move |runs| match replay {
            Some(seed) => (runs == 0).then(|| run_of(seed, images)),
            None => {
                let next = Random::new(seed ^ runs).draw();
                (runs == 0 || Instant::now() < until).then(|| run_of(next, images))
            }
        };
        drive(&trial, next, run_it)
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<(), Failure> {
    campaign(&args.selection, &Explore { images: args.images })
}
