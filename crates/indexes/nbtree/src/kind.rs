//! The NBTree as a kind of index that pools hold.

use std::sync::Arc;

use pando_index::Error;
use pando_pmem::{Domain, Guard, Reservation};
use pando_pmwcas::Pmwcas;
use pando_tree::maps::{Audit, Catalog, IndexKind, Setting, Settings, Unit};

use crate::audit;
use crate::options::{Options, SETTINGS};

use crate::teardown::next_unit;
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

    /// Rebuilds what is in process memory, unless another handle has it: in time that grows with
    /// the records, unlike other indexes (paper 3.2).
    fn open<D: Domain>(catalog: Arc<Catalog<D>>, root_off: u64, settings: &Settings) -> NbTree<D> {
        NbTree::open(catalog, root_off, Options::from(settings))
    }

    fn walk<D: Domain>(
        tree: &NbTree<D>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Audit, Error> {
        audit::walk(tree, visit)
    }

    fn next_unit<D: Domain>(
        pmwcas: &Pmwcas<D>,
        guard: &Guard<'_, D>,
        root_off: u64,
        settings: &Settings,
    ) -> Unit {
        let slots = Options::from(settings).leaf_slots as usize;
        next_unit(pmwcas, guard, root_off, slots)
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
