//! Transactions over several keys and maps (Bw-tree paper, section V: the transaction component).
//!
//! The component knows keys, versions and log sequence numbers (LSNs). It knows nothing of how an
//! index stores its records: any [`RangeIndex`](pando_index::RangeIndex) whose values may have a
//! stamp of 16 bytes in front can be a transactional map. Only the component writes to such a map.
//!
//! ```text
//! value     0                16 ..
//!           stamp            the user's value                     (stamp.rs)
//! ```
//!
//! # Protocol
//!
//! A commit is one record in the tail of the log (crate `pando-log`), complete before its first
//! write to a map. It has the version that it replaces, the new value and the old one of each key,
//! and all that the transaction has read. So any thread can take it to its end. The record of a
//! *bare* commit, of one key, does not have what it replaces: its install decides (`bare.rs`).
//!
//! | state of a commit | meaning | after a kill |
//! | --- | --- | --- |
//! | local | in the memory of its thread | gone |
//! | undecided | its record is in the tail; some of its writes are installed | fails; a bare one is there if its version is |
//! | committed | all writes are installed, and its reads were valid | there |
//! | failed | some of its writes may not be undone yet | undone |
//! | settled | decided, and no failed version is left; the LSN is at most the sealed one | there, or undone |
//!
//! | step | file | deciding word | helper |
//! | --- | --- | --- | --- |
//! | append the record | `settle.rs`, `one_key.rs` | `newest` of the log | none is needed: the record is whole |
//! | install, validate | `commit.rs` | the value of the key, from one stamp to another | any thread |
//! | decide | `commit.rs` | the status of the record | any thread |
//! | undo | `commit.rs` | the value of the key | any thread |
//! | settle | `settle.rs` | `sealed` of the log | any thread that finds the tail long |
//!
//! # Reads
//!
//! A read never waits and never installs. It finds a value and its stamp. If the stamp's LSN is
//! settled, or its record says *committed*, the value is committed. The read decides that, if the
//! commit is bare. Otherwise the record has the committed value. The thread reads the settled LSN
//! before the value, so that no failed version counts as settled; and it is pinned, so that the
//! record of an LSN that was not settled stays.
//!
//! # Order
//!
//! Transactions are serializable: they take place in the order in which their installs were
//! complete. A commit that replaces or reads a version of another one begins to install after
//! that was decided. A commit that has read what another one replaces has validated the version
//! before it was replaced, after its own installs. So each dependency leads from a commit whose
//! installs were complete earlier to one whose installs were complete later, and no cycle is
//! possible. A transaction without writes takes its place at the beginning of its validation: what
//! it has read was decided before, and what replaces that is installed later.
//!
//! # Snapshots
//!
//! A snapshot sees the commits up to an LSN. Commits behind it keep what they replace
//! (`snapshot.rs`). A transaction may read a snapshot: then it conflicts only with writes of the
//! keys that it writes.
//!
//! # Progress
//!
//! No step waits for another thread. A commit that meets another one in flight fails; before its
//! thread returns, it takes the other one to its end. So a thread that has stopped, or was killed,
//! lets each other commit fail at most once. Commits that meet are run again by
//! [`transaction`](TransactionComponent::transaction) and by a [`TransactionalMap`], up to 1,024
//! times.
//!
//! # Power loss
//!
//! If the log has files, each commit and each change of the list of maps is in it, and the log's
//! files are synced. From time to time an *image* is written: the committed versions of all maps
//! (`image.rs`). A lost pool is rebuilt from the newest image and the log behind it
//! (`replay.rs`).
//!
//! # What differs from the paper
//!
//! * Old versions that snapshots need are kept in process memory, and not in the record store: a
//!   snapshot ends with its process, so nothing of them needs to survive (`snapshots.rs`).
//! * Transactions have no timestamps besides their LSNs. A snapshot is of an LSN up to which all
//!   commits have ended; so no epochs are assigned, and none must be settled (`snapshot.rs`).
//! * A write of one key has its record in the tail too, as each commit: its place there is its
//!   version. A record in a slot of the thread would have to be copied there.
//! * The calls of the paper between the two components (end of stable log, redo scan start point,
//!   low water mark) are those of `Maps`, [`DurableVersions`] and `redo`.
//! * One process at a time has the component: history is in its memory.
//!
//! # Limits
//!
//! * A removed key keeps its stamp in the map, 16 bytes and the key, until no thread is left that
//!   may help an earlier commit (`tombstones.rs`).
//! * A transaction is in process memory until it commits, and its record has at most
//!   [`max_record_bytes`](pando_log::Log::max_record_bytes).
//! * In a full pool an undo may find no room, and neither may a helper that takes a bare commit
//!   back. Then no later commit is settled until there is room again; reads still see the committed
//!   versions.

mod bare;
mod commit;
mod component;
mod durable;
mod error;
mod image;
mod image_file;
mod kept;
mod loaders;
mod map;
mod map_list;
mod one_key;
mod range;
mod record;
mod replay;
mod reset;
mod rest;
mod settle;
mod snapshot;
mod snapshots;
mod stamp;
#[cfg(feature = "testing")]
pub mod testing;
mod tombstones;
mod transaction;

pub use component::{Maps, TransactionComponent};
pub use durable::{Durable, DurableVersions};
pub use error::{Error, Result};
pub use image::ImageStat;
pub use map::TransactionalMap;
pub use map_list::{ListedMap, MapList};
pub use range::TransactionRange;
pub use record::push_redo;
pub use replay::{Rebuild, Replayed, copy, has_image, redo, replay, verify};
pub use snapshot::Snapshot;
pub use snapshots::{OnRevoke, SnapshotLimits, SnapshotOptions, SnapshotStat};
pub use stamp::{LEAST_VALUE_BYTES, has_stamp, value_of};
pub use transaction::{Transaction, Visit, until_committed};
