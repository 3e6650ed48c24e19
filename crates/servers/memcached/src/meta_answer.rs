//! Replies to meta commands.

use crate::parse::Rest;
use crate::reply::{push_number, say};
use crate::storage::{Outcome, Write};
use crate::{base64, expiry};

/// The parts of a reply to ms.
pub(crate) struct MetaAnswer {
    pub is_quiet: bool,
    /// The flags in the reply.
    pub words: Vec<u8>,
}

impl MetaAnswer {
    /// Writes the reply for the result of a write.
    pub(crate) fn say(&self, write: &Write, outcome: Outcome, reply: &mut Vec<u8>) {
        let (status, cas) = match outcome {
            Outcome::Done(_) if self.is_quiet => return,
            Outcome::Done(cas) => (b"HD", cas),
            Outcome::Refused => (b"NS", 0),
            Outcome::OtherCas => (b"EX", 0),
            Outcome::Missing => (b"NF", 0),
        };
        reply.extend_from_slice(status);
        for word in Rest(&self.words) {
            match word[0] {
                b'k' => push_key(reply, &write.key, write.is_binary_key),
                b'c' => push_flag(reply, b'c', cas),
                _ => push_word(reply, word),
            }
        }
        say(reply, "");
    }
}

pub(crate) fn push_word(reply: &mut Vec<u8>, word: &[u8]) {
    reply.push(b' ');
    reply.extend_from_slice(word);
}

pub(crate) fn push_key(reply: &mut Vec<u8>, key: &[u8], is_binary_key: bool) {
    reply.extend_from_slice(b" k");
    if is_binary_key {
        base64::encode(key, reply);
        reply.extend_from_slice(b" b");
    } else {
        reply.extend_from_slice(key);
    }
}

pub(crate) fn push_flag(reply: &mut Vec<u8>, letter: u8, number: u64) {
    reply.extend_from_slice(&[b' ', letter]);
    push_number(reply, number);
}

pub(crate) fn push_time(reply: &mut Vec<u8>, expires_at: Option<u64>, now_ms: u64) {
    match expires_at {
        None => reply.extend_from_slice(b" t-1"),
        Some(at) => push_flag(reply, b't', expiry::seconds_left(at, now_ms)),
    }
}
