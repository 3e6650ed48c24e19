//! Ordered key-value maps that survive crashes. Many threads write at once, lock-free (latch-free).
//! A `kill -9` at any instruction neither corrupts nor blocks a map. A pool of any size opens in a
//! fraction of a millisecond on tmpfs; on a disk, one sync is added.
//!
//! This crate is the public API of the library. It uses `pando-pmem` (the pool), `pando-pmwcas`
//! (multi-word compare-and-swap) and the crates of the indexes. It picks the persistence domain and
//! the index at run time, so a program names neither in its types. The `pando` command uses this
//! crate, except for `bench` and `serve`.
//!
//! A [`Pool`] is one file, or anonymous memory. It holds named [`Map`]s from byte strings to byte
//! strings, ordered bytewise. [`TypedMap`] puts keys of Rust's own types on top, in an encoding
//! that keeps their order, and values of Rust's types. With the feature `json`, values may have any
//! type of serde.
//!
//! ```
//! use pando::{Pool, PoolOptions};
//!
//! # let folder = tempfile::tempdir()?;
//! # std::env::set_current_dir(&folder)?;
//! let pool = Pool::open_or_create("grove.pool", &PoolOptions::new())?;
//! let trees = pool.map("trees")?;
//!
//! trees.insert("aspen", "Populus tremuloides")?;
//! trees.upsert("oak", "Quercus robur")?;
//! assert_eq!(trees.get("aspen")?.as_deref(), Some(&b"Populus tremuloides"[..]));
//!
//! for record in trees.prefix("a") {
//!     let (key, _value) = record?;
//!     assert_eq!(key, b"aspen");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! * Each operation on one key is linearizable. A write that has returned `Ok` survives everything
//!   that the pool's persistence domain survives. [`Pool::stat`] reports this for the medium found.
//! * A scan is not a snapshot. Its keys strictly ascend (or descend), and each record was in the
//!   map at some instant of the scan. A key that is present during the whole scan appears. A key
//!   that is absent during the whole scan does not ([`Scan`]).
//! * Transactional maps have transactions over several keys ([`Transaction`]), and snapshots, whose
//!   scans return the records of one moment ([`Snapshot`]).
//! * No operation on a map waits for another thread. Opening, creating and dropping maps, and
//!   closing the pool, wait for each other.
//! * One exception is the process's memory allocator, which takes locks in most systems, also in
//!   glibc. `get` allocates the value that it returns, a scan its buffers, and a thread its lists
//!   when it first uses a pool. A remove sometimes allocates a longer list of blocks to be reused.
//!   A thread that stops inside the allocator delays each thread that needs the same lock.
//! * [`Pool`] lists the limits, and what a program must not do (fork, copy, truncate).
//! * Every failure is a value of [`Error`]. It says what was found, what is allowed and what to do
//!   next. Nothing panics on input.

mod conversion;
mod engine;
mod entry;
mod error;
mod indexes;
#[cfg(feature = "json")]
mod json;
mod key;
mod log_files;
mod map;
mod map_cursors;
mod online_check;
mod options;
mod ordered;
mod pin;
mod pool;
mod pool_maps;
mod power_safety;
mod report;
mod salvage;
mod scan;
mod session;
mod shared;
mod snapshot;
mod store;
mod store_files;
mod transaction;
mod typed;
mod typed_entry;
mod typed_scan;
mod value;
mod write_batch;

#[doc(hidden)]
pub use engine::compiled::CompiledDomain;
pub use entry::Entry;
pub use error::Error;
pub use indexes::{IndexInfo, OptionInfo, indexes};
#[cfg(feature = "json")]
pub use json::Json;
pub use key::{AsKey, AsKeyPrefix, AsKeyRange, Key, KeyError};
pub use log_files::{LogFiles, LogReport};
pub use map::Map;
pub use options::{Acknowledge, DomainChoice, MapOptions, PoolOptions, RecoveryProgress};
pub use pando_index::{KeyRange, Limits, Order, Record, Upserted};
pub use pin::{Pin, PinnedValue};
pub use pool::Pool;
pub use report::{
    AllocatorStat, CheckReport, Compacted, LogProgress, LogStat, MapFigures, MapInfo, MapStat,
    MemoryStat, ParticipantStat, PoolStat, Problem, ProblemClass, ProcessStat, Promise,
    RecoveryStat, StoreStat, TransactionStat,
};
pub use scan::{OwnedRecord, Scan};
pub use session::{Outcome, Session, SessionId};
pub use snapshot::{Snapshot, SnapshotOptions};
pub use store::Store;
pub use store_files::StoreFiles;
pub use transaction::{Committed, Isolation, Transaction, TransactionScan};
pub use typed::TypedMap;
pub use typed_entry::TypedEntry;
pub use typed_scan::TypedScan;
pub use value::{AsValue, Value, ValueCause, ValueError};
pub use write_batch::{SESSIONS_MAP, WriteBatch};
