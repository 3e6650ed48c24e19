//! The options of the verb.

use crate::kill::child::Created;

/// The part of the machine that keeps the pool at a cut.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Promise {
    /// Caches are flushed at a cut (eADR)
    Cpu,
    /// Lines that have left the caches are kept (ADR)
    MemCtrl,
    /// The log of the pool, or the files of a store, on a disk that loses unflushed writes
    Disk,
    /// Each mode, one after the other; of a store only disk
    All,
}

/// When the server sends the reply to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sync {
    /// When it survives a power cut
    Always,
    /// At once; a power cut undoes at most two seconds
    Everysec,
}

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of cuts in each mode
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) cycles: u64,
    /// The part of the machine that keeps the pool at a cut
    #[arg(long, value_enum, default_value_t = Promise::All)]
    pub(super) persistence: Promise,
    /// Seed of operations and delays [default: random]
    #[arg(long, value_name = "S")]
    pub(super) seed: Option<u64>,
    /// Cut the power of a server with a log on the disk and `--sync` in this mode, in the place of
    /// a pool
    #[arg(long, value_name = "MODE", value_enum, conflicts_with_all = ["persistence", "index", "transactional", "synced", "store"])]
    pub(super) server: Option<Sync>,
    /// The index of the maps.
    #[command(flatten)]
    pub(super) created: Created,
    /// Keep the machine's devices, and print their folder
    #[arg(long)]
    pub(super) keep: bool,
}
