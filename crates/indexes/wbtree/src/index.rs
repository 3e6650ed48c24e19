//! The tree as an index of a pool: `RangeIndex`, `Tree` and `IndexKind`.

use std::sync::atomic::Ordering;

use pando_index::{Limits, RangeIndex, Result};
use pando_pmem::Domain;
use pando_tree::blocks::Reserved;
use pando_tree::checked::undamaged;
use pando_tree::context;
use pando_tree::handle::Handle;
use pando_tree::index_kind;
use pando_tree::index_operations;
use pando_tree::key::LIMITS;
use pando_tree::key::{Probe, Target};
use pando_tree::maps::{Audit, Tree, Unit};

use crate::build;
use crate::layout::{Cell, FIXED_BYTES, HEADER_AT, Header, LINE_BYTES};
use crate::node::Context;
use crate::options::Options;
use crate::teardown::next_unit;
use crate::tree::WbTree;
use crate::write::with_value;

impl<D: Domain> RangeIndex for WbTree<D> {
    #[inline]
    fn limits(&self) -> Limits {
        if self.shape.is_variable {
            LIMITS
        } else {
            Limits { max_key_bytes: FIXED_BYTES, max_value_bytes: FIXED_BYTES }
        }
    }

    index_operations!();

    fn len(&self) -> Result<u64> {
        self.count_records(|guard, from| {
            let context = self.context(guard);
            let target = Target::Holding(Probe::new(from));
            let Some(found) = self.seek(context, target, 0)? else { return Ok(None) };
            let Ok(fence) = found.node.fence(context, found.state) else { return Ok(None) };
            let next = (fence.link != 0).then(|| context.key(&fence));
            Ok(Some((found.state.count(found.node.kind) as u64, next)))
        })
    }
}

impl<D: Domain> Tree for WbTree<D> {
    type Domain = D;
    type Options = Options;

    fn takes_value_bytes(options: Options, bytes: usize) -> bool {
        options.is_variable() || bytes == FIXED_BYTES
    }

    fn first_block<'op>(context: context::Context<'op, D>, options: Options) -> Reserved<'op, D> {
        let context = Context { context, shape: options.shape() };
        build::node(context, 0, &[], &Cell::default(), 0)
    }

    fn open(handle: Handle<D, Options>) -> Self {
        let shape = handle.options.shape();
        Self { handle, shape }
    }

    fn check_layout(context: context::Context<'_, D>, root_off: u64) -> Result<(), String> {
        let (pool, off) = (context.pool(), context.read(root_off));
        if pool.active_block(off).is_none_or(|bytes| bytes < LINE_BYTES) {
            return Ok(());
        }
        // Acquire: pairs with the swap that made it the root.
        let header = pool.word(off + HEADER_AT).load(Ordering::Acquire);
        if Header::is_earlier(header) {
            return Err(format!("its nodes have the header {header:#x}, of an earlier layout"));
        }
        Ok(())
    }

    /// Writes no record and allocates nothing. It only rewrites slot words that a crash has left
    /// outdated.
    #[inline]
    fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        if !self.may_hold(key)? {
            return Ok(None);
        }
        let probe = Probe::new(key);
        if !self.shape.is_variable
            && let Some(value) = self.peek(probe)?
        {
            return Ok(Some(visit(&value.to_le_bytes())));
        }
        let (guard, hint) = self.pin_at_leaf(probe)?;
        let context = self.context(&guard);
        let found = self.lookup(context, probe, hint)?;
        let Some(record) = found else { return undamaged(&guard).map(|()| None) };
        with_value(context, &record, |value| undamaged(&guard).map(|()| Some(visit(value))))
    }

    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        self.walk_tree(visit)
    }

    fn next_unit(context: context::Context<'_, D>, root_off: u64, options: Options) -> Unit {
        next_unit(Context { context, shape: options.shape() }, root_off)
    }
}

index_kind! {
    /// wB+-Trees.
    pub enum WbTrees = 4, "wbtree",
    "wB+-Tree, a B+-tree whose nodes change by one atomic write",
    WbTree<D>, Options;
}
