//! `kill`: real processes with several writers are killed by SIGKILL at random instants, and their
//! pools are checked.
//!
//! A round has two steps:
//!
//! 1. A child process ([`child`]) works on a pool and is killed during its work ([`phase`],
//!    [`trial`]). It acknowledges each operation through a pipe, after the call has returned
//!    ([`message`]).
//! 2. Another process opens the pool, checks it, and reports all its records ([`look`]). The pool
//!    must hold the results of all acknowledged operations, with or without the one operation that
//!    each writer had in flight ([`expected`]). This process closes the pool or is killed too.
//!
//! In a transactional pool half of the processes run transactions instead of single operations
//! ([`transactions`]). They tell each before its commit and after it. The history of all of them
//! must be serializable, over all kills of the pool.
//!
//! A store is filled beyond its memory first, and its pages are evicted while the writers write
//! ([`filled`]).
//!
//! The next round continues with the same pool, or sometimes with a new one.
//!
//! Operations and delays follow from the seed ([`workload`]), so a seed replays a trial. The seed
//! does not determine the system's scheduling, so a replay may need several attempts. After a fault
//! the pool is kept as the kill left it.

pub mod child;
mod created;
pub(crate) mod expected;
pub(crate) mod figures;
mod filled;
mod load;
mod look;
pub(crate) mod message;
mod options;
pub(crate) mod phase;
pub(crate) mod supervise;
mod transactions;
mod trial;
pub(crate) mod workload;

use crate::failure::Failure;
pub use options::Args;
pub(crate) use options::{folder, fresh_seed};
use trial::Trial;

/// Runs the verb.
pub fn run(args: &Args) -> Result<(), Failure> {
    let seed = args.seed.unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    let figures = Trial::new(args, seed)?.run()?;
    println!("kills: {figures}");
    Ok(())
}
