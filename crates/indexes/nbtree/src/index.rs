//! The tree as an index of a pool: `RangeIndex`, `Tree` and `IndexKind`.

use pando_index::{Limits, RangeIndex, Result};
use pando_pmem::{Domain, Guard};
use pando_tree::blocks::Reserved;
use pando_tree::checked::undamaged;
use pando_tree::context::Context;
use pando_tree::handle::Handle;
use pando_tree::index_kind;
use pando_tree::index_operations;
use pando_tree::key::{Probe, Side};
use pando_tree::maps::{Audit, Tree, Unit};

use crate::audit;
use crate::layout::{Image, LIMITS, block_bytes};
use crate::options::Options;
use crate::separator::fingerprint;
use crate::teardown::next_unit;
use crate::tree::NbTree;
use crate::volatile::node::{Kind, LeafRef, Node};

impl<D: Domain> NbTree<D> {
    /// Visits the present leaves in order: for each leaf in the inner nodes, its newest
    /// replacement.
    pub(crate) fn visit_leaves<'guard>(
        &self,
        guard: &'guard Guard<'_, D>,
        visit: &mut dyn FnMut(LeafRef<'guard>),
    ) {
        // A stack: the last one is visited next.
        let mut rest: Vec<Node<'guard>> = vec![self.layers.root.slot().load(guard)];
        while let Some(node) = rest.pop() {
            match node.kind() {
                Kind::Inner(inner) => {
                    rest.extend((0..inner.len()).rev().map(|index| inner.slot(index).load(guard)));
                }
                Kind::Leaf(leaf) => match leaf.replaced_by(guard) {
                    Some(replacement) => {
                        let leaves = [replacement.right(guard), replacement.left(guard)];
                        rest.extend(leaves.into_iter().flatten().map(LeafRef::node));
                    }
                    None => visit(leaf),
                },
            }
        }
    }
}

impl<D: Domain> RangeIndex for NbTree<D> {
    fn limits(&self) -> Limits {
        LIMITS
    }

    index_operations!(modify);

    fn len(&self) -> Result<u64> {
        let guard = self.pin()?;
        let mut records = 0;
        self.visit_leaves(&guard, &mut |leaf| records += self.count_live(&guard, leaf));
        Ok(records)
    }
}

impl<D: Domain> Tree for NbTree<D> {
    type Domain = D;
    type Options = Options;

    fn first_block<'op>(context: Context<'op, D>, options: Options) -> Reserved<'op, D> {
        let slots = options.leaf_slots as usize;
        let mut block = context.guard.reserve(block_bytes(slots))?;
        block.write(0, &Image::new(slots, 0).bytes());
        block.flush(0, block_bytes(slots));
        Ok(block)
    }

    /// Rebuilds the layers in process memory, unless another handle has them. The time grows with
    /// the records, unlike that of other indexes (paper 3.2).
    fn open(handle: Handle<D, Options>) -> Self {
        Self::new(handle)
    }

    /// Allocates nothing, and writes nothing that is shared, except to help: it completes an insert
    /// that it meets, writes back lines that may not be durable, and updates inner nodes after a
    /// replacement.
    #[inline]
    fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        LIMITS.check_key(key)?;
        let probe = Probe::new(key);
        let fingerprint = fingerprint(&probe);
        let guard = self.pin()?;
        let leaf = self.find_leaf(&guard, &probe, Side::Holding, fingerprint);
        let bitmap = leaf.control::<D>().bitmap();
        let Some(found) = self.search(&guard, leaf, bitmap, &probe, fingerprint) else {
            return undamaged(&guard).map(|()| None);
        };
        self.make_durable(&guard, leaf, found.slot);
        self.lend(&guard, leaf, found, |value| undamaged(&guard).map(|()| Some(visit(value))))
    }

    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        audit::walk(self, visit)
    }

    fn next_unit(context: Context<'_, D>, root_off: u64, options: Options) -> Unit {
        next_unit(context, root_off, options.leaf_slots as usize)
    }
}

index_kind! {
    /// NBTrees.
    pub enum NbTrees = 3, "nbtree",
    "NBTree, a latch-free B+-tree with one line written an operation",
    NbTree<D>, Options;
}
