//! Inner nodes.
//!
//! ```text
//! byte 0        56       64          576                     1,600
//!      samples  sizes    slices      children                odd keys
//!      7 words           64 words    64 pairs: node, block
//! ```
//!
//! Keys do not change after a node is published, so a search meets no shift and needs no second
//! look (the paper's search handles shifts, because it shifts nodes in place: 4.3). Only a child is
//! replaced in place, by one CAS. If the keys of a node must change, the node is *frozen*, slot by
//! slot or by one hardware transaction, copied with the change, and replaced in its parent
//! (`install.rs`).
//!
//! `slices` are the first eight bytes of the separators as numbers; unused ones are all ones.
//! `samples` are every eighth of them. So a search reads one line of samples, one of slices and one
//! of children, not one line for each step; and the child's line can be fetched together with the
//! slices'. A child that is a leaf has the offset of its block beside it, so that a line of the
//! block can be fetched together with the leaf's metadata (`node.rs`).

use std::cmp::Ordering;

use pando_pmem::{Domain, Guard, rtm};
use pando_tree::key::{Probe, Side};

use super::node::Node;
use super::nodes::{Inner, MAX_CHILDREN, Odd, SAMPLES, STRIDE, Slot};
use crate::separator::{Separator, compare_tie};
use arrayvec::ArrayVec;

/// Room for one child more than a node may have.
const ROOM: usize = MAX_CHILDREN + 1;

/// The parts of a node: children, and a separator between each two.
#[derive(Debug)]
pub(crate) struct Parts<'guard> {
    pub children: ArrayVec<Node<'guard>, ROOM>,
    pub separators: Separators,
}

/// A list of separators.
#[derive(Debug, Default)]
pub(crate) struct Separators {
    slices: ArrayVec<u64, ROOM>,
    /// The same number, or empty if all separators have eight bytes.
    odd: Vec<Option<Odd>>,
}

impl Separators {
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    pub fn insert(&mut self, at: usize, separator: Separator) {
        let (slice, long) = separator.parts();
        if long.is_some() && self.odd.is_empty() {
            self.odd = vec![None; self.slices.len()];
        }
        let has_odd = long.is_some() || !self.odd.is_empty();
        self.slices.insert(at, slice);
        if has_odd {
            self.odd.insert(at, long);
        }
    }

    pub fn remove(&mut self, at: usize) -> Separator {
        let slice = self.slices.remove(at);
        let long = if self.odd.is_empty() { None } else { self.odd.remove(at) };
        Separator::of_parts(slice, long)
    }

    /// Cuts the list in two at a separator, which is in neither part.
    pub fn split_at(mut self, at: usize) -> (Self, Separator, Self) {
        let right = Self {
            slices: self.slices.drain(at + 1..).collect(),
            odd: if self.odd.is_empty() { Vec::new() } else { self.odd.split_off(at + 1) },
        };
        let middle = self.remove(at);
        (self, middle, right)
    }
}

impl FromIterator<Separator> for Separators {
    fn from_iter<Source: IntoIterator<Item = Separator>>(source: Source) -> Self {
        let mut list = Self::default();
        source.into_iter().for_each(|separator| list.insert(list.len(), separator));
        list
    }
}

impl Inner {
    /// A node of these parts: with 1 to [`MAX_CHILDREN`] children.
    pub fn new(level: u32, children: &[Node<'_>], separators: Separators) -> Self {
        debug_assert!(children.len() == separators.len() + 1 && children.len() <= MAX_CHILDREN);
        let mut inner = Self {
            samples: [u64::MAX; SAMPLES],
            len: children.len() as u32,
            level,
            slices: [u64::MAX; MAX_CHILDREN],
            children: [const { Slot::none() }; MAX_CHILDREN],
            odd: separators.odd.into(),
        };
        for (slot, &child) in inner.children.iter_mut().zip(children) {
            *slot = Slot::new(child);
        }
        inner.slices[..separators.slices.len()].copy_from_slice(&separators.slices);
        for (sample, stride) in inner.samples.iter_mut().zip(inner.slices.chunks_exact(STRIDE)) {
            *sample = stride[STRIDE - 1];
        }
        inner
    }

    /// Children of the node.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// The child that the probe leads to: the number of separators that are not above it (or, on
    /// the other side, below it).
    #[inline(always)]
    pub fn index(&self, probe: &Probe<'_>, side: Side) -> usize {
        let slice = probe.slice;
        // Step by step, without branches: compilers make slower code of a count over all.
        let mut group = 0;
        for step in [4, 2, 1] {
            let sample = self.samples[(group + step - 1).min(SAMPLES - 1)];
            group += step * usize::from(sample <= slice);
        }
        let first = group * STRIDE;
        // The child's line is one of two; both are fetched together with the slices'.
        self.children[first].prefetch();
        self.children[first + STRIDE / 2].prefetch();
        let mut index = first;
        for &other in &self.slices[first..first + STRIDE] {
            index += usize::from(other <= slice);
        }
        // Unused slices are all ones, and count for a probe of all ones, so the length limits the
        // result.
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
        self.odd.get(index).and_then(Option::as_deref)
    }

    /// The separator between child `index` and the next.
    pub fn separator(&self, index: usize) -> Separator {
        Separator::of_parts(self.slices[index], self.odd.get(index).cloned().flatten())
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
        let is_frozen = D::TRANSACTIONS && (0..ATTEMPTS).any(|_| self.freeze_at_once());
        if !is_frozen {
            self.children[..self.len as usize].iter().for_each(Slot::freeze::<D>);
        }
    }

    /// Freezes all children in one hardware transaction; false if the processor aborted it, or has
    /// none.
    fn freeze_at_once(&self) -> bool {
        let slots = &self.children[..self.len as usize];
        rtm::attempt(|| slots.iter().for_each(Slot::freeze_in_transaction)).is_ok()
    }

    /// The parts of the node; final, if it is frozen.
    pub fn parts<'guard, D: Domain>(&self, guard: &'guard Guard<'_, D>) -> Parts<'guard> {
        let len = self.len as usize;
        Parts {
            children: self.children[..len].iter().map(|slot| slot.load(guard)).collect(),
            separators: Separators {
                slices: self.slices[..len - 1].iter().copied().collect(),
                odd: self.odd.to_vec(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Access};

    use super::*;
    use crate::volatile::leaf::Control;
    use crate::volatile::nodes::Leaf;
    use pando_pmem::{Adr, CreateOptions, Pool, Process};

    /// Small, so that Miri can run it.
    fn small() -> CreateOptions {
        CreateOptions { max_bytes: 1 << 20, ..CreateOptions::default() }
    }

    /// Freezes a node while another thread replaces its children all the time. Returns whether
    /// `freeze` succeeded for all of them.
    fn is_frozen_for_ever<D: Domain>(freeze: impl Fn(&Inner) -> bool) -> bool {
        const CHILDREN: usize = 24;
        let pool = Pool::<D>::anonymous(&small()).expect("memory");
        let guard = pool.pin().expect("a slot");
        let leaf = |_| Leaf::new::<D>(0, Separator::lowest(), Control::new(0), &[]);
        let leaves: Vec<_> =
            (0..2 * CHILDREN).map(|at| Node::of_leaf(Box::new(leaf(at)))).collect();
        let children = &leaves[..CHILDREN];
        let held: Vec<_> = leaves.iter().map(|&leaf| Slot::new(leaf)).collect();
        let separators = (1..CHILDREN as u64).map(Separator::eight).collect();
        let inner = Inner::new(1, children, separators);
        let (is_over, replaced) = (AtomicBool::new(false), AtomicU64::new(0));
        let is_frozen = std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = pool.pin().expect("a slot");
                while !is_over.load(Access::Relaxed) {
                    for at in 0..CHILDREN {
                        let [one, other] = [at, at + CHILDREN].map(|leaf| held[leaf].load(&guard));
                        let slot = inner.slot(at);
                        let done = slot.replace::<D>(one, other) || slot.replace::<D>(other, one);
                        replaced.fetch_add(u64::from(done), Access::Relaxed);
                    }
                }
            });
            while replaced.load(Access::Relaxed) < 100 {
                std::thread::yield_now();
            }
            let is_frozen = freeze(&inner);
            let all = || (0..CHILDREN).map(|at| inner.slot(at).load(&guard)).collect::<Vec<_>>();
            let then = all();
            if is_frozen {
                (0..20).for_each(|_| std::thread::yield_now());
                assert!(then == all(), "a child of a frozen node was replaced");
            }
            is_over.store(true, Access::Relaxed);
            is_frozen
        });
        // SAFETY: the inner node is not used any more, and no other thread has seen them.
        leaves.into_iter().for_each(|leaf| unsafe { leaf.discard() });
        is_frozen
    }

    #[test]
    fn children_of_a_frozen_node_stay() {
        for _ in 0..20 {
            // Miri has no write-back instructions.
            assert!(
                cfg!(miri)
                    || is_frozen_for_ever::<Adr>(|inner| {
                        inner.freeze::<Adr>();
                        true
                    })
            );
            assert!(is_frozen_for_ever::<Process>(|inner| {
                inner.freeze::<Process>();
                true
            }));
        }
    }

    /// If the processor commits transactions, one freezes a node, also while other threads replace
    /// its children.
    #[test]
    fn a_transaction_freezes_a_node_where_there_are_any() {
        // Other threads may abort any of them.
        let attempts = if rtm::is_available() { 2_000 } else { 20 };
        let is_frozen = (0..attempts).any(|_| is_frozen_for_ever::<Process>(Inner::freeze_at_once));
        assert_eq!(is_frozen, rtm::is_available());
    }

    #[test]
    fn every_key_goes_between_its_separators() {
        let leaf = || {
            let low = Separator::lowest();
            Node::of_leaf(Box::new(Leaf::new::<Process>(0, low, Control::new(0), &[])))
        };
        let mut texts: Vec<Vec<u8>> =
            (0..60u64).map(|at| (at << 55).to_be_bytes().to_vec()).collect();
        texts.extend((0..40).map(|at| [&[0x55; 8][..], &vec![1; at]].concat()));
        texts.extend([vec![0xFF; 8], vec![0xFF; 9], vec![0x55; 3], vec![0x55, 0]]);
        texts.sort();
        texts.dedup();
        for count in 0..MAX_CHILDREN {
            let separators = texts[..count].iter().map(|text| Separator::new(text)).collect();
            let children: Vec<_> = (0..=count).map(|_| leaf()).collect();
            let inner = Inner::new(1, &children, separators);
            for text in texts.iter().chain([&vec![], &vec![0xFF; 12]]) {
                let holding = texts[..count].partition_point(|other| other <= text);
                let below = texts[..count].partition_point(|other| other < text);
                let probe = Probe::new(text);
                assert_eq!(inner.index(&probe, Side::Holding), holding, "{text:?} of {count}");
                assert_eq!(inner.index(&probe, Side::Before), below, "{text:?} of {count}");
            }
            for child in children {
                // SAFETY: made by `leaf`, and the inner node that names it is not read again.
                unsafe { child.discard() }
            }
        }
    }
}
