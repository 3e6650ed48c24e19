//! One scenario of one subject under one domain: runs of it, and the crashes of each run.
//!
//! A run opens the prepared pool, lets several logical threads perform their operations at once,
//! and keeps what they were answered. Then three things are judged: what is there at the end;
//! whether the answers, and the end, are those of some order of the operations (linearizability);
//! and what every crash of the run could leave (durable linearizability: what had returned is
//! there, what was in flight is there or not).

mod lab;
mod plan;
mod playback;
mod run;
mod without;

pub use lab::Lab;
pub use plan::{Crashes, Plan, Tally, Trial};
