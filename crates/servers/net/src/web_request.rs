//! HTTP requests that a browser sends to the Redis or the memcached port.
//!
//! A web page can make a browser send a POST with any body to any address and port, also on
//! loopback. The lines of the body would be commands. So a connection is closed at the first line
//! that belongs to an HTTP request, before any later line is read. There is no answer, as in Redis
//! and memcached.
//!
//! | protocol | a line belongs to an HTTP request if | as in |
//! | --- | --- | --- |
//! | Redis | its first word is `POST` or `Host:`, in any case | Redis |
//! | Redis | it has three words, the last begins with `HTTP/`, and it is no command | Pando only: a request may have no `Host:` |
//! | memcached | it is no command, and its last word begins with `HTTP/` | memcached, which answers `ERROR` to some lower-case names |
//!
//! memcached's commands are in lower case, and HTTP's methods in upper case: `get / HTTP/1.1` gets
//! two keys, and `GET / HTTP/1.1` closes the connection.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Shortest time between two log lines about such requests, so that clients cannot fill the log.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Whether a request of the Redis protocol belongs to an HTTP request. The request must be no
/// command, or have a wrong number of arguments.
pub fn is_one(arguments: &[&[u8]]) -> bool {
    match arguments {
        [_, _, version] if is_version(version) => true,
        [name, ..] => name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:"),
        [] => false,
    }
}

/// Whether a word is a version of HTTP: the last word of a request's first line.
pub fn is_version(word: &[u8]) -> bool {
    word.starts_with(b"HTTP/")
}

/// Warns in the log about such requests.
#[derive(Debug, Default)]
pub struct Alarm {
    /// The time of the last warning.
    said_at: Mutex<Option<Instant>>,
}

impl Alarm {
    /// Warns that a client sent an HTTP request, at most once per minute.
    pub fn raise(&self, client: &str) {
        let mut said_at = self.said_at.lock();
        if said_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        *said_at = Some(Instant::now());
        tracing::warn!(
            client,
            "possible attack: an HTTP request came to the Redis or memcached port; its connection was closed. \
             Find the program or web page that sends it"
        );
    }
}
