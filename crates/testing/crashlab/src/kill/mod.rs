//! `kill`: real processes with several writers, killed by SIGKILL at random instants, and what
//! they leave.
//!
//! A round: a process of its own ([`child`]) does something to a pool and is killed in the middle
//! of it ([`phase`], [`trial`]); it has acknowledged each operation through a pipe, after the call
//! returned ([`message`]). Then another process opens the pool and tells all that it holds and
//! whether it is sound ([`look`]). That must be what was acknowledged, with or without the one
//! operation that each writer had in flight ([`expected`]). The looking process closes the pool or
//! is killed in its turn, and the next round goes on with the same pool; now and then with a new
//! one.
//!
//! Operations and delays follow from the seed ([`workload`]), so a seed replays a trial; the
//! system's scheduling is not in it, so a replay may need several attempts. The pool of a trial
//! that found something is kept, as the kill left it.

pub mod child;
mod created;
pub(crate) mod expected;
pub(crate) mod figures;
mod load;
mod look;
pub(crate) mod message;
pub(crate) mod phase;
pub(crate) mod supervise;
mod trial;
mod workload;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::failure::Failure;
use trial::Trial;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many kills
    #[arg(long, value_name = "N", default_value_t = 200)]
    count: u64,
    /// Seed of operations and delays [default: another one each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Threads that write at once; with more than cores, a kill finds more operations in flight
    #[arg(long, value_name = "W", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=64))]
    writers: u64,
    /// What the maps are.
    #[command(flatten)]
    created: created::Created,
    /// Where the pools lie [default: the folder for temporary files]
    #[arg(long, value_name = "D")]
    dir: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<(), Failure> {
    let seed = args.seed.unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    let figures = Trial::new(args, seed)?.run()?;
    println!("kills: {figures}");
    Ok(())
}

/// A folder for a trial.
pub(crate) fn folder(dir: Option<&Path>) -> Result<TempDir, Failure> {
    let dir = dir.map_or_else(std::env::temp_dir, Path::to_owned);
    tempfile::Builder::new()
        .prefix("pando-crashlab-")
        .tempdir_in(&dir)
        .map_err(|error| Failure::trouble(&format!("create a folder in {}", dir.display()), error))
}

/// A seed that differs from run to run.
pub(crate) fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
