//! The search for a key, from the highest level of the head down.
//!
//! A search stands on a node before the key. It goes to the node's successor as long as that is
//! before the key too, otherwise one level down. It writes nothing and never starts again, because
//! the node on which it stands was linked at some point in time since it began, and:
//!
//! * A node that was unlinked from a level keeps, marked, the successor that it had at that time.
//!   This successor was linked then, so its block is not reused before this thread unpins.
//! * If no key lay between the two nodes at that time, this was true at an instant of the
//!   operation. So an answer that follows from a marked word was right at that instant.
//!
//! A writer needs linked predecessors: [`SkipList::find_place`] starts again at a mark. It meets a
//! mark only if another thread has unlinked that node since the search began.
//!
//! With the style of single words a marked word guarantees less (`single_word.rs`): every search
//! starts again there, and unlinks a marked node before it steps on it.

use std::cmp::Ordering as Compare;

use pando_index::Order;
use pando_pmem::{Domain, mutant};
use pando_tree::checked::Steps;
use pando_tree::context::Context;
use pando_tree::key::Probe;

use crate::layout::{LOW_LEVELS, MAX_HEIGHT};
use crate::list::SkipList;
use crate::node::{Next, Node};
use crate::style::{Links, MarkedNode, Place};

/// Bytes of the smallest node.
pub(crate) const NODE_BYTES: u64 = 64;

/// The target of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The node of the key, on the first level where it is met.
    Node,
    /// The last node before the key, and the first that is not, on each level.
    Before,
    /// Like [`Before`](Self::Before), but behind a node of the key itself.
    Behind,
}

/// The point where a search has left a level.
struct Left {
    level: usize,
    /// The last node before the key.
    node: Node,
    /// The word that leads on from it.
    next: Next,
    /// Nodes that it has visited on this level.
    passed: u8,
}

/// A node is marked: start again.
struct Marked;

impl<D: Domain, S: Links<D>> SkipList<D, S> {
    /// The node of the key, if there is one; it may have been deleted since.
    #[inline(always)]
    pub(crate) fn find_node(&self, context: Context<'_, D>, probe: Probe<'_>) -> Option<Node> {
        let mut steps = Steps::of_attempts();
        loop {
            let nothing = |_: Left| ();
            if let Ok(found) = self.descend(context, probe, Aim::Node, false, |_| (), nothing) {
                return found;
            }
            if self.is_stuck(context, &mut steps) {
                return None;
            }
        }
    }

    /// The place of the key, for a writer. `met` is called with the key's node, if there is one, as
    /// soon as it is met.
    #[inline]
    pub(crate) fn find_place(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        mut met: impl FnMut(Node),
    ) -> Place {
        let mut steps = Steps::of_attempts();
        loop {
            let mut place = Place {
                head: self.head(context),
                preds: [Node(0); MAX_HEIGHT],
                nexts: [Next(0); MAX_HEIGHT],
                passed: [0; MAX_HEIGHT],
                found: None,
            };
            let note = |left: Left| {
                place.preds[left.level] = left.node;
                place.nexts[left.level] = left.next;
                place.passed[left.level] = left.passed;
            };
            if let Ok(found) = self.descend(context, probe, Aim::Before, true, &mut met, note) {
                place.found = found;
                return place;
            }
            if self.is_stuck(context, &mut steps) {
                return place;
            }
        }
    }

    /// The last node before the key (or not behind it, depending on `aim`), and the first one
    /// behind that, on level 0; either may be the head. The lines of the next few nodes are
    /// prefetched for an ascending scan.
    pub(crate) fn find_gap(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        aim: Aim,
        order: Order,
    ) -> (Node, Node) {
        let mut steps = Steps::of_attempts();
        loop {
            let mut gap = (Node(0), Node(0));
            let note = |left: Left| {
                gap = (left.node, left.next.node());
                if order == Order::Ascending && left.level <= LOW_LEVELS {
                    context.pool().prefetch(left.next.node().0);
                }
            };
            if self.descend(context, probe, aim, false, |_| (), note).is_ok() {
                return gap;
            }
            if self.is_stuck(context, &mut steps) {
                return gap;
            }
        }
    }

    /// The last node, or the head.
    pub(crate) fn find_end(&self, context: Context<'_, D>) -> Node {
        let mut steps = Steps::of_attempts();
        let mut passed = Steps::of_blocks(context.guard, NODE_BYTES);
        'again: loop {
            let head = self.head(context);
            let mut node = head;
            for level in (0..MAX_HEIGHT).rev() {
                loop {
                    let Ok(next) = self.next(context, node, level, head, false) else {
                        if self.is_stuck(context, &mut steps) {
                            return head;
                        }
                        continue 'again;
                    };
                    if next.node() == head {
                        break;
                    }
                    node = next.node();
                    if self.is_stuck(context, &mut passed) {
                        return head;
                    }
                }
            }
            return node;
        }
    }

    /// Takes a step; returns true if none is left, or damage was noted. Then damage is noted in
    /// both cases, and the caller may return any answer.
    #[cold]
    fn is_stuck(&self, context: Context<'_, D>, steps: &mut Steps) -> bool {
        let head = self.head(context).0;
        let is_stuck = steps.take(context.guard, head).is_err();
        if is_stuck {
            context.guard.note_damage(head);
        }
        is_stuck
    }

    /// Goes down. Calls `note` where it leaves each level, and `met` with the node of the key,
    /// before it continues. Returns the node of the key, if it was met.
    #[inline(always)]
    fn descend(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        aim: Aim,
        only_linked: bool,
        mut met: impl FnMut(Node),
        mut note: impl FnMut(Left),
    ) -> Result<Option<Node>, Marked> {
        let head = self.head(context);
        let mut node = head;
        // The number of leading bits that the searched key shares with that of the node.
        let mut alike = probe.slice.leading_zeros();
        let mut level = MAX_HEIGHT - 1;
        // Known not to be before the key: it was met on the level above.
        let mut bound = head;
        let mut found = None;
        let mut passed = 0_u8;
        let mut rounds = None;
        loop {
            let next = self.next(context, node, level, head, only_linked)?;
            // The head is behind all nodes. By its slice it would be before the key, and a search
            // that believed this would go round for ever.
            if next.node() != bound && (mutant!("skip-end-taken-for-a-node") || next.node() != head)
            {
                // If the hint does not decide, the node does.
                let compared = next
                    .hint()
                    .compare(probe.slice, alike)
                    .unwrap_or_else(|| next.node().compare(context, probe));
                if compared == Compare::Less || (compared.is_eq() && aim == Aim::Behind) {
                    node = next.node();
                    if level >= LOW_LEVELS {
                        // The words of the lower levels, where the search often continues from
                        // here.
                        context.pool().prefetch(node.0);
                    }
                    alike = (probe.slice ^ node.slice_on(context, level)).leading_zeros();
                    passed = match passed.checked_add(1) {
                        Some(more) => more,
                        // From now on every 128 nodes: only a long level, or a cycle, reaches this.
                        None => {
                            let steps = rounds.get_or_insert_with(|| {
                                Steps::of_blocks(context.guard, 128 * NODE_BYTES)
                            });
                            if self.is_stuck(context, steps) {
                                return Ok(None);
                            }
                            128
                        }
                    };
                    continue;
                }
                if compared.is_eq() {
                    met(next.node());
                    found = Some(next.node());
                    if aim == Aim::Node {
                        return Ok(found);
                    }
                }
                bound = next.node();
            }
            note(Left { level, node, next, passed });
            if level == 0 {
                return Ok(found);
            }
            level -= 1;
            passed = 0;
        }
    }

    /// The word that leads on from `node` on `level`.
    #[inline(always)]
    fn next(
        &self,
        context: Context<'_, D>,
        node: Node,
        level: usize,
        head: Node,
        only_linked: bool,
    ) -> Result<Next, Marked> {
        loop {
            let next = node.next(context, level);
            if next.is_marked() && (S::MARKED_STAY || only_linked) {
                return Err(Marked);
            }
            if !S::MARKED_STAY || next.node() == head {
                return Ok(next.unmarked());
            }
            let behind = next.node().next(context, level);
            if !behind.is_marked() {
                return Ok(next);
            }
            if !S::unlink(context, MarkedNode { head, node, level, next, behind }) {
                return Err(Marked);
            }
        }
    }
}
