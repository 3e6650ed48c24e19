//! For tests of this and of other crates: conversations without sockets and a restore, for the
//! fuzzer; free ports; a client ([`client`]); a load, and what a kill must leave of it ([`load`]).

pub mod client;
pub mod load;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use pando::PoolOptions;
use pando_keyspace::{Store, StoreOptions};
use pando_memcached::{Progress, State};
use socket2::{Domain, Socket, Type};

use crate::shared::Shared;

/// The memory limit of such a store.
const MAX_BYTES: u64 = 16 << 20;

/// A free port of the loopback interface.
///
/// To find it, this function must not listen: a child process that another thread starts meanwhile
/// has a copy of the socket until it executes its program. A client that connects to that copy
/// would lose its connection.
///
/// # Panics
///
/// If there is no free port.
#[must_use]
pub fn free_port() -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    // With this option a copy of the socket does not block the port for the server.
    socket.set_reuse_address(true).expect("it may be shared");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
    let address = socket.local_addr().expect("its address");
    address.as_socket().expect("an address of TCP").port()
}

/// A server whose store is small.
pub(crate) fn server() -> Shared {
    let options =
        StoreOptions { pool: PoolOptions::new().max_bytes(MAX_BYTES), ..StoreOptions::default() };
    let store = Store::open(None, &options).expect("a store in memory");
    let mut redis = pando_redis::server(store, 1);
    // There is no such directory, so snapshots fail.
    redis.snapshot = Path::new("/nonexistent/snapshot").to_owned();
    redis.limit_memory();
    Shared { redis: Arc::new(redis), memcached: State::new(Some(1 << 16)), tls: None }
}

/// The replies of a new server to `input` in the Redis protocol. The input arrives in pieces of
/// `piece_bytes` bytes.
///
/// # Panics
///
/// If the input damages the store.
pub fn redis(input: &[u8], piece_bytes: usize) -> Vec<u8> {
    on_new_server(|server| redis_on(server, input, piece_bytes))
}

/// The replies of this server.
pub(crate) fn redis_on(server: &Shared, input: &[u8], piece_bytes: usize) -> Vec<u8> {
    pando_redis::converse_without_socket(&server.redis, input, piece_bytes)
}

/// The replies of a new server to `input` in the memcached protocol. The input arrives in pieces of
/// `piece_bytes` bytes.
///
/// # Panics
///
/// If the input damages the store.
pub fn memcached(input: &[u8], piece_bytes: usize) -> Vec<u8> {
    on_new_server(|server| memcached_on(server, input, piece_bytes))
}

/// The replies of this server.
pub(crate) fn memcached_on(server: &Shared, input: &[u8], piece_bytes: usize) -> Vec<u8> {
    let mut connection = pando_memcached::Connection::new(server.memcached(), String::new());
    let (mut buffer, mut replies) = (Vec::new(), Vec::new());
    for piece in input.chunks(piece_bytes.max(1)) {
        buffer.extend_from_slice(piece);
        let (mut begin, mut progress) = (0, Progress::Full);
        while progress == Progress::Full && !connection.is_closing() {
            let mut reply = Vec::new();
            progress = connection.carry_out(&buffer, &mut begin, &mut reply, 1 << 16);
            replies.append(&mut reply);
        }
        buffer.drain(..begin);
        if connection.is_closing() {
            break;
        }
    }
    replies
}

/// The number of keys that a new store gets from a snapshot; `None` if the snapshot is refused.
///
/// # Panics
///
/// If the snapshot damages the store.
pub fn restore(snapshot: &Path) -> Option<u64> {
    on_new_server(|server| server.redis.store.restore(snapshot).ok())
}

/// Runs `work` on a new server, and checks that the store is not damaged after it.
fn on_new_server<Answer>(work: impl FnOnce(&Shared) -> Answer) -> Answer {
    let server = server();
    let answer = work(&server);
    while server.redis.store.sweep_garbage(1000).is_ok_and(|is_more| is_more) {}
    let report = server.redis.store.pool().check().expect("checks");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    answer
}
