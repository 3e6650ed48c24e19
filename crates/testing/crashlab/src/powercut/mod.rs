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
//! The indexes take turns, from pool to pool, unless an option names one. A run of five cycles or
//! more cuts each of them.
//!
//! On a file system without DAX a pool that was open at a cut may be damaged, and must be refused.
//!
//! In a third mode the pool and its log are on an ordinary disk, whose write cache a power cut
//! loses ([`disk`]). There the pool is rebuilt from the log at each boot, and must hold the results
//! of all synced operations. With `--store` it is a store, which is larger than its memory
//! ([`crate::kill`]): at each boot its pages are read and its log is replayed.
//!
//! With `--server` it is the server, and clients in the same machine write to it ([`served`]).

mod disk;
mod initramfs;
mod machine;
mod options;
mod packages;
mod powered;
mod served;
mod served_child;
mod trial;

use crate::failure::Failure;
use crate::kill::fresh_seed;
use machine::{Machine, Persistence};
pub use options::{Args, Promise};
pub use served_child::{Args as ServedArgs, run as run_served};
use trial::Trial;

/// Runs the verb. It fails if there is no virtual machine.
pub fn run(args: &Args) -> Result<(), Failure> {
    let no_machine = |reason| Failure::Missing(format!("there is no virtual machine: {reason}"));
    let modes = modes(args)?;
    let machine = Machine::get().map_err(no_machine)?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    println!("seed {seed}");
    if let Some(sync) = args.server {
        return served::run(&machine, seed, sync, args);
    }
    for &persistence in modes {
        // The test without DAX does not depend on the mode.
        let with_refusal = persistence == Persistence::Cpu;
        let trial = Trial::new(&machine, persistence, seed, args)?;
        let figures = trial.run(with_refusal)?;
        let of_store = if args.created.store { ", of a store" } else { "" };
        println!("power cuts, persistence {}{of_store}: {figures}", persistence.name());
    }
    Ok(())
}

/// The modes, one after the other.
fn modes(args: &Args) -> Result<&'static [Persistence], Failure> {
    let modes: &[Persistence] = match args.persistence {
        Promise::Cpu => &[Persistence::Cpu],
        Promise::MemCtrl => &[Persistence::MemCtrl],
        Promise::Disk => &[Persistence::Disk],
        Promise::All if args.created.store => &[Persistence::Disk],
        Promise::All => &[Persistence::Cpu, Persistence::MemCtrl, Persistence::Disk],
    };
    match modes {
        [mode] if args.created.store && *mode != Persistence::Disk => {
            Err(Failure::Trouble(format!(
                "--persistence {} with --store: a store is on the disk of the machine; leave the \
                 option out, or say --persistence disk",
                mode.name()
            )))
        }
        _ => Ok(modes),
    }
}
