//! The Bw-tree of Levandoski, Lomet and Sengupta (`bwtree.txt`, sections III and IV), whose
//! structure changes by PMwCAS (`pmwcas.txt`, section 6.2), so that the same code serves volatile
//! and persistent memory and has no recovery of its own.
//!
//! It stands on `pando-pmwcas` and `pando-pmem`, and keeps the contract of
//! `pando-index`. It owns nothing but blocks of the pool, reached from one entry word.
//!
//! * [`layout`](mod@layout): pages, deltas and the mapping table drawn byte by byte. `table.rs`:
//!   the mapping table, and the life of a PID.
//! * `page.rs`: base pages and deltas as they are read; `gather.rs`: chains, put together;
//!   `build.rs`: pages as they are made; `prepend.rs`: deltas. `context.rs`: what an operation
//!   reads with; keys and values.
//! * `search.rs`: the way to a key. `write.rs`: writes of records, consolidation. `smo.rs`: when
//!   pages are split; `merge.rs`: when they are merged, with the protocol.
//! * `style.rs`: what changing pages means; `multi_word.rs`: by PMwCAS, with the protocol;
//!   with the feature `papers`: `single_word.rs`: by CAS; `single_merge.rs`: merges by CAS;
//!   `single_swap.rs`: their steps.
//! * `races.rs`: how often changes lose a race.
//! * `cursor.rs`: scans both ways. `audit.rs`: what `check` and `stat` see. `teardown.rs`: the end
//!   of a tree. `index.rs`: the tree as a map of a pool; `options.rs`: what can be set of it.
//!
//! Keys have 32 KiB at most, values 1 GiB. Where the paper is silent, or where we do otherwise, the
//! page on top of the file says so: low keys belong to a page and high keys do not; deltas stand
//! beside their base; splits and merges are one step.

mod audit;
mod build;
mod context;
mod cursor;
mod gather;
mod index;
mod layout;
mod merge;
mod multi_word;
mod options;
mod page;
mod prepend;
mod races;
mod search;
#[cfg(feature = "papers")]
mod single_merge;
#[cfg(feature = "papers")]
mod single_swap;
#[cfg(feature = "papers")]
mod single_word;
mod smo;
mod style;
mod table;
mod teardown;
mod tree;
mod write;

pub use layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use options::Options;
pub use races::{Race, Races};
#[cfg(feature = "papers")]
pub use single_swap::{CasBwTrees, SingleWord};
pub use tree::{BwTree, BwTrees, MultiWord};
