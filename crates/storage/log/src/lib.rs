//! A write-ahead log whose tail lies in a pool.
//!
//! A record enters the *tail*, which is memory of the pool, complete and by one CAS. It survives
//! the death of any process from then on. The *log writer* seals a prefix of the tail into a
//! *block*, writes the block into a file of the log's directory and syncs it. From then on the
//! record survives a power cut too.
//!
//! No thread waits for another to append. A thread that stops inside [`Log::append`] leaves a
//! whole record or none. Any thread may take the place of a log writer that has stopped: the bytes
//! of a sealed block and their place in the file are fixed, so writing them twice does no harm.
//!
//! # Files
//!
//! | file | content |
//! | --- | --- |
//! | `manifest` | which pool the log belongs to, its generation, bytes of a segment (`manifest.rs`) |
//! | `proposal` | the same, of a log that no superblock names yet (`replace.rs`) |
//! | `segment-N` | blocks, one behind the other (`block.rs`); `N` has 16 hexadecimal digits and only rises |
//! | `spare-N` | what was `segment-N`, to be used again under a higher number |
//! | `new-..` | a file that is being made; removed when the log is opened |
//!
//! The owner of the log may keep files of other names beside these.
//!
//! # LSN
//!
//! The log sequence number of a record is the number of bytes of all records up to its end, since
//! the log was created. The record takes the bytes from its predecessor's LSN to its own. A record
//! with a higher LSN entered the tail later.
//!
//! # States of a record
//!
//! | state | meaning | after a kill | after a power cut |
//! | --- | --- | --- | --- |
//! | built | in an arena, and no other thread can find it | gone | gone |
//! | appended | reachable from `newest`; its status is undecided, committed or failed | there | gone, or there if its block reached the disk |
//! | sealed | decided; the sealed block covers its LSN | there | the same |
//! | durable | `durable` is at least its LSN | there | there, if it is committed |
//!
//! The status word of a record decides whether it is part of the log. It changes once, from
//! undecided to committed or failed, by CAS. The log does not know what a record means. The owner
//! of the log gives [`Settle`], which decides a record whose writer has not decided it yet.
//!
//! # Steps
//!
//! | step | file | deciding word | a crash before it leaves | helper |
//! | --- | --- | --- | --- | --- |
//! | append | `tail.rs` | `newest`, by CAS | no record | none is needed: the record is whole |
//! | decide | the owner's | the record's status, by CAS | an undecided record | any sealer, by [`Settle`] |
//! | seal | `seal.rs` | `sealed`, by CAS from the block before | the records in the tail | any thread seals |
//! | write | `write.rs` | none: the bytes and their place are fixed | any sectors of the block | any thread writes it again |
//! | durable | `write.rs` | `durable`, raised by CAS after the sync | a block that recovery may find | any thread syncs it again |
//! | free arenas | `tail.rs` | the arena's word in the table | arenas that the next log writer frees | any log writer |
//! | truncate | `segments.rs` | the name of a segment | segments that are not needed | the next truncation |
//!
//! One block is in flight at a time: a block is sealed only when `durable` covers the one before.
//! So a power cut tears at most the last block.
//!
//! # Where the log ends
//!
//! After a power cut [`recover`] reads blocks from a given LSN on. Each block names its log, the
//! log's generation, its place, and the checksum of the block before. The first place without such
//! a block is the end of the log, unless a block further on covers later LSNs. A block is sealed
//! only when all before it are durable; so bytes are missing then that may have been acknowledged,
//! and recovery reports damage.
//!
//! Recovery raises the log's generation, durably, before anything is written. A block of an earlier
//! generation that lies behind the end is then never taken for one of the new generation.
//!
//! # Failures
//!
//! A failed write or sync stops the log for ever: `failed` is set, and each later append and wait
//! is refused. The sync is not tried again, since the kernel may have dropped the pages. A file
//! that cannot be made for lack of room stops nothing: it is tried again at the next write, and
//! meanwhile the tail fills up, until an append is refused with [`Error::Full`] before anything is
//! installed.
//!
//! # A late log writer
//!
//! A log writer may stop before its `pwrite`, and go on when its block was written by another, and
//! the segment has been truncated. So each writer announces the segment in the control block before
//! it looks whether the block is still the sealed one. A segment that is announced is never used
//! again: truncation removes its name, and the late write goes to a file without a name. At worst
//! the late writer makes its segment again, under its old name. No reader looks at it, and the next
//! truncation removes it.

mod background;
mod block;
mod control;
mod error;
mod leadership;
mod log;
mod manifest;
mod record;
mod recovery;
mod replace;
mod seal;
mod segments;
mod tail;
mod walked;
mod write;

pub use block::checksum;
pub use control::CONTROL_BYTES;
pub use error::{Error, Result};
pub use log::{Log, LogOptions, Settle};
pub use manifest::Owner;
pub use record::{Appended, MAX_RECORD_BYTES, Record, Status};
pub use recovery::{
    Recovered, check_owner, copy, log_id_of, owner_of, recover, refuse_log_of_store,
};
pub use replace::{adopt, create_files};
pub use segments::create_unnamed;
