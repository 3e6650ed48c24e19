//! Clients' keys in an ordered map of a pool: values, expiry, and the memory limit. It knows no
//! protocol.
//!
//! * `store.rs`: the store, and how it is opened and closed.
//! * `layout.rs`: keys and values of records.
//! * `stripes.rs`: the locks that make commands atomic.
//! * `transaction.rs`: reads and writes of a command.
//! * `writes.rs`: its writes before the commit. `change.rs`: a write that is a command's only one.
//! * `commits.rs`: the writes of a command become durable as one. `intents.rs`: how, in a pool
//!   without a log. `log_sync.rs`: when replies to writes are sent, in a pool with a log.
//! * `pieces.rs`: long strings.
//! * `collection.rs`: a collection in a command. `counts.rs`: sizes of collections that are changed
//!   one element at a time.
//! * `sweep.rs`: removal in the background: expired keys, flushed databases, dropped collections.
//!   `unreadable.rs`: what stays.
//! * `memory.rs`: the memory limit. `eviction.rs`: eviction of keys at the limit.
//! * `room.rs`: returns unused room to the system.
//! * `snapshot.rs`: writes a consistent snapshot while commands run. `snapshot_file.rs`: its
//!   format. `restore.rs`: loads it. `salvage.rs`: reads a pool that cannot be trusted.
//!   `recover.rs`: replaces such a pool by a new one.
//! * `key_counts.rs`: numbers of keys. `head_counts.rs`: those of a stripe.
//! * `whole_keys.rs`: visits of keys, copies, changes of an expiry.
//! * `clock.rs`: a clock that is independent of changes of the system's clock.
//!
//! All records are in one map, `server`. Besides heads and elements (`layout.rs`):
//!
//! ```text
//! key                                        value
//! 0xA0  expiry time (8)  key of the head     empty                       for the sweep
//! 0xC0  collection (7)                       empty                       the sweep removes it
//! 0xD0  number of the intent (8), or piece   zeros                       reserve, see `intents.rs`
//! 0xE0  "clock" | "spaces" | "ids" | ...     as below                    data of the store
//! 0xF0  number of the intent (8)             pending writes              see `intents.rs`
//! ```
//!
//! * `clock`: see [`clock`].
//! * `spaces`: the space of each database, a byte each. The sweep removes the heads of other
//!   spaces.
//! * `ids`: an upper bound of the numbers of collections, and the number of starts (8 bytes each).
//! * `restoring`: empty; it exists while a snapshot is loaded.

#[cfg(test)]
#[path = "../../../pando/tests/log/broken_disk.rs"]
mod broken_disk;
mod change;
pub mod clock;
pub mod collection;
mod commits;
mod counts;
mod drafts;
mod eviction;
pub mod failure;
mod head_counts;
mod intents;
pub mod key_counts;
pub mod layout;
mod log_sync;
pub mod memory;
mod open_counts;
mod own_keys;
mod pieces;
pub mod recover;
#[cfg(test)]
mod refusals;
mod restore;
mod room;
mod salvage;
mod snapshot;
mod snapshot_file;
mod snapshot_state;
mod store;
pub mod stripes;
mod sweep;
#[cfg(test)]
mod tests;
mod transaction;
mod unreadable;
mod whole_keys;
mod writes;

pub use self::change::Next;
pub use self::log_sync::{LogSync, SyncMode};
pub use self::snapshot_file::MAX_SNAPSHOTS;
pub use self::snapshot_state::SnapshotState;
pub use self::store::{MAP_NAME, Store, StoreOptions};
pub use self::sweep::{Sweep, Swept};
pub use self::transaction::{Lookups, Transaction};
