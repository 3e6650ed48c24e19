//! The BzTree of Arulraj, Levandoski, Minhas and Larson: a latch-free B+-tree. It publishes each
//! change by a CAS of one word, or by a PMwCAS of several. So the same code serves volatile and
//! persistent memory, and the index has no recovery of its own.
//!
//! It uses `pando-tree`, `pando-pmwcas` and `pando-pmem`, and implements the contract of
//! `pando-index`. Its whole state is in blocks of the pool, reachable from one entry word.
//!
//! * [`layout`](mod@layout): the bytes of nodes; `meta.rs`: the words of a leaf that change.
//! * `node.rs`, `leaf.rs`: reads of nodes; `build.rs`: construction of nodes.
//! * `tree.rs`: the descent. `cursor.rs`: scans. `many.rs`: gets of many keys.
//! * `claim.rs`: claims of a leaf's slots, and its closing (`closing.rs`). `write.rs`: inserts and
//!   updates; `modify.rs`: a read and a write as one operation; `delete.rs`: deletes. `smo/`:
//!   consolidation, split, merge, and the room that they give back when the pool is full
//!   (`rounds.rs`: how far); `install.rs`: how their new nodes are installed.
//! * `bounds.rs`: checks of a whole node before it is copied. `audit.rs`: the walk for `check` and
//!   `stat`; `teardown.rs`: the blocks of a dropped tree. `index.rs`: the tree as a map of a pool;
//!   `options.rs`: its options.
//!
//! Where the paper is silent, or where this code differs from it, the top of the file says so. The
//! main differences: one word decides each change of a leaf; inserts never wait; leaves have no
//! status; the status of an inner node has a version.

mod audit;
mod bounds;
mod build;
mod candidate;
mod claim;
mod closing;
mod cursor;
mod delete;
mod index;
mod install;
mod layout;
mod leaf;
mod many;
mod meta;
mod modify;
mod node;
mod options;
mod rounds;
mod slices;
mod smo;
mod teardown;
mod tree;
mod write;

pub use index::BzTrees;
pub use layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use options::{Options, ValueMode};
pub use tree::BzTree;
