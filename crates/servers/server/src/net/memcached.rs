//! One client's connection that speaks memcached: bytes in, requests, replies, bytes out.
//!
//! As with Redis's, what is kept for a client is bounded, and between requests nothing of the store
//! is held.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::connection::{READ_BYTES, SEND_BYTES, empty};
use crate::memcached::{Connection, Progress};
use crate::server::Server;

/// Serves a client until either side ends it.
pub(super) async fn converse(
    server: &Server,
    peer: String,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut connection = Connection::new(server, peer);
    let (mut input, mut begin) = (Vec::new(), 0);
    let mut reply = Vec::new();
    loop {
        let progress = connection.carry_out(&input, &mut begin, &mut reply, SEND_BYTES);
        if !reply.is_empty() {
            stream.write_all(&reply).await?;
            connection.count_bytes(0, reply.len());
            empty(&mut reply);
        }
        if connection.is_closing() {
            return stream.shutdown().await;
        }
        let missing = match progress {
            Progress::Full => {
                // Others on this loop get their turn.
                tokio::task::yield_now().await;
                continue;
            }
            Progress::Incomplete(missing) => missing,
        };
        if begin == input.len() {
            empty(&mut input);
        } else {
            input.drain(..begin);
        }
        begin = 0;
        // What is known to be missing is read in large pieces, but only kept as it comes.
        input.reserve(READ_BYTES.max(missing.min(input.len().max(READ_BYTES))));
        let read = stream.read_buf(&mut input).await?;
        if read == 0 {
            return Ok(());
        }
        connection.count_bytes(read, 0);
    }
}
