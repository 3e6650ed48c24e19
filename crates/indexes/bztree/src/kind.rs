//! The BzTree as a kind of index that pools hold.

use std::sync::Arc;

use pando_index::Error;
use pando_pmem::{Domain, Guard, Reservation};
use pando_pmwcas::Pmwcas;
use pando_tree::maps::{Audit, BadSetting, Catalog, IndexKind, Setting, Settings, Unit};

use crate::node::Context;
use crate::options::{self, Options, SETTINGS};
use crate::teardown::next_unit;
use crate::tree::BzTree;

/// BzTrees.
#[derive(Clone, Copy, Debug)]
pub enum BzTrees {}

impl IndexKind for BzTrees {
    const NUMBER: u64 = 1;
    const NAME: &'static str = "bztree";
    const WHAT: &'static str = "BzTree, a latch-free B+-tree on PMwCAS";
    const SETTINGS: &'static [Setting] = &SETTINGS;

    type Index<D: Domain> = BzTree<D>;

    fn check(settings: &Settings) -> Result<(), BadSetting> {
        options::check(settings)
    }

    fn first_block<'guard, 'pool, D: Domain>(
        pmwcas: &'guard Pmwcas<D>,
        guard: &'guard Guard<'pool, D>,
        settings: &Settings,
    ) -> pando_pmem::Result<Reservation<'guard, 'pool, D>> {
        BzTree::first_leaf(pmwcas, guard, &Options::from(settings))
    }

    fn open<D: Domain>(catalog: Arc<Catalog<D>>, root_off: u64, settings: &Settings) -> BzTree<D> {
        BzTree::open(catalog, root_off, Options::from(settings))
    }

    fn walk<D: Domain>(
        tree: &BzTree<D>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Audit, Error> {
        tree.walk(visit)
    }

    fn next_unit<D: Domain>(
        pmwcas: &Pmwcas<D>,
        guard: &Guard<'_, D>,
        root_off: u64,
        _: &Settings,
    ) -> Unit {
        next_unit(Context { pmwcas, guard, pool: guard.pool() }, root_off)
    }

    #[inline(always)]
    fn read_with<D: Domain, R>(
        tree: &BzTree<D>,
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        tree.read_with(key, visit)
    }
}
