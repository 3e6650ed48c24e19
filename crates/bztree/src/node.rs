//! Nodes as a pinned thread reads them.
//!
//! Everything in a node but its status, its metadata, its children and its value pointers never
//! changes once it can be reached, so keys and values are lent as plain slices.

use std::cmp::Ordering as Compare;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Pool};
use pando_pmwcas::Pmwcas;

use crate::layout::{
    HEADER_BYTES, Header, InnerStatus, Kind, LeafStatus, Meta, SHAPE_AT, STATUS_AT, Shape,
};

/// What an operation reads and writes with.
#[derive(Debug)]
pub(crate) struct Context<'op, 'pool, D: Domain> {
    pub pmwcas: &'op Pmwcas<D>,
    pub guard: &'op Guard<'pool, D>,
}

impl<D: Domain> Clone for Context<'_, '_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain> Copy for Context<'_, '_, D> {}

impl<'op, 'pool, D: Domain> Context<'op, 'pool, D> {
    #[inline(always)]
    pub fn pool(self) -> &'op Pool<D> {
        self.pmwcas.pool()
    }

    #[inline(always)]
    pub fn read(self, off: u64) -> u64 {
        self.pmwcas.read(self.guard, off)
    }

    /// A word that never changes while it can be reached.
    #[inline(always)]
    fn fixed(self, off: u64) -> u64 {
        // Relaxed: the node was published by the word that led here, which was read with acquire.
        self.pool().word(off).load(Ordering::Relaxed)
    }

    /// Bytes of a published record, key or value.
    #[inline(always)]
    pub fn bytes(self, off: u64, bytes: u64) -> &'op [u8] {
        // SAFETY: records, keys and value blocks are written before they are published and never
        // after, and the guard keeps what was reachable since it was taken from being reused. The
        // offset came from a published node.
        unsafe { self.pool().bytes(off, bytes) }
    }

    /// The node at `off`.
    #[inline(always)]
    pub fn node(self, off: u64) -> Node {
        let header = Header::decode(self.fixed(off));
        // A node that is reachable was written by this library; anything else is a damaged pool.
        let header = header.unwrap_or(Header { kind: Kind::Leaf, count: 0, node_bytes: HEADER_BYTES });
        Node { off, header, shape: Shape::decode(self.fixed(off + SHAPE_AT)) }
    }
}

/// A node's fixed part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub off: u64,
    pub header: Header,
    pub shape: Shape,
}

impl Node {
    #[inline(always)]
    pub fn is_leaf(&self) -> bool {
        self.header.kind == Kind::Leaf
    }

    pub fn status_off(&self) -> u64 {
        self.off + STATUS_AT
    }
}

/// A key to be searched for, with what makes comparing it cheap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'key> {
    pub bytes: &'key [u8],
    /// The key as a number, if it has eight bytes: numbers compare as the keys do.
    pub number: Option<u64>,
}

impl<'key> Probe<'key> {
    #[inline(always)]
    pub fn new(bytes: &'key [u8]) -> Self {
        let number = bytes.try_into().ok().map(u64::from_be_bytes);
        Self { bytes, number }
    }
}

/// The first of `count` keys of 8 bytes, `stride` bytes apart in `keys`, that is not below
/// `number` (`above`: that is above it).
#[inline(always)]
fn search_numbers(keys: &[u8], stride: usize, count: usize, number: u64, above: bool) -> usize {
    let key_at = |index: usize| {
        let at = index * stride;
        keys[at..].first_chunk::<8>().map_or(u64::MAX, |key| u64::from_be_bytes(*key))
    };
    let mut low = 0;
    let mut size = count;
    // Halving without a branch on the outcome: the comparison becomes a conditional move.
    while size > 1 {
        let half = size / 2;
        let key = key_at(low + half - 1);
        let go_right = if above { key <= number } else { key < number };
        low = if go_right { low + half } else { low };
        size -= half;
    }
    if size == 1 {
        let key = key_at(low);
        let go_right = if above { key <= number } else { key < number };
        low += usize::from(go_right);
    }
    low
}

/// A leaf with the status that an operation works from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub node: Node,
    pub status: LeafStatus,
}

/// The newest settled record of a key in a leaf, and what may become a newer one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Its slot and metadata: visible, or deleted.
    pub newest: Option<(u64, Meta)>,
    /// Whether a slot in progress may turn out to be of this key.
    pub in_doubt: bool,
}

impl Found {
    pub fn visible(&self) -> Option<(u64, Meta)> {
        self.newest.filter(|(_, meta)| meta.is_visible())
    }
}

impl Leaf {
    #[inline(always)]
    pub fn read<D: Domain>(context: Context<'_, '_, D>, node: Node) -> Self {
        Self { node, status: LeafStatus(context.read(node.status_off())) }
    }

    #[inline(always)]
    pub fn meta_off(&self, slot: u64) -> u64 {
        self.node.off + HEADER_BYTES + slot * 8
    }

    #[inline(always)]
    pub fn meta<D: Domain>(&self, context: Context<'_, '_, D>, slot: u64) -> Meta {
        Meta(context.read(self.meta_off(slot)))
    }

    #[inline(always)]
    pub fn sorted(&self) -> u64 {
        self.node.header.count
    }

    /// The key of a settled record.
    #[inline(always)]
    pub fn key<'op, D: Domain>(&self, context: Context<'op, '_, D>, meta: Meta) -> &'op [u8] {
        context.bytes(self.node.off + meta.key_at(), meta.key_bytes())
    }

    /// Offset of the word that names the value's block of a pointer record.
    pub fn pointer_off(&self, meta: Meta) -> u64 {
        self.node.off + meta.offset()
    }

    /// The value of a visible record; `None` if it was superseded or deleted since `meta` was
    /// read, so that its block is gone.
    #[inline(always)]
    pub fn value<'op, D: Domain>(
        &self,
        context: Context<'op, '_, D>,
        meta: Meta,
    ) -> Option<&'op [u8]> {
        if meta.is_pointer() {
            return self.pointed_value(context, meta);
        }
        let at = self.node.off + meta.offset() + meta.key_bytes();
        Some(context.bytes(at, meta.record_bytes() - meta.key_bytes()))
    }

    #[cold]
    fn pointed_value<'op, D: Domain>(
        &self,
        context: Context<'op, '_, D>,
        meta: Meta,
    ) -> Option<&'op [u8]> {
        let block = context.read(self.pointer_off(meta));
        (block != 0).then(|| value_of_block(context, block))
    }

    /// Whether the settled record has the key.
    #[inline(always)]
    pub fn has_key<D: Domain>(
        &self,
        context: Context<'_, '_, D>,
        meta: Meta,
        probe: Probe<'_>,
    ) -> bool {
        if meta.key_bytes() != probe.bytes.len() as u64 {
            return false;
        }
        let key = self.key(context, meta);
        match (probe.number, key.first_chunk::<8>()) {
            (Some(number), Some(key)) => u64::from_be_bytes(*key) == number,
            _ => key == probe.bytes,
        }
    }

    /// Where among the sorted records `probe` is, or would be.
    #[inline(always)]
    pub fn sorted_position<D: Domain>(
        &self,
        context: Context<'_, '_, D>,
        probe: Probe<'_>,
    ) -> u64 {
        let shape = self.node.shape;
        if let (true, Some(number)) = (shape.stride != 0, probe.number) {
            let bytes = self.sorted() * shape.stride;
            let keys = context.bytes(self.node.off + shape.sorted_at, bytes);
            let count = self.sorted() as usize;
            return search_numbers(keys, shape.stride as usize, count, number, false) as u64;
        }
        let (mut low, mut high) = (0, self.sorted());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(context, self.meta(context, middle)) < probe.bytes {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Asks for the lines that a search of this leaf will touch.
    #[inline(always)]
    fn prefetch<D: Domain>(&self, context: Context<'_, '_, D>) {
        let pool = context.pool();
        let shape = self.node.shape;
        if shape.stride != 0 {
            let start = self.node.off + shape.sorted_at;
            let bytes = self.sorted() * shape.stride;
            // The lines where the search turns first.
            pool.prefetch(start + bytes / 2);
            pool.prefetch(start + bytes / 4);
            pool.prefetch(start + bytes / 4 * 3);
        }
        let records = self.status.records();
        if records > self.sorted() {
            pool.prefetch(self.meta_off(self.sorted()));
            pool.prefetch(self.meta_off(records - 1));
            let newest = self.node.header.node_bytes - self.status.block_bytes();
            pool.prefetch(self.node.off + newest);
            pool.prefetch(self.node.off + newest + 64);
        }
    }

    /// The newest settled record of the key: the unsorted records from the newest to the oldest,
    /// then the sorted ones (paper 4.2.5). `skip` is the caller's own slot.
    ///
    /// Why one pass is enough, though others write meanwhile: a record of a later slot that
    /// settles after it was passed was written by an operation concurrent with this one, and
    /// what is found then held at the moment when that slot was passed.
    #[inline(always)]
    pub fn find<D: Domain>(
        &self,
        context: Context<'_, '_, D>,
        probe: Probe<'_>,
        skip: Option<u64>,
        doubt: Option<(u32, u16)>,
    ) -> Found {
        self.prefetch(context);
        let mut in_doubt = false;
        for slot in (self.sorted()..self.status.records()).rev() {
            if skip == Some(slot) {
                continue;
            }
            let meta = self.meta(context, slot);
            // Settled records have an offset and are not reserved; both states count.
            match meta.state() {
                crate::layout::SlotState::Visible | crate::layout::SlotState::Deleted => {
                    if self.has_key(context, meta, probe) {
                        return Found { newest: Some((slot, meta)), in_doubt };
                    }
                }
                crate::layout::SlotState::InProgress => {
                    if let Some((incarnation, hash)) = doubt {
                        in_doubt |=
                            meta.may_become(incarnation, hash, probe.bytes.len() as u64);
                    }
                }
                crate::layout::SlotState::Aborted => {}
            }
        }
        let slot = self.sorted_position(context, probe);
        if slot < self.sorted() {
            let meta = self.meta(context, slot);
            if self.has_key(context, meta, probe) {
                return Found { newest: Some((slot, meta)), in_doubt };
            }
        }
        Found { newest: None, in_doubt }
    }
}

/// The bytes of a value that has a block of its own.
pub(crate) fn value_of_block<'op, D: Domain>(context: Context<'op, '_, D>, block: u64) -> &'op [u8] {
    let bytes = context.fixed(block);
    context.bytes(block + 8, bytes)
}

/// An inner node with the status that an operation works from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner {
    pub node: Node,
}

/// Which child a descent takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The child whose range holds the key.
    Holding,
    /// The child whose range holds what comes right before the key.
    Before,
}

impl Inner {
    pub fn status<D: Domain>(&self, context: Context<'_, '_, D>) -> InnerStatus {
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
    pub fn child<D: Domain>(&self, context: Context<'_, '_, D>, index: u64) -> u64 {
        context.read(self.child_off(index))
    }

    /// Separator `index`: the lowest key that child `index + 1` may hold.
    #[inline(always)]
    pub fn separator<'op, D: Domain>(
        &self,
        context: Context<'op, '_, D>,
        index: u64,
    ) -> &'op [u8] {
        let shape = self.node.shape;
        if shape.stride != 0 {
            return context.bytes(self.node.off + shape.sorted_at + index * shape.stride, 8);
        }
        let place = context.fixed(self.child_off(self.children() + index));
        context.bytes(self.node.off + (place >> 32), place & 0xFFFF_FFFF)
    }

    /// The child that a search for the key goes to.
    #[inline(always)]
    pub fn search<D: Domain>(
        &self,
        context: Context<'_, '_, D>,
        probe: Probe<'_>,
        side: Side,
    ) -> u64 {
        let shape = self.node.shape;
        let separators = self.children() - 1;
        if let (true, Some(number)) = (shape.stride != 0, probe.number) {
            let bytes = separators * shape.stride;
            let keys = context.bytes(self.node.off + shape.sorted_at, bytes);
            let above = side == Side::Holding;
            return search_numbers(keys, shape.stride as usize, separators as usize, number, above)
                as u64;
        }
        let (mut low, mut high) = (0, separators);
        while low < high {
            let middle = low.midpoint(high);
            let go_right = match self.separator(context, middle).cmp(probe.bytes) {
                Compare::Less => true,
                Compare::Equal => side == Side::Holding,
                Compare::Greater => false,
            };
            if go_right {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
