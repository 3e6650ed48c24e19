//! Pools with a log: recovery of lost pools, new logs, and logs that stop.

mod failures;
mod place;
mod recovery;
mod reset;
