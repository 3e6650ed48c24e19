//! The tree, as an index and as what a crash or a stopped thread leaves of it.
//!
//! * `conformance.rs`: the suite that every index passes.
//! * `traps.rs`: defects that others shipped.
//! * `recovery.rs`: what is left by a process that dies, at each of its writes, and opened again.
//! * `common/`: trees for all of them.
//!
//! One program, since each would compile the tree for every domain again.

mod between;
mod common;

mod conformance;
mod recovery;
mod traps;
