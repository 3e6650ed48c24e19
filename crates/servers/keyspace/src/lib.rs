//! Clients' keys in an ordered map of a pool: what they hold, when they expire, how much memory
//! they may take. It knows no protocol.
//!
//! * `store.rs`: the store, and how it is opened and closed.
//! * `layout.rs`: what records are called and what stands in them.
//! * `stripes.rs`: the locks that make commands atomic to each other.
//! * `transaction.rs`: what a command reads and writes.
//! * `writes.rs`: its writes, until they are made. `change.rs`: the only write of a command, at
//!   once.
//! * `intents.rs`: how several writes become durable as one.
//! * `pieces.rs`: long strings.
//! * `collection.rs`: a collection that a command reads or writes. `counts.rs`: how many fields
//!   collections have that are changed one element at a time.
//! * `sweep.rs`: what is removed in the background: what has expired, what was flushed or dropped.
//! * `memory.rs`: a limit on memory. `eviction.rs`: what goes when it is reached.
//! * `room.rs`: room that no record uses goes back to the system.
//! * `snapshot.rs`: writes a consistent snapshot while commands go on. `snapshot_file.rs`: its
//!   format. `restore.rs`: loads it. `salvage.rs`: what can be read of a pool that cannot be
//!   trusted. `recover.rs`: a new pool in place of such a one.
//! * `key_counts.rs`: how many keys there are.
//! * `whole_keys.rs`: visits to keys, copies of them, changes of when they expire.
//! * `clock.rs`: a clock that no step moves.
//!
//! All is in one map, `server`. Besides heads and elements (`layout.rs`):
//!
//! ```text
//! key                                        value
//! 0xA0  when it expires (8)  head's key      empty                       for the sweep
//! 0xC0  collection (7)                       empty                       to be removed by the sweep
//! 0xD0  intent's number (8), or all ones     zeros                       room, see `intents.rs`
//! 0xE0  "clock" | "spaces" | "ids" | ...     as below                    the store's own
//! 0xF0  intent's number (8)                  writes to be made           see `intents.rs`
//! ```
//!
//! * `clock`: see [`clock`].
//! * `spaces`: a byte for each database, its space. A space that no database has is swept.
//! * `ids`: numbers of collections below it may be in use, and starts of the server below its upper
//!   half have been (8 bytes each).
//! * `restoring`: nothing; it stands as long as a snapshot is being loaded.

mod change;
pub mod clock;
pub mod collection;
mod counts;
mod drafts;
mod eviction;
pub mod failure;
mod intents;
pub mod key_counts;
pub mod layout;
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
mod whole_keys;
mod writes;

pub use self::change::Next;
pub use self::snapshot_file::MAX_SNAPSHOTS;
pub use self::snapshot_state::SnapshotState;
pub use self::store::{MAP_NAME, Store, StoreOptions};
pub use self::sweep::Swept;
pub use self::transaction::{Looked, Transaction};
