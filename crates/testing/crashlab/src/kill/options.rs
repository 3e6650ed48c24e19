//! The options of the verb, and the folder and the seed of a trial.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::created::Created;
use crate::failure::Failure;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of kills
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(super) count: u64,
    /// Seed of operations and delays [default: random]
    #[arg(long, value_name = "S")]
    pub(super) seed: Option<u64>,
    /// Threads that write at the same time; with more threads, a kill finds more operations in
    /// flight
    #[arg(long, value_name = "W", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(super) writers: u64,
    /// The index of the maps.
    #[command(flatten)]
    pub(super) created: Created,
    /// Folder of the pools [default: the folder for temporary files]
    #[arg(long, value_name = "D")]
    pub(super) dir: Option<PathBuf>,
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
