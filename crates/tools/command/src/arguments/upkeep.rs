//! Commands that look after a whole pool: figures, checks, space, processes, backups, and its log.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::{PROBLEMS, exit_codes};
use crate::quantity::{number, size_bytes};

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct StatArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[PROBLEMS]))]
pub struct CheckArguments {
    /// Check while others write: each key that a scan finds is searched for; leaks are not found
    #[arg(long)]
    pub online: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Return unused space to the file system
///
/// Returns each chunk of 64 KiB without records to the file system, and truncates the file after
/// the last used chunk. The pool must not be open elsewhere. A crash does not damage the pool.
///
/// No record moves, so that free space within a used chunk is not returned. To return that too,
/// `dump` the maps and `load` them into a new pool.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct CompactArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Kill a process that shares the pool; its completed writes stay
///
/// Kills a process that shares the pool, also one that works, and recovers it. A write that it had
/// not completed takes place as a whole, or not at all. No other process waits.
///
/// A stopped process is never treated as dead: space that is freed while one of its threads is
/// inside a call cannot be reused. `pando stat --shared` lists the processes, and what they hold
/// back.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct EvictArguments {
    /// Process id, as `pando stat --shared` shows it
    #[arg(value_parser = number::<u32>(1..=u64::from(u32::MAX)))]
    pub pid: u32,
}

/// Copy the commits that survive a power cut into a directory; the pool may be in use
///
/// Copies the newest image and the log behind it: all commits of transactional maps that survive a
/// power cut now. Another process may use the pool meanwhile.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct BackupArguments {
    /// Directory for the backup; created if its parent exists
    #[arg(value_name = "DIR")]
    pub to: PathBuf,
}

/// Create a pool from a backup
///
/// Creates the pool that --pool names, with a new log in the directory that --log names, which is
/// needed. The backup stays as it is.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct RestoreArguments {
    /// Directory of the backup
    #[arg(value_name = "DIR")]
    pub from: PathBuf,
    /// Maximum size of the new pool, such as 500M or 2T [default: that of the pool of the backup]
    #[arg(long, value_name = "BYTES", value_parser = size_bytes)]
    pub max_bytes: Option<u64>,
}

/// Turn a pool of an earlier format into one of the present format
///
/// Turns a pool of an earlier format into one of the present format, with the `pando` that wrote
/// it. That program dumps each map. This one loads it into a new pool, checks it, and puts it in
/// the place of the former one, which stays as POOL.format-N. A crash leaves the former pool or the
/// new one under its name. A pool of the present format is left as it is.
///
/// No other process may use the pool meanwhile. A write that is noticed ends the upgrade, and the
/// pool stays as it is.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[PROBLEMS]))]
pub struct UpgradeArguments {
    /// The `pando` that wrote the pool
    #[arg(long, value_name = "PROGRAM")]
    pub with: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print how far the log is durable, and its newest image; the pool is open alone meanwhile
    Stat(LogStatArguments),
    /// Read a log, or a backup, as a recovery would, and print its content; the pool may be in use
    Verify(LogVerifyArguments),
    /// Write an image of the transactional maps, and remove the part of the log before it
    Image(LogImageArguments),
    Reset(LogResetArguments),
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LogStatArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LogVerifyArguments {
    /// Directory of a log, or of a backup [default: the log of the pool]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LogImageArguments {}

/// Give a pool a new log, if its log is lost, damaged or foreign, or must move
///
/// Creates a new log in the directory that --log names, or else where the former log was, and
/// writes an image of all transactional maps into it. Nothing of the pool is lost. The pool must be
/// whole, and not open elsewhere.
///
/// The directory may not have files of another log: move them away, or name another directory.
/// Nothing of the former log is read or removed; remove it afterwards. If the command was killed,
/// run it again.
#[derive(Debug, Args)]
#[command(after_help = exit_codes(&[]))]
pub struct LogResetArguments {}
