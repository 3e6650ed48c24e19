//! One scenario of one subject in one domain: its runs, and the crashes of each run.
//!
//! A run opens the prepared pool. Several logical threads perform their operations at the same
//! time, and the run keeps their answers. Then three things are checked:
//!
//! * the invariants of the subject at the end of the run;
//! * whether some order of the operations explains the answers and the final state
//!   (linearizability);
//! * each image that a crash of the run could leave (durable linearizability: an operation that had
//!   returned has taken effect, and an operation in flight has taken effect or not).

mod any_subject;
mod lab;
mod plan;
mod playback;
mod run;
mod without;

pub use lab::Lab;
pub use plan::{Crashes, Plan, Tally, Trial};
