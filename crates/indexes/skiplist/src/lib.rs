//! The doubly linked, lock-free (latch-free) skip list of Wang, Levandoski and Larson (section 6.1
//! of the PMwCAS paper). Its links change by PMwCAS, so the same code serves volatile and
//! persistent memory, and the index has no recovery of its own. For measurements there is also the
//! same list by single-word CAS.
//!
//! It uses `pando-tree`, `pando-pmwcas` and `pando-pmem`, and implements the contract of
//! `pando-index`. Its whole state is in blocks of the pool, reachable from one entry word.
//!
//! When to choose it: for a map of small records with more writes than scans, if the slowest write
//! counts. No write moves more than one record, there is no page to consolidate, split or merge,
//! and a remove takes no room. A `bztree` reads and scans faster, since its records lie side by
//! side.
//!
//! * [`layout`](mod@layout): the bytes of nodes; `state.rs`: the word that says how a node is
//!   linked and where its value is.
//! * `node.rs`: reads of nodes; `build.rs`: new nodes. `search.rs`: the search for a key;
//!   `hint.rs`: hints in a word about the next key; `height.rs`: the height of a node; `many.rs`:
//!   gets of many keys.
//! * `style.rs`: the interface of changes of links; `multi_word.rs`: by PMwCAS, with the protocol;
//!   with the feature `papers`, `single_word.rs`: by CAS.
//! * `write.rs`: inserts, writes of values, removes. `cursor.rs`: scans in both directions.
//!   `audit.rs`: the walk for `check` and `stat`. `teardown.rs`: the blocks of a dropped list.
//!   `index.rs`: the list as a map of a pool; `options.rs`: its options.
//!
//! Keys have at most 32 KiB, values 1 GiB. Where the paper is silent, or where this code differs
//! from it, the top of the file says so. The main differences: towers in one block, no back
//! pointers above level 0, values of eight bytes in the node, replaced in place.

mod audit;
mod build;
mod cursor;
mod height;
mod hint;
mod index;
mod layout;
mod list;
mod many;
mod multi_word;
mod node;
mod options;
mod search;
#[cfg(feature = "papers")]
mod single_word;
mod state;
mod style;
mod teardown;
mod write;

pub use layout::{MAX_HEIGHT, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use list::{MultiWord, SkipList, SkipLists};
pub use options::Options;
#[cfg(feature = "papers")]
pub use single_word::{CasSkipLists, SingleWord};
