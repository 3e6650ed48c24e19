//! Nodes as a pinned thread reads them. A reachable inner node changes only in its status and its
//! children. So keys are lent as plain slices.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool, Words};
use pando_tree::context::Context;
use pando_tree::key::Side;

use crate::guess::{Span, prefetch_guessed, search_guessed};
use crate::layout::{
    HEADER_BYTES, Header, Hint, Kind, Link, SLICED_BYTES, STATUS_AT, Shape, Status,
};
use crate::slices::{Sliced, goes_right, search_numbers, search_range};

/// So many separators lie in two or three lines, which need no prefetch.
const MAX_FEW: u64 = 16;

/// What this crate has to know of an index's leaves.
pub trait Leaves: Copy {
    /// Prefetches lines of a leaf that a search reads, as far as the `hint` of its link tells them;
    /// the first line is prefetched already. `prefetch` prefetches the line at an offset in the
    /// leaf. `distance` is that of the key from the leaf's lower bound, as far as that is known, if
    /// both have eight bytes.
    fn prefetch(prefetch: impl Fn(u64), hint: u16, distance: u64);
}

impl Link {
    /// The link in the word at `off`.
    #[inline(always)]
    pub fn at<D: Domain>(context: Context<'_, D>, off: u64) -> Self {
        Self(context.read(off))
    }

    /// Prefetches lines of a node, all at once: the first, and those that a search reads next.
    /// Returns a guess of the child of an inner node, or zero.
    #[inline(always)]
    pub(crate) fn prefetch<D: Domain, L: Leaves>(
        self,
        context: Context<'_, D>,
        span: Span,
        number: Option<u64>,
    ) -> u64 {
        let (pool, off) = (context.pool(), self.off());
        pool.prefetch(off);
        match (self.hint(), number) {
            (Hint::None, _) => pool.prefetch(off + 64),
            (Hint::Leaf(hint), _) => {
                let distance = number.unwrap_or(0).wrapping_sub(span.low);
                L::prefetch(|at| pool.prefetch(off + at), hint, distance);
            }
            (Hint::Inner { children }, Some(number)) => {
                let guess = span.guess(number, children - 1);
                prefetch_guessed(pool, off, children, guess);
                return guess;
            }
            (Hint::Inner { children }, None) => {
                prefetch_searched(pool, off + HEADER_BYTES + children * 8, children);
            }
        }
        0
    }
}

/// Prefetches lines among the numbers at `start` that a search reads first; `eighth` of their
/// bytes.
#[inline(always)]
pub(crate) fn prefetch_searched<D: Domain>(pool: &Pool<D>, start: u64, eighth: u64) {
    each_searched(eighth, |at| pool.prefetch(start + at));
}

/// Calls `prefetch` with the places, behind the first of some numbers, that a search of the numbers
/// reads first; `eighth` of their bytes.
#[inline(always)]
pub fn each_searched(eighth: u64, prefetch: impl Fn(u64)) {
    for turn in [4, 2, 6, 1, 3, 5, 7] {
        prefetch(eighth * turn);
    }
}

/// A node's fixed part.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its offset.
    pub off: u64,
    /// The link that led to it.
    pub link: Link,
    // Not decoded: a descent copies nodes, and reads few parts of these words.
    header: u64,
    shape: u64,
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
        let (header, shape) = (words.at(0, Ordering::Relaxed), words.at(2, Ordering::Relaxed));
        if !Header::is_possible(header) {
            // This library has written each reachable node. Anything else is damage.
            return Self::nothing(context, link);
        }
        Self { off, link, header, shape }
    }

    /// An empty leaf instead of a damaged node.
    #[inline(always)]
    pub(crate) fn nothing<D: Domain>(context: Context<'_, D>, link: Link) -> Self {
        context.guard.note_damage(link.off());
        let header =
            Header { kind: Kind::Leaf, prefix_bytes: 0, count: 0, node_bytes: HEADER_BYTES };
        let shape = Shape { slots: 0, sorted_at: HEADER_BYTES, record_bytes: 0 };
        Self { off: link.off(), link, header: header.encode(), shape: shape.encode() }
    }

    /// Its first word.
    #[inline(always)]
    pub fn header(&self) -> Header {
        Header::of(self.header)
    }

    /// Its third word.
    #[inline(always)]
    pub fn shape(&self) -> Shape {
        Shape::decode(self.shape)
    }

    /// An empty leaf instead of an inner node where only a leaf can be: after more levels than any
    /// tree has, or beside a leaf.
    #[cold]
    pub(crate) fn too_deep<D: Domain>(&self, context: Context<'_, D>) -> Self {
        Self::nothing(context, self.link)
    }

    /// All words of the node.
    #[inline(always)]
    pub fn words<'op, D: Domain>(&self, context: Context<'op, D>) -> Words<'op, D> {
        context.pool().words(self.off, self.header().node_bytes / 8)
    }

    /// Whether it is a leaf.
    #[inline(always)]
    pub fn is_leaf(&self) -> bool {
        self.header().kind == Kind::Leaf
    }

    /// The offset of its second word.
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
            prefix: context.published(self.off + key_at, self.header().prefix_bytes as u64),
        }
    }
}

/// A key to search for.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'key> {
    /// Its bytes.
    pub bytes: &'key [u8],
    /// The key as a number, if it has eight bytes: numbers compare as the keys do.
    pub number: Option<u64>,
}

impl<'key> Probe<'key> {
    /// A search for this key.
    #[inline(always)]
    pub fn new(bytes: &'key [u8]) -> Self {
        Self { bytes, number: bytes.try_into().ok().map(u64::from_be_bytes) }
    }
}

/// An inner node.
#[derive(Clone, Copy, Debug)]
pub struct Inner {
    /// Its fixed part.
    pub node: Node,
}

impl Inner {
    /// The present status.
    pub fn status<D: Domain>(&self, context: Context<'_, D>) -> Status {
        Status(context.read(self.node.status_off()))
    }

    /// The number of children, at least one.
    #[inline(always)]
    pub fn children(&self) -> u64 {
        self.node.header().count
    }

    /// The offset of the word that names child `index`.
    #[inline(always)]
    pub fn child_off(&self, index: u64) -> u64 {
        self.node.off + HEADER_BYTES + index * 8
    }

    /// Child `index`.
    #[inline(always)]
    pub fn child<D: Domain>(&self, context: Context<'_, D>, index: u64) -> Link {
        Link::at(context, self.child_off(index))
    }

    /// The bounds of child `index`, if those of the node are `span`, as far as they have eight
    /// bytes.
    #[inline(always)]
    pub(crate) fn child_span<D: Domain>(
        &self,
        context: Context<'_, D>,
        span: Span,
        index: u64,
    ) -> Span {
        let shape = self.node.shape();
        if !shape.is_uniform() {
            return span;
        }
        let words = self.node.words(context);
        let first = shape.sorted_at / 8;
        // Relaxed: as of all separators.
        let separator = |index: u64| words.load(first + index, Ordering::Relaxed).swap_bytes();
        Span {
            low: if index > 0 { separator(index - 1) } else { span.low },
            high: if index + 1 < self.children() { separator(index) } else { span.high },
        }
    }

    /// Separator `index`: the lowest key that child `index + 1` may hold.
    #[inline(always)]
    pub fn separator<'op, D: Domain>(&self, context: Context<'op, D>, index: u64) -> &'op [u8] {
        let shape = self.node.shape();
        if shape.is_uniform() {
            return context.published(self.node.off + shape.sorted_at + index * 8, 8);
        }
        let (at, bytes) = self.separator_place(context, index);
        context.published(self.node.off + at, bytes)
    }

    /// The offset of separator `index` in a node with key places, and its length.
    #[inline(always)]
    fn separator_place<D: Domain>(&self, context: Context<'_, D>, index: u64) -> (u64, u64) {
        // Behind the children and the slices.
        let places = 2 * self.children() - 1;
        let place = context.fixed(self.child_off(places + index));
        (place >> 32, place & 0xFFFF_FFFF)
    }

    /// The separators by their slices, if not all have eight bytes.
    #[inline(always)]
    fn sliced<'op, D: Domain>(&self, context: Context<'op, D>) -> Sliced<'op, D> {
        // The first separator stands first.
        let key_at = self.node.shape().sorted_at;
        self.node.sliced(context, HEADER_BYTES + self.children() * 8, key_at)
    }

    /// Whether the slices are those of the separators.
    pub(crate) fn slices_match<D: Domain>(&self, context: Context<'_, D>) -> bool {
        let (header, shape) = (self.node.header(), self.node.shape());
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

    /// Whether the children, and the separators, lie in the node.
    pub(crate) fn is_within_bounds<D: Domain>(&self, context: Context<'_, D>) -> bool {
        let (header, shape) = (self.node.header(), self.node.shape());
        let separators = self.children() - 1;
        let children_end = HEADER_BYTES + self.children() * 8;
        if shape.is_uniform() {
            let end = shape.sorted_at + separators * 8;
            return shape.sorted_at.is_multiple_of(8)
                && shape.sorted_at >= children_end
                && end <= header.node_bytes;
        }
        let places_end = children_end + separators * SLICED_BYTES;
        places_end <= header.node_bytes
            && (0..separators).all(|index| {
                let (at, bytes) = self.separator_place(context, index);
                at >= places_end && at + bytes <= header.node_bytes
            })
    }

    /// The child in which a search for the key continues; `guess` is the one that it probably is.
    #[inline(always)]
    pub fn search<D: Domain>(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        side: Side,
        guess: u64,
    ) -> u64 {
        let shape = self.node.shape();
        let (separators, above) = (self.children() - 1, side == Side::Holding);
        if let (Some(number), true) = (probe.number, shape.is_uniform()) {
            let (words, first) = (self.node.words(context), shape.sorted_at / 8);
            let found = search_guessed(words, first, separators, number, above, guess);
            return found.unwrap_or_else(|| self.search_all(context, number, above));
        }
        self.search_bytes(context, probe.bytes, above)
    }

    /// The child for a number, by a search of all separators: after a wrong guess, or of few.
    #[inline(never)]
    pub(crate) fn search_all<D: Domain>(
        &self,
        context: Context<'_, D>,
        number: u64,
        above: bool,
    ) -> u64 {
        let (words, shape) = (self.node.words(context), self.node.shape());
        let separators = self.children() - 1;
        if separators > MAX_FEW {
            prefetch_searched(context.pool(), self.node.off + shape.sorted_at, separators);
        }
        let prefetch = |low| self.prefetch_children(context, low);
        search_numbers(words, shape.sorted_at / 8, 1, separators, number, above, prefetch)
    }

    /// The child for a key, if not all separators have eight bytes or the key has not.
    #[inline]
    fn search_bytes<D: Domain>(&self, context: Context<'_, D>, key: &[u8], above: bool) -> u64 {
        let separators = 0..self.children() - 1;
        let separator = |index| self.separator(context, index);
        if self.node.shape().is_uniform() {
            return search_range(separators, |at| goes_right(separator(at), key, above));
        }
        let prefetch = |low| self.prefetch_children(context, low);
        self.sliced(context).search(separators, key, above, separator, prefetch)
    }

    /// Prefetches the children of which the search takes one: sixteen from `low` on.
    #[inline(always)]
    fn prefetch_children<D: Domain>(&self, context: Context<'_, D>, low: u64) {
        context.pool().prefetch(self.child_off(low));
        context.pool().prefetch(self.child_off(low + 8));
    }
}
