//! The walk of a list for `check` and `stat`: its invariants, its shape, and the blocks that it
//! reaches. Exact while no thread writes.
//!
//! Each field of a node is checked against the node's block before it is used. So a damaged list is
//! walked to the end of each level, as far as possible, and every problem is reported. Behind a
//! damaged node a walk continues from the levels above, which skip it. Records are lent at the end,
//! in order and each key once, wherever they were found.
//!
//! Beside writers a walk may reach a node that was removed before it was read. Its block is then
//! not active, which is also a sign of damage. But the word that led there has changed, or belongs
//! to a removed node. So the walk goes back to a node that it has passed and that is still linked.
//! From there it skips what it knows, up to the last key.

use std::collections::{HashMap, VecDeque};

use pando_index::Result;
use pando_pmem::{Block, Domain};
use pando_tree::context::Context;
use pando_tree::key::slice_of;
use pando_tree::maps::{Audit, ProblemClass, Stat};

use crate::hint::Hint;
use crate::layout::{Info, LOW_LEVELS, MAX_HEIGHT, tail_at};
use crate::list::SkipList;
use crate::node::{Next, Node};
use crate::state::{Kind, SMALL_BYTES};
use crate::style::Links;

/// The number of passed nodes that a walk remembers, to go back to.
const TRAIL: usize = 32;
/// How often a walk goes back before it reaches a new node.
const TURNS: usize = 64;

/// The findings of a walk, and its position.
struct Walk<'visit> {
    found: Audit,
    /// The nodes that were walked, by offset: the number of levels on which each says that it is
    /// linked, minus the number on which it was met.
    unmet: HashMap<u64, i64>,
    /// The undamaged nodes, in the order in which they were met.
    whole: Vec<Node>,
    /// Whether this is the order of their keys.
    is_ordered: bool,
    visit: &'visit mut dyn FnMut(&[u8], &[u8]),
}

/// Where a walk of level 0 can go back to.
#[derive(Debug, Default)]
struct Trail {
    passed: VecDeque<Node>,
    turns: usize,
}

impl Trail {
    fn pass(&mut self, node: Node) {
        if self.passed.len() == TRAIL {
            self.passed.pop_front();
        }
        self.passed.push_back(node);
        self.turns = 0;
    }

    /// Where to continue if `next`, the word of `before`, led to a removed node; `None` if no
    /// thread has changed anything.
    fn back<D: Domain>(
        &mut self,
        context: Context<'_, D>,
        before: Node,
        next: Next,
        head: Node,
    ) -> Option<Node> {
        self.turns += 1;
        if self.turns > TURNS {
            return None;
        }
        let is_there = |node: Node| {
            let is_active = node == head || context.pool().active_block(node.0).is_some();
            is_active && !node.next(context, 0).is_marked()
        };
        if is_there(before) {
            return (before.next(context, 0) != next).then_some(before);
        }
        while let Some(node) = self.passed.pop_back() {
            if is_there(node) {
                return Some(node);
            }
        }
        Some(head)
    }
}

impl<D: Domain, S: Links<D>> SkipList<D, S> {
    /// Walks the whole list, and lends the undamaged records to `visit`, in order and each key
    /// once.
    pub(crate) fn walk_list(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        let guard = self.pin()?;
        let context = self.context(&guard);
        let mut walk = Walk {
            found: Audit::default(),
            unmet: HashMap::new(),
            whole: Vec::new(),
            is_ordered: true,
            visit,
        };
        let head = self.head(context);
        if walk.begin(context, head) {
            for level in 0..MAX_HEIGHT {
                walk.level(context, head, level);
            }
            if S::COUNTS_LEVELS {
                walk.end();
            }
            walk.lend(context);
        }
        Ok(walk.found)
    }
}

/// The key of a node with consistent lengths.
fn key_of<D: Domain>(context: Context<'_, D>, node: Node) -> Vec<u8> {
    let mut key = Vec::new();
    node.key(context).copy_to(&mut key);
    key
}

impl Walk<'_> {
    fn problem(&mut self, class: ProblemClass, node: Node, what: impl Into<String>) {
        self.found.problem(class, node.0, what);
    }

    /// Checks the head; returns whether it is one.
    fn begin<D: Domain>(&mut self, context: Context<'_, D>, head: Node) -> bool {
        let Some(bytes) = context.pool().active_block(head.0) else {
            self.problem(ProblemClass::Block, head, "the head's block is not allocated");
            return false;
        };
        self.found.blocks.push(Block { off: head.0, bytes });
        self.found.stat = Stat { height: 1, inner_bytes: bytes, ..Stat::default() };
        let expected = Info { height: MAX_HEIGHT, key_bytes: 0, inline_bytes: 0 };
        if bytes < tail_at(MAX_HEIGHT) || head.info(context) != expected {
            self.problem(ProblemClass::Structure, head, "what the map begins with is no head");
            return false;
        }
        if head.slice(context) != 0 {
            self.problem(ProblemClass::Order, head, "the head has the slice of a key");
        }
        true
    }

    /// Walks one level.
    fn level<D: Domain>(&mut self, context: Context<'_, D>, head: Node, level: usize) {
        let mut node = head;
        let mut last_key: Option<Vec<u8>> = None;
        let mut trail = Trail::default();
        let mut has_gone_back = false;
        loop {
            let next = node.next(context, level);
            if next.is_marked() && node == head {
                self.problem(ProblemClass::Structure, node, "the head is marked");
            }
            let before = node;
            node = next.node();
            let is_gone = || node != head && context.pool().active_block(node.0).is_none();
            if level == 0 && is_gone() {
                let Some(back) = trail.back(context, before, next, head) else {
                    self.problem(ProblemClass::Block, node, "a node's block is not allocated");
                    return;
                };
                (node, has_gone_back) = (back, true);
                continue;
            }
            let known = self.unmet.contains_key(&node.0);
            if has_gone_back && node != head {
                // Known, or inserted meanwhile.
                let is_passed = known
                    || last_key.as_ref().is_some_and(|last| {
                        let info = node.info(context);
                        let bytes = context.pool().active_block(node.0).unwrap_or(0);
                        let is_valid = info.is_valid() && info.node_bytes() <= bytes;
                        is_valid && key_of(context, node) <= *last
                    });
                if is_passed {
                    trail.passed.push_back(node);
                    continue;
                }
            }
            has_gone_back = false;
            if level == 0 {
                self.names(context, node, before);
            }
            if node == head {
                self.leads(before, level, next, Next::to(head, Hint::NONE));
                return;
            }
            // Each node is walked on level 0, which has all of them. A node that is first met above
            // level 0 is missing there.
            if level > 0 && !known {
                self.is_ordered = false;
                self.problem(
                    ProblemClass::Structure,
                    node,
                    format!("a node on level {level} is not on level 0"),
                );
            }
            if !known && !self.node(context, node) {
                if level == 0
                    && is_gone()
                    && let Some(back) = trail.back(context, before, next, head)
                {
                    (node, has_gone_back) = (back, true);
                    continue;
                }
                return;
            }
            if level == 0 && known {
                self.problem(ProblemClass::Structure, node, "the node is reached twice");
                return;
            }
            if node.info(context).height <= level {
                self.problem(
                    ProblemClass::Structure,
                    node,
                    format!("a node that is too low is on level {level}"),
                );
                return;
            }
            if node.next(context, level).is_marked() {
                self.problem(
                    ProblemClass::Structure,
                    node,
                    format!("a node on level {level} is marked there"),
                );
            }
            let hint = node.hint_from(context, before.slice(context), head);
            self.leads(before, level, next, Next::to(node, hint));
            let key = key_of(context, node);
            if last_key.as_ref().is_some_and(|last| *last >= key) {
                self.is_ordered = false;
                self.problem(
                    ProblemClass::Order,
                    node,
                    format!("the keys of level {level} do not ascend"),
                );
                // It may be a cycle.
                return;
            }
            last_key = Some(key);
            trail.pass(node);
            if let Some(unmet) = self.unmet.get_mut(&node.0) {
                *unmet -= 1;
            }
            self.found.stat.height = self.found.stat.height.max(level as u64 + 1);
        }
    }

    /// Checks the hint of a word against the node that it leads to.
    fn leads(&mut self, node: Node, level: usize, next: Next, expected: Next) {
        if next.unmarked() != expected {
            let what = format!("what the word of level {level} says of a key is not so");
            self.problem(ProblemClass::Separator, node, what);
        }
    }

    /// Checks whether `node` names the one before it.
    fn names<D: Domain>(&mut self, context: Context<'_, D>, node: Node, before: Node) {
        if node.prev(context) != before {
            self.problem(ProblemClass::Structure, node, "the node names another one before it");
        }
    }

    /// Checks a node for the first time; returns whether the walk can pass it.
    fn node<D: Domain>(&mut self, context: Context<'_, D>, node: Node) -> bool {
        let Some(bytes) = context.pool().active_block(node.0) else {
            self.problem(ProblemClass::Block, node, "a node's block is not allocated");
            return false;
        };
        let wrong_before = self.found.problems.len();
        self.found.blocks.push(Block { off: node.0, bytes });
        let info = node.info(context);
        if !info.is_valid() || info.node_bytes() > bytes {
            self.problem(ProblemClass::Count, node, "the node says more than its block holds");
            return false;
        }
        if info.height > LOW_LEVELS && node.slice_on(context, LOW_LEVELS) != node.slice(context) {
            self.problem(ProblemClass::Order, node, "the two slices of a node differ");
        }
        if slice_of(&key_of(context, node)) != node.slice(context) {
            self.problem(ProblemClass::Order, node, "a slice is not that of its key");
        }
        // For any kind: a small value may replace an inline one.
        if context.pmwcas.is_damaged(context.guard, node.small_off()) {
            self.problem(ProblemClass::Structure, node, "the word of a small value is damaged");
        }
        let state = node.state(context);
        self.unmet.insert(node.0, state.levels() as i64);
        let stat = &mut self.found.stat;
        stat.leaves += 1;
        stat.leaf_bytes += bytes;
        if state.is_deleted() {
            stat.deleted_bytes += info.node_bytes();
            self.problem(ProblemClass::Structure, node, "a deleted node is linked");
            return true;
        }
        stat.records += 1;
        stat.live_bytes += info.node_bytes();
        if state.levels() > info.height {
            let what = format!("{} levels of a node of height {}", state.levels(), info.height);
            self.problem(ProblemClass::Count, node, what);
        }
        match state.kind() {
            Some(Kind::Small) if state.small_bytes() > SMALL_BYTES => {
                self.problem(ProblemClass::Count, node, "a small value that is not small");
            }
            Some(Kind::Small | Kind::Inline) => {}
            Some(Kind::Block) => {
                self.found.value_block(context, node.0, state.block_off());
            }
            None => self.problem(ProblemClass::Structure, node, "a value of no kind"),
        }
        if self.found.problems.len() == wrong_before {
            self.whole.push(node);
        }
        true
    }

    /// Lends the undamaged records.
    fn lend<D: Domain>(&mut self, context: Context<'_, D>) {
        let mut whole = std::mem::take(&mut self.whole);
        if !self.is_ordered {
            whole.sort_by_cached_key(|&node| key_of(context, node));
            whole.dedup_by_key(|node| key_of(context, *node));
        }
        for node in whole {
            // `None` if it was removed since.
            if let Some((_, value)) = node.value(context) {
                (self.visit)(&key_of(context, node), value.as_bytes());
            }
        }
    }

    /// Compares what nodes say of their levels with the levels where they were met.
    fn end(&mut self) {
        let mut wrong: Vec<_> =
            self.unmet.iter().filter(|&(_, &unmet)| unmet != 0).map(|(&off, _)| off).collect();
        wrong.sort_unstable();
        for off in wrong {
            self.problem(
                ProblemClass::Structure,
                Node(off),
                "the node is not linked on the levels that it says",
            );
        }
    }
}
