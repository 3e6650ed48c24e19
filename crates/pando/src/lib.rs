//! Ordered key-value maps that many threads write at once without a lock, that a `kill -9` at any
//! instruction neither corrupts nor blocks, and that are open again in a fraction of a millisecond
//! (on tmpfs; a disk takes its sync besides) whatever their size.
//!
//! This crate is the public API of the library. It stands on `pando-pmem` (the pool),
//! `pando-pmwcas` (multi-word compare-and-swap) and the crates of the indexes, and picks among
//! persistence domains and kinds of index at run time, so that a program names neither in its
//! types. The `pando` command stands on it, but for `bench` and `serve`.
//!
//! A [`Pool`] is one file, or anonymous memory. It holds named [`Map`]s from byte strings to byte
//! strings, ordered bytewise. [`TypedMap`] puts keys of Rust's own types on top, in an encoding
//! that keeps their order.
//!
//! ```
//! use pando::{Pool, PoolOptions};
//!
//! # let folder = tempfile::tempdir()?;
//! # std::env::set_current_dir(&folder)?;
//! let pool = Pool::open_or_create("grove.pool", &PoolOptions::new())?;
//! let trees = pool.map("trees")?;
//!
//! trees.insert(b"aspen", b"Populus tremuloides")?;
//! trees.upsert(b"oak", b"Quercus robur")?;
//! assert_eq!(trees.get(b"aspen")?.as_deref(), Some(&b"Populus tremuloides"[..]));
//!
//! for record in trees.prefix(b"a", pando::Order::Ascending)? {
//!     let (key, _value) = record?;
//!     assert_eq!(key, b"aspen");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! * Each operation on one key is linearizable, and what has returned `Ok` survives what the
//!   pool's persistence domain survives: [`Pool::stat`] says what that is on the medium found.
//! * A scan is no snapshot: its keys strictly ascend (or descend), and each record is one that was
//!   there at some instant of the scan. A key that is there throughout appears, and one that never
//!   is does not ([`Scan`]).
//! * No operation on a map waits for another thread. Opening, creating and dropping maps, and
//!   closing the pool, wait for each other. One exception: the process's memory allocator. `get`
//!   asks it for the value that it returns, a scan for its buffers, a thread at its first use of a
//!   pool for its own lists, and a remove at times for a longer list of blocks to be reused. Most
//!   allocators, glibc's too, take locks. A thread that is stopped within one holds up each thread
//!   that needs the same lock, until it goes on.
//! * [`Pool`] lists the limits, and what a program must not do (fork, copy, truncate).
//! * Every failure is a value of [`Error`] with what was found, what is allowed and what to do
//!   next. Nothing panics on input.

mod engine;
mod error;
mod indexes;
mod key;
mod map;
mod options;
mod pool;
mod report;
mod scan;
mod shared;
mod typed;

pub use error::Error;
pub use indexes::{IndexInfo, OptionInfo, indexes};
pub use key::{AsKey, Key, KeyError};
pub use map::Map;
pub use options::{DomainChoice, MapOptions, PoolOptions};
pub use pando_index::{KeyRange, Limits, Order, Record, Upserted};
pub use pool::Pool;
pub use report::{
    AllocatorStat, CheckReport, Compacted, MapFigures, MapInfo, MapStat, ParticipantStat, PoolStat,
    Problem, ProblemClass, Promise, RecoveryStat,
};
pub use scan::{OwnedRecord, Scan};
pub use typed::{TypedMap, TypedScan};
