//! What can be set of the verb.

use crate::kill::child::Created;

/// What the machine promises of its persistent memory.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Promise {
    /// Caches are flushed at a cut (eADR)
    Cpu,
    /// What has left the caches is kept (ADR)
    MemCtrl,
    /// First the one, then the other
    Both,
}

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many cuts in each mode
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) cycles: u64,
    /// What the machine promises of its persistent memory
    #[arg(long, value_enum, default_value_t = Promise::Both)]
    pub(super) persistence: Promise,
    /// Seed of operations and delays [default: another one each time]
    #[arg(long, value_name = "S")]
    pub(super) seed: Option<u64>,
    /// What the maps are.
    #[command(flatten)]
    pub(super) created: Created,
    /// Keep the machine's devices, and say where they are
    #[arg(long)]
    pub(super) keep: bool,
}
