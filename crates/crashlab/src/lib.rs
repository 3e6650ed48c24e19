//! Proof by trial: every crash, every schedule, kills and power cuts of Pando.
//!
//! Each verb of the command has a module of its own, with its arguments and what it does.

pub mod failure;
pub mod kill;
pub mod powercut;
pub mod progress;
