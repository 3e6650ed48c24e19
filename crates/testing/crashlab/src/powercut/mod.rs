//! `powercut`: a virtual machine with persistent memory, the power of which is cut, and what that
//! leaves.
//!
//! The machine ([`machine`]) runs this very program, in the role that `kill` gives its processes
//! ([`crate::kill::child`]): it opens a pool on an ext4 mounted with DAX, tells what it holds, and
//! writes to it by several threads, which acknowledge each operation through a port. The power cut
//! is a SIGKILL to the machine. What it stored into its persistent memory is kept; what it had in
//! its page cache, and an acknowledgement that had not left it, are gone. After the next boot the
//! pool must hold what was acknowledged, and may hold what each writer did next and nobody heard of
//! ([`crate::kill::expected`]); and it must be sound.
//!
//! The model is that of caches that are flushed: no cache line is lost, whatever the machine says
//! of its persistence. What that says decides which domain the library picks.
//!
//! On a file system without DAX a pool that was open at a cut may be torn, and must be refused.

mod initramfs;
mod machine;
mod options;
mod packages;
mod trial;

use crate::failure::Failure;
use crate::kill::fresh_seed;
use machine::{Machine, Persistence};
pub use options::{Args, Promise};
use trial::Trial;

/// Runs the verb; fails where the machine cannot be had.
pub fn run(args: &Args) -> Result<(), Failure> {
    let no_machine = |reason| Failure::Missing(format!("there is no virtual machine: {reason}"));
    let machine = Machine::get().map_err(no_machine)?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    let modes: &[Persistence] = match args.persistence {
        Promise::Cpu => &[Persistence::Cpu],
        Promise::MemCtrl => &[Persistence::MemCtrl],
        Promise::Both => &[Persistence::Cpu, Persistence::MemCtrl],
    };
    for (index, &persistence) in modes.iter().enumerate() {
        // What is not persistent memory does not depend on what that promises.
        let with_refusal = index == 0;
        let trial = Trial::new(&machine, persistence, seed, args)?;
        let figures = trial.run(with_refusal)?;
        println!("power cuts, persistence {}: {figures}", persistence.name());
    }
    Ok(())
}
