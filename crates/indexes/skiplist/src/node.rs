//! Reads of nodes by a pinned thread.

use std::cmp::Ordering as Compare;

use pando_pmem::{Domain, mutant};
use pando_tree::context::Context;
use pando_tree::key::{Probe, SLICE_BYTES};
use pando_tree::value_block::HEADER_BYTES;

use crate::hint::Hint;
use crate::layout::{
    INFO_AT, Info, MARK, OFF_MASK, PREV_AT, SLICE_AT, SMALL_AT, STATE_AT, next_at, slice_at,
    tail_at,
};
use crate::state::{Kind, SMALL_BYTES, State};

/// A node, by the offset of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(pub u64);

impl Node {
    #[inline(always)]
    pub fn next_off(self, level: usize) -> u64 {
        self.0 + next_at(level)
    }

    pub fn prev_off(self) -> u64 {
        self.0 + PREV_AT
    }

    pub fn state_off(self) -> u64 {
        self.0 + STATE_AT
    }

    pub fn small_off(self) -> u64 {
        self.0 + SMALL_AT
    }
}

/// A `next` word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next(pub u64);

impl Next {
    /// Leads to `node`, with a hint of its key.
    #[inline(always)]
    pub fn to(node: Node, hint: Hint) -> Self {
        Self(node.0 | hint.to_word())
    }

    #[inline(always)]
    pub fn node(self) -> Node {
        Node(self.0 & OFF_MASK)
    }

    /// Whether the word's node is unlinked from that level.
    #[inline(always)]
    pub fn is_marked(self) -> bool {
        self.0 & MARK != 0
    }

    #[inline(always)]
    pub fn hint(self) -> Hint {
        Hint::of_word(self.0)
    }

    pub fn marked(self) -> Self {
        Self(self.0 | MARK)
    }

    #[inline(always)]
    pub fn unmarked(self) -> Self {
        Self(self.0 & !MARK)
    }
}

/// A key of a node: its slice, and the bytes behind it.
#[derive(Clone, Copy, Debug)]
pub struct Key<'op> {
    pub slice: u64,
    pub bytes: usize,
    pub tail: &'op [u8],
}

impl Key<'_> {
    /// Compares the key with another one that has the same slice.
    fn compare_rest(self, other: &[u8]) -> Compare {
        match other.get(SLICE_BYTES..) {
            Some(rest) if self.bytes > SLICE_BYTES => self.tail.cmp(rest),
            // One of them ends within its slice, and the other begins with it.
            _ => self.bytes.cmp(&other.len()),
        }
    }

    /// Appends the key's bytes to `target`.
    #[inline(always)]
    pub fn copy_to(self, target: &mut Vec<u8>) {
        let first = self.slice.to_be_bytes();
        target.extend_from_slice(&first[..self.bytes.min(SLICE_BYTES)]);
        target.extend_from_slice(self.tail);
    }
}

/// A value to be lent.
#[derive(Clone, Copy, Debug)]
pub enum Value<'op> {
    /// Copied from the node's words, and its length.
    Small([u8; SMALL_BYTES], usize),
    /// A slice of the pool.
    Bytes(&'op [u8]),
}

impl Value<'_> {
    #[inline(always)]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Small(bytes, length) => &bytes[..*length],
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Node {
    #[inline(always)]
    pub fn next<D: Domain>(self, context: Context<'_, D>, level: usize) -> Next {
        Next(context.read(self.next_off(level)))
    }

    #[inline(always)]
    pub fn prev<D: Domain>(self, context: Context<'_, D>) -> Self {
        Self(context.read(self.prev_off()))
    }

    #[inline(always)]
    pub fn state<D: Domain>(self, context: Context<'_, D>) -> State {
        State(context.read(self.state_off()))
    }

    /// The node's lengths as they are stored, valid or not.
    #[inline(always)]
    pub fn info<D: Domain>(self, context: Context<'_, D>) -> Info {
        Info::decode(context.fixed(self.0 + INFO_AT))
    }

    /// The same, if the lengths are valid. Otherwise damage is noted, and the result is that of a
    /// node without key and value.
    #[inline(always)]
    fn checked_info<D: Domain>(self, context: Context<'_, D>) -> Info {
        let info = self.info(context);
        if info.is_valid() { info } else { self.no_info(context) }
    }

    #[cold]
    fn no_info<D: Domain>(self, context: Context<'_, D>) -> Info {
        context.guard.note_damage(self.0);
        Info { height: 1, key_bytes: 0, inline_bytes: 0 }
    }

    #[inline(always)]
    pub fn slice<D: Domain>(self, context: Context<'_, D>) -> u64 {
        context.fixed(self.0 + SLICE_AT)
    }

    /// The same, from the line that has the node's word of `level`.
    #[inline(always)]
    pub fn slice_on<D: Domain>(self, context: Context<'_, D>, level: usize) -> u64 {
        context.fixed(self.0 + slice_at(level))
    }

    #[inline(always)]
    pub fn key<'op, D: Domain>(self, context: Context<'op, D>) -> Key<'op> {
        let info = self.checked_info(context);
        let tail = context.published(self.0 + tail_at(info.height), info.tail_key_bytes());
        Key { slice: self.slice(context), bytes: info.key_bytes, tail }
    }

    /// Compares the node's key with `probe`.
    #[inline(always)]
    pub fn compare<D: Domain>(self, context: Context<'_, D>, probe: Probe<'_>) -> Compare {
        match self.slice(context).cmp(&probe.slice) {
            Compare::Equal => self.key(context).compare_rest(probe.bytes),
            other => other,
        }
    }

    /// The hint for a word of a node with the slice `from` that will lead here.
    pub fn hint_from<D: Domain>(self, context: Context<'_, D>, from: u64, head: Self) -> Hint {
        if self == head { Hint::NONE } else { Hint::between(from, self.slice(context)) }
    }

    /// The value of the node, with the state that it belongs to; `None` if the record is deleted.
    #[inline(always)]
    pub fn value<'op, D: Domain>(self, context: Context<'op, D>) -> Option<(State, Value<'op>)> {
        loop {
            let state = self.state(context);
            if state.is_deleted() {
                return None;
            }
            let value = match state.kind() {
                Some(Kind::Small) => {
                    // Both loads acquire, so they are made in this order, and so is the next one.
                    let word = context.read(self.small_off());
                    if !mutant!("skip-torn-small") && self.state(context) != state {
                        continue;
                    }
                    let bytes = state.small_bytes().min(SMALL_BYTES);
                    Value::Small(state.small_value(word), bytes)
                }
                Some(Kind::Inline) => {
                    let info = self.checked_info(context);
                    let at = self.0 + info.inline_at();
                    Value::Bytes(context.published(at, u64::from(info.inline_bytes)))
                }
                Some(Kind::Block) => {
                    let block = state.block_off();
                    let bytes = context.fixed(block);
                    Value::Bytes(context.published(block + HEADER_BYTES, bytes))
                }
                // Only damage causes such a state.
                None => {
                    context.guard.note_damage(self.0);
                    Value::Bytes(&[])
                }
            };
            return Some((state, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_tree::key::slice_of;

    use super::*;

    #[test]
    fn keys_compare_as_their_bytes_do() {
        let keys: [&[u8]; 12] = [
            b"",
            b"\0",
            b"\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\x01",
            b"a",
            b"a\0\0\0\0\0\0\0",
            b"a\0\0\0\0\0\0\0\0b",
            b"a\0\0\0\0\0\0\0\x01",
            b"a\x01",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        for left in keys {
            for right in keys {
                let tail = left.get(SLICE_BYTES..).unwrap_or_default();
                let key = Key { slice: slice_of(left), bytes: left.len(), tail };
                let compared =
                    key.slice.cmp(&slice_of(right)).then_with(|| key.compare_rest(right));
                assert_eq!(compared, left.cmp(right), "{left:?} {right:?}");
                let mut copy = Vec::new();
                key.copy_to(&mut copy);
                assert_eq!(copy, left);
            }
        }
    }
}
