//! Pools with a log: recovery of lost pools, new logs, and logs that stop.

mod broken_disk;
mod disks;
mod failures;
mod mounted;
mod place;
mod recovery;
mod reset;
