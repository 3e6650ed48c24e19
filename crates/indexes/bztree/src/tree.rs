//! The tree: its handle, and the way to a leaf. Writers, and readers of values in blocks of their
//! own, look again if what they found was replaced meanwhile ([`pando_inner`] says why a descent
//! needs no retry).

use std::sync::Arc;

use pando_inner::{Fenced, Path, Upper};
use pando_pmem::Domain;
use pando_tree::context::Context;
use pando_tree::deref_to_handle;
use pando_tree::handle::Handle;
use pando_tree::key::Side;

use crate::leaf::Leaf;
use crate::node::{BzLeaves, Probe};
use crate::options::Options;
use crate::rounds::Sweep;

/// A BzTree in a pool. All its state is in the pool, apart from caches. Any number of handles may
/// be open.
#[derive(Clone, Debug)]
pub struct BzTree<D: Domain> {
    handle: Handle<D, Options>,
    pub(crate) sweep: Arc<Sweep>,
}

deref_to_handle!(BzTree<D>, Options);

impl<D: Domain> BzTree<D> {
    /// Opens the tree.
    pub(crate) fn new(handle: Handle<D, Options>) -> Self {
        let options = handle.options.fitted();
        Self { handle: Handle { options, ..handle }, sweep: Arc::default() }
    }

    /// The inner nodes.
    #[inline(always)]
    pub(crate) fn upper(&self) -> Upper<BzLeaves> {
        Upper::new(self.root_off, self.options.inner_bytes)
    }

    /// The leaf for `probe`, without its path.
    #[inline(always)]
    pub(crate) fn find_leaf(&self, context: Context<'_, D>, probe: Probe<'_>) -> Leaf {
        Leaf::new(self.upper().find_leaf(context, probe.upper()))
    }

    /// The path to the leaf for `probe`.
    #[inline]
    pub(crate) fn find_path(&self, context: Context<'_, D>, probe: Probe<'_>) -> Path {
        self.upper().find_path(context, probe.upper())
    }

    /// The leaf on `side` of `probe` (without a probe: the first or last leaf), and its range.
    #[inline]
    pub(crate) fn find_fenced<'op>(
        &self,
        context: Context<'op, D>,
        probe: Option<Probe<'_>>,
        side: Side,
    ) -> Fenced<'op> {
        self.upper().find_fenced(context, probe.map(Probe::upper), side)
    }
}
