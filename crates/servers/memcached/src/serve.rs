//! Executes the input of a client: a line, the data of a value, keys of a get.

use std::time::Instant;

use crate::connection::{Answer, Block, Connection, Keys, Next, Progress, Step};
use crate::counters::Counter;
use crate::reply::{say, server_error};
use crate::storage::{self, Outcome};
use crate::{flush, parse, text};

/// The longest line without an end, in bytes.
const MAX_LINE_BYTES: usize = 2048;
/// The longest line of a get without an end, in bytes. It may have many keys.
const MAX_KEYS_LINE_BYTES: usize = 1 << 20;
/// The most spaces before the name of a get in a line without an end.
const MAX_LEADING_SPACES: usize = 100;
/// The first byte of the binary protocol.
const BINARY: u8 = 0x80;
impl Connection<'_> {
    /// Executes the requests in `input` from `begin` on, and moves `begin` after them. Stops when
    /// `reply` has `send_bytes`. The effects of its replies survive the death of the process.
    pub fn carry_out(
        &mut self,
        input: &[u8],
        begin: &mut usize,
        reply: &mut Vec<u8>,
        send_bytes: usize,
    ) -> Progress {
        let mut begun_at = Instant::now();
        let mut reply_begin = reply.len();
        while !self.is_closing {
            if reply.len() >= send_bytes || self.must_sync() {
                // Maybe in the middle of a reply.
                self.note_written(reply_begin..reply.len());
                return Progress::Full;
            }
            let rest = &input[*begin..];
            if !rest.is_empty() && self.is_behind() && self.step.may_write(rest) {
                self.note_written(reply_begin..reply.len());
                return Progress::Behind;
            }
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
                Step::Skip(left) => {
                    let skipped = rest.len().min(*left);
                    *begin += skipped;
                    *left -= skipped;
                    if *left > 0 {
                        return Progress::Incomplete(0);
                    }
                    self.step = Step::Line;
                }
                &mut Step::Keys(keys) => {
                    *begin += text::retrieve(self, keys, rest, reply, send_bytes);
                }
            }
            // A request whose data is ignored has its reply before the data.
            if matches!(self.step, Step::Line | Step::Skip(_)) {
                self.note_written(reply_begin..reply.len());
                reply_begin = reply.len();
            }
            if let (Some(kind), Step::Line) = (kind, &self.step) {
                let done_at = Instant::now();
                self.server.stats.note_request(kind, done_at.duration_since(begun_at));
                begun_at = done_at;
            }
        }
        Progress::Incomplete(0)
    }

    /// Executes the line at the begin of `input`. Returns the number of its bytes up to the begin
    /// of the next step's input.
    fn line(&mut self, input: &[u8], reply: &mut Vec<u8>) -> Option<usize> {
        if !self.has_begun && input.first() == Some(&BINARY) {
            tracing::debug!("a client uses memcached's binary protocol; its connection is closed");
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
        if let Err(failure) = flush::flush_if_due(*self.server)
            && text::needs_values(line)
        {
            if !text::is_quiet(line) {
                server_error(reply, &failure);
            }
            return Some(end + 1);
        }
        self.is_meta = line.trim_ascii_start().starts_with(b"m");
        self.step = match text::command(self, line, reply) {
            Next::Line => Step::Line,
            Next::Block(block) => Step::Block(block),
            Next::Skip(bytes) => Step::Skip(bytes),
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

    /// Closes the connection if a line without an end exceeds its limit.
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

    /// Stores a value; `data` has its bytes and a line end.
    fn block(&self, block: &Block, data: &[u8], reply: &mut Vec<u8>) {
        let Block { write, answer, .. } = block;
        self.count(Counter::Set);
        let Some(bytes) = data.strip_suffix(b"\r\n") else {
            if !matches!(answer, Answer::Text { is_quiet: true }) {
                say(reply, "CLIENT_ERROR bad data chunk");
            }
            return;
        };
        let max_item_bytes = self.server.state.max_item_bytes;
        // A delayed flush that is refused would remove the new value, too.
        let stored = flush::flush_if_due(*self.server)
            .and_then(|()| storage::store(&self.server, write, bytes, max_item_bytes));
        let outcome = match stored {
            Ok(outcome) => outcome,
            Err(failure) => {
                // The client wants to replace the old value, so it must not remain.
                let is_cache = self.server.store.page_bytes().is_none();
                if is_cache && write.mode == storage::Mode::Set && failure.is_no_memory() {
                    let _ = storage::delete(&self.server, &write.key);
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
