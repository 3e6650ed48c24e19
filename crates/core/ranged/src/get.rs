//! Gets that change nothing: most of them. They help no other thread, and need no context.
//!
//! A get searches the eight slots of its key's bucket at once, without branches. A slot of the key
//! may be found behind one that was read as free, or that was being changed. If it is present, it
//! is the current one nevertheless, because no other slot of the key is present then. Every other
//! answer takes a pass over the slots in their order ([`leaf`](crate::leaf)).
//!
//! A get that finds a word that is being changed, a value that may not be durable, or damage, is
//! unclear: the caller reads again, with a context.

use std::sync::atomic::Ordering;

use pando_inner::Node;
use pando_inner::layout::{Kind, Link, SHAPE_AT};
use pando_pmem::{Domain, Part, Words, word_index};
use pando_pmwcas::CONTROL_BITS;
use pando_tree::context::Context;

use crate::layout::{
    BUCKET_LINES, BUCKET_SLOTS, FREE, Geometry, LINE_SLOTS, LINE_WORDS, LOW_AT, Map, ShapeWord,
    State, ValueWord, is_taken,
};
use crate::leaf::{RangeLeaf, Taken, Until};

/// What a get has found, beside a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The key is present.
    Value,
    /// The key is absent.
    Absent,
    /// A thread with a context has to read it.
    Unclear,
}

/// Words of a bucket.
const BUCKET_WORDS: usize = (BUCKET_LINES * LINE_WORDS) as usize;
/// Words before the flush counters.
const HEAD_WORDS: usize = LOW_AT as usize / 8 + 1;

type Bucket<'pool, D> = Part<'pool, D, BUCKET_WORDS>;

/// The bits of a node's header that say how many records it had when it was built.
const COUNT_BITS: u64 = 0xFFFF << 32;
/// The index of no word of a bucket's keys.
const NOT_FOUND: u64 = 12;

/// The key word of slot `at` among the words of its bucket.
#[inline(always)]
fn word_of(at: u64) -> u64 {
    at / LINE_SLOTS * LINE_WORDS + at % LINE_SLOTS
}

/// The value of `key` in the leaf at word `leaf` of `all`. Beside [`Seen::Absent`] the number has
/// no meaning; beside [`Seen::Unclear`], also if it is no range leaf, it is `unclear`. The thread
/// is pinned since before it read the word that led to the leaf.
#[inline(always)]
pub fn see<D: Domain>(all: Words<'_, D>, leaf: u64, key: u64, unclear: u64) -> (Seen, u64) {
    let Some(head) = Head::of(all, leaf) else { return (Seen::Unclear, unclear) };
    let Head { words, shape, low } = head;
    let distance = key.wrapping_sub(low);
    if distance > shape.key_words().most() {
        return (Seen::Absent, 0);
    }
    let bucket = match shape.multiplier() {
        0 => RangeLeaf::uneven_bucket(words, shape.buckets(), distance >> shape.separator_shift()),
        multiplier => Map::even_bucket(multiplier, shape.shift(), distance),
    };
    let bucket = bucket.min((shape.buckets() - 1) & 15);
    let first = Geometry::first_line(bucket);
    let Some(slots) = words.chunk::<BUCKET_WORDS>(first * LINE_WORDS) else {
        return (Seen::Unclear, unclear);
    };
    // Without branches: which slot the key has, no processor can predict.
    let mut at = NOT_FOUND;
    // Of two slots of the key the later one is found, the current one once the key has moved.
    for index in (0..BUCKET_SLOTS).map(word_of) {
        // Acquire: the value word is read later.
        let key_word = slots.load(index, Ordering::Acquire);
        if shape.key_words().is_of(key_word, distance) {
            at = index;
        }
    }
    if at != NOT_FOUND {
        // Once more: a choice among all that were read would keep them in memory.
        let key_word = slots.load(at, Ordering::Acquire);
        // This is the value's index: the bit is zero in that of each key word.
        let value = ValueWord(slots.load(at | LINE_SLOTS, Ordering::Acquire));
        let line = first + at / LINE_WORDS;
        if key_word & CONTROL_BITS == 0
            && is_current(slots, at, key_word, value)
            && !RangeLeaf::is_counted(words, line)
        {
            return (Seen::Value, value.whole(key_word));
        }
    }
    see_in_order(words, shape, distance, bucket, unclear)
}

impl RangeLeaf {
    /// The value of `key`.
    #[inline(always)]
    pub fn get<D: Domain>(&self, context: Context<'_, D>, key: u64) -> Option<u64> {
        match see(context.pool().all_words(), word_index(self.node.off), key, 0) {
            (Seen::Value, value) => Some(value),
            (Seen::Absent, _) => None,
            (Seen::Unclear, _) => Self::get_further(context, self.node.link, key),
        }
    }

    /// The value of a key whose slot, or a slot before it, is being changed, or may not be durable,
    /// or of a damaged leaf. `link` names the leaf.
    // With few values in registers: each get would write the whole leaf to memory for a reference.
    #[cold]
    #[inline(never)]
    fn get_further<D: Domain>(context: Context<'_, D>, link: Link, key: u64) -> Option<u64> {
        let leaf = Self::of(context, Node::at(context, link))?;
        let distance = leaf.distance(key)?;
        leaf.look(context, distance, Until::Current).current.and_then(Taken::value)
    }
}

/// The parts of a leaf that a get needs.
struct Head<'pool, D> {
    words: Words<'pool, D>,
    shape: ShapeWord,
    low: u64,
}

impl<'pool, D: Domain> Head<'pool, D> {
    /// Those of the leaf at word `leaf` of `all`, if it is a range leaf.
    #[inline(always)]
    fn of(all: Words<'pool, D>, leaf: u64) -> Option<Self> {
        let rest = all.skip(leaf)?;
        let head = rest.chunk::<HEAD_WORDS>(0)?;
        // Relaxed: the word that names the node published it, and was read with acquire.
        let word = |off: u64| head.load(off / 8, Ordering::Relaxed);
        let shape = ShapeWord::of(word(SHAPE_AT) >> 16)?;
        // Of a header of another kind, a greater number remains than there are words.
        let node_bytes = (word(0) & !COUNT_BITS).wrapping_sub((Kind::Leaf as u64) << 56);
        let words = rest.take(node_bytes / 8)?;
        // The head lies in the node, too.
        words.chunk::<HEAD_WORDS>(0)?;
        Some(Self { words, shape, low: word(LOW_AT).swap_bytes() })
    }
}

/// Whether the key with the slot whose key word is at `at` is present with `value`.
#[inline(always)]
fn is_current<D: Domain>(slots: Bucket<'_, D>, at: u64, key_word: u64, value: ValueWord) -> bool {
    value.is_plain()
        || value.is_present()
            && value.0 & CONTROL_BITS == 0
            // As for `RangeLeaf::taken`.
            && (!value.has_version() || slots.load(at, Ordering::Acquire) == key_word)
}

/// The value of the key with this distance, by a pass over its slots in their order.
#[inline(never)]
fn see_in_order<D: Domain>(
    words: Words<'_, D>,
    shape: ShapeWord,
    distance: u64,
    bucket: u64,
    unclear: u64,
) -> (Seen, u64) {
    try_see_in_order(words, shape, distance, bucket).unwrap_or((Seen::Unclear, unclear))
}

#[inline(always)]
fn try_see_in_order<D: Domain>(
    words: Words<'_, D>,
    shape: ShapeWord,
    distance: u64,
    bucket: u64,
) -> Option<(Seen, u64)> {
    let key_words = shape.key_words();
    let slots: Bucket<'_, D> = words.chunk(Geometry::first_line(bucket) * LINE_WORDS)?;
    // Without branches, for the gets of absent keys.
    let (mut any, mut is_there, mut last) = (0, false, FREE);
    for at in 0..BUCKET_SLOTS {
        // Acquire, here and below: a later slot is read later, and a value after its key.
        last = slots.load(word_of(at), Ordering::Acquire);
        any |= last;
        is_there |= key_words.is_of(last, distance);
    }
    if any & CONTROL_BITS != 0 {
        // One of them is being changed: it may be that of the key.
        return None;
    }
    let first = match is_there {
        true => 0,
        // When the first free slot was read, no slot of the key was behind it.
        false if last == FREE => return Some((Seen::Absent, 0)),
        false => BUCKET_LINES,
    };
    let geometry = shape.geometry();
    for index in first..geometry.key_lines() {
        let number = geometry.line_of(bucket, index);
        let line = words.chunk::<{ LINE_WORDS as usize }>(number * LINE_WORDS)?;
        for at in 0..LINE_SLOTS {
            let key_word = line.load(at, Ordering::Acquire);
            if key_word & CONTROL_BITS != 0 {
                return None;
            }
            if key_words.is_of(key_word, distance) {
                let value = ValueWord(line.load(at + LINE_SLOTS, Ordering::Acquire));
                if value.0 & CONTROL_BITS != 0 {
                    return None;
                }
                if value.state() == State::Moved {
                    continue;
                }
                let is_of_another_key_word =
                    value.has_version() && line.load(at, Ordering::Acquire) != key_word;
                if is_of_another_key_word || RangeLeaf::is_counted(words, number) {
                    return None;
                }
                let absent = (Seen::Absent, 0);
                return Some(value.value(key_word).map_or(absent, |value| (Seen::Value, value)));
            }
            if !is_taken(key_word) {
                return Some((Seen::Absent, 0));
            }
        }
    }
    Some((Seen::Absent, 0))
}
