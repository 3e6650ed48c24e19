//! What the fuzzer runs. Each target takes bytes, makes something of them, and panics if what must
//! hold does not. The fuzzer itself stands in `fuzz/`, for the nightly toolchain; here, stable Rust
//! replays the corpus that it left (`tests/corpus.rs`).
//!
//! | target | what the bytes are | what must hold |
//! | --- | --- | --- |
//! | [`operations`] | operations on a map, closes and kills between them | the map is as a `BTreeMap` |
//! | [`open_pool`] | damage to the file of a pool | an error, a report, or a sound pool |
//! | [`catalog`] | words of a pool's catalog, and headers of its maps | the same |
//! | [`load_formats`] | a text to be loaded | what is dumped is loaded as it was |
//! | [`redis`] | what a client of the Redis protocol sends | whole replies, a sound pool |
//! | [`memcached`] | what a client of the memcached protocol sends | the same |
//! | [`snapshot`] | a server's snapshot | it is refused, or restored |
//!
//! A target neither hangs nor touches memory outside of a pool's mapping: the fuzzer sees to that.

mod catalog;
mod damaged;
mod images;
mod input;
mod load_formats;
mod open_pool;
mod operations;
mod scratch;
mod server;

pub use catalog::catalog;
pub use load_formats::load_formats;
pub use open_pool::open_pool;
pub use operations::operations;
pub use server::{memcached, redis, snapshot};

/// A target, by the name of its corpus.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 7] = [
    ("operations", operations),
    ("open_pool", open_pool),
    ("catalog", catalog),
    ("load_formats", load_formats),
    ("redis", redis),
    ("memcached", memcached),
    ("snapshot", snapshot),
];
