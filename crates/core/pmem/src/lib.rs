//! Pools of persistent memory.
//!
//! A [`Pool`] is one memory-mapped file, or anonymous memory. It holds everything that coordinates
//! its threads: participants and their epochs, the allocator, room for the descriptors of PMwCAS,
//! and for a catalog of named maps. All of that lies in the pool, by offset from its base (never by
//! address). So the pool may be mapped anywhere, and several processes may share it.
//!
//! This crate is the lowest layer, beside the contract of an index (`pando-index`). `pando-pmwcas`
//! and the indexes use it, and it knows none of them.
//!
//! There are three ways to write into a pool, so one hook of [`Domain`] sees every store:
//!
//! * a [`Word`]: load, store, CAS, flush;
//! * a [`Reservation`]: a block that no other thread sees yet;
//! * [`Pool::store_bytes`]: bytes in a claimed place of a shared block.
//!
//! A forked child does not inherit the mapping of a file. Its parent's pools refuse it guards, and
//! it neither closes them nor frees anything in them. If it uses a guard or a reservation of its
//! parent's thread, it dies of a memory fault, and the pool is not damaged.
//!
//! [`layout`] draws the layout of the whole pool. Each part is drawn on top of its own file: the
//! superblock in [`superblock`], participants in `participant.rs` and `table.rs`, slabs and chunks
//! in `alloc/`. `processes.rs` says how processes share a pool.

mod alloc;
#[cfg(feature = "testing")]
mod arena;
pub mod counting;
mod damage;
pub mod domain;
#[cfg(feature = "papers")]
pub mod emulated;
mod epoch;
mod error;
mod exclusive;
mod hold;
pub mod layout;
mod lease;
mod limbo;
mod log_name;
mod map_locks;
pub mod medium;
#[doc(hidden)]
pub mod mutants;
mod optimistic;
mod participant;
mod per_slot;
mod pool;
pub mod prefetch;
mod processes;
pub mod rtm;
mod sharing;
mod slots;
pub mod superblock;
mod sys;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod word;
pub mod write_back;

pub use alloc::{BLOCK_ALIGN, Block, Exchange, Reservation, Usage, block_bytes};
pub use domain::{Adr, Domain, Process};
pub use epoch::{Guard, Participant, ReadPin};
pub use error::{Error, Result};
pub use exclusive::Exclusive;
pub use hold::Hold;
pub use log_name::LogName;
pub use medium::{Guarantee, Medium};
pub use optimistic::OptimisticRead;
pub use per_slot::PerSlot;
pub use pool::{Compacted, CreateOptions, OpenPool, Pool, Unpublished, draw_id, remove_unfinished};
pub use processes::ProcessSeen;
pub use slots::ReserveAccess;
pub use sys::Process as ProcessHere;
pub use word::{NOTHING_BYTES, Part, Word, Words, word_index};
