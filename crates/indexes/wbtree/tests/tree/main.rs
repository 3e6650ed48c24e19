//! The tree, as an index and as what a crash, a pause or a full pool leaves of it.
//!
//! * `conformance.rs`: the suite that every index passes. `fixed.rs`: trees whose records have
//!   eight bytes; `narrow.rs`: the suite on them.
//! * `costs.rs`: what operations write, write back and fence, counted.
//! * `traps.rs`: defects that others shipped; `growth.rs`: one of them, a split beside merges.
//! * `between.rs`: what others do between any two steps of an operation.
//! * `damage.rs`: what a walk sees of a damaged tree, and that operations on it end.
//! * `common/`: trees for all of them.
//!
//! One program, since each would compile the tree for every domain again.

mod common;

mod between;
mod conformance;
mod costs;
mod damage;
mod fixed;
mod growth;
mod narrow;
mod traps;
