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
mod options;
pub(crate) mod phase;
pub(crate) mod supervise;
mod trial;
mod workload;

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
