//! A store of records on any disk that may be larger than memory (Bw-tree paper, section V).
//!
//! All maps are in one Bw-tree, whose pages are in a log-structured store (`pando-lss`). A pool of
//! process memory is the cache: it has some of the pages, and ends with the process
//! (`pando-bwtree`, `stored.rs`, has the states of a page, and what a thread that stops leaves).
//! Above it is the transaction component (`pando-tc`) with its log. The tail of the log is in a
//! small pool, the file `control`, which survives the process.
//!
//! | in the directory | content |
//! | --- | --- |
//! | `pages/` | the page store |
//! | `log/` | the files of the log |
//! | `control` | the tail of the log |
//! | `lock` | held by the process that uses the store |
//! | `log/lock` | held by the same process, so that no pool takes the log |
//!
//! # What survives
//!
//! | failure | the store has after the next opening |
//! | --- | --- |
//! | the process is killed | each commit that was acknowledged |
//! | the power is cut | each commit that was acknowledged before a [`sync`](Store::sync) began that has returned; and all later ones up to some LSN |
//! | a write or a sync of the device fails | the same; until the next opening the store takes no writes that need the device |
//! | bytes of a page are damaged | the same, but reads of the page are errors; if the log cannot be replayed over it, no checkpoint succeeds, so that the log is kept |
//!
//! # The contract between the components
//!
//! | rule of the paper | here |
//! | --- | --- |
//! | write-ahead logging: a page is flushed when the log is stable up to its last change | a page is flushed at any time, as of the log's durable LSN (`durable.rs` of `pando-tc`); it stays in memory until all of it is durable |
//! | redo start: the data component has all changes up to an LSN | the redo LSN of a checkpoint (`checkpoint.rs`) |
//! | recovery: the structure is consistent before redo | each group of pages leaves a consistent tree (`captures.rs` of `pando-bwtree`) |
//! | redo is repeatable | it writes each version without a look at the one that is there, in the order of LSNs (`replay.rs` of `pando-tc`) |
//!
//! # Room
//!
//! The pages in memory take no more than the cache is given. If an operation finds no room, its
//! thread evicts pages that were not used since the last pass. Those that have changed are written
//! first. Inner pages go last. The thread waits for the device then, and so does a thread that
//! needs an absent page. Besides, groups are written by one thread at a time (`pando-lss`). A
//! thread that finds no room in a full cache waits for a limited time. Meanwhile other threads may
//! let go of evicted pages, and the log may become durable.
//!
//! * `store.rs`: what users call. `opening.rs`: recovery. `checkpoint.rs`, `catalog.rs`.
//! * `maps.rs`: the maps in the tree. `data_component.rs`, `cache.rs`, `defragment.rs`: the tree
//!   and its cache. `skipping.rs`: the replay over damaged pages. `readable.rs`: reads around them.
//!   `unchanged.rs`: an opening that writes nothing. `in_pool.rs`: a store for the crash lab.

mod cache;
mod catalog;
mod checkpoint;
mod data_component;
mod defragment;
mod error;
#[cfg(feature = "testing")]
mod in_pool;
mod maps;
mod opening;
mod readable;
mod skipping;
mod store;
mod unchanged;

pub use cache::CacheStat;
pub use catalog::MAX_NAME_BYTES;
pub use data_component::{DataComponent, DataStat, StoreOptions};
pub use error::{Error, Result, is_out_of_room, unreadable_page};
#[cfg(feature = "testing")]
pub use in_pool::InPool;
pub use maps::{Lent, StoreMaps};
pub use opening::Recovery;
pub use pando_bwtree::Options as TreeOptions;
pub use pando_lss::Space;
pub use store::{MIN_MEMORY_BYTES, ReadableMaps, Store, StoreMap, StoreStat};
