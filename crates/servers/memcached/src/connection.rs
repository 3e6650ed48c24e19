//! The state of a connection, and its counters.

use std::ops::Range;

use pando_keyspace::LogSync;
use pando_net::stats::{Count, Kind};

use crate::counters::{Counter, Counting};
use crate::meta_answer::MetaAnswer;
use crate::reply::{say, server_error};
use crate::state::{Server, Serving};
use crate::storage::Write;

/// A connection, without its socket.
pub struct Connection<'server> {
    pub(crate) server: Serving<'server>,
    /// The address of the client.
    pub(crate) peer: String,
    pub(crate) step: Step,
    pub(crate) has_begun: bool,
    pub(crate) is_closing: bool,
    /// Whether the present request is a meta command, which may be silent about a success only.
    pub(crate) is_meta: bool,
    /// If the pool has a log: the unsent replies to requests that may have written.
    pub(crate) written: Vec<Written>,
    counting: Counting,
}

/// An unsent reply to a request that may have written.
#[derive(Debug)]
pub(crate) struct Written {
    /// Its place among the replies.
    pub place: Range<usize>,
    /// Whether an error is sent if the place is empty.
    pub is_told: bool,
}

/// The expected input.
pub(crate) enum Step {
    /// A command line.
    Line,
    /// The data of a value.
    Block(Box<Block>),
    /// This number of bytes, which are ignored.
    Skip(usize),
    /// The keys of a get.
    Keys(Keys),
}

impl Step {
    /// The kind of the request whose last part is this step. `input` begins with that part. `None`
    /// if the step ends no request.
    pub(crate) fn kind(&self, input: &[u8]) -> Option<Kind> {
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
            Self::Skip(_) => None,
        }
    }

    /// Whether this step may write; `input` begins with its input.
    pub(crate) fn may_write(&self, input: &[u8]) -> bool {
        match self {
            // A line without its end is not executed.
            Self::Line if !input.contains(&b'\n') => false,
            Self::Line => match input.trim_ascii_start() {
                [] | [b'g', b'e', ..] | [b'v' | b'q', ..] | [b's', b't' | b'h', ..] => false,
                [b'm', b'n' | b'e', ..] => false,
                [b'm', b'g', rest @ ..] => {
                    let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
                    // The flags behind the key that create a record, or change its expiry.
                    let flags = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                    flags.skip(1).any(|flag| matches!(flag, [b'N' | b'R' | b'T', ..]))
                }
                _ => true,
            },
            Self::Block(_) => true,
            Self::Keys(keys) => keys.touch.is_some(),
            Self::Skip(_) => false,
        }
    }
}

/// A value whose data is expected.
pub(crate) struct Block {
    pub write: Write,
    pub(crate) bytes: usize,
    pub answer: Answer,
}

/// The form of the reply.
pub(crate) enum Answer {
    /// A reply of the text protocol; with noreply, no reply.
    Text { is_quiet: bool },
    /// A reply to a meta command.
    Meta(MetaAnswer),
}

/// Keys of a get that remain.
#[derive(Clone, Copy)]
pub(crate) struct Keys {
    /// The bytes of the remaining keys in the line.
    pub(crate) bytes: usize,
    /// The bytes from there to the next line.
    pub(crate) tail_bytes: usize,
    /// Whether the reply has the cas.
    pub(crate) has_cas: bool,
    /// The new expiry time, if the command changes it.
    pub(crate) touch: Option<Option<u64>>,
}

/// The next step after a command line.
pub(crate) enum Next {
    /// Another line.
    Line,
    /// The data of a value.
    Block(Box<Block>),
    /// Data that is ignored.
    Skip(usize),
    /// The keys, which begin at this byte of the line.
    Keys(usize, Keys),
    /// The connection is closed.
    Close,
}

impl Next {
    /// Writes a reply of one line; the next line follows.
    pub(crate) fn answered(reply: &mut Vec<u8>, words: &str) -> Self {
        say(reply, words);
        Self::Line
    }
}

/// A command line that is executed.
pub(crate) struct Line<'run, 'server> {
    pub connection: &'run Connection<'server>,
    pub words: &'run [&'run [u8]],
    pub reply: &'run mut Vec<u8>,
}

/// The reason why the execution of the input stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More input is needed: at least this number of bytes, as far as is known.
    Incomplete(usize),
    /// The replies must be sent first.
    Full,
    /// So must they, and the next request waits for the disk of the log.
    Behind,
}

impl<'server> Connection<'server> {
    /// A new connection of the client at `peer`.
    pub fn new(server: Server<'server>, peer: String) -> Self {
        let counting = server.state.counters.connect();
        Self {
            server: Serving::of(server),
            peer,
            step: Step::Line,
            has_begun: false,
            is_closing: false,
            is_meta: false,
            written: Vec::new(),
            counting,
        }
    }

    /// Whether the connection ends after the replies are sent.
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Notes that the reply at `place` is to a request that may have written, if it is one.
    pub(crate) fn note_written(&mut self, place: Range<usize>) {
        if self.server.may_write.take() && self.server.store.log().is_some() {
            self.written.push(Written { place, is_told: self.is_meta });
        }
    }

    /// Whether so much waits for the disk that these replies wait before another request is
    /// executed.
    pub(crate) fn must_sync(&self) -> bool {
        !self.written.is_empty() && self.is_behind()
    }

    /// Whether writes wait for the disk of the log.
    pub(crate) fn is_behind(&self) -> bool {
        self.server.store.log().is_some_and(LogSync::is_behind)
    }

    /// Waits until the next request may be executed, if writes do not wait again by then.
    pub(crate) async fn until_written(&self) {
        if let Some(log) = self.server.store.log() {
            log.until_written().await;
        }
    }

    /// Waits once until all of these replies may be sent, as the mode of the log says. If the log
    /// cannot be written, the replies to requests that may have written become errors.
    pub(crate) async fn acknowledge(&mut self, reply: &mut Vec<u8>) {
        let written = std::mem::take(&mut self.written);
        let Some(log) = self.server.store.log().filter(|_| !written.is_empty()) else { return };
        if let Err(failure) = log.until_acknowledged().await {
            // The rest of a reply that is not complete makes no sense behind an error.
            self.is_closing |= matches!(self.step, Step::Keys(_));
            let before = std::mem::take(reply);
            let mut kept_from = 0;
            for Written { place, is_told } in written {
                reply.extend_from_slice(&before[kept_from..place.start]);
                if is_told || !place.is_empty() {
                    server_error(reply, &failure);
                }
                kept_from = place.end;
            }
            reply.extend_from_slice(&before[kept_from..]);
        }
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.server.state.counters.count(self.counting, counter);
        match counter {
            Counter::GetHits => self.server.stats.add(Count::Hits, 1),
            Counter::GetMisses => self.server.stats.add(Count::Misses, 1),
            _ => {}
        }
    }

    /// Counts a get, or a touch of a value that is also read.
    pub(crate) fn count_get(&self, is_touching: bool, is_hit: bool) {
        let (asked, hit, miss) = match is_touching {
            true => (Counter::Touch, Counter::TouchHits, Counter::TouchMisses),
            false => (Counter::Get, Counter::GetHits, Counter::GetMisses),
        };
        self.count(asked);
        self.count(if is_hit { hit } else { miss });
    }

    /// Counts received and sent bytes.
    pub(crate) fn count_bytes(&self, read: usize, written: usize) {
        let counters = &self.server.state.counters;
        counters.add(self.counting, Counter::BytesRead, read as u64);
        counters.add(self.counting, Counter::BytesWritten, written as u64);
        self.server.stats.add(Count::BytesIn, read as u64);
        self.server.stats.add(Count::BytesOut, written as u64);
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.server.state.counters.disconnect();
    }
}
