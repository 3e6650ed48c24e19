//! The nodes of a tree, by index.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use super::node::{Locked, Node};

/// Nodes of a segment, which is allocated at once: 1 MiB.
const SEGMENT_NODES: usize = 256;

/// Segments of a tree at most: 64 GiB.
pub const MOST_SEGMENTS: usize = 1 << 16;

/// The error of an insert into a tree that has all its nodes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("btree-olc has no free node: all its {nodes} are in use; use fewer records")]
pub struct OutOfNodes {
    /// The number of nodes of the tree.
    pub nodes: usize,
}

type Segment<const CAPACITY: usize> = OnceLock<Box<[Node<CAPACITY>]>>;

/// Nodes by index; none is freed before the arena is.
pub struct Arena<const CAPACITY: usize> {
    segments: Box<[Segment<CAPACITY>]>,
    allocated: AtomicU64,
}

impl<const CAPACITY: usize> Arena<CAPACITY> {
    /// Room for so many segments.
    pub fn new(segments: usize) -> Self {
        let segments = (0..segments).map(|_| Segment::new()).collect();
        Self { segments, allocated: AtomicU64::new(0) }
    }

    fn most_nodes(&self) -> usize {
        self.segments.len() * SEGMENT_NODES
    }

    /// The number of nodes that have been allocated.
    pub fn allocated(&self) -> u64 {
        // Relaxed: a number for reports.
        self.allocated.load(Ordering::Relaxed).min(self.most_nodes() as u64)
    }

    /// The node of `index`; none if it is not the index of a node.
    #[inline]
    pub fn get(&self, index: u64) -> Option<&Node<CAPACITY>> {
        let index = usize::try_from(index).ok()?;
        self.segments.get(index / SEGMENT_NODES)?.get()?.get(index % SEGMENT_NODES)
    }

    /// A new node, and its index. It is locked and empty, and no other thread changes it.
    ///
    /// # Errors
    ///
    /// [`OutOfNodes`] if all nodes have been allocated.
    pub fn allocate(&self) -> Result<(u64, Locked<'_, CAPACITY>), OutOfNodes> {
        let full = OutOfNodes { nodes: self.most_nodes() };
        // Relaxed: only the number must be unique. Other threads learn the index from a node, and
        // the unlocking of that node orders it.
        let index = self.allocated.fetch_add(1, Ordering::Relaxed);
        let at = usize::try_from(index).map_err(|_| full)?;
        let segment = self.segments.get(at / SEGMENT_NODES).ok_or(full)?;
        let new_segment = || (0..SEGMENT_NODES).map(|_| Node::default()).collect();
        let node = &segment.get_or_init(new_segment)[at % SEGMENT_NODES];
        let locked = node.lock(0).expect("no other thread locks a node that no node names");
        Ok((index, locked))
    }
}
