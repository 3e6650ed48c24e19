//! The rounds of a trial: a kill, or several in a row, and a check of the pool.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use indicatif::ProgressBar;
use tempfile::TempDir;

use super::child;
use super::created::Created;
use super::expected::Expected;
use super::figures::Figures;
use super::load::{self, LoadEnd};
use super::message::Message;
use super::options::{Args, folder};
use super::phase::Phase;
use super::supervise::{self, Kill};
use crate::failure::Failure;
use crate::progress;
use pando_index::random::Random;

/// How long the writers work before the pool is closed, in a process that is killed while it
/// closes.
const MS_BEFORE_CLOSE: u64 = 4;
/// Operations per acknowledgement: one, so that each result is known; or more, so that a kill hits
/// the library and not the pipe.
const EVERY: [u64; 2] = [1, 32];
/// Most kills in a row while a pool is opened.
const KILLS_IN_RECOVERY: u64 = 4;

/// A pool, and its expected content.
pub struct Trial {
    count: u64,
    seed: u64,
    writers: u64,
    created: Created,
    folder: TempDir,
    own: PathBuf,
    pando: PathBuf,
    /// Counts the pools.
    generation: u64,
    expected: Expected,
    figures: Figures,
    bar: ProgressBar,
}

impl Trial {
    /// A trial with these options.
    pub fn new(args: &Args, seed: u64) -> Result<Self, Failure> {
        args.created.set_lengths();
        let folder = folder(args.dir.as_deref())?;
        std::fs::create_dir(folder.path().join("pool"))
            .map_err(|error| Failure::trouble("create a folder for a pool", error))?;
        Ok(Self {
            count: args.count,
            seed,
            writers: args.writers,
            created: args.created.clone(),
            folder,
            own: std::env::current_exe()
                .map_err(|error| Failure::trouble("find this program's own file", error))?,
            pando: load::pando()?,
            generation: 0,
            expected: Expected::new(0),
            figures: Figures::default(),
            bar: progress::bar(args.count),
        })
    }

    /// Makes all kills. After a fault the folder is kept.
    pub fn run(mut self) -> Result<Figures, Failure> {
        let outcome = self.go();
        self.bar.finish_and_clear();
        if let Err(Failure::Found { .. }) = outcome {
            let _ = self.folder.keep();
        }
        outcome.map(|()| self.figures)
    }

    fn go(&mut self) -> Result<(), Failure> {
        let mut random = Random::new(self.seed);
        let (mut turn, mut misses) = (0, 0);
        while !self.is_done() {
            let mut random = Random::new(random.draw());
            let phase = Phase::of(turn);
            let kills = self.figures.kills_in(phase);
            self.round(phase, misses, &mut random)?;
            // On a quick machine a process may end before its kill. Then the phase is repeated.
            if self.figures.kills_in(phase) > kills {
                (turn, misses) = (turn + 1, 0);
            } else {
                misses += 1;
            }
            self.bar.set_position(self.figures.kills());
            self.bar
                .set_message(format!("{} operations acknowledged", self.figures.acknowledged()));
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.figures.kills() >= self.count
    }

    /// One round: a process is killed, and another one checks the pool. `misses` counts the rounds
    /// before in which the kill came too late.
    fn round(&mut self, phase: Phase, misses: u32, random: &mut Random) -> Result<(), Failure> {
        match phase {
            Phase::Load => self.load(misses, random)?,
            Phase::Create => {
                self.generation += 1;
                self.expected = Expected::new(0);
                self.write(phase, random)?;
            }
            Phase::Recover => {
                self.write(Phase::Write, random)?;
                for _ in 0..=random.below(KILLS_IN_RECOVERY) {
                    if self.is_done() {
                        break;
                    }
                    let kill = phase.kill(random, 1);
                    self.live(self.args(), Some(&kill), Some(phase))?;
                }
            }
            _ => self.write(phase, random)?,
        }
        self.keep_a_copy()?;
        if self.created_now().synced && random.one_in(2) {
            self.lose()?;
        }
        // The next process finds the pool closed or not closed.
        let kill = Kill { after: Message::Looked, delay: Duration::ZERO };
        let looking = child::Args { look: true, ..self.args() };
        self.live(looking, random.one_in(2).then_some(&kill), None)
    }

    /// Starts a process that writes, and kills it.
    fn write(&mut self, phase: Phase, random: &mut Random) -> Result<(), Failure> {
        let (kill, seed) = (phase.kill(random, 1), random.draw());
        let every = *random.pick(&EVERY);
        let mut args = child::Args { seed, every, ..self.args() };
        args.write = Some(phase.profile(args.created.transactional, random));
        if phase == Phase::Close {
            args.write_ms = MS_BEFORE_CLOSE;
        }
        self.live(args, Some(&kill), Some(phase))
    }

    fn load(&mut self, misses: u32, random: &mut Random) -> Result<(), Failure> {
        let life = load::life(misses, random);
        let loaded = load::load_and_kill(
            &self.pando,
            &self.pool(),
            self.folder.path(),
            &self.created_now(),
            life,
            random,
        )?;
        if loaded.end == LoadEnd::Killed {
            self.figures.kill(Phase::Load, self.created_now().index_name());
        }
        self.expected.load(loaded).map_err(|what| self.found(what))
    }

    /// Runs a process and evaluates its messages.
    fn live(
        &mut self,
        args: child::Args,
        kill: Option<&Kill>,
        phase: Option<Phase>,
    ) -> Result<(), Failure> {
        let mut command = Command::new(&self.own);
        command.args(args.words());
        let heard = supervise::run(&mut command, self.writers, kill)?;
        let index = args.created.index_name();
        self.figures.hear(&heard, index);
        if let Some(phase) = phase.filter(|_| heard.was_killed) {
            self.figures.kill(phase, index);
        }
        self.expected.hear(&args, &heard).map_err(|what| self.found(what))
    }

    /// A failure of the trial, with the command that replays it.
    fn found(&self, what: String) -> Failure {
        let (kills, seed, writers) = (self.figures.kills().max(1), self.seed, self.writers);
        Failure::Found {
            what: format!(
                "after {kills} kills: {what}\nthe pool is kept: {}\n\
                 a copy from right after the last kill: {}",
                self.pool().display(),
                self.copy().display()
            ),
            replay: format!(
                "cargo run --release -p pando-crashlab -- kill \
                 --seed {seed} --writers {writers} --count {} {}",
                kills + 1,
                self.created.words().join(" ")
            ),
        }
    }

    /// The orders of a process that only opens and closes the pool.
    fn args(&self) -> child::Args {
        child::Args {
            pool: self.pool(),
            look: false,
            write: None,
            writers: self.writers,
            seed: 0,
            every: 1,
            queue: 0,
            write_ms: 10_000,
            created: self.created_now(),
        }
    }

    /// How the maps of the present pool are created.
    fn created_now(&self) -> Created {
        self.created.in_pool(self.generation).or_lost(self.generation)
    }

    fn pool(&self) -> PathBuf {
        self.folder.path().join("pool").join(format!("{}.pando", self.generation))
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("as-killed.pando")
    }

    /// Removes the file of the pool, which has a log.
    fn lose(&mut self) -> Result<(), Failure> {
        match std::fs::remove_file(self.created_now().lost_file(&self.pool())) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => {
                removed.map_err(|error| Failure::trouble("remove the pool", error))?;
                self.figures.loss();
            }
        }
        Ok(())
    }

    /// Copies the pool as the kill left it, before a process opens it.
    fn keep_a_copy(&self) -> Result<(), Failure> {
        if self.created.store {
            return Ok(());
        }
        match std::fs::copy(self.pool(), self.copy()) {
            // After a kill during creation there may be no pool.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::trouble("copy the pool", error))
            }
            _ => Ok(()),
        }
    }
}
