//! `explore`: every crash of many runs.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::campaign::{Outcome, Run, Selection, Share, Style, campaign, drive};
use crate::failure::Failure;
use crate::lab::director::{Freeze, Orders, Policy};
use crate::trial::{Crashes, Plan, Trial};
use pando_index::random::Random;

/// Options of the verb.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Most images of each cut; all, if there are fewer
    #[arg(long, default_value_t = 24)]
    images: usize,
    /// Cuts of each run, and of each recovery, drawn at random [default: all]
    #[arg(long)]
    cuts: Option<usize>,
}

/// How long a trial may continue with the images of its last run after its time is over.
const GRACE: Duration = Duration::from_secs(1);

struct Explore {
    images: usize,
    cuts: Option<usize>,
}

/// The run of a seed.
pub(crate) fn run_of(seed: u64, images: usize) -> Run {
    let mut random = Random::new(seed ^ 0x5ced);
    let policy = match random.below(3) {
        0 => Policy::Random { sojourn: 1 << random.below(7) },
        1 => Policy::Pct { changes: 1 + random.below(4) },
        // Rare switches: mostly one operation after the other, sometimes overlapping ones.
        _ => Policy::Random { sojourn: 200 },
    };
    Run {
        plan: Plan {
            seed,
            crashes: Crashes { cuts: None, images, until: None },
            recovery_every: 200,
        },
        orders: Orders { seed, policy, freeze: Freeze::drawn(&mut random) },
    }
}

impl Style for Explore {
    const VERB: &'static str = "explore";

    fn options(&self) -> String {
        let cuts = self.cuts.map_or_else(String::new, |cuts| format!(" --cuts {cuts}"));
        format!(" --images {}{cuts}", self.images)
    }

    fn work(&self, trial: Box<dyn Trial>, share: Share) -> Outcome {
        let (images, cuts) = (self.images, self.cuts);
        // One run can have more images than its trial has time for. A replay checks all of them.
        let end = share.replay.is_none().then(|| share.until + GRACE);
        let next = share.runs(move |seed| {
            let mut run = run_of(seed, images);
            run.plan.crashes.until = end;
            run.plan.crashes.cuts = cuts;
            run
        });
        drive(&Rc::new(RefCell::new(trial)), next, <dyn Trial>::run)
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<(), Failure> {
    campaign(&args.selection, &Explore { images: args.images, cuts: args.cuts })
}
