//! The wB+-Tree as a kind of index that pools hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_index::Error;
use pando_pmem::{Domain, Guard, Reservation};
use pando_pmwcas::Pmwcas;
use pando_tree::maps::{Audit, BadSetting, Catalog, IndexKind, Setting, Settings, Unit};

use crate::layout::{HEADER_AT, Header, LINE_BYTES};
use crate::node::Context;
use crate::options::{self, Options, SETTINGS};
use crate::teardown::next_unit;
use crate::tree::WbTree;

/// wB+-Trees.
#[derive(Clone, Copy, Debug)]
pub enum WbTrees {}

impl IndexKind for WbTrees {
    const NUMBER: u64 = 4;
    const NAME: &'static str = "wbtree";
    const WHAT: &'static str = "wB+-Tree, a B+-tree whose nodes change by one atomic write";
    const SETTINGS: &'static [Setting] = &SETTINGS;

    type Index<D: Domain> = WbTree<D>;

    fn check(settings: &Settings) -> Result<(), BadSetting> {
        options::check(settings)
    }

    fn first_block<'guard, 'pool, D: Domain>(
        pmwcas: &'guard Pmwcas<D>,
        guard: &'guard Guard<'pool, D>,
        settings: &Settings,
    ) -> pando_pmem::Result<Reservation<'guard, 'pool, D>> {
        WbTree::first_leaf(pmwcas, guard, &Options::from(settings))
    }

    fn open<D: Domain>(catalog: Arc<Catalog<D>>, root_off: u64, settings: &Settings) -> WbTree<D> {
        WbTree::open(catalog, root_off, Options::from(settings))
    }

    fn check_layout<D: Domain>(
        pmwcas: &Pmwcas<D>,
        guard: &Guard<'_, D>,
        root_off: u64,
    ) -> Result<(), String> {
        let (pool, off) = (pmwcas.pool(), pmwcas.read(guard, root_off));
        if pool.active_block(off).is_none_or(|bytes| bytes < LINE_BYTES) {
            return Ok(());
        }
        // Acquire: with the swap that made it the root.
        let header = pool.word(off + HEADER_AT).load(Ordering::Acquire);
        if Header::is_earlier(header) {
            return Err(format!("its nodes have the header {header:#x}, of an earlier layout"));
        }
        Ok(())
    }

    fn walk<D: Domain>(
        tree: &WbTree<D>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Audit, Error> {
        tree.walk(visit)
    }

    fn next_unit<D: Domain>(
        pmwcas: &Pmwcas<D>,
        guard: &Guard<'_, D>,
        root_off: u64,
        settings: &Settings,
    ) -> Unit {
        let shape = Options::from(settings).shape();
        next_unit(Context { pmwcas, guard, pool: guard.pool(), shape }, root_off)
    }

    #[inline(always)]
    fn read_with<D: Domain, R>(
        tree: &WbTree<D>,
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        tree.read_with(key, visit)
    }
}
