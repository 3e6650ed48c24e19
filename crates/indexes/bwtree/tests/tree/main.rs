//! Tests of the tree as an index, and after a crash, a pause or in a full pool.
//!
//! * `conformance.rs`: the suite that every index passes.
//! * `traps.rs`: defects of other systems; `merges.rs`: which pages are merged; `damage.rs`:
//!   damaged words; `exhaustion.rs`: full pools.
//! * `between.rs`: operations of others between two accesses of an operation.
//!
//! One program, since several would each compile the tree for every domain.

mod common;

mod between;
mod blind;
mod conformance;
mod damage;
mod exhaustion;
mod merges;
mod stored;
mod traps;
