//! The NBTree of Zhang, Zheng, Qi and Huang: a lock-free (latch-free) B+-tree whose leaves have
//! their records in the pool and everything else in process memory. So an operation writes one line
//! of the pool and reads one.
//!
//! It uses `pando-tree`, `pando-pmem` and `pando-pmwcas`, and implements the contract of
//! `pando-index`. It has blocks of the pool, reachable from one entry word, and memory of the
//! process that has opened the pool.
//!
//! * [`layout`](mod@layout): the bytes of a leaf's block. `record.rs`: records with blocks of their
//!   own.
//! * `volatile/`: the layers in process memory; `layers.rs`: how handles share them.
//!   `separator.rs`: keys as these layers see them.
//! * `tree.rs`: the descent and the search. `write.rs`: inserts, updates, deletes. `cursor.rs`:
//!   scans.
//! * `smo.rs`: splits, consolidations, drops. `install.rs`: changes of inner nodes.
//! * `recovery/`: how process memory is rebuilt. `audit.rs`: the walk for `check` and `stat`.
//!   `index.rs`: the tree as a map of a pool; `options.rs`: its options.
//!
//! # Where a change is decided
//!
//! | change | deciding word | where it is | made durable by |
//! | --- | --- | --- | --- |
//! | an insert | the leaf's `control`, then the value word | memory, pool | the slot's line |
//! | an update, a delete | the value word | pool | its line |
//! | a split, a consolidation, a drop | the predecessor's `next`, by a PMwCAS | pool | PMwCAS |
//! | an inner node | the slot that leads to it | memory | nothing: rebuilt |
//!
//! # One process
//!
//! Process memory decides inserts, so two processes cannot use one tree at the same time. A pool
//! that processes share refuses maps of this index (`Tree::IS_SHAREABLE`).
//!
//! # When a thread stops
//!
//! No thread waits. A thread that stops for ever has these costs for the others. Its claimed slot
//! is lost until the leaf is replaced. In `Adr`, each read of a slot that it was about to write
//! back writes back the line. The blocks and nodes that wait for its epoch are not reused, nor
//! those of a replacement that it was preparing. Threads that need the replacement complete it.
//! Opening is the exception: a thread that opens a map of this kind waits for another one that is
//! building its layers.

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
