//! The connection of one client: reads bytes, parses requests, executes them, sends replies.
//!
//! The memory of a client is bounded: while replies wait to be sent, requests wait in the socket.
//! Between requests nothing of the store is locked, so a slow client delays no other client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pando_net::buffers::{SEND_BYTES, drop_done, empty, make_room};
use pando_net::stats::Count;
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::dispatch::{self, Obstacle, Together};
use crate::resp::reply::Reply;
use crate::resp::request::{Parsed, Parser, RequestLimits};
use crate::server::Server;
use crate::session::{DurabilityWait, Session};
use crate::spec::Arguments;
use crate::{clients, config};

/// The time between two checks for the end of a pause.
const PAUSE: Duration = Duration::from_millis(5);

/// The progress of a client's requests.
enum Progress {
    /// All received requests were executed.
    Done,
    /// There are enough replies to send now.
    Full,
    /// The next request must wait.
    Held(Obstacle),
}

/// Serves a client until the client or the server ends the connection.
///
/// # Errors
///
/// An error of the connection.
pub async fn converse(
    server: &Server,
    entry: &Arc<clients::Client>,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut session = Session::new(server, Arc::clone(entry));
    let (mut input, mut begin) = (Vec::new(), 0);
    let mut parser = Parser::default();
    let mut reply = Reply::default();
    loop {
        let progress = carry_out(server, &mut session, &mut parser, &input, &mut begin, &mut reply);
        session.done_at = None;
        if !session.written.is_empty() {
            acknowledge(server, &mut session, &mut reply).await;
        }
        send(server, entry, &mut reply, &mut stream).await?;
        if let Some(wait) = session.wait.take() {
            wait_for_log(server, &mut session, wait, &mut reply).await;
            send(server, entry, &mut reply, &mut stream).await?;
        }
        if session.is_closing {
            return stream.shutdown().await;
        }
        match progress {
            Progress::Done => {}
            Progress::Full => {
                // Other clients of this loop get their turn.
                tokio::task::yield_now().await;
                continue;
            }
            Progress::Held(obstacle) => {
                wait_for(server, entry, obstacle).await;
                continue;
            }
        }
        drop_done(&mut input, &mut begin);
        if input.len() + entry.queued_bytes() > server.config.size(config::QUERY_BUFFER_LIMIT) {
            tracing::warn!(
                client = entry.id,
                "the requests of a client exceed client-query-buffer-limit; it is disconnected"
            );
            return Ok(());
        }
        let missing = parser.missing_bytes(input.len());
        make_room(&mut input, missing);
        let read_bytes = stream.read_buf(&mut input).await?;
        if read_bytes == 0 {
            return Ok(());
        }
        server.stats.add(Count::BytesIn, read_bytes as u64);
        entry.note_input(server.clients.now_ms(), input.len(), input.capacity() - input.len());
    }
}

/// Sends the replies.
async fn send(
    server: &Server,
    entry: &clients::Client,
    reply: &mut Reply,
    stream: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    if !reply.bytes().is_empty() {
        server.stats.add(Count::BytesOut, reply.len() as u64);
        entry.note_reply_capacity(reply.buffer_mut().capacity());
        stream.write_all(reply.bytes()).await?;
        empty(reply.buffer_mut());
    }
    Ok(())
}

/// Waits once until all of these replies may be sent, as the mode of the log says. If the log
/// cannot be written, the replies to commands that may have written become errors.
async fn acknowledge(server: &Server, session: &mut Session, reply: &mut Reply) {
    if let Some(log) = server.store.log() {
        let client = Arc::clone(&session.client);
        let _blocked = client.block(&server.clients);
        match log.until_acknowledged().await {
            Ok(are_durable) => session.has_unsynced &= !are_durable,
            Err(failure) => {
                let words = failure.to_string();
                session.written.iter().for_each(|_| server.stats.note_error(&words));
                reply.fail(&session.written, &words);
            }
        }
    }
    session.written.clear();
}

/// Waits until the next request may be executed, if nothing else hinders it meanwhile.
async fn wait_for(server: &Server, entry: &clients::Client, obstacle: Obstacle) {
    match (obstacle, server.store.log()) {
        (Obstacle::Disk, Some(log)) => {
            let _blocked = entry.block(&server.clients);
            log.until_written().await;
        }
        (Obstacle::Pause | Obstacle::Disk, _) => {
            let _waiting = server.clients.wait();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Waits for WAITAOF, and replies to it.
async fn wait_for_log(
    server: &Server,
    session: &mut Session,
    DurabilityWait { timeout, is_answered }: DurabilityWait,
    reply: &mut Reply,
) {
    let Some(log) = server.store.log() else { return };
    // The replies before this one may have waited already.
    if !session.has_unsynced {
        if is_answered {
            reply.waited(true);
        }
        return;
    }
    let _waiting = server.clients.wait();
    let client = Arc::clone(&session.client);
    let _blocked = client.block(&server.clients);
    let durable = log.until_durable();
    let outcome = match timeout {
        None => Some(durable.await),
        Some(timeout) => tokio::time::timeout(timeout, durable).await.ok(),
    };
    session.has_unsynced &= !matches!(outcome, Some(Ok(())));
    match outcome {
        _ if !is_answered => {}
        Some(Err(failure)) => {
            let words = failure.to_string();
            server.stats.note_error(&words);
            reply.error(&words);
        }
        Some(Ok(())) | None => reply.waited(!session.has_unsynced),
    }
}

/// Consecutive requests that will be executed together.
#[derive(Default)]
struct Waiting<'input> {
    /// Their common kind.
    what: Option<Together>,
    /// The words of each request, and the offset of its begin.
    requests: SmallVec<[(Words<'input>, usize); dispatch::MAX_TOGETHER]>,
}

/// The words of a request.
type Words<'input> = SmallVec<[&'input [u8]; 8]>;

/// Whether so much waits for the disk that the replies wait before another request is executed.
#[inline]
fn must_sync(server: &Server, session: &Session) -> bool {
    !session.written.is_empty() && dispatch::is_disk_behind(server)
}

/// Executes the requests in `input` from `begin` on, as far as possible.
fn carry_out(
    server: &Server,
    session: &mut Session,
    parser: &mut Parser,
    input: &[u8],
    begin: &mut usize,
    reply: &mut Reply,
) -> Progress {
    let mut waiting = Waiting::default();
    let progress = loop {
        if session.wait.is_some() {
            break Progress::Full;
        }
        if session.is_closing || *begin >= input.len() {
            break Progress::Done;
        }
        if reply.len() >= SEND_BYTES || must_sync(server, session) {
            break Progress::Full;
        }
        let request = &input[*begin..];
        let limits = RequestLimits {
            max_bulk_bytes: server.config.number(config::MAX_BULK_BYTES),
            is_known: session.may_speak(server),
        };
        match parser.parse(request, limits) {
            Parsed::Incomplete => break Progress::Done,
            Parsed::Request { arguments, bytes } => {
                let arguments: Words<'_> = arguments.into_iter().map(|at| &request[at]).collect();
                if let Some(obstacle) = dispatch::obstacle(server, session, &arguments) {
                    break Progress::Held(obstacle);
                }
                let what = dispatch::together(server, session, &arguments);
                let is_full = waiting.requests.len() == dispatch::MAX_TOGETHER;
                if (what.is_none() || what != waiting.what || is_full)
                    && !waiting.carry_out(server, session, parser, begin, reply)
                {
                    break Progress::Full;
                }
                if what.is_some() {
                    waiting.what = what;
                    waiting.requests.push((arguments, *begin));
                } else {
                    dispatch::execute(server, session, &arguments, reply);
                }
                *begin += bytes;
            }
            Parsed::Inline { arguments, bytes } => {
                let arguments: Words<'_> = arguments.iter().map(Vec::as_slice).collect();
                if let Some(obstacle) = dispatch::obstacle(server, session, &arguments) {
                    break Progress::Held(obstacle);
                }
                if !waiting.carry_out(server, session, parser, begin, reply) {
                    break Progress::Full;
                }
                dispatch::execute(server, session, &arguments, reply);
                *begin += bytes;
            }
            Parsed::Wrong(words) => {
                if !waiting.carry_out(server, session, parser, begin, reply) {
                    break Progress::Full;
                }
                reply.error(&format!("ERR Protocol error: {words}"));
                session.is_closing = true;
            }
        }
    };
    match waiting.carry_out(server, session, parser, begin, reply) {
        true => progress,
        false => Progress::Full,
    }
}

impl Waiting<'_> {
    /// Executes the requests until there are enough replies, and returns whether all were executed.
    /// If not, `begin` is moved back to the first remaining request.
    #[inline]
    fn carry_out(
        &mut self,
        server: &Server,
        session: &mut Session,
        parser: &mut Parser,
        begin: &mut usize,
        reply: &mut Reply,
    ) -> bool {
        let Some(what) = self.what.take() else { return true };
        let mut left = &self.requests[..];
        let is_held = || what == Together::Writes && dispatch::is_disk_behind(server);
        while !left.is_empty() && reply.len() < SEND_BYTES && !is_held() {
            let requests: SmallVec<[&Arguments<'_>; dispatch::MAX_TOGETHER]> =
                left.iter().map(|(words, _)| words.as_slice()).collect();
            let together = dispatch::execute_together;
            let done = together(server, session, what, &requests, reply, SEND_BYTES);
            left = &left[done.min(left.len())..];
        }
        let first_left = left.first().map(|(_, begin)| *begin);
        self.requests.clear();
        if let Some(first_left) = first_left {
            *begin = first_left;
            *parser = Parser::default();
        }
        first_left.is_none()
    }
}

/// The replies to `input`, which arrives in pieces of `piece_bytes` bytes.
#[cfg(any(test, feature = "testing"))]
pub fn converse_without_socket(server: &Server, input: &[u8], piece_bytes: usize) -> Vec<u8> {
    let mut session = Session::new(server, Arc::default());
    let (mut buffer, mut parser) = (Vec::new(), Parser::default());
    let (mut reply, mut replies) = (Reply::default(), Vec::new());
    for piece in input.chunks(piece_bytes.max(1)) {
        buffer.extend_from_slice(piece);
        let mut begin = 0;
        loop {
            let (parser, begin) = (&mut parser, &mut begin);
            let progress = carry_out(server, &mut session, parser, &buffer, begin, &mut reply);
            session.done_at = None;
            replies.append(reply.buffer_mut());
            match progress {
                Progress::Full => {}
                Progress::Done => break,
                Progress::Held(_) => return replies,
            }
        }
        if session.is_closing {
            break;
        }
        buffer.drain(..begin);
    }
    replies
}
