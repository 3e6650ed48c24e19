//! `powercut`: cuts the power of a virtual machine with persistent memory, and checks its pool.
//!
//! The machine ([`machine`]) runs this program as the child process of `kill`
//! ([`crate::kill::child`]). The child opens a pool on an ext4 mounted with DAX, reports its
//! content, and writes to it with several threads, which acknowledge each operation through a port.
//! The power cut is a SIGKILL to the machine. Stores to its persistent memory are kept. Its page
//! cache, and acknowledgements that had not left it, are lost.
//!
//! After the next boot the pool must be consistent. It must hold the results of all acknowledged
//! operations, and may hold the results of the operations after those
//! ([`crate::kill::expected`]).
//!
//! In this model the caches are flushed: no cache line is lost, in each mode of persistence. The
//! mode only decides which domain the library picks.
//!
//! On a file system without DAX a pool that was open at a cut may be damaged, and must be refused.
//!
//! In a third mode the pool and its log are on an ordinary disk, whose write cache a power cut
//! loses ([`disk`]). There the pool is rebuilt from the log at each boot, and must hold the results
//! of all synced operations.

mod disk;
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

/// Runs the verb. It fails if there is no virtual machine.
pub fn run(args: &Args) -> Result<(), Failure> {
    let no_machine = |reason| Failure::Missing(format!("there is no virtual machine: {reason}"));
    let machine = Machine::get().map_err(no_machine)?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    let modes: &[Persistence] = match args.persistence {
        Promise::Cpu => &[Persistence::Cpu],
        Promise::MemCtrl => &[Persistence::MemCtrl],
        Promise::Disk => &[Persistence::Disk],
        Promise::All => &[Persistence::Cpu, Persistence::MemCtrl, Persistence::Disk],
    };
    for &persistence in modes {
        // The test without DAX does not depend on the mode.
        let with_refusal = persistence == Persistence::Cpu;
        let trial = Trial::new(&machine, persistence, seed, args)?;
        let figures = trial.run(with_refusal)?;
        println!("power cuts, persistence {}: {figures}", persistence.name());
    }
    Ok(())
}
