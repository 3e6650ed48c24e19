//! Pools of persistent memory.
//!
//! A [`Pool`] is one memory-mapped file, or anonymous memory, and everything that coordinates
//! threads in it: its participants and their epochs, its allocator, room for the descriptors of
//! PMwCAS, and a catalog of named maps. All of that lies in the pool, by offset from its base
//! (never by address), so that it may be mapped anywhere and later be shared by processes.
//!
//! This is the lowest layer but for the contract of an index (`pando-index`):
//! `pando-pmwcas` and the indexes stand on it, and it knows none of them.
//!
//! What it takes to write into a pool: a [`Word`] (load, store, CAS, flush), a [`Reservation`] (a
//! block that nobody else sees yet), or [`Pool::store_bytes`] for a claimed place of a shared
//! block. There is no other way, so one hook of [`Domain`] sees every store.
//!
//! A child that is forked does not inherit the mapping of a file. It is refused guards of its
//! parent's pools, and closes and gives back nothing of them; if it goes on with what its parent's
//! thread had in hand, a guard or a reservation, it dies of a memory fault, and the pool is
//! unharmed.
//!
//! The layout of the whole pool is drawn in [`layout`], that of each part on top of its own file:
//! the superblock in [`superblock`], participants in `participant.rs` and `table.rs`, slabs and
//! chunks in `alloc/`, the catalog in [`catalog`].

mod alloc;
#[cfg(feature = "testing")]
mod arena;
pub mod catalog;
pub mod counting;
mod damage;
pub mod domain;
pub mod emulated;
mod epoch;
mod error;
mod exclusive;
pub mod layout;
mod lease;
mod limbo;
pub mod medium;
#[doc(hidden)]
pub mod mutants;
mod optimistic;
mod participant;
mod per_slot;
mod pool;
pub mod prefetch;
pub mod rtm;
mod slots;
pub mod superblock;
mod sys;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
mod word;
pub mod write_back;

pub use alloc::{BLOCK_ALIGN, Block, Exchange, Reservation, Usage, block_bytes};
pub use domain::{Adr, Domain, DomainKind, Eadr, Process, Volatile};
pub use epoch::{Guard, Participant};
pub use error::{Error, Result};
pub use exclusive::Exclusive;
pub use medium::{Guarantee, Medium};
pub use optimistic::OptimisticRead;
pub use per_slot::PerSlot;
pub use pool::{Compacted, CreateOptions, OpenPool, Pool};
pub use word::{NOTHING_BYTES, Word, Words};
