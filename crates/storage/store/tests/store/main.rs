//! Tests of the store, on simulated directories: of its records without the log (`conformance`,
//! `eviction`, `failures`, `power`), and with it.

mod blind;
mod common;
mod conformance;
mod damaged_list;
mod eviction;
mod failures;
mod logged;
mod maps;
mod openings;
mod power;
mod stable;
mod unchanged;
mod unreadable;
