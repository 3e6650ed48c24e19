//! The targets of the fuzzer. A target interprets bytes as input, and panics if a check fails. The
//! fuzzer itself is in `fuzz/`, for the nightly toolchain. Here stable Rust replays its corpus
//! (`tests/corpus.rs`).
//!
//! | target | input | check |
//! | --- | --- | --- |
//! | [`operations`] | operations on a map, with closes and kills between them | the map equals a `BTreeMap` |
//! | [`open_pool`] | damage to the file of a pool | an error, a report, or a consistent pool |
//! | [`catalog`] | words of a pool's catalog, and headers of its maps | the same |
//! | [`log`] | damage to the files of a log | an error, or a recovered pool that is consistent |
//! | [`page_store`] | damage to the files of a page store | an error, or a store that tells its damaged pages |
//! | [`store`] | pages of a store, with right checksums | operations end, with an answer or an error |
//! | [`load_formats`] | a text to be loaded | a dump of the records loads to the same records |
//! | [`redis`] | requests of a client of the Redis protocol | complete replies, a consistent pool |
//! | [`memcached`] | requests of a client of the memcached protocol | the same |
//! | [`snapshot`] | a server's snapshot | it is refused, or restored |
//!
//! The fuzzer also finds targets that hang, or that access memory outside a pool's mapping.

mod catalog;
mod damaged;
mod images;
mod input;
mod load_formats;
mod log;
mod open_pool;
mod operations;
mod page_store;
mod scratch;
mod server;
mod store;

pub use catalog::catalog;
pub use load_formats::load_formats;
pub use log::log;
pub use open_pool::open_pool;
pub use operations::operations;
pub use page_store::page_store;
pub use server::{memcached, redis, snapshot};
pub use store::store;

/// A target, by the name of its corpus.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 10] = [
    ("operations", operations),
    ("open_pool", open_pool),
    ("catalog", catalog),
    ("log", log),
    ("page_store", page_store),
    ("store", store),
    ("load_formats", load_formats),
    ("redis", redis),
    ("memcached", memcached),
    ("snapshot", snapshot),
];
