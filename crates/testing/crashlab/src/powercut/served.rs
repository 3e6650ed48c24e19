//! Power cuts of a server: boot, check, write, cut. [`served_child`](super::served_child) runs in
//! the machine.

use std::time::Duration;

use pando_server::testing::load::{Known, PIPELINE};

use super::machine::{Machine, Persistence};
use super::options::{Args, Sync};
use super::powered::{EVERY, Powered, QUEUE};
use super::served_child::{Args as Orders, Bounds};
use crate::failure::Failure;
use crate::kill::message::Message;
use crate::kill::supervise::{Heard, Kill};
use crate::progress;
use pando_index::random::Random;

const WRITERS: usize = 4;
const POOL: &str = "/disk/server.pando";
/// Each so many-th cut hits the opening, which builds the pool anew.
const OPENING_EVERY: u64 = 5;

/// Makes all cuts, and prints what they were.
pub fn run(machine: &Machine, seed: u64, sync: Sync, args: &Args) -> Result<(), Failure> {
    let mut trial = Trial {
        machine: Powered::new(machine, Persistence::Disk, seed)?,
        sync,
        seed,
        known: [Known::default(); WRITERS],
        cuts: 0,
        acknowledged: 0,
    };
    let outcome = trial.make(args.cycles);
    let Trial { machine, cuts, acknowledged, .. } = trial;
    machine.end(args.keep || outcome.is_err());
    outcome?;
    println!(
        "power cuts of a server, sync {sync:?}: {cuts}; requests that survived as promised: \
         {acknowledged}"
    );
    Ok(())
}

/// A machine, and what its server must have.
struct Trial<'machine> {
    machine: Powered<'machine>,
    sync: Sync,
    seed: u64,
    known: [Known; WRITERS],
    cuts: u64,
    acknowledged: u64,
}

impl Trial<'_> {
    fn make(&mut self, cycles: u64) -> Result<(), Failure> {
        let bar = progress::bar(cycles);
        let mut random = Random::new(self.seed);
        for cycle in 0..cycles {
            let kill = self.kill(cycle, &mut random);
            self.live(Some(&kill))?;
            self.cuts += 1;
            bar.set_position(cycle + 1);
            bar.set_message(format!("{} requests survived", self.acknowledged));
        }
        bar.finish_and_clear();
        self.live(None)
    }

    /// When the power is cut: some time after the writers begin, or the opening.
    fn kill(&self, cycle: u64, random: &mut Random) -> Kill {
        let (after, most_ms) = match (cycle % OPENING_EVERY == OPENING_EVERY - 1, self.sync) {
            (true, _) => (Message::Opening, 3_000),
            (false, Sync::Always) => (Message::Writing, 4_000),
            // Until then a power cut may undo all of it.
            (false, Sync::Everysec) => (Message::Writing, 10_000),
        };
        Kill { after, delay: Duration::from_millis(random.below(most_ms)) }
    }

    fn live(&mut self, kill: Option<&Kill>) -> Result<(), Failure> {
        let orders = Orders {
            pool: POOL.into(),
            sync: self.sync,
            known: self.known.map(Bounds).into(),
            write: kill.is_some(),
        };
        let heard = self.machine.boot(&orders.words(), WRITERS as u64, kill)?;
        if let Some(failed) = &heard.failed {
            return Err(self.found(failed));
        }
        for (known, &acknowledged) in self.known.iter_mut().zip(&heard.acknowledged) {
            *known = after(*known, &heard, acknowledged, self.sync);
        }
        self.acknowledged += heard.acknowledged.iter().sum::<u64>();
        Ok(())
    }

    fn found(&self, what: &str) -> Failure {
        let sync = format!("{:?}", self.sync).to_lowercase();
        Failure::Found {
            what: format!(
                "server, sync {sync}, after {} cuts: {what}\n{:?}\n{}",
                self.cuts,
                self.known,
                self.machine.console()
            ),
            replay: format!(
                "cargo run --release -p pando-crashlab -- powercut --server {sync} --seed {} \
                 --cycles {}",
                self.seed,
                self.cuts + 1
            ),
        }
    }
}

/// What a writer's keys must be after this.
fn after(before: Known, heard: &Heard, acknowledged: u64, sync: Sync) -> Known {
    // What was in the port's queue was not heard.
    let sent = match sync {
        Sync::Always => acknowledged + (QUEUE + 1) * EVERY + PIPELINE,
        // The requests that a power cut may undo are not told.
        Sync::Everysec => u64::from(u32::MAX),
    };
    match (heard.looked.is_some(), heard.is_writing) {
        (false, _) => before,
        // Whether the keys were removed is not known.
        (true, false) => Known { acknowledged: 0, sent: sent.max(before.sent) },
        (true, true) => Known { acknowledged, sent },
    }
}
