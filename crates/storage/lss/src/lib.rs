//! A log-structured store of pages on any file system (Bw-tree paper, sections II.E and V).
//!
//! A page has a number, its PID, and consists of a *base* and the *deltas* behind it, as its caller
//! has written them. The store does not look into them. It never changes bytes in place: bases and
//! deltas are *parts* in *blocks*, and blocks are in *segments*, which are files. A table in
//! process memory has the newest part of each page. The Bw-tree's mapping table, its cache and its
//! log are the layers above; `docs/page-store.md` has what is not built yet.
//!
//! # What survives
//!
//! Groups of writes take effect in one order, that of their appends.
//!
//! | failure | what the store has after the next opening |
//! | --- | --- |
//! | the process is killed | the groups up to one, among them all that were written |
//! | the power is cut | the groups up to one, among them all before a sync that has returned |
//! | a write or a sync fails | the same; until the next opening the store can only be read |
//!
//! No part of a group is ever there without the rest.
//!
//! # Threads
//!
//! An append waits for no thread, unless 32 MiB wait to be written: a slot of a list is reserved,
//! the caller looks whether its pages are as it has captured them, and the slot is filled
//! (`queue.rs`). A thread that stops in between is passed over. One thread at a time writes blocks,
//! under a lock; threads that need its result wait for it, as they would for the device. Readers
//! take no lock, and hold nothing while they wait for the device. If a segment is written anew
//! meanwhile, the part that they read is not the one that they look for, and they look again.
//!
//! # Files
//!
//! | file | page at the top of | written |
//! | --- | --- | --- |
//! | `superblock` | `superblock.rs` | in two places by turns; names the checkpoint |
//! | `checkpoint-N` | `checkpoint.rs` | once |
//! | `segment-N`: blocks of parts | `block.rs`, `part.rs` | from the beginning to the end, then anew |
//!
//! `address.rs` has the word that names a part, `room.rs` the life of a segment, checkpoints and
//! cleaning, `recovery.rs` the steps of an opening. `state.rs` makes and writes blocks, and
//! `writer.rs` puts groups into them.

mod address;
mod block;
mod checkpoint;
mod error;
mod files;
mod part;
mod queue;
mod recovery;
mod room;
mod shared;
mod state;
mod store;
mod superblock;
mod table;
mod writer;

pub use checkpoint::MAX_CLIENT_BYTES;
pub use error::{Error, NoDelta, Result};
pub use part::{MAX_PAGE_BYTES, MAX_PARTS};
pub use recovery::Found;
pub use shared::PageStoreOptions;
pub use store::{Group, PageStore, Space, Stat, Ticket};
pub use table::Extent;
