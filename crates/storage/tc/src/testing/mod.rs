//! For tests: recorded histories of transactions.

mod graph;
mod history;
mod recorded;

pub use history::{Checked, History, Outcome};
pub use recorded::{Access, Id, NONE, Place, Recorded, State};
