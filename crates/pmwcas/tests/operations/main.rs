//! PMwCAS from outside: its calls, its policies, many threads, a crash at every write, threads
//! that stop for ever or come late.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod blocks;
mod callbacks;
mod calls;
mod common;
mod counters;
mod crash;
mod damaged;
mod exhaustion;
mod late;
mod maps;
mod order;
mod readers;
mod reopening;
mod stopped;
