//! Proof by trial: every crash, every schedule, kills and power cuts of Pando.
//!
//! Each verb of the command has a module of its own, with its arguments and what it does.

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
mod trial;
