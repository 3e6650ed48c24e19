//! Conversations without sockets, and a store to restore into, for the fuzzer; ports that are free.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use pando::PoolOptions;
use pando_keyspace::{Store, StoreOptions};
use pando_memcached::{Progress, State};
use socket2::{Domain, Socket, Type};

use crate::shared::Shared;

/// So much a store may take; more is refused.
const MAX_BYTES: u64 = 16 << 20;

/// A port of loopback that nobody listens at.
///
/// It is not listened at to find it, either: a child that another thread starts meanwhile has a
/// copy of the socket until it runs its program, and whoever connected to that would be cut off.
///
/// # Panics
///
/// If the system has no port left.
#[must_use]
pub fn free_port() -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    // The copy does not keep the server from the port.
    socket.set_reuse_address(true).expect("it may be shared");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
    let address = socket.local_addr().expect("its address");
    address.as_socket().expect("an address of TCP").port()
}

/// A server whose store takes little.
pub(crate) fn server() -> Shared {
    let options = StoreOptions { pool: PoolOptions::new().max_bytes(MAX_BYTES), index: None };
    let store = Store::open(None, &options).expect("a store in memory");
    let mut redis = pando_redis::server(store, 1);
    // Snapshots are refused: there is no such folder.
    redis.snapshot = Path::new("/nonexistent/snapshot").to_owned();
    redis.limit_memory();
    Shared { redis: Arc::new(redis), memcached: State::new(Some(1 << 16)), tls: None }
}

/// What a client of the Redis protocol gets from a new server to what it sends, so many bytes at a
/// time.
///
/// # Panics
///
/// If the store is damaged by it.
pub fn redis(input: &[u8], piece_bytes: usize) -> Vec<u8> {
    on_new_server(|server| redis_on(server, input, piece_bytes))
}

/// What it says to `input`, which comes so many bytes at a time.
pub(crate) fn redis_on(server: &Shared, input: &[u8], piece_bytes: usize) -> Vec<u8> {
    pando_redis::converse_without_socket(&server.redis, input, piece_bytes)
}

/// What a client of the memcached protocol gets from a new server to what it sends, so many bytes
/// at a time.
///
/// # Panics
///
/// If the store is damaged by it.
pub fn memcached(input: &[u8], piece_bytes: usize) -> Vec<u8> {
    on_new_server(|server| memcached_on(server, input, piece_bytes))
}

/// The same of the memcached protocol.
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

/// How many keys a new store gets from a snapshot; `None` if it is refused.
///
/// # Panics
///
/// If the store is damaged by it.
pub fn restore(snapshot: &Path) -> Option<u64> {
    on_new_server(|server| server.redis.store.restore(snapshot).ok())
}

/// What `work` returns for a new server, whose store must not be damaged after it.
fn on_new_server<Answer>(work: impl FnOnce(&Shared) -> Answer) -> Answer {
    let server = server();
    let answer = work(&server);
    while server.redis.store.sweep_garbage(1000).is_ok_and(|is_more| is_more) {}
    let report = server.redis.store.pool().check().expect("checks");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    answer
}
