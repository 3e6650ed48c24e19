//! NBTree (Zhang, Zheng, Qi, Huang; `nbtree.txt`): a latch-free B+-tree whose leaves have their
//! records in the pool and all else in process memory, so that an operation writes one line of the
//! pool and reads one.
//!
//! It stands on `pando-pmem` and `pando-pmwcas`, and keeps the contract of
//! `pando-index`. It owns blocks of the pool, reached from one entry word, and memory of the
//! process that has opened the pool.
//!
//! * [`layout`](mod@layout): the block of a leaf, drawn byte by byte. `record.rs`: records with
//!   blocks of their own.
//! * `volatile/`: what is in process memory; `layers.rs`: how handles share it.
//!   `separator.rs`: keys as these see them.
//! * `tree.rs`: the descent and the search. `write.rs`: inserts, updates, deletes. `cursor.rs`:
//!   scans.
//! * `smo.rs`: splits, consolidations, drops. `install.rs`: changes of inner nodes.
//! * `recovery/`: how process memory is rebuilt. `audit.rs`: what `check` and `stat` see.
//!   `index.rs`: the tree as a map of a pool; `options.rs`: what can be set of it.
//!
//! # Where a change is decided
//!
//! | what | by which word | where | durable by |
//! | --- | --- | --- | --- |
//! | an insert | the leaf's `control`, then the value word | memory, pool | the slot's line |
//! | an update, a delete | the value word | pool | its line |
//! | a split, a consolidation, a drop | the predecessor's `next`, by a PMwCAS | pool | PMwCAS |
//! | an inner node | the slot that leads to it | memory | nothing: rebuilt |
//!
//! # One process
//!
//! What is in process memory decides inserts, so two processes cannot use one tree at the same
//! time. A pool is open in one process at a time, and a second one is refused by the pool's lock,
//! with an error that says so; this kind of map needs that also if others should come not to.
//!
//! # Who stops, and who waits
//!
//! Nobody waits. A thread that stops for ever, at any instruction, costs the others: the slot that
//! it has claimed, until the leaf is replaced; a write-back of the line that it was about to write
//! back, for each read of that slot (`Adr` alone); the blocks and nodes that wait for its epoch,
//! and those of a replacement that it was about to make. Opening is the exception: who opens a map
//! of this kind waits for another that is just building its layers. Replacements that it has begun
//! are completed by those who need them.

mod audit;
mod cursor;
mod index;
mod install;
mod layers;
mod layout;
mod options;
mod record;
mod recovery;
mod separator;
mod smo;
mod teardown;
mod tree;
mod volatile;
mod write;

pub use index::NbTrees;
pub use layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use options::Options;
pub use tree::NbTree;
