//! A store of records on any disk that may be larger than memory (Bw-tree paper, section V).
//!
//! The records are in one Bw-tree, whose pages are in a log-structured store (`pando-lss`). A pool
//! of process memory is the cache: it has some of the pages, and ends with the process
//! (`pando-bwtree`, `stored.rs`, has the states of a page, and what a thread that stops leaves).
//!
//! # What survives
//!
//! | failure | what the store has after the next opening |
//! | --- | --- |
//! | the process is killed, or the power is cut | each write that returned before a [`sync`](Store::sync) or [`checkpoint`](Store::checkpoint) began that has returned; and of each later write all or nothing, one record independently of others |
//! | a write or a sync of the device fails | the same; until the next opening the store takes no writes that need the device |
//!
//! So between two syncs a kill may lose writes. There is no write-ahead log below the store yet.
//!
//! # Room
//!
//! The pages in memory take no more than the cache is given. If an operation finds no room, its
//! thread evicts pages that were not used since the last pass. Those that have changed are written
//! first. Inner pages go last. The thread waits for the device then, and so does a thread that
//! needs an absent page. Besides, groups are written by one thread at a time (`pando-lss`), and a
//! thread that finds no room in a full cache gives other threads time to let go of evicted pages.
//!
//! * `store.rs`: opening, syncing, checking. `cache.rs`: eviction and writing.

mod cache;
mod error;
mod store;

pub use cache::CacheStat;
pub use error::{Error, Result};
pub use pando_bwtree::Options as TreeOptions;
pub use store::{Store, StoreOptions, StoreStat};
