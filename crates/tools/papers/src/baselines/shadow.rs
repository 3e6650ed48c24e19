//! Writes by shadowing (paper 3.2, figure 7): a changed node is a copy, and what names the old one
//! is changed by redo-only logging: a pointer of the parent, and of the leaf before it.

use pando_index::Error;
use pando_pmem::Domain;

use super::tree::{Baseline, FIRST, Path};

impl<D: Domain, const STRINGS: bool> Baseline<D, STRINGS> {
    pub(super) fn insert_shadow(
        &self,
        leaf: u64,
        path: Path,
        key: u64,
        value: u64,
    ) -> Result<(), Error> {
        let mut entries = self.pairs(leaf, true);
        let of = self.stored(key);
        let place = entries.partition_point(|entry| self.compare(entry.0, of).is_lt());
        entries.insert(place, (key, value));
        self.replace_leaf(leaf, path, &entries)
    }

    pub(super) fn remove_shadow(&self, leaf: u64, path: Path, key: u64) -> Result<(), Error> {
        let mut entries = self.pairs(leaf, true);
        entries.retain(|entry| entry.0 != key);
        self.replace_leaf(leaf, path, &entries)
    }

    fn pairs(&self, node: u64, is_leaf: bool) -> Vec<(u64, u64)> {
        self.ordered(node, is_leaf).iter().map(|&(key, value, _)| (key, value)).collect()
    }

    /// The word that names the leaf in the one before it.
    fn word_before(&self, path: &Path) -> u64 {
        let Some(turn) = path.iter().rposition(|step| step.1 > 0) else {
            return self.root_word(true);
        };
        let (mut node, mut place) = (path[turn].0, path[turn].1 - 1);
        for _ in turn + 1..path.len() {
            node = self.get_word(node, Self::child_word(place));
            place = self.count(node, false);
        }
        self.get_word(node, Self::child_word(place)) + FIRST * 8
    }

    /// Puts copies with these entries in the place of a leaf: one, or two if it overflows.
    fn replace_leaf(&self, leaf: u64, mut path: Path, entries: &[(u64, u64)]) -> Result<(), Error> {
        let mut freed = vec![leaf];
        let before = self.word_before(&path);
        let next = self.get_word(leaf, FIRST);
        let mut copy = self.new_node()?;
        let mut more = None;
        if entries.len() as u64 <= self.most {
            self.fill(copy, true, next, entries);
        } else {
            let right = self.new_node()?;
            let (low, high) = entries.split_at(entries.len() / 2);
            self.fill(right, true, next, high);
            self.fill(copy, true, right, low);
            more = Some((high[0].0, right));
        }
        self.log.write_redo_only(&self.pool, before, copy);
        // Parents are copied as long as they get an entry more.
        let pointer = loop {
            let Some((parent, place)) = path.pop() else {
                if let Some((separator, right)) = more {
                    let set_root = |off, root| self.log.write_redo_only(&self.pool, off, root);
                    self.grow(copy, separator, right, &set_root)?;
                    break None;
                }
                break Some(self.root_word(false));
            };
            let Some((separator, right)) = more.take() else {
                break Some(parent + Self::child_word(place) * 8);
            };
            freed.push(parent);
            let mut first = self.get_word(parent, FIRST);
            let mut entries = self.pairs(parent, false);
            match place {
                0 => first = copy,
                place => entries[place as usize - 1].1 = copy,
            }
            entries.insert(place as usize, (separator, right));
            copy = self.new_node()?;
            if entries.len() as u64 <= self.most {
                self.fill(copy, false, first, &entries);
            } else {
                let right = self.new_node()?;
                let kept = entries.len() / 2;
                let (separator, right_first) = entries[kept];
                self.fill(copy, false, first, &entries[..kept]);
                self.fill(right, false, right_first, &entries[kept + 1..]);
                more = Some((separator, right));
            }
        };
        if let Some(pointer) = pointer {
            self.log.write_redo_only(&self.pool, pointer, copy);
        }
        self.log.commit_redo_writes(&self.pool);
        freed.into_iter().for_each(|node| self.free_node(node));
        Ok(())
    }
}
