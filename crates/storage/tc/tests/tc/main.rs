//! Tests of transactions, over each index: what one transaction sees, threads that run into each
//! other, and threads that are killed or stopped at each write.

mod alone;
mod blind;
mod common;
mod conflicts;
mod conformance;
mod failures;
mod histories;
mod histories_over_cuts;
mod kill;
mod one_key;
mod power;
mod rebuild;
mod reset;
mod snapshots;
mod stopped;
mod stored;
