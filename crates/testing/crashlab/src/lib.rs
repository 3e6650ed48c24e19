//! Tests of Pando by crashes, schedules of threads, kills of processes and power cuts.
//!
//! Each verb of the command has a module with its arguments and its work.

mod campaign;
pub mod explore;
mod failure;
pub mod kill;
mod lab;
pub mod mutate;
pub mod powercut;
mod progress;
pub mod schedule;
mod subjects;
pub mod totals;
mod trial;
