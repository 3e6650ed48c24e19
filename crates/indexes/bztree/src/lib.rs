//! The BzTree of Arulraj, Levandoski, Minhas and Larson: a lock-free (latch-free) B+-tree. It
//! publishes each change by a CAS of one word, or by a PMwCAS of several. So the same code serves
//! volatile and persistent memory, and the index has no recovery of its own.
//!
//! It uses `pando-inner` (its inner nodes), `pando-tree`, `pando-pmwcas` and `pando-pmem`, and
//! implements the contract of `pando-index`. Its whole state is in blocks of the pool, reachable
//! from one entry word.
//!
//! * [`layout`](mod@layout): the bytes of leaves; `meta.rs`: the words of a leaf that change.
//! * `ranged.rs`: leaves of another kind, if keys and values have eight bytes. `content.rs`: the
//!   records of a leaf of either kind, for copies.
//! * `leaf.rs`: reads of leaves; `build.rs`: construction of leaves. `node.rs`: what a descent
//!   needs to know. `tree.rs`: the way to a leaf. `cursor.rs`: scans. `many.rs`: batches of keys.
//! * `claim.rs`: claims of a leaf's slots, and its closing (`closing.rs`). `write.rs`: inserts and
//!   updates; `modify.rs`: a read and a write as one operation; `delete.rs`: deletes. `smo/`:
//!   consolidation, split and merge of leaves, and the room that they give back when the pool is
//!   full (`rounds.rs`: how far).
//! * `bounds.rs`: checks of a whole leaf before it is copied. `audit.rs`: leaves for `check` and
//!   `stat`; `teardown.rs`: their blocks, when the tree is dropped. `index.rs`: the tree as a map
//!   of a pool; `options.rs`: its options.
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
mod content;
mod cursor;
mod delete;
mod index;
mod layout;
mod leaf;
mod many;
mod meta;
mod modify;
mod node;
mod options;
mod ranged;
mod rounds;
mod smo;
mod teardown;
mod tree;
mod write;

pub use index::BzTrees;
pub use layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use options::{Numbers, Options, ValueMode};
pub use tree::BzTree;
