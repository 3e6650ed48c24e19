//! The skip list: its handle, and the pieces that all operations use.

use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;

use pando_pmem::Domain;
use pando_pmwcas::MAX_VALUE;
use pando_tree::blocks::Reserved;
use pando_tree::context::Context;
use pando_tree::deref_to_handle;
use pando_tree::handle::Handle;
use pando_tree::index_kind;

use crate::layout::{INFO_AT, Info, MAX_HEIGHT, PREV_AT, SMALL_AT, next_at, tail_at};
use crate::node::Node;
use crate::options::Options;

/// Links change by PMwCAS, all words of a step at once.
#[derive(Clone, Copy, Debug)]
pub enum MultiWord {}

/// A skip list in a pool, whose links change in the style `S`. All its state is in the pool. Any
/// number of handles may be open.
#[derive(Clone, Debug)]
pub struct SkipList<D: Domain, S = MultiWord> {
    pub(crate) handle: Handle<D, Options>,
    style: PhantomData<S>,
}

deref_to_handle!(SkipList<D, S>, Options);

index_kind! {
    /// Skip lists whose links change by PMwCAS.
    pub enum SkipLists = 5, "skiplist",
    "a doubly linked skip list on PMwCAS: one cache line a small record, no page to split or merge",
    SkipList<D, MultiWord>, Options;
}

impl<D: Domain, S> SkipList<D, S> {
    /// Opens the list.
    pub(crate) fn new(handle: Handle<D, Options>) -> Self {
        Self { handle, style: PhantomData }
    }

    /// The head of an empty list, for the entry word of a new map.
    pub(crate) fn first_head<'op>(context: Context<'op, D>, options: Options) -> Reserved<'op, D> {
        let bytes = tail_at(MAX_HEIGHT);
        let mut block = context.guard.reserve(bytes)?;
        let head = block.off();
        block.zero(0, bytes);
        for level in 0..MAX_HEIGHT {
            block.write_u64(next_at(level), head);
        }
        block.write_u64(PREV_AT, head);
        let info = Info { height: MAX_HEIGHT, key_bytes: 0, inline_bytes: 0 };
        block.write_u64(INFO_AT, info.encode());
        let seed = match options.height_seed {
            0 => RandomState::new().hash_one(head) & MAX_VALUE,
            seed => u64::from(seed),
        };
        block.write_u64(SMALL_AT, seed);
        block.flush(0, bytes);
        Ok(block)
    }

    /// The seed of the heights of nodes.
    pub(crate) fn seed(&self, context: Context<'_, D>) -> u64 {
        context.fixed(self.head(context).small_off())
    }

    /// The head: it stands before all records and behind them.
    #[inline(always)]
    pub(crate) fn head(&self, context: Context<'_, D>) -> Node {
        Node(context.read(self.root_off))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use std::sync::Arc;

    use pando_pmem::{CreateOptions, Pool, Process};
    use pando_tree::maps::Catalog;

    use super::*;
    use crate::SkipLists;

    /// If heights can be predicted, keys can be chosen whose nodes are low.
    #[test]
    fn seeds_are_drawn_unless_they_are_set() {
        let seeds = |height_seed: u32| {
            let pool = || Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
            let pools = [pool(), pool()].map(|pool| Arc::new(Catalog::open(pool).expect("opens")));
            let options = Options { height_seed, ..Options::default() };
            let mut seeds = HashSet::new();
            for catalog in &pools {
                for name in ["oak", "ash"] {
                    let list =
                        catalog.find_or_create_index::<SkipLists>(name, options).expect("a list");
                    let guard = list.pin().expect("pins");
                    seeds.insert(list.seed(list.context(&guard)));
                }
            }
            seeds
        };
        assert_eq!(seeds(0).len(), 4);
        assert_eq!(seeds(7), [7].into());
    }
}
