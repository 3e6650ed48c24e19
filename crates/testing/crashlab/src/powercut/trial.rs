//! The cycles of a trial: boot, check the pool, write to it, cut the power.

use std::time::Duration;

use indicatif::ProgressBar;

use super::machine::{Machine, Persistence};
use super::options::Args;
use super::powered::{EVERY, Powered, QUEUE, SLOWNESS};
use crate::failure::Failure;
use crate::kill::child;
use crate::kill::expected::Expected;
use crate::kill::figures::Figures;
use crate::kill::message::{Message, Opened};
use crate::kill::phase::Phase;
use crate::kill::supervise::{Heard, Kill};
use crate::kill::workload::Profile;
use crate::progress;
use pando_index::random::Random;

const WRITERS: u64 = 4;
/// Time for the machine to warm up: it translates each instruction at its first execution.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long the writers work before the pool is closed, if the power is cut while it closes.
const MS_BEFORE_CLOSE: u64 = 300;
/// Most cycles of one pool.
const CYCLES_A_POOL: u64 = 8;

/// A machine in one mode, and the expected content of its pool.
pub struct Trial<'machine> {
    machine: Powered<'machine>,
    seed: u64,
    cycles: u64,
    keep: bool,
    created: child::Created,
    /// Counts the pools.
    generation: u64,
    expected: Expected,
    figures: Figures,
    bar: ProgressBar,
}

impl<'machine> Trial<'machine> {
    /// A trial with these options.
    pub fn new(
        machine: &'machine Machine,
        persistence: Persistence,
        seed: u64,
        args: &Args,
    ) -> Result<Self, Failure> {
        args.created.set_lengths();
        Ok(Self {
            machine: Powered::new(machine, persistence, seed)?,
            seed,
            generation: 0,
            expected: Expected::new(QUEUE),
            figures: Figures::default(),
            cycles: args.cycles,
            created: args.created.clone(),
            keep: args.keep,
            bar: progress::bar(args.cycles),
        })
    }

    /// Makes all cuts. The devices are kept with the option `keep`, and after an error.
    pub fn run(mut self, with_refusal: bool) -> Result<Figures, Failure> {
        let refused = if with_refusal { self.refusal() } else { Ok(()) };
        let outcome = refused.and_then(|()| self.go());
        self.bar.finish_and_clear();
        self.machine.end(self.keep || outcome.is_err());
        outcome.map(|()| self.figures)
    }

    fn go(&mut self) -> Result<(), Failure> {
        let mut random = Random::new(self.seed);
        let of_pool = self.created.cycles_a_pool(self.cycles, CYCLES_A_POOL);
        for cycle in 0..self.cycles {
            let mut random = Random::new(random.draw());
            if cycle > 0 && cycle.is_multiple_of(of_pool) {
                self.generation += 1;
                self.expected = Expected::new(QUEUE);
            }
            self.cycle(phase_of(cycle, of_pool), &mut random)?;
            self.bar.set_position(cycle + 1);
            self.bar
                .set_message(format!("{} operations acknowledged", self.figures.acknowledged()));
        }
        let args = self.args();
        self.live(&args, None).map(|_| ())
    }

    /// Boots, checks the pool, writes to it, and cuts the power meanwhile.
    fn cycle(&mut self, phase: Phase, random: &mut Random) -> Result<(), Failure> {
        let mut args = self.args();
        args.write = Some(phase.profile(args.created.transactional, random));
        args.seed = random.draw();
        if phase == Phase::Close {
            args.write_ms = MS_BEFORE_CLOSE;
        }
        let mut kill = phase.kill(random, SLOWNESS);
        if kill.after == Message::Writing {
            kill.delay += WARM_UP;
        }
        let heard = self.live(&args, Some(&kill))?;
        if heard.was_killed {
            self.figures.kill(phase, args.created.index_name());
        }
        Ok(())
    }

    /// Boots with these orders and evaluates the messages.
    fn live(&mut self, args: &child::Args, kill: Option<&Kill>) -> Result<Heard, Failure> {
        let heard = self.boot(args, kill)?;
        if let Some(opened) = &heard.opened {
            let (domain, medium, guarantee) = match self.machine.persistence {
                Persistence::Cpu => ("process", "DAX", "survives power loss"),
                Persistence::MemCtrl => ("adr", "DAX", "survives power loss"),
                Persistence::Disk if args.created.store => {
                    ("process", "ext4", "commits that are synced survive a power cut")
                }
                Persistence::Disk => ("process", "ext4", "not of the machine"),
            };
            self.is_opened_in(opened, domain, medium, guarantee)?;
            if opened.from_log {
                self.figures.loss();
            }
        }
        self.figures.hear(&heard, args.created.index_name());
        self.expected.hear(args, &heard).map_err(|what| self.found(&what))?;
        Ok(heard)
    }

    /// A pool on a file system without DAX is not trusted after a cut.
    fn refusal(&mut self) -> Result<(), Failure> {
        let mut args = self.args();
        args.pool = "/cached/pool.pando".into();
        (args.created.synced, args.created.buffered) = (false, false);
        args.write = Some(Profile::Mixed);
        let kill = Kill { after: Message::Writing, delay: WARM_UP };
        let heard = self.boot(&args, Some(&kill))?;
        match &heard.opened {
            Some(opened) => self.is_opened_in(opened, "process", "ext4", "not of the machine")?,
            None => return Err(self.found("a new pool on ext4 without DAX was not opened")),
        }
        args.write = None;
        match self.boot(&args, None)? {
            Heard { is_refused: true, .. } => Ok(()),
            other => Err(self.found(&format!(
                "a pool on ext4 without DAX was open at a power cut and is not refused: {other:?}"
            ))),
        }
    }

    fn boot(&mut self, args: &child::Args, kill: Option<&Kill>) -> Result<Heard, Failure> {
        self.machine.boot(&args.words(), WRITERS, kill)
    }

    fn is_opened_in(
        &self,
        opened: &Opened,
        domain: &str,
        medium: &str,
        guarantee: &str,
    ) -> Result<(), Failure> {
        let is_right = opened.domain == domain
            && opened.medium.contains(medium)
            && opened.guarantee.contains(guarantee);
        if is_right {
            return Ok(());
        }
        let expected = format!("expected {domain}, {medium}, {guarantee}");
        Err(self.found(&format!("{expected}: {opened:?}")))
    }

    /// The orders of a boot that checks the pool and closes it.
    fn args(&self) -> child::Args {
        let folder = if self.machine.persistence == Persistence::Disk { "disk" } else { "dax" };
        child::Args {
            pool: format!("/{folder}/{}.pando", self.generation).into(),
            look: true,
            write: None,
            writers: WRITERS,
            seed: 0,
            every: EVERY,
            queue: QUEUE,
            write_ms: 30_000,
            created: match self.machine.persistence {
                Persistence::Disk => {
                    let created = self.created.in_pool(self.generation);
                    let created = child::Created { transactional: true, synced: true, ..created };
                    created.or_buffered(self.generation)
                }
                _ => self.created.in_pool(self.generation),
            },
        }
    }

    fn found(&self, what: &str) -> Failure {
        let (cuts, persistence) = (self.figures.kills(), self.machine.persistence.name());
        Failure::Found {
            what: format!(
                "persistence {persistence}, after {cuts} cuts: {what}\n{}",
                self.machine.console()
            ),
            replay: format!(
                "cargo run --release -p pando-crashlab -- powercut \
                 --persistence {persistence} --seed {} --cycles {} {}",
                self.seed,
                // Fewer cycles would be of other pools.
                self.cycles,
                self.created.words().join(" ")
            ),
        }
    }
}

/// The activity that a cut interrupts: mostly writes. A pool has `of_pool` cycles. The first cut of
/// a pool is during its creation, if it has others.
fn phase_of(cycle: u64, of_pool: u64) -> Phase {
    if of_pool > 1 && cycle > 0 && cycle.is_multiple_of(of_pool) {
        return Phase::Create;
    }
    let turns = [
        Phase::Write,
        Phase::Grow,
        Phase::Close,
        Phase::Write,
        Phase::Catalog,
        Phase::Recover,
        Phase::Write,
    ];
    turns[(cycle % turns.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::kill::child::Created;

    /// The phases of the cuts of each index, in a run of so many cycles.
    fn phases_of(cycles: u64, created: &Created) -> BTreeMap<String, Vec<Phase>> {
        let of_pool = created.cycles_a_pool(cycles, CYCLES_A_POOL);
        let mut phases: BTreeMap<String, Vec<Phase>> = BTreeMap::new();
        for cycle in 0..cycles {
            let index = created.in_pool(cycle / of_pool).index_name().to_owned();
            phases.entry(index).or_default().push(phase_of(cycle, of_pool));
        }
        phases
    }

    #[test]
    fn each_index_gets_its_share_of_the_cuts() {
        let created = Created { transactional: true, synced: true, ..Created::default() };
        for (cycles, least) in [(5, 1), (15, 3), (40, 8), (50, 8), (100, 16)] {
            let phases = phases_of(cycles, &created);
            assert_eq!(phases.len(), 5, "{phases:?}");
            assert!(phases.values().all(|phases| phases.len() >= least), "{cycles}: {phases:?}");
            let is_writing =
                |phase| matches!(phase, &Phase::Write | &Phase::Grow | &Phase::Catalog);
            assert!(cycles == 5 || phases.values().all(|all| all.iter().any(is_writing)));
        }
        let of_all = phases_of(50, &created);
        let all: BTreeSet<_> = of_all.values().flatten().collect();
        assert_eq!(all.len(), 6, "each phase but that of a load");
        // One index, and a store, have all cuts.
        let one = Created { index: Some("bwtree".to_owned()), ..created.clone() };
        let store = Created { store: true, ..created };
        for created in [one, store] {
            assert_eq!(phases_of(50, &created).values().map(Vec::len).collect::<Vec<_>>(), [50]);
            assert_eq!(created.cycles_a_pool(50, CYCLES_A_POOL), CYCLES_A_POOL);
        }
    }
}
