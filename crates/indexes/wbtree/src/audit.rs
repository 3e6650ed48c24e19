//! The walk of a tree for `check` and `stat`. Exact while no thread writes. Each field of a node is
//! checked against its block before it is used.
//!
//! The walk goes level by level, from the root's, along the fences. A node need not have a cell in
//! its parent. But each child of a parent must be on the level below, with the key of its cell as
//! its lowest key, and no node may be the child of two cells. Each leaf's pointer to the left must
//! lead to the leaf before it.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;

use pando_index::Result;
use pando_pmem::Domain;
use pando_tree::key::slice_of;
use pando_tree::maps::{Audit, ProblemClass};
use pando_tree::record_block::HEADER_BYTES;

use crate::layout::{Cell, LEFT_AT, NodeKind, RECORD, SLOTS_AT};
use crate::node::Context;
use crate::order::Order;
use crate::slots;
use crate::state::State;
use crate::tree::WbTree;

/// A walk in progress.
struct Walk<'op, 'visit, D: Domain> {
    context: Context<'op, D>,
    audit: Audit,
    /// The nodes that were visited.
    met: HashSet<u64>,
    /// The last key that was lent.
    last: Option<Vec<u8>>,
    visit: &'visit mut dyn FnMut(&[u8], &[u8]),
}

/// A key and, for a record, its value, as read from the cell with this number.
struct Entry {
    cell: Cell,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// A readable node.
struct Readable {
    /// The live cells in order of their keys.
    entries: Vec<Entry>,
    fence: Entry,
}

impl<D: Domain> WbTree<D> {
    pub(crate) fn walk_tree(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        let guard = self.pin()?;
        let context = self.context(&guard);
        let root_off = context.read(self.root_off);
        let (audit, met) = (Audit::default(), HashSet::new());
        let mut walk = Walk { context, audit, met, last: None, visit };
        walk.tree(root_off);
        Ok(walk.audit)
    }
}

impl<D: Domain> Walk<'_, '_, D> {
    fn problem(&mut self, class: ProblemClass, off: u64, what: impl Into<String>) {
        self.audit.problem(class, off, what);
    }

    fn tree(&mut self, root_off: u64) {
        let header = match self.context.check_header(root_off, None) {
            Ok(header) => header,
            Err((class, what)) => return self.problem(class, root_off, what),
        };
        self.audit.stat.height = header.level + 1;
        // The children that the level above has cells for, by offset; also the first node of each
        // level.
        let mut expected = BTreeMap::from([(root_off, self.low(&[]).to_vec())]);
        let mut first = root_off;
        for level in (0..=header.level).rev() {
            let (children, next_first) = self.level(level, first, expected);
            expected = children;
            match next_first {
                Some(off) => first = off,
                None => return,
            }
        }
    }

    /// Walks a level from its first node; returns the children for which its nodes have cells, and
    /// the first child.
    fn level(
        &mut self,
        level: u64,
        first: u64,
        mut expected: BTreeMap<u64, Vec<u8>>,
    ) -> (BTreeMap<u64, Vec<u8>>, Option<u64>) {
        let mut children = BTreeMap::new();
        let mut first_child = None;
        let mut at = first;
        let mut low = Vec::new();
        let mut left = 0;
        while at != 0 {
            let wanted = expected.remove(&at);
            if wanted.as_ref().is_some_and(|key| key.as_slice() != self.low(&low)) {
                let what = "the parent's key of the node is not the lowest of its range";
                self.problem(ProblemClass::Separator, at, what);
            }
            let Some(node) = self.node(at, level, &low) else { break };
            self.check_left(at, if level == 0 { left } else { 0 });
            if level == 0 {
                self.lend(&node, &low);
            } else {
                first_child = first_child.or(node.entries.first().map(|entry| entry.cell.link));
                self.expect(at, &node, &mut children);
            }
            self.count(level, &node);
            left = at;
            at = node.fence.cell.link;
            low = node.fence.key;
        }
        // A broken chain hides the nodes behind it. The nodes that the parents lead to are visited
        // all the same.
        let is_broken = at != 0;
        let mut expected: Vec<_> = expected.into_iter().collect();
        expected.sort_by(|left, right| left.1.cmp(&right.1));
        for (off, low) in expected {
            if !is_broken {
                let what = "the parent leads to a node that its level does not have";
                self.problem(ProblemClass::Structure, off, what);
            }
            if self.met.contains(&off) {
                continue;
            }
            if let Some(node) = self.node(off, level, &low) {
                if level == 0 {
                    self.lend(&node, &low);
                } else {
                    self.expect(off, &node, &mut children);
                }
                self.count(level, &node);
            }
        }
        if is_broken {
            first_child = first_child.or(children.keys().next().copied());
        }
        (children, first_child)
    }

    /// Records the children of the node at `off` on the level below, with their keys.
    fn expect(&mut self, off: u64, node: &Readable, children: &mut BTreeMap<u64, Vec<u8>>) {
        for entry in &node.entries {
            if children.insert(entry.cell.link, entry.key.clone()).is_some() {
                // Some of its keys lead to the wrong node, which need not be before the right one.
                let what = "a second cell of the level leads to the same child";
                self.problem(ProblemClass::Structure, off, what);
            }
        }
    }

    /// Whether the pointer to the left of the node at `off` is `left_off`.
    fn check_left(&mut self, off: u64, left_off: u64) {
        let found = self.context.read(off + LEFT_AT);
        if found != left_off {
            let what =
                format!("the pointer to the left is {found:#x}, and leads not to {left_off:#x}");
            self.problem(ProblemClass::Structure, off, what);
        }
    }

    /// Lends the records of a leaf that lie in its range and above all records that were lent. So
    /// the records of a damaged tree are lent in order too, and each key once.
    fn lend(&mut self, leaf: &Readable, low: &[u8]) {
        let is_last = leaf.fence.cell.link == 0;
        for Entry { key, value, .. } in &leaf.entries {
            let is_here = key.as_slice() >= low && (is_last || *key < leaf.fence.key);
            if is_here && self.last.as_ref().is_none_or(|last| last < key) {
                (self.visit)(key, value);
                self.last = Some(key.clone());
            }
        }
    }

    fn count(&mut self, level: u64, node: &Readable) {
        let shape = self.context.shape;
        let stat = &mut self.audit.stat;
        if level > 0 {
            stat.inner_nodes += 1;
            stat.inner_bytes += shape.node_bytes;
            return;
        }
        stat.leaves += 1;
        stat.leaf_bytes += shape.node_bytes;
        stat.records += node.entries.len() as u64;
        stat.live_bytes += node.entries.len() as u64 * shape.cell_words() * 8;
        if shape.is_variable {
            for entry in &node.entries {
                stat.value_blocks += 1;
                stat.value_block_bytes +=
                    HEADER_BYTES + (entry.key.len() + entry.value.len()) as u64;
            }
        }
    }

    /// The node at `off`, whose range begins at `low`.
    fn node(&mut self, off: u64, level: u64, low: &[u8]) -> Option<Readable> {
        let context = self.context;
        let kind = match context.check_header(off, Some(level)) {
            Ok(header) => header.kind,
            Err((class, what)) => {
                self.problem(class, off, what);
                return None;
            }
        };
        self.audit.block(context.pool(), off, context.shape.node_bytes, "a node")?;
        self.met.insert(off);
        let state = State(context.read(off));
        let cells = context.shape.cells(kind);
        if state.is_dead() {
            self.problem(ProblemClass::Structure, off, "a dead node is linked");
            return None;
        }
        let (live, count) = (state.live(kind), state.count(kind));
        let is_fitting = state.fits(&context.shape, kind)
            && live >> state.fence() & 1 == 0
            && live.count_ones() as usize == count;
        if !is_fitting || (level > 0 && count == 0) {
            let what = format!("the state {:#x} is none of a node with {cells} cells", state.0);
            self.problem(ProblemClass::Count, off, what);
            return None;
        }
        let node = context.node(off);
        let mut entries = Vec::new();
        for at in (0..cells as u8).filter(|at| live >> at & 1 != 0) {
            let entry = self.entry(off, node.cell(context, at), level == 0)?;
            entries.push((at, entry));
        }
        let fence = self.entry(off, node.cell(context, state.fence()), false)?;
        entries.sort_by(|left, right| left.1.key.cmp(&right.1.key));
        self.check_order(off, kind, state, &entries);
        let entries: Vec<Entry> = entries.into_iter().map(|(_, entry)| entry).collect();
        if entries.windows(2).any(|pair| pair[0].key == pair[1].key) {
            self.problem(ProblemClass::Order, off, "a key is there twice");
        }
        let is_last = fence.cell.link == 0;
        let is_below = entries.first().is_some_and(|entry| entry.key.as_slice() < self.low(low));
        let is_beyond = entries.last().is_some_and(|entry| entry.key >= fence.key);
        if is_below || (is_beyond && !is_last) || (!is_last && fence.key.as_slice() <= low) {
            self.problem(ProblemClass::Separator, off, "a key lies outside the range of its node");
        }
        let first_key = entries.first().map(|entry| entry.key.as_slice());
        if level > 0 && first_key.is_some_and(|key| key != self.low(low)) {
            self.problem(
                ProblemClass::Separator,
                off,
                "the first child is not that of the lowest key",
            );
        }
        Some(Readable { entries, fence })
    }

    /// The lowest key of a range, as stored in a cell.
    fn low<'key>(&self, low: &'key [u8]) -> &'key [u8] {
        if low.is_empty() && !self.context.shape.is_variable { &[0; 8] } else { low }
    }

    /// The content of a cell, with the block that it owns.
    fn entry(&mut self, off: u64, cell: Cell, is_record: bool) -> Option<Entry> {
        if !self.context.shape.is_variable {
            let key = cell.slice.to_be_bytes().to_vec();
            return Some(Entry { cell, key, value: cell.link.to_le_bytes().to_vec() });
        }
        if cell.block == 0 {
            if is_record || cell.slice != 0 {
                self.problem(ProblemClass::Block, off, "a cell has no block");
                return None;
            }
            return Some(Entry { cell, key: Vec::new(), value: Vec::new() });
        }
        let (_, key, value) = self.audit.record_block(self.context.pool(), cell.block, RECORD)?;
        if slice_of(&key) != cell.slice {
            self.problem(ProblemClass::Order, off, "a slice is not that of its key");
        }
        Some(Entry { cell, key, value })
    }

    /// Checks that the slots of this state are in the order of the keys.
    fn check_order(&mut self, off: u64, kind: NodeKind, state: State, entries: &[(u8, Entry)]) {
        let order: Order = entries.iter().map(|(at, _)| *at).collect();
        let is_ordered = match kind {
            NodeKind::BitmapOnly => true,
            NodeKind::SlotOnly => state.slots() == order,
            NodeKind::SlotBitmap => (0..slots::words_of(entries.len())).all(|index| {
                let word = self.context.pool().word(off + SLOTS_AT + index * 8);
                let word = word.load(Ordering::Acquire);
                slots::version_of(word) != state.version()
                    || word == slots::encode(&order, index, state.version())
            }),
        };
        if !is_ordered {
            self.problem(ProblemClass::Order, off, "the slots are not in the order of the keys");
        }
    }
}
