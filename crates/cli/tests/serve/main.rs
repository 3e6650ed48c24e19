//! `pando serve` as a process: what a kill leaves, and how it gives way to its successor.

mod hand_over;
mod kill;
mod server;
