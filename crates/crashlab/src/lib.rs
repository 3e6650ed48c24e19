//! Proof by trial: every crash, every schedule, kills and power cuts of Pando.
//!
//! Each verb of the command has a module of its own, with its arguments and what it does.

pub mod campaign;
pub mod explore;
pub mod failure;
pub mod kill;
pub mod lab;
pub mod mutate;
pub mod powercut;
pub mod progress;
pub mod schedule;
pub mod subjects;
pub mod trial;
