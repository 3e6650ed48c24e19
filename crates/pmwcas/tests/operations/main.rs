//! PMwCAS from outside: its calls, its policies, many threads, a crash at every write, threads
//! that stop for ever or come late.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use pando_pmwcas::Algorithm;

/// `tests/rdcss.rs` runs the same by the other.
const ALGORITHM: Algorithm = Algorithm::Direct;

mod blocks;
mod callbacks;
mod calls;
mod common;
mod costs;
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
