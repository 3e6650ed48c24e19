//! Tests of the tree as an index, and after a crash or with a stopped thread.
//!
//! * `conformance.rs`: the suite that every index passes.
//! * `traps.rs`: defects of other systems.
//! * `recovery.rs`: a process that dies at each of its writes, and the next opening.
//! * `common/`: trees for all of them.
//!
//! One program, since several would each compile the tree for every domain.

mod between;
mod common;

mod conformance;
mod recovery;
mod traps;
