//! The Bw-tree as a kind of index that pools hold.

use std::sync::Arc;

use pando_index::Error;
use pando_pmem::{Domain, Guard, Reservation};
use pando_pmwcas::Pmwcas;
use pando_tree::maps::{Audit, BadSetting, Catalog, IndexKind, Setting, Settings, Unit};

use crate::multi_word::MultiWord;
use crate::options::{Options, SETTINGS, check};
use crate::single_word::SingleWord;
use crate::table::first_anchor;
use crate::teardown::next_unit;
use crate::tree::BwTree;

/// Bw-trees whose pages change by single-word CAS: for measuring, in a pool that is not to survive.
#[derive(Clone, Copy, Debug)]
pub enum CasBwTrees {}

/// Bw-trees whose structure changes by PMwCAS.
#[derive(Clone, Copy, Debug)]
pub enum BwTrees {}

macro_rules! kind {
    ($kind:ty, $style:ty, $number:literal, $name:literal, $what:literal) => {
        impl IndexKind for $kind {
            const NUMBER: u64 = $number;
            const NAME: &'static str = $name;
            const WHAT: &'static str = $what;
            const SETTINGS: &'static [Setting] = &SETTINGS;

            type Index<D: Domain> = BwTree<D, $style>;

            fn check(settings: &Settings) -> Result<(), BadSetting> {
                check(settings)
            }

            fn first_block<'guard, 'pool, D: Domain>(
                _: &'guard Pmwcas<D>,
                guard: &'guard Guard<'pool, D>,
                _: &Settings,
            ) -> pando_pmem::Result<Reservation<'guard, 'pool, D>> {
                first_anchor(guard)
            }

            fn open<D: Domain>(
                catalog: Arc<Catalog<D>>,
                root_off: u64,
                settings: &Settings,
            ) -> Self::Index<D> {
                BwTree::open(catalog, root_off, Options::from(settings))
            }

            fn walk<D: Domain>(
                tree: &Self::Index<D>,
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
                next_unit(pmwcas, guard, root_off)
            }

            #[inline(always)]
            fn read_with<D: Domain, R>(
                tree: &Self::Index<D>,
                key: &[u8],
                visit: impl FnOnce(&[u8]) -> R,
            ) -> Result<Option<R>, Error> {
                tree.read_with(key, visit)
            }
        }
    };
}

kind!(
    BwTrees,
    MultiWord,
    2,
    "bwtree",
    "a Bw-tree: a mapping table, delta updates, splits and merges each one PMwCAS"
);

kind!(
    CasBwTrees,
    SingleWord,
    // From 0xFFFF_0000 on are examples and experiments.
    0xFFFF_0003,
    "bwtree-cas",
    "for measuring: the Bw-tree by single-word CAS, which no crash may interrupt"
);
