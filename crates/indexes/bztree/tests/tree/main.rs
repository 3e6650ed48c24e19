//! Tests of the tree as an index, and after a crash, a pause or in a full pool.
//!
//! * `conformance.rs`: the suite that every index passes.
//! * `traps.rs`: defects of other systems.
//! * `crash.rs`, `generations.rs`, `kill.rs`: a process that dies.
//! * `between.rs`: operations of others between two accesses of an operation.
//! * `paused.rs`, `stopped.rs`: threads that stop for a while, or for ever.
//! * `exhaustion.rs`, `allocation_failure.rs`, `in_place.rs`, `full_pool.rs`: full pools.
//! * `undurable.rs`: reads of data that a power cut may still lose.
//! * `soak.rs`: many threads, many records.
//! * `common/`: trees and scenarios for all of them.
//!
//! One program, since several would each compile the tree for every domain.

mod common;

mod allocation_failure;
mod between;
mod conformance;
mod crash;
mod exhaustion;
mod full_pool;
mod generations;
mod in_place;
mod kill;
mod paused;
mod soak;
mod stopped;
mod traps;
mod undurable;
