// The tests, included by one file for each algorithm.

#[path = "blocks.rs"]
mod blocks;
#[path = "calls.rs"]
mod calls;
#[path = "committed_pending.rs"]
mod committed_pending;
#[path = "common.rs"]
mod common;
#[path = "costs.rs"]
mod costs;
#[path = "counters.rs"]
mod counters;
#[path = "crash.rs"]
mod crash;
#[path = "damaged.rs"]
mod damaged;
#[path = "exhaustion.rs"]
mod exhaustion;
#[path = "late.rs"]
mod late;
#[path = "order.rs"]
mod order;
#[path = "processes.rs"]
mod processes;
#[path = "readers.rs"]
mod readers;
#[path = "reopening.rs"]
mod reopening;
#[path = "stopped.rs"]
mod stopped;
