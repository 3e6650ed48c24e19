//! The tree: its handle, and the pieces that all operations use.

use std::marker::PhantomData;
use std::sync::Arc;

use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::deref_to_handle;
use pando_tree::handle::Handle;
use pando_tree::index_kind;

use crate::context::Pid;
use crate::layout::ROOT_AT;
use crate::options::Options;
use crate::pages::Pages;
use crate::races::{Race, Races};

/// Pages change by PMwCAS, all words of a change at once.
#[derive(Clone, Copy, Debug)]
pub enum MultiWord {}

/// A Bw-tree in a pool, whose pages change in the style `S`. All its state is in the pool. Any
/// number of handles may be open.
#[derive(Clone, Debug)]
pub struct BwTree<D: Domain, S = MultiWord> {
    handle: Handle<D, Options>,
    /// The counters of changes, if they are counted.
    races: Option<Arc<Races>>,
    /// If pages may be absent: where they are.
    pub(crate) pages: Option<Arc<Pages>>,
    style: PhantomData<S>,
}

deref_to_handle!(BwTree<D, S>, Options);

index_kind! {
    /// Bw-trees whose structure changes by PMwCAS.
    pub enum BwTrees = 2, "bwtree",
    "a Bw-tree: a mapping table, delta updates, splits and merges each one PMwCAS",
    BwTree<D, MultiWord>, Options;
}

impl<D: Domain, S> BwTree<D, S> {
    /// Opens the tree.
    pub(crate) fn new(handle: Handle<D, Options>) -> Self {
        Self { handle, races: None, pages: None, style: PhantomData }
    }

    /// The same, with the place of absent pages.
    pub(crate) fn with_pages(self, pages: Arc<Pages>) -> Self {
        Self { pages: Some(pages), ..self }
    }

    /// A handle that counts attempts to change pages, and the counters.
    pub fn counting_races(&self) -> (Self, Arc<Races>) {
        let races = Arc::new(Races::default());
        let (handle, pages) = (self.handle.clone(), self.pages.clone());
        (Self { handle, races: Some(Arc::clone(&races)), pages, style: PhantomData }, races)
    }

    /// Counts an attempt, if they are counted; returns `is_won`.
    #[inline(always)]
    pub(crate) fn counted(&self, race: Race, is_won: bool) -> bool {
        if let Some(races) = &self.races {
            races.add(race, is_won);
        }
        is_won
    }

    /// The anchor, with the root, the table's segments and its cursors.
    #[inline(always)]
    pub(crate) fn anchor(&self, context: Context<'_, D>) -> u64 {
        context.read(self.root_off)
    }

    #[inline(always)]
    pub(crate) fn root_pid(&self, context: Context<'_, D>) -> Pid {
        self.anchor(context) + ROOT_AT
    }

    /// A page on `level` with more bytes is split.
    pub(crate) fn max_bytes(&self, level: u8) -> u64 {
        u64::from(if level == 0 { self.options.leaf_bytes } else { self.options.inner_bytes })
    }
}
