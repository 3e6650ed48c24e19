//! Tests of the tree as an index, and after a crash, a pause or in a full pool.
//!
//! * `conformance.rs`: the suite that every index passes. `fixed.rs`: trees whose records have
//!   eight bytes; `narrow.rs`: the suite on them.
//! * `costs.rs`: writes, write-backs and fences of operations, counted.
//! * `traps.rs`: defects of other systems; `growth.rs`: one of them, a split beside merges.
//! * `between.rs`: operations of others between any two steps of an operation.
//! * `damage.rs`: walks over a damaged tree, and the end of operations on it.
//! * `common/`: trees for all of them.
//!
//! One program, since several would each compile the tree for every domain.

mod common;

mod between;
mod conformance;
mod costs;
mod damage;
mod fixed;
mod growth;
mod narrow;
mod traps;
