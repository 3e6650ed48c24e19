//! Nodes as a pinned thread reads them.
//!
//! Everything in a node but its status, its metadata, its children and its value pointers never
//! changes once it can be reached, so keys and values are lent as plain slices.

use std::cmp::Ordering as Compare;
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Pool, Words};
use pando_pmwcas::{CONTROL_BITS, Pmwcas};

use crate::layout::{
    HEADER_BYTES, Header, Hint, InnerStatus, Kind, LeafStatus, Link, Meta, STATUS_AT, Shape,
    free_slots,
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
    pub fn fixed(self, off: u64) -> u64 {
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

    /// The link in the word at `off`.
    #[inline(always)]
    pub fn link(self, off: u64) -> Link {
        Link(self.read(off))
    }

    /// Asks for the lines of a node ahead, all at once: the first, those of a leaf's unsorted
    /// records, and those where the search of the sorted ones, or of the separators, turns first.
    #[inline(always)]
    pub fn prefetch(self, link: Link) {
        let (pool, off) = (self.pool(), link.off());
        pool.prefetch(off);
        let (start, eighth) = match link.hint() {
            Hint::None => {
                pool.prefetch(off + 64);
                return;
            }
            Hint::Leaf { metadata_at, sorted_at } => {
                pool.prefetch(off + metadata_at);
                pool.prefetch(off + metadata_at + 64);
                for line in 1..4 {
                    pool.prefetch((off + sorted_at).wrapping_sub(line * 64));
                }
                // A record of eight and eight bytes takes twice what its metadata takes.
                (off + sorted_at, metadata_at / 4)
            }
            Hint::Inner { children } => (off + HEADER_BYTES + children * 8, children),
        };
        for turn in [4, 2, 6, 1, 3, 5, 7] {
            pool.prefetch(start + eighth * turn);
        }
    }

    /// The node that `link` names.
    #[inline(always)]
    pub fn node(self, link: Link) -> Node {
        let off = link.off();
        let words = self.pool().words(off, HEADER_BYTES / 8);
        // Relaxed: the node was published by the word that led here, which was read with acquire.
        let header = Header::decode(words.load(0, Ordering::Relaxed));
        // A node that is reachable was written by this library; anything else is a damaged pool.
        let header =
            header.unwrap_or(Header { kind: Kind::Leaf, count: 0, node_bytes: HEADER_BYTES });
        Node { off, link, header, shape: Shape::decode(words.load(2, Ordering::Relaxed)) }
    }

    /// All words of a node.
    #[inline(always)]
    pub fn words(self, node: &Node) -> Words<'op, D> {
        self.pool().words(node.off, node.header.node_bytes / 8)
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
    #[inline(always)]
    pub fn is_leaf(&self) -> bool {
        self.header.kind == Kind::Leaf
    }

    /// Where the metadata of a leaf's slots can reach at most: behind it, records alone stand.
    pub fn slots_end(&self) -> u64 {
        let unsorted_at = HEADER_BYTES + self.header.count * 8;
        unsorted_at + free_slots(self.shape.sorted_at.saturating_sub(unsorted_at)) * 8
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

/// How two keys compare; as numbers where that is the same.
#[inline(always)]
pub(crate) fn compare_keys(left: &[u8], right: &[u8]) -> Compare {
    match (<[u8; 8]>::try_from(left), <[u8; 8]>::try_from(right)) {
        (Ok(left), Ok(right)) => u64::from_be_bytes(left).cmp(&u64::from_be_bytes(right)),
        _ => left.cmp(right),
    }
}

/// The first of `count` keys of 8 bytes that is not below `number` (`above`: that is above it).
/// The keys stand `stride` words apart in `words`, from word `first`.
#[inline(always)]
fn search_numbers<D: Domain>(
    words: Words<'_, D>,
    first: u64,
    stride: u64,
    count: u64,
    number: u64,
    above: bool,
) -> u64 {
    // Relaxed: keys never change; whoever led here saw the node published.
    let key_at = |index: u64| words.load(first + index * stride, Ordering::Relaxed).swap_bytes();
    let mut low = 0;
    let mut size = count;
    // Halving without a branch on the outcome: keys asked for at random have no pattern that a
    // processor could predict, and the lines were asked for ahead.
    while size > 1 {
        let half = size / 2;
        let key = key_at(low + half - 1);
        let go_right = if above { key <= number } else { key < number };
        low = std::hint::select_unpredictable(go_right, low + half, low);
        size -= half;
    }
    if size == 1 {
        let key = key_at(low);
        let go_right = if above { key <= number } else { key < number };
        low += u64::from(go_right);
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

    /// Asks ahead for the metadata and records of the next few sorted slots.
    #[inline(always)]
    pub fn prefetch_from<D: Domain>(&self, context: Context<'_, '_, D>, slot: u64) {
        let (pool, shape) = (context.pool(), self.node.shape);
        pool.prefetch(self.meta_off(slot));
        pool.prefetch(self.meta_off(slot) + 64);
        let record = self.node.off + shape.sorted_at + slot * shape.stride();
        for line in 0..4 {
            pool.prefetch(record + line * 64);
        }
    }

    /// The key of a settled record that has eight bytes, as a number.
    #[inline(always)]
    pub fn key_number<D: Domain>(&self, context: Context<'_, '_, D>, meta: Meta) -> u64 {
        let words = context.words(&self.node);
        // Relaxed: as in `search_numbers`.
        words.load(meta.key_at() / 8, Ordering::Relaxed).swap_bytes()
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
        meta.key_bytes() == probe.bytes.len() as u64
            && self.has_key_in(context.words(&self.node), context, meta, probe)
    }

    /// As [`has_key`](Self::has_key), for a key of the same length, in the node's `words`.
    #[inline(always)]
    fn has_key_in<D: Domain>(
        &self,
        words: Words<'_, D>,
        context: Context<'_, '_, D>,
        meta: Meta,
        probe: Probe<'_>,
    ) -> bool {
        match probe.number {
            // Relaxed: as in `search_numbers`.
            Some(number) => words.load(meta.key_at() / 8, Ordering::Relaxed).swap_bytes() == number,
            None => self.key(context, meta) == probe.bytes,
        }
    }

    /// Where among the sorted records `probe` is, or would be.
    #[inline(always)]
    pub fn sorted_position<D: Domain>(&self, context: Context<'_, '_, D>, probe: Probe<'_>) -> u64 {
        let shape = self.node.shape;
        if let (true, Some(number)) = (shape.is_uniform(), probe.number) {
            let words = context.words(&self.node);
            let (first, stride) = (shape.sorted_at / 8, shape.stride() / 8);
            return search_numbers(words, first, stride, self.sorted(), number, false);
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
        let words = context.words(&self.node);
        let found = self.find_unsorted(words, context, probe, skip, doubt);
        if found.newest.is_some() {
            return found;
        }
        let slot = self.sorted_position(context, probe);
        if slot < self.sorted() {
            let meta = self.meta(context, slot);
            if meta.key_bytes() == probe.bytes.len() as u64
                && self.has_key_in(words, context, meta, probe)
            {
                return Found { newest: Some((slot, meta)), ..found };
            }
        }
        found
    }

    #[inline(always)]
    fn find_unsorted<D: Domain>(
        &self,
        words: Words<'_, D>,
        context: Context<'_, '_, D>,
        probe: Probe<'_>,
        skip: Option<u64>,
        doubt: Option<(u32, u16)>,
    ) -> Found {
        let key_bytes = probe.bytes.len() as u64;
        let mut in_doubt = false;
        for slot in (self.sorted()..self.status.records()).rev() {
            let found = words.load(HEADER_BYTES / 8 + slot, Ordering::Acquire);
            if let Some(number) = probe.number
                && Meta(found).is_settled_inline_of_8()
            {
                // The common case in a few instructions; all others below. Relaxed: as in
                // `search_numbers`.
                let key = words.load(Meta(found).offset() / 8, Ordering::Relaxed);
                if key == number.swap_bytes() && skip != Some(slot) {
                    return Found { newest: Some((slot, Meta(found))), in_doubt };
                }
                continue;
            }
            let meta =
                if found & CONTROL_BITS == 0 { Meta(found) } else { self.meta(context, slot) };
            if meta.key_bytes() != key_bytes && meta != Meta::UNMARKED {
                continue;
            }
            if meta.is_settled() {
                if self.has_key_in(words, context, meta, probe) && skip != Some(slot) {
                    return Found { newest: Some((slot, meta)), in_doubt };
                }
            } else if let Some((incarnation, hash)) = doubt {
                in_doubt |= meta.may_become(incarnation, hash, key_bytes);
            }
        }
        Found { newest: None, in_doubt }
    }

    /// The value of the key; `Err` if the block that held it is gone, so that the caller has to
    /// look again.
    ///
    /// A leaf in which nothing was deleted or superseded when its status was read had, at that
    /// moment, only visible sorted records; so their metadata need not be looked at.
    #[inline(always)]
    pub fn get<'op, D: Domain>(
        &self,
        context: Context<'op, '_, D>,
        probe: Probe<'_>,
    ) -> Result<Option<&'op [u8]>, Superseded> {
        let shape = self.node.shape;
        if let (true, Some(number)) = (shape.is_uniform(), probe.number)
            && self.status.deleted_bytes() == 0
        {
            let words = context.words(&self.node);
            let found = self.find_unsorted(words, context, probe, None, None);
            if let Some((_, meta)) = found.newest {
                return self.visible_value(context, meta);
            }
            let slot = self.sorted_position(context, probe);
            let at = shape.sorted_at + slot * shape.stride();
            // Relaxed: as in `search_numbers`.
            if slot == self.sorted() || words.load(at / 8, Ordering::Relaxed).swap_bytes() != number
            {
                return Ok(None);
            }
            return Ok(Some(context.bytes(self.node.off + at + 8, shape.record_bytes - 8)));
        }
        match self.find(context, probe, None, None).newest {
            Some((_, meta)) => self.visible_value(context, meta),
            None => Ok(None),
        }
    }

    #[inline(always)]
    fn visible_value<'op, D: Domain>(
        &self,
        context: Context<'op, '_, D>,
        meta: Meta,
    ) -> Result<Option<&'op [u8]>, Superseded> {
        if !meta.is_visible() {
            return Ok(None);
        }
        self.value(context, meta).map(Some).ok_or(Superseded)
    }
}

/// A value's block went away between the look at its record and at the block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Superseded;

/// The bytes of a value that has a block of its own.
pub(crate) fn value_of_block<'op, D: Domain>(
    context: Context<'op, '_, D>,
    block: u64,
) -> &'op [u8] {
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
    pub fn child<D: Domain>(&self, context: Context<'_, '_, D>, index: u64) -> Link {
        context.link(self.child_off(index))
    }

    /// Separator `index`: the lowest key that child `index + 1` may hold.
    #[inline(always)]
    pub fn separator<'op, D: Domain>(&self, context: Context<'op, '_, D>, index: u64) -> &'op [u8] {
        let shape = self.node.shape;
        if shape.is_uniform() {
            return context.bytes(self.node.off + shape.sorted_at + index * 8, 8);
        }
        let (at, bytes) = self.separator_place(context, index);
        context.bytes(self.node.off + at, bytes)
    }

    /// Where in a node with key places separator `index` stands, and its length.
    #[inline(always)]
    pub fn separator_place<D: Domain>(
        &self,
        context: Context<'_, '_, D>,
        index: u64,
    ) -> (u64, u64) {
        let place = context.fixed(self.child_off(self.children() + index));
        (place >> 32, place & 0xFFFF_FFFF)
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
        if let (true, Some(number)) = (shape.is_uniform(), probe.number) {
            let words = context.words(&self.node);
            let above = side == Side::Holding;
            return search_numbers(words, shape.sorted_at / 8, 1, separators, number, above);
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
