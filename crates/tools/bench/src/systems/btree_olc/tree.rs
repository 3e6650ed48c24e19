//! The operations of the tree; the page of the module explains the protocol.

use std::thread;

use super::arena::{Arena, MOST_SEGMENTS, OutOfNodes};
use super::node::{Locked, Node};

/// Records that a scan copies before it validates, at most.
const PAGE_RECORDS: usize = 32;

/// Attempts after which a restarting operation yields its core.
const SPINNING_ATTEMPTS: u32 = 6;

/// An ordered map of integers with `CAPACITY` records in a node, for any number of threads.
pub struct Tree<const CAPACITY: usize> {
    pub(super) root: Node<CAPACITY>,
    pub(super) arena: Arena<CAPACITY>,
}

impl<const CAPACITY: usize> Default for Tree<CAPACITY> {
    fn default() -> Self {
        Self::with_segments(MOST_SEGMENTS)
    }
}

/// A node and the version at which a descent has read it.
type Read<'a, const CAPACITY: usize> = (&'a Node<CAPACITY>, u64);

/// Calls `attempt` until it has a result.
#[inline]
fn retry<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut failed = 0;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        if failed < SPINNING_ATTEMPTS {
            (0..1 << failed).for_each(|_| std::hint::spin_loop());
            failed += 1;
        } else {
            // The thread that has the lock may be waiting for this core.
            thread::yield_now();
        }
    }
}

impl<const CAPACITY: usize> Tree<CAPACITY> {
    /// An empty tree whose arena has room for so many segments.
    pub(super) fn with_segments(segments: usize) -> Self {
        Self { root: Node::default(), arena: Arena::new(segments) }
    }

    /// The number of nodes apart from the root.
    pub fn nodes(&self) -> u64 {
        self.arena.allocated()
    }

    /// One step of a descent: the child for `key`, and a version at which it was responsible for
    /// `key`. None if the node is not at `version` any more, or the child is locked.
    #[inline]
    fn step(&self, (node, version): Read<'_, CAPACITY>, key: u64) -> Option<Read<'_, CAPACITY>> {
        let child = self.arena.get(node.child(key))?;
        let child_version = child.version()?;
        // Last, so that no split of the child is missed between the two versions.
        node.is_at(version).then_some((child, child_version))
    }

    /// The leaf for `key`, and a version at which it was responsible for `key`. None if the descent
    /// met a writer.
    #[inline]
    fn leaf(&self, key: u64) -> Option<Read<'_, CAPACITY>> {
        let mut read = (&self.root, self.root.version()?);
        while read.0.level() > 0 {
            read = self.step(read, key)?;
        }
        Some(read)
    }

    /// The value of `key`.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        retry(|| {
            let (leaf, version) = self.leaf(key)?;
            let place = leaf.place(key);
            let value = leaf.has(place, key).then(|| leaf.value(place));
            leaf.is_at(version).then_some(value)
        })
    }

    /// Adds a record; false, without a change, if `key` is present.
    ///
    /// # Errors
    ///
    /// [`OutOfNodes`], without a change, if a node must be split and no node is free.
    #[inline]
    pub fn insert(&self, key: u64, value: u64) -> Result<bool, OutOfNodes> {
        retry(|| self.try_write(key, value, false).transpose())
    }

    /// Adds a record, or replaces the value of `key`.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    #[inline]
    pub fn put(&self, key: u64, value: u64) -> Result<(), OutOfNodes> {
        retry(|| self.try_write(key, value, true).transpose()).map(|_| ())
    }

    /// Whether `key` is new. None if nothing was written.
    #[inline]
    fn try_write(&self, key: u64, value: u64, replaces: bool) -> Result<Option<bool>, OutOfNodes> {
        let Some((leaf, version)) = self.leaf(key) else { return Ok(None) };
        let place = leaf.place(key);
        let is_new = !leaf.has(place, key);
        if !is_new && !replaces {
            return Ok(leaf.is_at(version).then_some(false));
        }
        if is_new && leaf.is_full() {
            return self.split_topmost(key).map(|_| None);
        }
        let Some(locked) = leaf.lock(version) else { return Ok(None) };
        if is_new {
            locked.insert(place, key, value);
        } else {
            locked.set_value(place, value);
        }
        Ok(Some(is_new))
    }

    /// Removes a record; false if `key` is absent.
    #[inline]
    pub fn remove(&self, key: u64) -> bool {
        retry(|| {
            let (leaf, version) = self.leaf(key)?;
            let place = leaf.place(key);
            if !leaf.has(place, key) {
                return leaf.is_at(version).then_some(false);
            }
            leaf.lock(version)?.remove(place);
            Some(true)
        })
    }

    /// Splits the topmost full node on the path to `key`, if no other thread changes it or its
    /// parent.
    #[cold]
    fn split_topmost(&self, key: u64) -> Result<(), OutOfNodes> {
        let Some(version) = self.root.version() else { return Ok(()) };
        let mut read = (&self.root, version);
        if self.root.is_full() {
            return match self.root.lock(version) {
                Some(root) => self.split_root(&root),
                None => Ok(()),
            };
        }
        while read.0.level() > 0 {
            let Some(child) = self.step(read, key) else { return Ok(()) };
            if child.0.is_full() {
                // It had room at its version: otherwise it would have been split.
                let Some(parent) = read.0.lock(read.1) else { return Ok(()) };
                let Some(node) = child.0.lock(child.1) else { return Ok(()) };
                return self.split(&parent, &node);
            }
            read = child;
        }
        Ok(())
    }

    /// Splits `node`, a child of `parent`, which has room.
    fn split(
        &self,
        parent: &Locked<'_, CAPACITY>,
        node: &Locked<'_, CAPACITY>,
    ) -> Result<(), OutOfNodes> {
        let (index, right) = self.arena.allocate()?;
        let (middle, count) = (node.count() / 2, node.count());
        let low = node.key(middle);
        right.fill(low, node, middle, count);
        if node.level() == 0 {
            node.set_next(index);
        }
        node.truncate(middle);
        parent.insert(parent.place(low), low, index);
        Ok(())
    }

    /// Moves the records of the root to two new nodes.
    fn split_root(&self, root: &Locked<'_, CAPACITY>) -> Result<(), OutOfNodes> {
        let (left_index, left) = self.arena.allocate()?;
        let (right_index, right) = self.arena.allocate()?;
        let (middle, count) = (root.count() / 2, root.count());
        let low = root.key(middle);
        left.fill(root.low(), root, 0, middle);
        right.fill(low, root, middle, count);
        if root.level() == 0 {
            left.set_next(right_index);
        }
        root.raise([(root.low(), left_index), (low, right_index)]);
        Ok(())
    }

    /// Visits up to `limit` records from `from`, included, upwards.
    #[inline]
    pub fn ascend(&self, mut from: u64, limit: u64, mut visit: impl FnMut(u64, u64)) {
        let mut left = limit;
        let mut page = [(0, 0); PAGE_RECORDS];
        while left > 0 {
            let (mut leaf, mut version) = retry(|| self.leaf(from));
            let mut place = leaf.place(from);
            while left > 0 {
                let wanted = left.min(PAGE_RECORDS as u64) as usize;
                let copied = leaf.copy(place, &mut page[..wanted]);
                let (count, next) = (leaf.count(), leaf.next());
                if !leaf.is_at(version) {
                    break;
                }
                let records = &page[..copied];
                records.iter().for_each(|&(key, value)| visit(key, value));
                left -= copied as u64;
                place += copied;
                if let Some(&(last, _)) = records.last() {
                    let Some(after) = last.checked_add(1) else { return };
                    from = after;
                }
                if place == count {
                    let Some(node) = self.arena.get(next) else { return };
                    // A leaf is never freed, so it is right to wait here for its writer. Its first
                    // record is the next one, because the validated leaf ended at its `low`.
                    (leaf, version, place) = (node, retry(|| node.version()), 0);
                }
            }
        }
    }

    /// Visits up to `limit` records from `from`, included, downwards.
    #[inline]
    pub fn descend(&self, mut from: u64, limit: u64, mut visit: impl FnMut(u64, u64)) {
        let mut left = limit;
        let mut page = [(0, 0); PAGE_RECORDS];
        while left > 0 {
            let (leaf, version) = retry(|| self.leaf(from));
            let mut end = leaf.place_after(from);
            while left > 0 {
                let wanted = end.min(left.min(PAGE_RECORDS as u64) as usize);
                let copied = leaf.copy(end - wanted, &mut page[..wanted]);
                let low = leaf.low();
                if !leaf.is_at(version) {
                    break;
                }
                let records = &page[..copied];
                records.iter().rev().for_each(|&(key, value)| visit(key, value));
                left -= copied as u64;
                end -= copied;
                let least = if end == 0 { low } else { records[0].0 };
                let Some(before) = least.checked_sub(1) else { return };
                from = before;
                if end == 0 {
                    break;
                }
            }
        }
    }
}
