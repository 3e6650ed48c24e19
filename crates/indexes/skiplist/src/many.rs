//! Gets, upserts and removes of many keys at once.
//!
//! An operation spends most of its time waiting for memory, for one node after the other. Here the
//! searches for a group of keys take turns: the node that one of them visits next is prefetched
//! while the others read theirs. Each key is read by itself, as by a single get; the answers are
//! not of one point in time.
//!
//! The searches for a group of writes go down to the lowest level. Only then the writes are made,
//! one by one and in order, by single calls: their searches find the lines in the cache. Keys that
//! ascend, as in a load, find them there anyway, so they are not searched for twice.

use std::cmp::Ordering as Compare;

use pando_index::{Intent, Record, Result, VisitMany};
use pando_pmem::Domain;
use pando_tree::checked::{Steps, undamaged};
use pando_tree::context::Context;
use pando_tree::key::Probe;

use crate::layout::{LIMITS, MAX_HEIGHT};
use crate::list::SkipList;
use crate::node::Node;
use crate::search::NODE_BYTES;
use crate::style::Links;

/// Searches that take turns. More would request more lines at a time than a core can wait for.
const GROUP: usize = 8;

/// A search in progress.
#[derive(Clone, Copy)]
struct Descent<'key> {
    probe: Probe<'key>,
    node: Node,
    /// The number of leading bits that the key shares with that of `node`.
    alike: u32,
    level: usize,
    /// Known not to be before the key.
    bound: Node,
    /// Whether the search ends at the node of the key, or only on the lowest level.
    ends_early: bool,
    /// The node that was prefetched.
    next: Option<Node>,
    /// The node of the key, when the search is over.
    found: Option<Option<Node>>,
}

impl<'key> Descent<'key> {
    fn new(probe: Probe<'key>, head: Node, ends_early: bool) -> Self {
        let alike = probe.slice.leading_zeros();
        let level = MAX_HEIGHT - 1;
        Self { probe, node: head, alike, level, bound: head, ends_early, next: None, found: None }
    }

    fn go_down(&mut self) {
        match self.level.checked_sub(1) {
            Some(level) => self.level = level,
            None => self.found = Some(None),
        }
    }

    /// Reads the prefetched node, and continues to the next node that must be read.
    #[inline]
    fn advance<D: Domain>(&mut self, context: Context<'_, D>, head: Node) {
        if let Some(next) = self.next.take() {
            match next.compare(context, self.probe) {
                Compare::Less => {
                    self.node = next;
                    let slice = next.slice_on(context, self.level);
                    self.alike = (self.probe.slice ^ slice).leading_zeros();
                }
                Compare::Equal if self.ends_early => self.found = Some(Some(next)),
                Compare::Equal | Compare::Greater => {
                    self.bound = next;
                    self.go_down();
                }
            }
        }
        while self.found.is_none() {
            let next = self.node.next(context, self.level);
            let node = next.node();
            if node == self.bound || node == head {
                self.go_down();
            } else if next.hint().compare(self.probe.slice, self.alike) == Some(Compare::Greater) {
                self.bound = node;
                self.go_down();
            } else {
                context.pool().prefetch(node.next_off(self.level));
                self.next = Some(node);
                return;
            }
        }
    }
}

impl<D: Domain, S: Links<D>> SkipList<D, S> {
    /// Lends the value of each of `keys` to `visit`, with the key's index, in order; `None` if it
    /// is absent.
    pub(crate) fn visit_many(&self, keys: &[&[u8]], visit: &mut VisitMany<'_>) -> Result<()> {
        self.in_groups::<GROUP>(keys, LIMITS, |guard, first, keys| {
            let context = self.context(guard);
            let head = self.head(context);
            let mut descents = [Descent::new(Probe::new(&[]), head, true); GROUP];
            for (descent, key) in descents.iter_mut().zip(keys) {
                *descent = Descent::new(Probe::new(key), head, true);
            }
            let descents = &mut descents[..keys.len()];
            if S::MARKED_STAY {
                // Searches of this style may start again, and take no turns.
                for descent in descents.iter_mut() {
                    descent.found = Some(self.find_node(context, descent.probe));
                }
            }
            self.take_turns(context, descents)?;
            for (at, descent) in descents.iter().enumerate() {
                let value = descent.found.flatten().and_then(|node| node.value(context));
                let value = value.as_ref().map(|(_, value)| value.as_bytes());
                undamaged(guard)?;
                visit(first + at, value);
            }
            Ok(())
        })
    }

    /// Upserts the records, in their order.
    pub(crate) fn write_many(&self, records: &[Record<'_>]) -> Result<()> {
        for group in records.chunks(GROUP) {
            if !group.is_sorted_by_key(|(key, _)| *key) {
                self.bring_near(group.iter().map(|(key, _)| *key));
            }
            for (key, value) in group {
                self.put(key, value, Intent::Upsert)?;
            }
        }
        Ok(())
    }

    /// Deletes the keys, in their order. Returns how many were present.
    pub(crate) fn delete_many(&self, keys: &[&[u8]]) -> Result<u64> {
        let mut deleted = 0;
        for group in keys.chunks(GROUP) {
            if !group.is_sorted() {
                self.bring_near(group.iter().copied());
            }
            for key in group {
                deleted += u64::from(self.delete(key, None)?);
            }
        }
        Ok(deleted)
    }

    /// Searches for at most [`GROUP`] keys, for the sake of the cache: an error is left to the
    /// operations on these keys.
    fn bring_near<'keys>(&self, keys: impl ExactSizeIterator<Item = &'keys [u8]>) {
        let count = keys.len();
        // One key has nothing to overlap with, and searches of the other style take no turns.
        if S::MARKED_STAY || count < 2 {
            return;
        }
        let Ok(guard) = self.pin() else { return };
        let context = self.context(&guard);
        let head = self.head(context);
        let mut descents = [Descent::new(Probe::new(&[]), head, false); GROUP];
        for (descent, key) in descents.iter_mut().zip(keys) {
            *descent = Descent::new(Probe::new(key), head, false);
        }
        let _ = self.take_turns(context, &mut descents[..count]);
    }

    /// Advances all of the searches until each is over.
    fn take_turns(&self, context: Context<'_, D>, descents: &mut [Descent<'_>]) -> Result<()> {
        let head = self.head(context);
        // A search takes no more steps than there are nodes.
        let mut steps = Steps::of_blocks(context.guard, NODE_BYTES);
        while descents.iter().any(|descent| descent.found.is_none()) {
            descents.iter_mut().for_each(|descent| descent.advance(context, head));
            steps.take(context.guard, head.0)?;
        }
        Ok(())
    }
}
