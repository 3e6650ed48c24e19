//! The tree, as an index and as what a crash, a pause or a full pool leaves of it.
//!
//! * `conformance.rs`: the suite that every index passes. `fixed.rs`: trees whose records have eight bytes.
//! * `table3.rs`: what operations take, beside the paper's formulas.
//! * `traps.rs`: defects that others shipped.
//! * `between.rs`: what others do between any two steps of an operation.
//! * `common/`: trees for all of them.
//!
//! One program, since each would compile the tree for every domain again.

mod common;

mod between;
mod conformance;
mod fixed;
mod table3;
mod traps;
