//! Tests of the list as an index, and after a crash, a pause or in a full pool.
//!
//! * `conformance.rs`: the suite that every index passes.
//! * `traps.rs`: defects of other systems. `damage.rs`: walks over a damaged list, and beside
//!   writers.
//! * `between.rs`: operations of others between two accesses of an operation.
//!
//! One program, since several would each compile the list for every domain.

mod common;

mod between;
mod conformance;
mod damage;
mod traps;
