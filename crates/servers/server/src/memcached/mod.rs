//! The memcached protocol: text and meta commands, as memcached 1.6.18 answers them.
//!
//! * `parse.rs`, `base64.rs`, `expiry.rs`: words, numbers, keys and times as memcached reads them.
//! * `text.rs`: get, set, incr and their kin. `meta.rs`: mg, ms, md, ma, me, mn.
//! * `storage.rs`: what both do to a value. `item.rs`: what is kept of one.
//! * `flush.rs`: flush_all. `stats.rs`: stats.
//!
//! Here is what a connection goes through: a line; for a storage command the block of data behind
//! it; for a get of many keys, some keys at a time, so that the replies that wait stay few. What
//! clients send is kept only as far as the limits go: a block no longer than a value may be (a
//! longer one is passed over as it comes), a line of [`MAX_LINE_BYTES`], one of a get of
//! [`MAX_KEYS_LINE_BYTES`].
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
mod expiry;
mod flush;
mod item;
mod meta;
mod parse;
mod stats;
mod storage;
mod text;

use std::time::Instant;

use pando_keyspace::failure::Failure;

use self::flush::Waiting;
use self::stats::{Counter, Counters, Counting};
use self::storage::{Outcome, Write};
use crate::server::Server;
use crate::stats::{Count, Kind};

pub(crate) use self::flush::flush_if_due;

/// The version that clients are told: whose protocol it is.
const VERSION: &str = "1.6.18";
/// Bytes of a line that is not known to end.
const MAX_LINE_BYTES: usize = 2048;
/// The same of a get, which may name many keys.
const MAX_KEYS_LINE_BYTES: usize = 1 << 20;
/// Spaces before a get's name, in a line that is not known to end.
const MAX_LEADING_SPACES: usize = 100;
/// First byte of the binary protocol.
const BINARY: u8 = 0x80;
/// A value, with its key and what memcached keeps of it, is no longer than this unless it is set.
const DEFAULT_MAX_ITEM_BYTES: usize = 1 << 20;
/// And it is set to no more than this, which is memcached's own limit.
const LARGEST_MAX_ITEM_BYTES: usize = 1 << 30;

/// What all connections of this protocol share.
#[derive(Debug)]
pub(crate) struct State {
    counters: Counters,
    waiting: Waiting,
    max_item_bytes: usize,
}

impl State {
    /// A value may be so long, with its key and what memcached keeps of it; none for memcached's
    /// limit.
    pub(crate) fn new(max_item_bytes: Option<u64>) -> Self {
        let max_item_bytes = max_item_bytes.map_or(DEFAULT_MAX_ITEM_BYTES, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX).min(LARGEST_MAX_ITEM_BYTES)
        });
        Self { counters: Counters::default(), waiting: Waiting::default(), max_item_bytes }
    }
}

/// A connection, without its socket.
pub(crate) struct Connection<'server> {
    server: &'server Server,
    /// Where the client is.
    peer: String,
    step: Step,
    has_begun: bool,
    is_closing: bool,
    counting: Counting,
}

/// What is to come next.
enum Step {
    /// A line.
    Line,
    /// The data of a value.
    Block(Box<Block>),
    /// So many bytes that are passed over.
    Swallow(usize),
    /// Keys of a get.
    Keys(Keys),
}

impl Step {
    /// What a request is counted as that ends with this step, of which `input` begins with; none if
    /// none does.
    fn kind(&self, input: &[u8]) -> Option<Kind> {
        match self {
            Self::Line => Some(match input {
                [b'm', b'g', ..] => Kind::Read,
                [b'v' | b'q', ..] | [b's', b't' | b'h', ..] | [b'm', b'n' | b'e', ..] => {
                    Kind::Other
                }
                _ => Kind::Write,
            }),
            Self::Block(_) => Some(Kind::Write),
            Self::Keys(_) => Some(Kind::Read),
            Self::Swallow(_) => None,
        }
    }
}

/// A value whose data are to come.
struct Block {
    write: Write,
    bytes: usize,
    answer: Answer,
}

/// How it is answered.
enum Answer {
    /// In the text protocol; with noreply, not at all.
    Text { is_quiet: bool },
    /// To a meta command.
    Meta(meta::Answer),
}

/// Keys that are still to be answered.
#[derive(Clone, Copy)]
struct Keys {
    /// Bytes of the line in which they stand.
    bytes: usize,
    /// Bytes from there to the next line.
    tail_bytes: usize,
    /// Whether the cas is told.
    has_cas: bool,
    /// When they expire from now on, if that changes.
    touch: Option<Option<u64>>,
}

/// What a line leads to.
enum Next {
    /// The next line.
    Line,
    /// A value's data.
    Block(Box<Block>),
    /// Data that are passed over.
    Swallow(usize),
    /// The keys that begin at this byte of the line.
    Keys(usize, Keys),
    /// Nothing.
    Close,
}

/// How far the input was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More input is needed, so many bytes at least, as far as is known.
    Incomplete(usize),
    /// Replies are to be sent first.
    Full,
}

impl<'server> Connection<'server> {
    /// A new one, of a client that is at `peer`.
    pub(crate) fn new(server: &'server Server, peer: String) -> Self {
        let counting = server.memcached.counters.connect();
        Self { server, peer, step: Step::Line, has_begun: false, is_closing: false, counting }
    }

    /// Whether it is to be closed once the replies are out.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    fn count(&self, counter: Counter) {
        self.server.memcached.counters.count(self.counting, counter);
        match counter {
            Counter::GetHits => self.server.stats.add(Count::Hits, 1),
            Counter::GetMisses => self.server.stats.add(Count::Misses, 1),
            _ => {}
        }
    }

    /// Notes what came and went.
    pub(crate) fn count_bytes(&self, read: usize, written: usize) {
        let counters = &self.server.memcached.counters;
        counters.add(self.counting, Counter::BytesRead, read as u64);
        counters.add(self.counting, Counter::BytesWritten, written as u64);
        self.server.stats.add(Count::BytesIn, read as u64);
        self.server.stats.add(Count::BytesOut, written as u64);
    }

    /// Carries out what stands in `input` from `begin` on, and moves `begin` behind it. Stops once
    /// `reply` has `send_bytes`. What it says is durable.
    pub(crate) fn carry_out(
        &mut self,
        input: &[u8],
        begin: &mut usize,
        reply: &mut Vec<u8>,
        send_bytes: usize,
    ) -> Progress {
        let mut begun_at = Instant::now();
        while !self.is_closing {
            if reply.len() >= send_bytes {
                return Progress::Full;
            }
            let rest = &input[*begin..];
            let kind = self.step.kind(rest);
            match &mut self.step {
                Step::Line => {
                    let Some(end) = self.line(rest, reply) else { return Progress::Incomplete(0) };
                    *begin += end;
                }
                Step::Block(block) => {
                    let bytes = block.bytes + 2;
                    if rest.len() < bytes {
                        return Progress::Incomplete(bytes - rest.len());
                    }
                    if let Step::Block(block) = std::mem::replace(&mut self.step, Step::Line) {
                        self.block(&block, &rest[..bytes], reply);
                    }
                    *begin += bytes;
                }
                Step::Swallow(left) => {
                    let swallowed = rest.len().min(*left);
                    *begin += swallowed;
                    *left -= swallowed;
                    if *left > 0 {
                        return Progress::Incomplete(0);
                    }
                    self.step = Step::Line;
                }
                &mut Step::Keys(keys) => {
                    *begin += text::retrieve(self, keys, rest, reply, send_bytes);
                }
            }
            if let (Some(kind), Step::Line) = (kind, &self.step) {
                let done_at = Instant::now();
                self.server.stats.note_request(kind, done_at.duration_since(begun_at));
                begun_at = done_at;
            }
        }
        Progress::Incomplete(0)
    }

    /// Carries out the line at the beginning of `input`; how many bytes it had, up to what the next
    /// step is about.
    fn line(&mut self, input: &[u8], reply: &mut Vec<u8>) -> Option<usize> {
        if !self.has_begun && input.first() == Some(&BINARY) {
            tracing::debug!(
                "a client speaks memcached's binary protocol, which is not spoken here"
            );
            self.is_closing = true;
            return None;
        }
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            self.check_unended(input, reply);
            return None;
        };
        self.has_begun = true;
        let line = &input[..end];
        let line = parse::until_zero(line.strip_suffix(b"\r").unwrap_or(line));
        if let Err(failure) = flush::flush_if_due(self.server) {
            server_error(reply, &failure);
            return Some(end + 1);
        }
        self.step = match text::command(self, line, reply) {
            Next::Line => Step::Line,
            Next::Block(block) => Step::Block(block),
            Next::Swallow(bytes) => Step::Swallow(bytes),
            Next::Keys(at, keys) => {
                let bytes = line.len() - at;
                self.step = Step::Keys(Keys { bytes, tail_bytes: end + 1 - line.len(), ..keys });
                return Some(at);
            }
            Next::Close => {
                self.is_closing = true;
                Step::Line
            }
        };
        Some(end + 1)
    }

    /// Closes the connection if a line has no end within its limit.
    fn check_unended(&mut self, input: &[u8], reply: &mut Vec<u8>) {
        if input.len() <= MAX_LINE_BYTES {
            return;
        }
        let spaces = input.iter().take_while(|&&byte| byte == b' ').count();
        let name = &input[spaces..];
        let is_get = name.starts_with(b"get ") || name.starts_with(b"gets ");
        if spaces > MAX_LEADING_SPACES || !is_get {
            self.is_closing = true;
        } else if input.len() > MAX_KEYS_LINE_BYTES {
            say(reply, "CLIENT_ERROR line too long");
            self.is_closing = true;
        }
    }

    /// Stores a value whose data have come, with the end of a line behind them.
    fn block(&self, block: &Block, data: &[u8], reply: &mut Vec<u8>) {
        let Block { write, answer, .. } = block;
        self.count(Counter::Set);
        let Some(bytes) = data.strip_suffix(b"\r\n") else {
            if !matches!(answer, Answer::Text { is_quiet: true }) {
                say(reply, "CLIENT_ERROR bad data chunk");
            }
            return;
        };
        let max_item_bytes = self.server.memcached.max_item_bytes;
        let outcome = match storage::store(self.server, write, bytes, max_item_bytes) {
            Ok(outcome) => outcome,
            Err(failure) => {
                // What was there is not what the client means to be there.
                if write.mode == storage::Mode::Set && failure.is_no_memory() {
                    let _ = storage::delete(self.server, &write.key);
                }
                if !matches!(answer, Answer::Text { is_quiet: true }) {
                    server_error(reply, &failure);
                }
                return;
            }
        };
        if matches!(outcome, Outcome::Done(_)) {
            self.count(Counter::TotalItems);
        }
        if write.mode == storage::Mode::Compare {
            self.count(match outcome {
                Outcome::Done(_) => Counter::CompareHits,
                Outcome::Missing | Outcome::Refused => Counter::CompareMisses,
                Outcome::OtherCas => Counter::CompareBad,
            });
        }
        match answer {
            Answer::Text { is_quiet: true } => {}
            Answer::Text { is_quiet: false } => say(
                reply,
                match outcome {
                    Outcome::Done(_) => "STORED",
                    Outcome::Refused => "NOT_STORED",
                    Outcome::OtherCas => "EXISTS",
                    Outcome::Missing => "NOT_FOUND",
                },
            ),
            Answer::Meta(answer) => answer.say(write, outcome, reply),
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.server.memcached.counters.disconnect();
    }
}

/// Appends a line.
fn say(reply: &mut Vec<u8>, words: &str) {
    reply.extend_from_slice(words.as_bytes());
    reply.extend_from_slice(b"\r\n");
}

/// Appends a number.
fn push_number(reply: &mut Vec<u8>, number: u64) {
    reply.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Says what the store refused.
fn server_error(reply: &mut Vec<u8>, failure: &Failure) {
    match failure {
        other if other.is_no_memory() => say(reply, "SERVER_ERROR out of memory storing object"),
        other => {
            let words = other.to_string().replace(['\r', '\n'], " ");
            let words = words.strip_prefix("ERR ").unwrap_or(&words);
            say(reply, &format!("SERVER_ERROR {words}"));
        }
    }
}
