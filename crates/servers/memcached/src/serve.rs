//! Carries out what a client sends: a line, a value's data, keys of a get.

use std::time::Instant;

use crate::connection::{Answer, Block, Connection, Keys, Next, Progress, Step};
use crate::counters::Counter;
use crate::reply::{say, server_error};
use crate::storage::{self, Outcome};
use crate::{flush, parse, text};

/// Bytes of a line that is not known to end.
const MAX_LINE_BYTES: usize = 2048;
/// The same of a get, which may name many keys.
const MAX_KEYS_LINE_BYTES: usize = 1 << 20;
/// Spaces before a get's name, in a line that is not known to end.
const MAX_LEADING_SPACES: usize = 100;
/// First byte of the binary protocol.
const BINARY: u8 = 0x80;
impl Connection<'_> {
    /// Carries out what stands in `input` from `begin` on, and moves `begin` behind it. Stops once
    /// `reply` has `send_bytes`. What it says is durable.
    pub fn carry_out(
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
        let max_item_bytes = self.server.state.max_item_bytes;
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
