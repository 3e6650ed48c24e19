//! The way to a key, from the highest level of the head down.
//!
//! A search stands on a node before the key, and goes to its successor as long as that is before
//! the key too, else a level down. It writes nothing and begins nothing again, for what it stands
//! on was linked at some moment since it began, and:
//!
//! * A node that was unlinked from a level keeps, marked, the successor that it had at that moment.
//!   That one was linked then, and so is not in use for something else before this thread unpins.
//! * If no key lay between the two at that moment, none did at a moment of this operation. So an
//!   answer that is drawn from a marked word was right then.
//!
//! Who wants to write needs predecessors that are linked: [`SkipList::find_place`] begins again at
//! a mark. It comes to one only if another thread has unlinked that node since it began.
//!
//! With the style of single words a marked word promises less (`single_word.rs`): every search
//! begins again there, and unlinks what is marked before it steps on it.

use std::cmp::Ordering as Compare;

use pando_index::Order;
use pando_pmem::{Domain, mutant};
use pando_tree::checked::Steps;
use pando_tree::context::Context;
use pando_tree::key::Probe;

use crate::layout::{LOW_LEVELS, MAX_HEIGHT};
use crate::list::SkipList;
use crate::node::{Next, Node};
use crate::style::{Links, Place};

/// Bytes of the smallest node.
pub(crate) const NODE_BYTES: u64 = 64;

/// What a search is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The node of the key: on whatever level it is met first.
    Node,
    /// The last node before the key, and the first that is not, on each level.
    Before,
    /// As [`Before`](Self::Before), but behind a node of the key itself.
    Behind,
}

/// Where a search has left a level.
struct Left {
    level: usize,
    /// The last node before the key.
    node: Node,
    /// The word that leads on from there.
    next: Next,
    /// Nodes that it has gone to on this level.
    passed: u8,
}

/// Something is marked: begin again.
struct Marked;

impl<D: Domain, S: Links> SkipList<D, S> {
    /// The node of the key, if it is there; it may be deleted since.
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

    /// Where the key stands, for a writer; `met` is told its node, if it is there, as soon as it is
    /// met.
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

    /// The last node before the key, or not behind it, as `aim` says, and the first behind that
    /// one, on level 0; either may be the head. For a scan that ascends from there the lines of the
    /// next few nodes are asked for.
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

    /// Takes a step; whether there is none left, or damage was noted: then it is noted, and the
    /// caller ends with any answer.
    #[cold]
    fn is_stuck(&self, context: Context<'_, D>, steps: &mut Steps) -> bool {
        let head = self.head(context).0;
        let is_stuck = steps.take(context.guard, head).is_err();
        if is_stuck {
            context.guard.note_damage(head);
        }
        is_stuck
    }

    /// Goes down; tells `note` where it left each level, and `met` the node of the key, before it
    /// goes on. The node of the key, if it was met.
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
        // How many bits the key looked for has in common with that of the node.
        let mut alike = probe.slice.leading_zeros();
        let mut level = MAX_HEIGHT - 1;
        // Known not to be before the key: met on the level above.
        let mut bound = head;
        let mut found = None;
        let mut passed = 0_u8;
        let mut rounds = None;
        loop {
            let next = self.next(context, node, level, head, only_linked)?;
            // The head is behind all. A search that took it for a node before the key, which is
            // what its slice would say, would go round for ever.
            if next.node() != bound && (mutant!("skip-end-taken-for-a-node") || next.node() != head)
            {
                // If the hint does not tell, the node does.
                let compared = next
                    .hint()
                    .compare(probe.slice, alike)
                    .unwrap_or_else(|| next.node().compare(context, probe));
                if compared == Compare::Less || (compared.is_eq() && aim == Aim::Behind) {
                    node = next.node();
                    if level >= LOW_LEVELS {
                        // The words of the lower levels, to which the search comes from here more
                        // often than not.
                        context.pool().prefetch(node.0);
                    }
                    alike = (probe.slice ^ node.slice_on(context, level)).leading_zeros();
                    passed = match passed.checked_add(1) {
                        Some(more) => more,
                        // From now on every 128 nodes: only a long level, or a circle, comes to
                        // this.
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
            if !S::unlink(context, head, node, level, next, behind) {
                return Err(Marked);
            }
        }
    }
}
