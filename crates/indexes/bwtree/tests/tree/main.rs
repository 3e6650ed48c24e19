//! The tree, as an index and as what a crash, a pause or a full pool leaves of it.
//!
//! * `conformance.rs`: the suite that every index passes.
//! * `traps.rs`: defects that others shipped; `merges.rs`: how far merges go; `damage.rs`: what
//!   rots; `exhaustion.rs`: a pool that is full.
//! * `between.rs`: what others do between two accesses of an operation.
//!
//! One program, since each would compile the tree for every domain again.

mod common;

mod between;
mod conformance;
mod damage;
mod exhaustion;
mod merges;
mod traps;
