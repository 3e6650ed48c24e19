//! The same as `operations`, by the paper's algorithm.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use pando_pmwcas::Algorithm;

const ALGORITHM: Algorithm = Algorithm::Rdcss;

#[path = "operations/blocks.rs"]
mod blocks;
#[path = "operations/callbacks.rs"]
mod callbacks;
#[path = "operations/calls.rs"]
mod calls;
#[path = "operations/common.rs"]
mod common;
#[path = "operations/costs.rs"]
mod costs;
#[path = "operations/counters.rs"]
mod counters;
#[path = "operations/crash.rs"]
mod crash;
#[path = "operations/damaged.rs"]
mod damaged;
#[path = "operations/exhaustion.rs"]
mod exhaustion;
#[path = "operations/late.rs"]
mod late;
#[path = "operations/maps.rs"]
mod maps;
#[path = "operations/order.rs"]
mod order;
#[path = "operations/readers.rs"]
mod readers;
#[path = "operations/reopening.rs"]
mod reopening;
#[path = "operations/stopped.rs"]
mod stopped;
