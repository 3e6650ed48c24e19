//! A sorted array behind one word, copied on every write: the smallest index that keeps the
//! contract, to be read by who writes the next one (`docs/adding-an-index.md`).
//!
//! It stands where every index stands: on `pando-pmwcas` and `pando-pmem`, under the
//! contract of `pando-index`. No user should pick it: a write costs as much as the map is long. It
//! is in no program unless the cargo feature `sorted-array` asks for it; the tests do.
//!
//! # Protocol
//!
//! The map's entry word names the block of the array ([`array`](mod@array) draws it), which never
//! changes. A write
//!
//! | step | a crash leaves | recovery |
//! | --- | --- | --- |
//! | reads the entry word, copies the array with one record more, less or other | nothing | |
//! | reserves a block, writes the copy, flushes it | a reserved block | free, by the allocator |
//! | swaps the entry word from the old block to the new by a PMwCAS that owns both | old or new | by PMwCAS: the other one is freed |
//!
//! and begins again if the swap fails: then another write has succeeded. So it is lock-free, and
//! the swap is where an operation takes effect. A reader sees one array as long as it is pinned:
//! the epoch keeps a block that was replaced.
//!
//! * `array.rs`: the block. `index.rs`: the operations, and what pools ask of an index.
//!   `cursor.rs`: scans.

pub mod array;
mod cursor;
mod index;

pub use index::{SortedArray, SortedArrays};
