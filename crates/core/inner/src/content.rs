//! New inner nodes: as large as their content needs, written into a reserved block that no other
//! thread sees, and flushed before a word names the block (paper 4.3, 6.2).

use pando_pmem::Domain;
use pando_tree::blocks::NewBlock;
use pando_tree::context::Context;

use crate::layout::{
    HEADER_BYTES, Header, Hint, Kind, Link, SHAPE_AT, SLICED_BYTES, STATUS_AT, Shape,
};
use crate::node::Inner;
use crate::slices::{prefix_bytes_of, slice_behind};

/// A node that is not linked yet.
#[derive(Debug)]
pub struct NewNode<'op, D: Domain> {
    /// Its block.
    pub block: NewBlock<'op, D>,
    /// The word that will name it.
    pub link: Link,
}

/// Writes the slices of `keys` behind `prefix_bytes` at `at` of a block.
pub fn write_slices<'key, D: Domain>(
    block: &mut NewBlock<'_, D>,
    at: u64,
    prefix_bytes: usize,
    keys: impl ExactSizeIterator<Item = &'key [u8]>,
) {
    if let Some(mut slices) = block.range_mut(at, keys.len() as u64 * 8) {
        for (index, key) in keys.enumerate() {
            slices.write(index * 8, &slice_behind(key, prefix_bytes).to_be_bytes());
        }
    }
}

/// The content of an inner node: children, and the separators between them.
#[derive(Clone, Debug, Default)]
pub struct InnerContent<'op> {
    /// The children, at least one.
    pub children: Vec<Link>,
    /// One less.
    pub separators: Vec<&'op [u8]>,
}

impl<'op> InnerContent<'op> {
    /// The present content of `inner`. It is the content at one instant only if the node's status
    /// is the same before and after; the installation of the copy checks that.
    pub fn read<D: Domain>(context: Context<'op, D>, inner: Inner) -> Self {
        if !inner.is_within_bounds(context) {
            context.guard.note_damage(inner.node.off);
            return Self { children: vec![Link(0)], separators: Vec::new() };
        }
        let count = inner.children();
        Self {
            children: (0..count).map(|index| inner.child(context, index)).collect(),
            separators: (1..count).map(|index| inner.separator(context, index - 1)).collect(),
        }
    }

    fn stride(&self) -> u64 {
        let eight = !self.separators.is_empty()
            && self.separators.iter().all(|separator| separator.len() == 8);
        if eight { 8 } else { 0 }
    }

    fn key_bytes(&self) -> u64 {
        self.separators.iter().map(|separator| separator.len() as u64).sum()
    }

    /// Bytes of a node with this content.
    pub fn bytes(&self) -> u64 {
        HEADER_BYTES + self.children.len() as u64 * 8 + self.sliced_bytes() + self.key_bytes()
    }

    /// Bytes of the slices and places of the separators.
    fn sliced_bytes(&self) -> u64 {
        if self.stride() == 8 { 0 } else { self.separators.len() as u64 * SLICED_BYTES }
    }

    /// The two halves, and the separator between them. They have roughly equal bytes, and at least
    /// one child each.
    pub(crate) fn split(mut self) -> (Self, &'op [u8], Self) {
        let half = self.key_bytes() / 2 + self.children.len() as u64 * (8 + SLICED_BYTES) / 2;
        let mut bytes = 0;
        let mut middle = self.separators.len() / 2;
        for (index, separator) in self.separators.iter().enumerate() {
            bytes += separator.len() as u64 + 8 + SLICED_BYTES;
            if bytes >= half {
                middle = index;
                break;
            }
        }
        // Two children in each half, if there are four.
        let last = self.separators.len() - 1;
        let middle = if last >= 2 { middle.clamp(1, last - 1) } else { middle.min(last) };
        let right = Self {
            children: self.children.split_off(middle + 1),
            separators: self.separators.split_off(middle + 1),
        };
        let between = self.separators.pop().unwrap_or_default();
        (self, between, right)
    }

    /// This content, `between`, then `right`.
    pub(crate) fn join(mut self, between: &'op [u8], right: Self) -> Self {
        self.children.extend(right.children);
        self.separators.push(between);
        self.separators.extend(right.separators);
        self
    }

    /// Adds children behind child `index`, each with the separator before it.
    pub(crate) fn add_children<D: Domain>(
        &mut self,
        index: usize,
        others: &[(&'op [u8], NewNode<'op, D>)],
    ) {
        let separators = others.iter().map(|(separator, _)| *separator);
        self.separators.splice(index..index, separators);
        let links = others.iter().map(|(_, node)| node.link);
        self.children.splice(index + 1..index + 1, links);
    }

    /// Replaces the children `left` and `left + 1` by one.
    pub fn merge_children(&mut self, left: usize, merged: Link) {
        self.children[left] = merged;
        self.children.remove(left + 1);
        self.separators.remove(left);
    }

    /// Builds the node.
    ///
    /// # Errors
    ///
    /// The pool has no block for it.
    pub(crate) fn build<D: Domain>(
        &self,
        context: Context<'op, D>,
    ) -> pando_pmem::Result<NewNode<'op, D>> {
        let bytes = self.bytes();
        let mut block = context.guard.reserve(bytes)?;
        let count = self.children.len() as u64;
        let stride = self.stride();
        let children_end = HEADER_BYTES + count * 8;
        let places_at = children_end + self.sliced_bytes() / 2;
        let mut at = children_end + self.sliced_bytes();
        let prefix_bytes = match (stride, self.separators.first(), self.separators.last()) {
            (0, Some(first), Some(last)) => prefix_bytes_of(first, last),
            _ => 0,
        };
        let header = Header { kind: Kind::Inner, prefix_bytes, count, node_bytes: block.bytes() };
        block.write_u64(0, header.encode());
        block.write_u64(STATUS_AT, 0);
        block.write_u64(SHAPE_AT, Shape { slots: 0, sorted_at: at, record_bytes: stride }.encode());
        if let Some(mut children) = block.range_mut(HEADER_BYTES, count * 8) {
            for (index, child) in self.children.iter().enumerate() {
                children.write_u64(index * 8, child.0);
            }
        }
        if stride != 8 {
            write_slices(&mut block, children_end, prefix_bytes, self.separators.iter().copied());
        }
        let keys_at = at;
        if let Some(mut places) = block.range_mut(places_at, self.sliced_bytes() / 2) {
            for (index, separator) in self.separators.iter().enumerate().filter(|_| stride != 8) {
                places.write_u64(index * 8, at << 32 | separator.len() as u64);
                at += separator.len() as u64;
            }
        }
        if let Some(mut keys) = block.range_mut(keys_at, self.key_bytes()) {
            let mut at = 0;
            for separator in &self.separators {
                match separator.as_array::<8>() {
                    // The most common length: one word, without a loop.
                    Some(word) => keys.write_u64(at, u64::from_le_bytes(*word)),
                    None => keys.write(at, separator),
                }
                at += separator.len();
            }
        }
        block.flush(0, bytes);
        let link = Link::new(block.off(), Hint::Inner { children: count });
        Ok(NewNode { block, link })
    }
}
