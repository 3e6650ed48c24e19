//! The skip list as a kind of index that pools hold.

use std::sync::Arc;

use pando_index::Error;
use pando_pmem::{Domain, Guard, Reservation};
use pando_pmwcas::Pmwcas;
use pando_tree::maps::{Audit, Catalog, IndexKind, Setting, Settings, Unit};

use crate::list::SkipList;
use crate::multi_word::MultiWord;
use crate::node::Context;
use crate::options::{Options, SETTINGS};
use crate::single_word::SingleWord;
use crate::teardown::next_unit;

/// Skip lists whose links change by PMwCAS.
#[derive(Clone, Copy, Debug)]
pub enum SkipLists {}

/// Skip lists whose links change by single-word CAS: for measuring, in a pool that is not to
/// survive.
#[derive(Clone, Copy, Debug)]
pub enum CasSkipLists {}

macro_rules! kind {
    ($kind:ty, $style:ty, $number:literal, $name:literal, $what:literal) => {
        impl IndexKind for $kind {
            const NUMBER: u64 = $number;
            const NAME: &'static str = $name;
            const WHAT: &'static str = $what;
            const SETTINGS: &'static [Setting] = &SETTINGS;

            type Index<D: Domain> = SkipList<D, $style>;

            fn first_block<'guard, 'pool, D: Domain>(
                _: &'guard Pmwcas<D>,
                guard: &'guard Guard<'pool, D>,
                settings: &Settings,
            ) -> pando_pmem::Result<Reservation<'guard, 'pool, D>> {
                SkipList::<D, $style>::first_head(guard, &Options::from(settings))
            }

            fn open<D: Domain>(
                catalog: Arc<Catalog<D>>,
                root_off: u64,
                settings: &Settings,
            ) -> Self::Index<D> {
                SkipList::open(catalog, root_off, Options::from(settings))
            }

            fn walk<D: Domain>(
                list: &Self::Index<D>,
                visit: &mut dyn FnMut(&[u8], &[u8]),
            ) -> Result<Audit, Error> {
                list.walk(visit)
            }

            fn next_unit<D: Domain>(
                pmwcas: &Pmwcas<D>,
                guard: &Guard<'_, D>,
                root_off: u64,
                _: &Settings,
            ) -> Unit {
                next_unit(Context { pmwcas, guard }, root_off)
            }

            #[inline(always)]
            fn read_with<D: Domain, R>(
                list: &Self::Index<D>,
                key: &[u8],
                visit: impl FnOnce(&[u8]) -> R,
            ) -> Result<Option<R>, Error> {
                list.read_with(key, visit)
            }
        }
    };
}

kind!(
    SkipLists,
    MultiWord,
    5,
    "skiplist",
    "a doubly linked skip list on PMwCAS: one cache line a small record, no page to split or merge"
);

kind!(
    CasSkipLists,
    SingleWord,
    // From 0xFFFF_0000 on are examples and experiments.
    0xFFFF_0002,
    "skiplist-cas",
    "for measuring: the skip list by single-word CAS, which no crash may interrupt"
);
