//! HTTP requests that a browser sends to the Redis or the memcached port.
//!
//! A web page can make a browser send a POST with a body of its choice to any address and port,
//! also to the loopback's. The lines of the body would be commands. So a connection is closed at
//! the first line that shows an HTTP request, before any line behind it is read. Nothing is
//! answered, as in Redis and memcached.
//!
//! | protocol | a line is a part of an HTTP request if | as |
//! | --- | --- | --- |
//! | Redis | its first word is `POST` or `Host:`, in any case | Redis |
//! | Redis | it has three words, the last begins with `HTTP/`, and it is no command | we alone: a request may have no `Host:` |
//! | memcached | it is no command, and its last word begins with `HTTP/` | memcached, which answers `ERROR` to some lower-case names |
//!
//! Commands in the memcached protocol are in lower case, and the methods of HTTP in upper case:
//! `get / HTTP/1.1` asks for two keys, and `GET / HTTP/1.1` closes the connection.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Between two lines in the log about such requests: nobody may fill the log with them.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Whether a request of the Redis protocol that is no command, or has the wrong number of
/// arguments, is a part of an HTTP request.
pub fn is_one(arguments: &[&[u8]]) -> bool {
    match arguments {
        [_, _, version] if is_version(version) => true,
        [name, ..] => name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:"),
        [] => false,
    }
}

/// Whether a word names a version of HTTP, which is the last word of a request's first line.
pub fn is_version(word: &[u8]) -> bool {
    word.starts_with(b"HTTP/")
}

/// Says in the log that such requests come.
#[derive(Debug, Default)]
pub struct Alarm {
    /// When it last said so.
    said_at: Mutex<Option<Instant>>,
}

impl Alarm {
    /// Writes a warning that a client sent an HTTP request, unless there was one within the last
    /// minute.
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
