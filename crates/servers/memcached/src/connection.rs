//! A connection: what it waits for, and what it counts.

use pando_net::stats::{Count, Kind};

use crate::counters::{Counter, Counting};
use crate::meta_answer::MetaAnswer;
use crate::reply::say;
use crate::state::Server;
use crate::storage::Write;

/// A connection, without its socket.
pub struct Connection<'server> {
    pub(crate) server: Server<'server>,
    /// Where the client is.
    pub(crate) peer: String,
    pub(crate) step: Step,
    pub(crate) has_begun: bool,
    pub(crate) is_closing: bool,
    counting: Counting,
}

/// What is to come next.
pub(crate) enum Step {
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
            Self::Swallow(_) => None,
        }
    }
}

/// A value whose data are to come.
pub(crate) struct Block {
    pub write: Write,
    pub(crate) bytes: usize,
    pub answer: Answer,
}

/// How it is answered.
pub(crate) enum Answer {
    /// In the text protocol; with noreply, not at all.
    Text { is_quiet: bool },
    /// To a meta command.
    Meta(MetaAnswer),
}

/// Keys that are still to be answered.
#[derive(Clone, Copy)]
pub(crate) struct Keys {
    /// Bytes of the line in which they stand.
    pub(crate) bytes: usize,
    /// Bytes from there to the next line.
    pub(crate) tail_bytes: usize,
    /// Whether the cas is told.
    pub(crate) has_cas: bool,
    /// When they expire from now on, if that changes.
    pub(crate) touch: Option<Option<u64>>,
}

/// What a line leads to.
pub(crate) enum Next {
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

impl Next {
    /// The next line, after an answer of one line.
    pub(crate) fn answered(reply: &mut Vec<u8>, words: &str) -> Self {
        say(reply, words);
        Self::Line
    }
}

/// A line that is being carried out.
pub(crate) struct Line<'run, 'server> {
    pub connection: &'run Connection<'server>,
    pub words: &'run [&'run [u8]],
    pub reply: &'run mut Vec<u8>,
}

/// How far the input was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More input is needed, so many bytes at least, as far as is known.
    Incomplete(usize),
    /// Replies are to be sent first.
    Full,
}

impl<'server> Connection<'server> {
    /// A new one, of a client that is at `peer`.
    pub fn new(server: Server<'server>, peer: String) -> Self {
        let counting = server.state.counters.connect();
        Self { server, peer, step: Step::Line, has_begun: false, is_closing: false, counting }
    }

    /// Whether it is to be closed once the replies are out.
    pub fn is_closing(&self) -> bool {
        self.is_closing
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

    /// Notes what came and went.
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
