//! A module for Redis and Redis Cluster: a key is an ordered map in a Pando pool.
//!
//! Redis does replication, sharding, failover, users and scripts. The module adds the data type
//! `pando-map` and the commands `PANDO.*`. The records lie in a pool that survives `kill -9`, so a
//! server that starts again has each write that it replied to, at once, whatever its size.
//!
//! # The owner of a map
//!
//! A map has a number that no other map of the pool has had. The *directory* in the pool has, for
//! each database and key name, the number and the expiry. The keyspace of Redis has a *stub* for
//! the name: the number, and the figures of the map. While the server lives, the main thread
//! changes both together (`names.rs`). A map that no name leads to is garbage, and its records are
//! removed in the background (`garbage.rs`).
//!
//! With the identity of its pool, which is random and has 128 bits, the number identifies a map
//! everywhere. So a record's key needs only 8 bytes for its map, and not 16.
//!
//! # A start
//!
//! Exactly one source has precedence: the pool, or the files of the server. `start.rs` has the
//! table and the reasons.
//!
//! # Files
//!
//! | file | part |
//! | --- | --- |
//! | `layout.rs` | the bytes in the pool |
//! | `store.rs` | the pool: commits, scans, snapshots |
//! | `stub.rs` | the value in the keyspace |
//! | `names.rs` | the directory follows the keyspace; what a kill leaves in between |
//! | `garbage.rs` | removal of maps without a name |
//! | `payload.rs`, `pieces.rs` | the form of records outside the pool, and its checked decoder |
//! | `values.rs` | RDB, AOF, DUMP, RESTORE, COPY, digests |
//! | `child.rs` | saves in a forked child |
//! | `start.rs`, `events.rs` | precedence, the end of a start, loads, flushes, shutdown |
//! | `files.rs` | after a start from the pool the files are written anew, until that succeeds |
//! | `commands/` | the commands |
//! | `workers.rs` | threads for long reads |
//! | `state.rs`, `settings.rs`, `info.rs`, `log.rs` | the process's state, parameters, INFO, the log |
//! | `kill_point.rs` | the places at which tests kill the server, or let commits fail |
//! | `redis/` | the module API as safe types |

mod child;
mod commands;
mod entry;
mod events;
mod files;
mod garbage;
mod info;
mod kill_point;
mod layout;
mod log;
mod names;
mod payload;
mod pieces;
mod redis;
mod settings;
mod start;
mod state;
mod store;
mod stub;
mod values;
mod workers;
