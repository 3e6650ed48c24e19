//! Range leaves: leaves of a B+-tree whose records have keys and values of eight bytes, in buckets
//! of neighbouring keys.
//!
//! A get reads the head of the leaf and the two lines of the key's bucket. The link to the leaf
//! tells which bucket that probably is, so all of these lines are requested at once. An insert, an
//! update and a delete change one line.
//!
//! It uses `pando-inner` (the nodes above), `pando-tree`, `pando-pmwcas` and `pando-pmem`. An index
//! decides which of its leaves are of this kind.
//!
//! * [`layout`](mod@layout): the bytes and the words. `leaf.rs`: reads, and what they check.
//! * `get.rs`: gets that need no context.
//! * `scan.rs`: how a scan copies records in the order of their keys.
//! * `write.rs`: inserts, updates, deletes. `closing.rs`: how a leaf is closed.
//! * `flush_counter.rs`: values that may not be durable, and how a reader finds that out.
//! * `build.rs`: new leaves. `audit.rs`: checks for `check` and `stat`.
//!
//! # States
//!
//! ```text
//! key word     free ── taken, for a key ── another class ── another class ── ...
//!                └──── closed                                never changes again
//! value word   empty ── present ⇄ deleted ── moved           until it gets the closed bit; then it
//!                └────────────────────────── moved           changes only in write_closed
//! status       n ── n + 1 ── ... ── frozen
//! ```
//!
//! The deciding word of a write is the value word of the key's current slot; that of a replacement
//! is the child word of the node above, with the status among the words of the same PMwCAS.

mod audit;
mod build;
mod closing;
mod flush_counter;
mod get;
mod layout;
mod leaf;
mod scan;
mod write;

pub use build::{Bounds, build, bytes_for, bytes_of, capacity};
pub use closing::Closed;
pub use get::{Seen, see};
pub use layout::{MAX_LEAF_BYTES, Pair, predicted_at};
pub use leaf::{Count, RangeLeaf};
pub use scan::Copied;
pub use write::{Written, check};
