//! Checks of a range leaf for `check`. Exact while no thread writes.

use std::collections::HashMap;

use pando_pmem::Domain;
use pando_tree::context::Context;

use crate::layout::{BUCKET_LINES, LINE_SLOTS, State, ValueWord, is_taken};
use crate::leaf::{RangeLeaf, Slot};

impl RangeLeaf {
    /// The problems of the leaf, a sentence each.
    pub fn problems<D: Domain>(&self, context: Context<'_, D>) -> Vec<String> {
        if !self.is_within_bounds() {
            return vec!["the lines leave the leaf".to_owned()];
        }
        let mut problems = Vec::new();
        let (words, geometry) = (self.node.words(context), self.geometry());
        if self.status(context).is_frozen() {
            problems.push("the leaf was replaced and is still in place".to_owned());
        }
        // Per key, in the order of its slots: whether a slot that is not moved was met.
        let mut current: HashMap<u64, State> = HashMap::new();
        for bucket in 0..geometry.buckets {
            let mut has_free = false;
            for index in 0..geometry.key_lines() {
                let number = geometry.line_of(bucket, index);
                let line = Self::line(words, number);
                for at in 0..LINE_SLOTS {
                    let (key_word, slot) = (line[at as usize], Slot::new(number, at));
                    if !is_taken(key_word) {
                        has_free = true;
                        continue;
                    }
                    if context.pmwcas.is_damaged(context.guard, self.key_off(slot)) {
                        problems.push(format!("slot {}: a key word that none writes", slot.0));
                        continue;
                    }
                    let key_word = context.read(self.key_off(slot));
                    if !self.key_words().is_possible(key_word) {
                        problems.push(format!("slot {}: a key that is too far away", slot.0));
                        continue;
                    }
                    let distance = self.key_words().distance(key_word);
                    if self.bucket(words, distance) != bucket {
                        if index < BUCKET_LINES {
                            problems.push(format!("slot {}: a key of another bucket", slot.0));
                        }
                        continue;
                    }
                    if has_free {
                        problems.push(format!("slot {} is behind a free one", slot.0));
                    }
                    let off = self.value_off(slot);
                    if context.pmwcas.is_damaged(context.guard, off) {
                        problems.push(format!("slot {}: a value word that none writes", slot.0));
                        continue;
                    }
                    let value = ValueWord(context.read(off));
                    let state = value.state();
                    let is_first = self.key_words().is_first(key_word);
                    if is_first == value.is_versioned() && state != State::Moved {
                        problems.push(format!("slot {}: its words are of two versions", slot.0));
                    }
                    match current.get(&distance) {
                        _ if state == State::Moved => {}
                        None => drop(current.insert(distance, state)),
                        Some(_) if state == State::Empty => {}
                        Some(_) => problems.push(format!("slot {}: its key has another", slot.0)),
                    }
                }
            }
        }
        problems
    }
}
