//! A sorted array behind one word, copied on every write: the smallest index that implements the
//! contract. Read it before you write another index (`docs/adding-an-index.md`).
//!
//! Like every index, it uses `pando-tree`, `pando-pmwcas` and `pando-pmem`, and implements the
//! contract of `pando-index`. It is not for users: the cost of a write grows with the map. Programs
//! have it only with the cargo feature `sorted-array`; the tests set it.
//!
//! # Protocol
//!
//! The map's entry word names the block of the array ([`array`](mod@array) draws it), which never
//! changes. A write does this:
//!
//! | step | a crash leaves | recovery |
//! | --- | --- | --- |
//! | read the entry word, copy the array with one record added, removed or changed | nothing | |
//! | reserve a block, write the copy, flush it | a reserved block | free, by the allocator |
//! | swap the entry word from the old block to the new by a PMwCAS that owns both | old or new | by PMwCAS: the other one is freed |
//!
//! If the swap fails, another write has succeeded, and the write starts again. So it is lock-free,
//! and an operation takes effect at the swap. A reader sees one array as long as it is pinned,
//! because the epoch protects a replaced block.
//!
//! * `array.rs`: the block. `index.rs`: the operations, and the traits of an index. `cursor.rs`:
//!   scans.

pub mod array;
mod cursor;
mod index;

pub use index::{SortedArray, SortedArrays};
