//! For tests: recorded histories of transactions.

mod graph;
mod history;
mod recorded;
#[cfg(test)]
mod removals;

pub use history::{Checked, History, Outcome};
pub use recorded::{Access, Id, NONE, Place, Recorded, State, versions};
