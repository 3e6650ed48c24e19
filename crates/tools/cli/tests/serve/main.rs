//! `pando serve` as a process: what a kill leaves, how it is recovered, and how it
//! gives way to its successor.

mod configuration;
mod hand_over;
mod kill;
mod log;
mod recover;
mod server;
mod stalled;
mod store;
