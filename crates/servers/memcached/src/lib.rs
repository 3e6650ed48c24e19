//! The memcached protocol: text and meta commands, with the replies of memcached 1.6.18.
//!
//! * `converse.rs`: a connection with its socket. `connection.rs`: its state. `serve.rs`: executes
//!   the input.
//! * `parse.rs`, `base64.rs`, `expiry.rs`: words, numbers, keys and times by memcached's rules.
//! * `text.rs`: get, set, incr and so on. `meta.rs`: mg, ms, md, ma, me, mn.
//! * `storage.rs`: operations on a value, for both. `item.rs`: the data of a value.
//! * `flush.rs`: flush_all. `stats.rs`: stats. `counters.rs`: its counters.
//! * `state.rs`: the state that connections share. `reply.rs`, `meta_answer.rs`: words of replies.
//!
//! A connection expects a line. After the line of a storage command it expects the block of data. A
//! get of many keys answers some keys at a time, so that few replies are buffered. Buffered input
//! is bounded: a block has at most the length of a value (a longer one is discarded as it arrives),
//! a line 2 KiB, and the line of a get 1 MiB.
//!
//! We have our own parser. The parsers on crates.io are for clients, or they lack the meta commands
//! or memcached's parsing of numbers. Replies to malformed lines must be equal to memcached's byte
//! by byte.
//!
//! Differences from memcached; the reason of each is at its code:
//!
//! * There is no binary protocol (memcached has deprecated it). A connection that begins with its
//!   first byte is closed.
//! * The line of a get is bounded. A longer one gets an error, and the connection is closed.
//!   Memcached has no bound.
//! * The last access of a value, and whether it was read, are not kept: `l` is 0, `h` is 0
//!   (`item.rs`).
//! * `gat` with a key that is too long changes no key. Memcached changes the keys before it.
//! * `ma` with T sets the expiry time also if the value becomes longer. Memcached 1.6.18 then
//!   forgets it.
//! * A number ends with its value. Memcached reads on into memory of former values, if a value has
//!   only whitespace. It also searches there for a minus, if a number is 2⁶³ or more.
//! * A delayed flush is forgotten at a restart (`flush.rs`).
//! * `watch`, `lru`, `lru_crawler`, `slabs`, `cache_memlimit` and `stats` about missing parts reply
//!   `ERROR`.
//! * There is no authentication in this protocol: each client that can connect reads and writes
//!   database 0.

mod base64;
mod connection;
mod converse;
mod counters;
mod expiry;
mod flush;
mod item;
mod meta;
mod meta_answer;
mod parse;
mod reply;
mod serve;
mod state;
mod stats;
mod storage;
mod text;

pub use self::connection::{Connection, Progress};
pub use self::converse::converse;
pub use self::flush::flush_if_due;
pub use self::state::{Server, State};
