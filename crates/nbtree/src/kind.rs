//! The NBTree as a kind of index that pools hold.

use std::sync::Arc;

use pando_index::{Error, KeyRange, Order, RangeIndex};
use pando_pmem::catalog::MapEntry;
use pando_pmem::{Domain, Guard, Reservation};
use pando_pmwcas::Pmwcas;
use pando_pmwcas::maps::{Audit, IndexKind, MapError, Setting, Settings};

use crate::audit;
use crate::layout::{NEXT_AT, REPLACED};
use crate::options::{Options, SETTINGS};

use crate::tree::NbTree;

/// NBTrees.
#[derive(Clone, Copy, Debug)]
pub enum NbTrees {}

impl IndexKind for NbTrees {
    const NUMBER: u64 = 3;
    const NAME: &'static str = "nbtree";
    const WHAT: &'static str = "NBTree, a latch-free B+-tree with one line written an operation";
    const SETTINGS: &'static [Setting] = &SETTINGS;

    type Index<D: Domain> = NbTree<D>;

    fn first_block<'guard, 'pool, D: Domain>(
        _: &'guard Pmwcas<D>,
        guard: &'guard Guard<'pool, D>,
        settings: &Settings,
    ) -> pando_pmem::Result<Reservation<'guard, 'pool, D>> {
        NbTree::first_leaf(guard, &Options::from(settings))
    }

    /// Rebuilds what is in process memory, unless another handle has it: in time that grows with the records,
    /// unlike other indexes (paper 3.2).
    fn open<D: Domain>(pmwcas: Arc<Pmwcas<D>>, root_off: u64, settings: &Settings) -> NbTree<D> {
        NbTree::open(pmwcas, root_off, Options::from(settings))
    }

    fn walk<D: Domain>(
        tree: &NbTree<D>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Audit, Error> {
        audit::walk(tree, visit)
    }

    /// Removes the records one by one, so that each block goes the way that a removed record's goes, and the last of a
    /// leaf takes the leaf along; then the leaves without records that are still there, but for the first.
    fn drop_map<D: Domain>(tree: &NbTree<D>, entry: &MapEntry) -> Result<(), Error> {
        let pmwcas = &tree.pmwcas;
        loop {
            let mut records = tree.scan(KeyRange::all(), Order::Ascending)?;
            while let Some((key, _)) = records.next()? {
                tree.remove(key)?;
            }
            let guard = tree.pin()?;
            let mut empty = Vec::new();
            tree.visit_leaves(&guard, &mut |leaf| {
                if !leaf.low.is_lowest() {
                    empty.push(leaf);
                }
            });
            for leaf in empty {
                guard.relieve(|| tree.replace(&guard, leaf))?;
            }
            let first = pmwcas.read(&guard, tree.root_off);
            // If it is not the last one, too, the map is not empty.
            let seal = Some((first + NEXT_AT, 0, REPLACED));
            match pmwcas.drop_map(&guard, entry, first, seal) {
                Err(MapError::Busy) => {}
                Err(error) => return Err(Error::storage(error)),
                Ok(()) => {
                    pmwcas.forget_companion(tree.root_off);
                    return Ok(());
                }
            }
        }
    }

    #[inline(always)]
    fn read_with<D: Domain, R>(
        tree: &NbTree<D>,
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        tree.read_with(key, visit)
    }
}
