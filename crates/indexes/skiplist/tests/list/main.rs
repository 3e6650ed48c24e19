//! The list, as an index and as what a crash, a pause or a full pool leaves of it.
//!
//! * `conformance.rs`: the suite that every index passes.
//! * `traps.rs`: defects that others shipped. `damage.rs`: what a walk finds in a list that is not
//!   sound, or not at rest.
//! * `between.rs`: what others do between two accesses of an operation.
//!
//! One program, since each would compile the list for every domain again.

mod common;

mod between;
mod conformance;
mod damage;
mod traps;
