//! The tree, as an index and as what a crash, a pause or a full pool leaves of it.
//!
//! * `conformance.rs`: the suite that every index passes.
//! * `traps.rs`: defects that others shipped.
//! * `crash.rs`, `generations.rs`, `kill.rs`: what is left by a process that dies.
//! * `between.rs`: what others do between two accesses of an operation.
//! * `paused.rs`, `stopped.rs`: threads that stop for a while, or for ever.
//! * `exhaustion.rs`, `allocation_failure.rs`, `in_place.rs`, `full_pool.rs`: no room.
//! * `undurable.rs`: readers of what a power cut may still lose.
//! * `soak.rs`: many threads, many records.
//! * `common/`: trees and scenarios for all of them.
//!
//! One program, since each would compile the tree for every domain again.

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
