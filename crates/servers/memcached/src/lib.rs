//! The memcached protocol: text and meta commands, as memcached 1.6.18 answers them.
//!
//! * `converse.rs`: a connection and its socket. `connection.rs`: what it waits for.
//!   `serve.rs`: carries out what came.
//! * `parse.rs`, `base64.rs`, `expiry.rs`: words, numbers, keys and times as memcached reads them.
//! * `text.rs`: get, set, incr and their kin. `meta.rs`: mg, ms, md, ma, me, mn.
//! * `storage.rs`: what both do to a value. `item.rs`: what is kept of one.
//! * `flush.rs`: flush_all. `stats.rs`: stats. `counters.rs`: what these tell.
//! * `state.rs`: what connections share. `reply.rs`, `meta_answer.rs`: words of replies.
//!
//! Here is what a connection goes through: a line; for a storage command the block of data behind
//! it; for a get of many keys, some keys at a time, so that the replies that wait stay few. What
//! clients send is kept only as far as the limits go: a block no longer than a value may be (a
//! longer one is passed over as it comes), a line of 2 KiB, one of a get of
//! 1 MiB.
//!
//! The parser is our own: those on crates.io are for clients, or read neither the meta commands nor
//! numbers as memcached does, and replies to malformed lines are to be the same to the byte.
//!
//! Differences from memcached, each with its reason where it is:
//!
//! * the binary protocol is not spoken (memcached has deprecated it): a connection that begins with
//!   its first byte is closed;
//! * a line of a get is bounded, and an error ends the connection beyond; memcached knows no bound;
//! * last access and whether a value was read are not kept: `l` is 0, `h` is 0 (`item.rs`);
//! * `gat` with a key that is too long touches none; memcached has touched those before it;
//! * `ma` with T gives the value its time also where it becomes longer; memcached 1.6.18 then
//!   forgets it;
//! * a number ends with its value; memcached reads on into memory that has held others, where a
//!   value is whitespace alone, and looks there for a minus if a number is 2⁶³ or more;
//! * a flush that waits is forgotten at a restart (`flush.rs`);
//! * `watch`, `lru`, `lru_crawler`, `slabs`, `cache_memlimit` and `stats` of what is not here are
//!   `ERROR`;
//! * there is no authentication in this protocol: who reaches the port reads and writes database 0.

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
