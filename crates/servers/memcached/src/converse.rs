//! The connection of one memcached client: reads bytes, executes requests, sends replies.
//!
//! As in the Redis protocol, the memory of a client is bounded, and between requests nothing of the
//! store is locked.

use std::io;

use pando_net::buffers::{SEND_BYTES, drop_done, empty, make_room};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::connection::{Connection, Progress};
use crate::state::Server;

/// Serves a client until the client or the server ends the connection.
///
/// # Errors
///
/// An error of the connection.
pub async fn converse(
    server: Server<'_>,
    peer: String,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut connection = Connection::new(server, peer);
    let (mut input, mut begin) = (Vec::new(), 0);
    let mut reply = Vec::new();
    loop {
        let progress = connection.carry_out(&input, &mut begin, &mut reply, SEND_BYTES);
        connection.acknowledge(&mut reply).await;
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
                // Other clients of this loop get their turn.
                tokio::task::yield_now().await;
                continue;
            }
            Progress::Behind => {
                connection.until_written().await;
                continue;
            }
            Progress::Incomplete(missing) => missing,
        };
        drop_done(&mut input, &mut begin);
        make_room(&mut input, missing);
        let read = stream.read_buf(&mut input).await?;
        if read == 0 {
            return Ok(());
        }
        connection.count_bytes(read, 0);
    }
}
