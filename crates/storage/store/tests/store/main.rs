//! Tests of the store, on a simulated directory.

mod common;
mod conformance;
mod eviction;
mod failures;
mod power;
