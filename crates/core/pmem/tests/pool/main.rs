//! The pool from outside: bad input, exhaustion, the allocator, epochs, and a crash at every write.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod allocation_failure;
mod allocator;
mod allocator_crash;
mod allocator_random;
mod bad_input;
mod census;
mod common;
mod epochs;
mod exhaustion;
mod forks;
mod golden_layout;
mod holds;
mod holes;
mod killed;
mod machine_down;
mod participants;
mod processes;
mod thread_ends;
