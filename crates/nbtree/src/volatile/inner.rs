//! Inner nodes.
//!
//! ```text
//! byte 0        8        24        64        128         640         1,664
//!      sizes    odd keys           samples   slices      children
//!                                  8 words   64 words    64 pairs: node, block
//! ```
//!
//! Keys do not change once a node is published, so a search meets no shift and needs no second look (the paper's
//! shift-aware search exists since its nodes are shifted in place: 4.3). Only a child is replaced in place,
//! by one CAS. A node whose keys have to change is *frozen*, slot by slot or by one hardware transaction, copied
//! with the change, and replaced in its parent (`install.rs`).
//!
//! `slices` are the first eight bytes of the separators as numbers, unused ones all ones. `samples` are every eighth
//! of them, so that a search reads one line of these, one of the slices and one of the children, not one
//! line a step; and the child's line can be fetched beside the slices'. A child that is a leaf has the offset of
//! its block beside it, so that a line of that can be fetched beside the leaf's metadata (`node.rs`).

use std::cmp::Ordering;
use std::sync::Arc;

use pando_pmem::{Domain, Guard, rtm};

use super::node::{Node, Slot};
use crate::separator::{Probe, Separator, compare_tie};

/// Most children of a node.
pub(crate) const MAX_CHILDREN: usize = 64;
/// Slices between two samples.
const STRIDE: usize = 8;
const SAMPLES: usize = MAX_CHILDREN / STRIDE;

const _: () = assert!(SAMPLES == 8 && std::mem::size_of::<Inner>() == 1664);

/// On which side of an equal separator a search goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// To the leaf that the key lies in.
    Holding,
    /// To the leaf that the keys right below it lie in.
    Below,
}

/// All bytes of a separator that is not of eight.
type Odd = Arc<[u8]>;

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Inner {
    len: u32,
    /// Its height over the leaves, from 1.
    pub level: u32,
    /// The separators that are not of eight bytes, if there are any.
    odd: Option<Box<[Option<Odd>]>>,
    samples: [u64; SAMPLES],
    slices: [u64; MAX_CHILDREN],
    children: [Slot; MAX_CHILDREN],
}

/// What a node is made of: children, and a separator between any two.
#[derive(Debug, Default)]
pub(crate) struct Parts<'guard> {
    pub children: Vec<Node<'guard>>,
    pub separators: Vec<Separator>,
}

impl Inner {
    /// A node of these parts: at least one child, at most [`MAX_CHILDREN`].
    pub fn new(level: u32, children: &[Node<'_>], separators: &[Separator]) -> Box<Self> {
        debug_assert!(children.len() == separators.len() + 1 && children.len() <= MAX_CHILDREN);
        let mut inner = Box::new(Self {
            len: children.len() as u32,
            level,
            odd: None,
            samples: [u64::MAX; SAMPLES],
            slices: [u64::MAX; MAX_CHILDREN],
            children: [const { Slot::none() }; MAX_CHILDREN],
        });
        for (slot, &child) in inner.children.iter_mut().zip(children) {
            *slot = Slot::new(child);
        }
        for (index, separator) in separators.iter().enumerate() {
            let (slice, long) = separator.clone().parts();
            inner.slices[index] = slice;
            if index % STRIDE == STRIDE - 1 {
                inner.samples[index / STRIDE] = slice;
            }
            if let Some(long) = long {
                let odd = inner.odd.get_or_insert_with(|| vec![None; separators.len()].into());
                odd[index] = Some(long);
            }
        }
        inner
    }

    /// Children of the node.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Which child the probe leads to: how many separators are not above it, or are below it.
    #[inline(always)]
    pub fn index(&self, probe: &Probe<'_>, side: Side) -> usize {
        let slice = probe.slice;
        // Step by step, without branches: compilers make a detour of a count over all.
        let mut group = 0;
        for step in [4, 2, 1] {
            group += step * usize::from(self.samples[(group + step - 1) % SAMPLES] <= slice);
        }
        let first = group * STRIDE;
        // The child's line is one of two; fetched beside the slices'.
        self.children[first].touch();
        self.children[first + STRIDE / 2].touch();
        let mut index = first;
        for &other in &self.slices[first..first + STRIDE] {
            index += usize::from(other <= slice);
        }
        // Unused slices are all ones, and count for a probe that is: the length bounds it.
        let index = index.min(self.len as usize - 1);
        if index > 0 && self.slices[index - 1] == slice {
            return self.index_among_equals(index, probe, side);
        }
        index
    }

    #[cold]
    #[inline(never)]
    fn index_among_equals(&self, mut index: usize, probe: &Probe<'_>, side: Side) -> usize {
        while index > 0 && self.slices[index - 1] == probe.slice {
            match compare_tie(probe, self.odd(index - 1)) {
                Ordering::Greater => return index,
                Ordering::Equal if side == Side::Holding => return index,
                _ => index -= 1,
            }
        }
        index
    }

    fn odd(&self, index: usize) -> Option<&[u8]> {
        self.odd.as_ref().and_then(|odd| odd[index].as_deref())
    }

    /// The separator between child `index` and the next.
    pub fn separator(&self, index: usize) -> Separator {
        let long = self.odd.as_ref().and_then(|odd| odd[index].clone());
        Separator::of_parts(self.slices[index], long)
    }

    /// The word of a child.
    #[inline(always)]
    pub fn slot(&self, index: usize) -> &Slot {
        &self.children[index]
    }

    /// All words of children.
    pub fn slots_mut(&mut self) -> &mut [Slot] {
        &mut self.children[..self.len as usize]
    }

    /// Freezes all children: none is replaced from now on.
    pub fn freeze<D: Domain>(&self) {
        /// How often a transaction is tried.
        const ATTEMPTS: usize = 4;
        let slots = &self.children[..self.len as usize];
        let at_once = || slots.iter().for_each(Slot::freeze_in_transaction);
        let is_frozen = D::TRANSACTIONS && (0..ATTEMPTS).any(|_| rtm::attempt(at_once).is_ok());
        if !is_frozen {
            slots.iter().for_each(Slot::freeze::<D>);
        }
    }

    /// What the node is made of; what it stays, if it is frozen.
    pub fn parts<'guard, D: Domain>(&self, guard: &'guard Guard<'_, D>) -> Parts<'guard> {
        let len = self.len as usize;
        Parts {
            children: self.children[..len].iter().map(|slot| slot.load(guard)).collect(),
            separators: (0..len - 1).map(|index| self.separator(index)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volatile::leaf::{Control, Leaf};
    use pando_pmem::Volatile;

    #[test]
    fn every_key_goes_between_its_separators() {
        let leaf = || {
            let low = Separator::lowest();
            Node::of_leaf(Box::new(Leaf::new::<Volatile>(0, low, Control::new(0), &[])))
        };
        let mut texts: Vec<Vec<u8>> =
            (0..60u64).map(|at| (at << 55).to_be_bytes().to_vec()).collect();
        texts.extend((0..40).map(|at| [&[0x55; 8][..], &vec![1; at]].concat()));
        texts.extend([vec![0xFF; 8], vec![0xFF; 9], vec![0x55; 3], vec![0x55, 0]]);
        texts.sort();
        texts.dedup();
        for count in 0..MAX_CHILDREN {
            let separators: Vec<_> =
                texts[..count].iter().map(|text| Separator::new(text)).collect();
            let children: Vec<_> = (0..=count).map(|_| leaf()).collect();
            let inner = Inner::new(1, &children, &separators);
            for text in texts.iter().chain([&vec![], &vec![0xFF; 12]]) {
                let holding = texts[..count].partition_point(|other| other <= text);
                let below = texts[..count].partition_point(|other| other < text);
                let probe = Probe::new(text);
                assert_eq!(inner.index(&probe, Side::Holding), holding, "{text:?} of {count}");
                assert_eq!(inner.index(&probe, Side::Below), below, "{text:?} of {count}");
            }
            children.into_iter().for_each(Node::discard);
        }
    }
}
