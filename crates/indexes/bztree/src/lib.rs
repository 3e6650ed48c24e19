//! BzTree (Arulraj, Levandoski, Minhas, Larson; `bztree.txt`): a latch-free B+-tree whose changes
//! are published by a CAS of one word or a PMwCAS of several, so that the same code serves volatile
//! and persistent memory and has no recovery of its own.
//!
//! It stands on `pando-pmwcas` and `pando-pmem`, and keeps the contract of
//! `pando-index`. It owns nothing but blocks of the pool, reached from one entry word.
//!
//! * [`layout`](mod@layout): nodes drawn byte by byte; `meta.rs`: the words of a leaf that change.
//! * `node.rs`, `leaf.rs`: nodes as they are read; `build.rs`: nodes as they are made.
//! * `tree.rs`: the descent. `cursor.rs`: scans. `many.rs`: gets of many keys.
//! * `claim.rs`: claims of a leaf's slots, and its closing (`closing.rs`). `write.rs`: inserts and
//!   updates; `modify.rs`: a look and a write in one; `delete.rs`: deletes. `smo/`: consolidation,
//!   split, merge, and what is given back when the pool is full (`rounds.rs`: how far);
//!   `install.rs`: how that is put in place.
//! * `bounds.rs`: checks of a whole node before it is copied. `audit.rs`: what `check` and `stat`
//!   see; `teardown.rs`: the end of a tree. `index.rs`: the tree as a map of a pool;
//!   `options.rs`: what can be set of it.
//!
//! Where the paper is silent, or where we do otherwise, the page on top of the file says so:
//! changes of a leaf that one word decides, inserts that never wait, leaves without a status,
//! versions in the status of inner nodes.

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
