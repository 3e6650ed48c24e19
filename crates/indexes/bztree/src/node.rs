//! Nodes as a pinned thread reads them.
//!
//! A reachable node changes only in its status or gate, its slots, its dead bits, its children and
//! its value pointers. So keys and values are lent as plain slices. Leaves have a file of their
//! own, `leaf.rs`.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Words};
use pando_tree::context::Context;
use pando_tree::key::Side;
use pando_tree::value_block;

use crate::layout::{HEADER_BYTES, Header, Hint, InnerStatus, Kind, Link, STATUS_AT, Shape};
use crate::meta::key_hash;
use crate::slices::{Sliced, goes_right, search_numbers, search_range};

impl Link {
    /// The link in the word at `off`.
    #[inline(always)]
    pub fn at<D: Domain>(context: Context<'_, D>, off: u64) -> Self {
        Self(context.read(off))
    }

    /// Prefetches the lines of a node, all at once: the first, those of a leaf's slots, and those
    /// that the search of the sorted records, or of the separators, reads first.
    #[inline(always)]
    pub fn prefetch<D: Domain>(self, context: Context<'_, D>) {
        let (pool, off) = (context.pool(), self.off());
        pool.prefetch(off);
        let (start, eighth) = match self.hint() {
            Hint::None => {
                pool.prefetch(off + 64);
                return;
            }
            Hint::Leaf { searched_at, searched_bytes } => {
                // Slots stand behind the slices and the equally long metadata, or begin in the
                // first line.
                let slots_at = if searched_at == 0 { searched_bytes * 2 } else { 0 };
                pool.prefetch(off + slots_at + 64);
                pool.prefetch(off + slots_at + 128);
                (off + searched_at, searched_bytes / 8)
            }
            Hint::Inner { children } => (off + HEADER_BYTES + children * 8, children),
        };
        for turn in [4, 2, 6, 1, 3, 5, 7] {
            pool.prefetch(start + eighth * turn);
        }
    }
}

/// A node's fixed part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub off: u64,
    pub link: Link,
    pub header: Header,
    pub shape: Shape,
}

impl Node {
    /// The node that `link` names.
    #[inline(always)]
    pub fn at<D: Domain>(context: Context<'_, D>, link: Link) -> Self {
        let off = link.off();
        let Some(words) = context.pool().words_within(off, HEADER_BYTES / 8) else {
            return Self::nothing(context, link);
        };
        // Relaxed: the word that names the node published it, and was read with acquire.
        let header = Header::decode(words.at(0, Ordering::Relaxed));
        // This library has written each reachable node. Anything else is damage.
        let Some(header) = header else { return Self::nothing(context, link) };
        Self { off, link, header, shape: Shape::decode(words.at(2, Ordering::Relaxed)) }
    }

    /// An empty leaf instead of a damaged node.
    #[inline(always)]
    fn nothing<D: Domain>(context: Context<'_, D>, link: Link) -> Self {
        context.guard.note_damage(link.off());
        let header =
            Header { kind: Kind::Leaf, prefix_bytes: 0, count: 0, node_bytes: HEADER_BYTES };
        let shape = Shape { slots: 0, sorted_at: HEADER_BYTES, record_bytes: 0 };
        Self { off: link.off(), link, header, shape }
    }

    /// An empty leaf instead of an inner node at a depth that only a cycle can have.
    #[cold]
    pub fn too_deep<D: Domain>(&self, context: Context<'_, D>) -> Self {
        Self::nothing(context, self.link)
    }

    /// All words of the node.
    #[inline(always)]
    pub fn words<'op, D: Domain>(&self, context: Context<'op, D>) -> Words<'op, D> {
        context.pool().words(self.off, self.header.node_bytes / 8)
    }

    #[inline(always)]
    pub fn is_leaf(&self) -> bool {
        self.header.kind == Kind::Leaf
    }

    pub fn status_off(&self) -> u64 {
        self.off + STATUS_AT
    }

    /// The keys by their slices, which begin at `slices_at`; the first key is at `key_at`.
    #[inline(always)]
    pub fn sliced<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        slices_at: u64,
        key_at: u64,
    ) -> Sliced<'op, D> {
        Sliced {
            words: self.words(context),
            first: slices_at / 8,
            prefix: context.published(self.off + key_at, self.header.prefix_bytes as u64),
        }
    }
}

/// A key to search for, with precomputed parts that make comparisons cheap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'key> {
    pub bytes: &'key [u8],
    /// The key as a number, if it has eight bytes: numbers compare as the keys do.
    pub number: Option<u64>,
    /// A hash in which most keys differ.
    pub hash: u16,
}

impl<'key> Probe<'key> {
    #[inline(always)]
    pub fn new(bytes: &'key [u8]) -> Self {
        let number = bytes.try_into().ok().map(u64::from_be_bytes);
        Self { bytes, number, hash: key_hash(bytes) }
    }
}

/// The bytes of a value that has a block of its own.
pub(crate) fn value_of_block<'op, D: Domain>(context: Context<'op, D>, block: u64) -> &'op [u8] {
    let bytes = context.fixed(block);
    context.published(block + value_block::HEADER_BYTES, bytes)
}

/// An inner node with the status that an operation starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner {
    pub node: Node,
}

impl Inner {
    pub fn status<D: Domain>(&self, context: Context<'_, D>) -> InnerStatus {
        InnerStatus(context.read(self.node.status_off()))
    }

    #[inline(always)]
    pub fn children(&self) -> u64 {
        self.node.header.count
    }

    #[inline(always)]
    pub fn child_off(&self, index: u64) -> u64 {
        self.node.off + HEADER_BYTES + index * 8
    }

    #[inline(always)]
    pub fn child<D: Domain>(&self, context: Context<'_, D>, index: u64) -> Link {
        Link::at(context, self.child_off(index))
    }

    /// Separator `index`: the lowest key that child `index + 1` may hold.
    #[inline(always)]
    pub fn separator<'op, D: Domain>(&self, context: Context<'op, D>, index: u64) -> &'op [u8] {
        let shape = self.node.shape;
        if shape.is_uniform() {
            return context.published(self.node.off + shape.sorted_at + index * 8, 8);
        }
        let (at, bytes) = self.separator_place(context, index);
        context.published(self.node.off + at, bytes)
    }

    /// The offset of separator `index` in a node with key places, and its length.
    #[inline(always)]
    pub fn separator_place<D: Domain>(&self, context: Context<'_, D>, index: u64) -> (u64, u64) {
        // Behind the children and the slices.
        let places = 2 * self.children() - 1;
        let place = context.fixed(self.child_off(places + index));
        (place >> 32, place & 0xFFFF_FFFF)
    }

    /// The separators by their slices, if not all have eight bytes.
    #[inline(always)]
    fn sliced<'op, D: Domain>(&self, context: Context<'op, D>) -> Sliced<'op, D> {
        // The first separator stands first.
        let key_at = self.node.shape.sorted_at;
        self.node.sliced(context, HEADER_BYTES + self.children() * 8, key_at)
    }

    /// Whether the slices are those of the separators.
    pub fn slices_match<D: Domain>(&self, context: Context<'_, D>) -> bool {
        let Node { shape, header, .. } = self.node;
        if shape.is_uniform() || self.children() == 1 {
            return header.prefix_bytes == 0;
        }
        let (first_at, first_bytes) = self.separator_place(context, 0);
        first_at == shape.sorted_at
            && header.prefix_bytes as u64 <= first_bytes
            && self
                .sliced(context)
                .are_of((1..self.children()).map(|index| self.separator(context, index - 1)))
    }

    /// The child in which a search for the key continues.
    #[inline(always)]
    pub fn search<D: Domain>(&self, context: Context<'_, D>, probe: Probe<'_>, side: Side) -> u64 {
        let shape = self.node.shape;
        let separators = self.children() - 1;
        let above = side == Side::Holding;
        let prefetch = |low| {
            // The next child to read is one of sixteen.
            context.pool().prefetch(self.child_off(low));
            context.pool().prefetch(self.child_off(low + 8));
        };
        if !shape.is_uniform() {
            return self.sliced(context).search(
                0..separators,
                probe.bytes,
                above,
                |index| self.separator(context, index),
                prefetch,
            );
        }
        if let Some(number) = probe.number {
            let (words, first) = (self.node.words(context), shape.sorted_at / 8);
            return search_numbers(words, first, 1, separators, number, above, prefetch);
        }
        search_range(0..separators, |at| {
            goes_right(self.separator(context, at), probe.bytes, above)
        })
    }
}
