//! The tree: its handle, and the pieces that all operations use.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_index::Error;
use pando_pmem::{Domain, Guard};
use pando_tree::maps::Catalog;

use crate::context::{Context, Pid};
use crate::layout::ROOT_AT;
use crate::options::{Chaining, Options};
use crate::races::{Race, Races};

/// Bw-trees whose structure changes by PMwCAS.
#[derive(Clone, Copy, Debug)]
pub enum BwTrees {}

/// Bw-trees whose pages change by single-word CAS: for measuring, in a pool that is not to survive.
#[cfg(feature = "papers")]
#[derive(Clone, Copy, Debug)]
pub enum CasBwTrees {}

/// Pages change by PMwCAS, all words of a change at once.
#[derive(Clone, Copy, Debug)]
pub enum MultiWord {}

/// A Bw-tree in a pool, whose pages change in the style `S`. All of its state is in the pool; any
/// number of handles may be open.
#[derive(Debug)]
pub struct BwTree<D: Domain, S = MultiWord> {
    catalog: Arc<Catalog<D>>,
    root_off: u64,
    options: Options,
    /// The pool reaches so far at least.
    known_end: AtomicU64,
    /// What changes of pages are counted in, if they are.
    races: Option<Arc<Races>>,
    style: PhantomData<S>,
}

impl<D: Domain, S> Clone for BwTree<D, S> {
    fn clone(&self) -> Self {
        Self {
            catalog: self.catalog.clone(),
            root_off: self.root_off,
            options: self.options,
            // Relaxed: a number that only rises, and is looked up again if it does not suffice.
            known_end: AtomicU64::new(self.known_end.load(Ordering::Relaxed)),
            races: self.races.clone(),
            style: PhantomData,
        }
    }
}

impl<D: Domain, S> BwTree<D, S> {
    /// Opens the tree whose entry word is at `root_off`.
    pub(crate) fn new(catalog: Arc<Catalog<D>>, root_off: u64, options: Options) -> Self {
        let known_end = AtomicU64::new(0);
        Self { catalog, root_off, options, known_end, races: None, style: PhantomData }
    }

    /// A handle that counts attempts at changes of pages; and where they are counted.
    pub fn counting_races(&self) -> (Self, Arc<Races>) {
        let races = Arc::new(Races::default());
        (Self { races: Some(Arc::clone(&races)), ..self.clone() }, races)
    }

    /// Counts an attempt, if they are counted; whether it was won.
    #[inline(always)]
    pub(crate) fn counted(&self, race: Race, is_won: bool) -> bool {
        if let Some(races) = &self.races {
            races.add(race, is_won);
        }
        is_won
    }

    /// The options with which the tree was created.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The maps of the tree's pool.
    pub fn catalog(&self) -> &Arc<Catalog<D>> {
        &self.catalog
    }

    #[inline(always)]
    pub(crate) fn pin(&self) -> Result<Guard<'_, D>, Error> {
        self.catalog.pool().pin().map_err(Error::storage)
    }

    #[inline(always)]
    pub(crate) fn context<'op, 'pool>(
        &'op self,
        guard: &'op Guard<'pool, D>,
    ) -> Context<'op, 'pool, D> {
        Context { pmwcas: &self.catalog, guard, known_end: &self.known_end }
    }

    pub(crate) fn root_off(&self) -> u64 {
        self.root_off
    }

    /// Where the root, the table's segments and its cursors are found.
    #[inline(always)]
    pub(crate) fn anchor(&self, context: Context<'_, '_, D>) -> u64 {
        context.read(self.root_off)
    }

    #[inline(always)]
    pub(crate) fn root_pid(&self, context: Context<'_, '_, D>) -> Pid {
        self.anchor(context) + ROOT_AT
    }

    pub(crate) fn chaining(&self) -> Chaining {
        self.options.chaining()
    }

    /// Above how many bytes a page on `level` is split.
    pub(crate) fn max_bytes(&self, level: u8) -> u64 {
        u64::from(if level == 0 { self.options.leaf_bytes } else { self.options.inner_bytes })
    }
}
