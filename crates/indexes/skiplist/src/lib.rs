//! The doubly linked, latch-free skip list of Wang, Levandoski and Larson (`pmwcas.txt`, section
//! 6.1), whose links change by PMwCAS, so that the same code serves volatile and persistent memory
//! and has no recovery of its own. And beside it, for measuring, the same list by single-word CAS.
//!
//! It stands on `pando-pmwcas` and `pando-pmem`, and keeps the contract of
//! `pando-index`. It owns nothing but blocks of the pool, reached from one entry word.
//!
//! Who should pick it: a map of small records that is written more than it is scanned, where the
//! slowest write counts: no write moves more than one record, there is no page to consolidate,
//! split or merge, and a remove takes no room. A `bztree` reads and scans quicker, since its
//! records lie side by side.
//!
//! * [`layout`](mod@layout): nodes drawn byte by byte; `state.rs`: the word that says how a node is
//!   linked and where its value is.
//! * `node.rs`: nodes as they are read; `build.rs`: as they are made. `search.rs`: the way to a
//!   key; `hint.rs`: what a word says of where it leads; `height.rs`: how high a node becomes;
//!   `many.rs`: gets of many keys.
//! * `style.rs`: what changing links means; `multi_word.rs`: by PMwCAS, with the protocol;
//!   with the feature `papers`, `single_word.rs`: by CAS.
//! * `write.rs`: inserts, writes of values, removes. `cursor.rs`: scans both ways. `audit.rs`: what
//!   `check` and `stat` see. `teardown.rs`: the end of a list. `index.rs`: the list as a map of
//!   a pool; `options.rs`: what can be set of it.
//!
//! Keys have 32 KiB at most, values 1 GiB. Where the paper is silent, or where we do otherwise, the
//! page on top of the file says so: towers in one block, no back pointers above level 0, values of
//! eight bytes in the node, replaced in place.

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
