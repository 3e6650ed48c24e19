//! The tree as an index of a pool: `RangeIndex`, `Tree` and `IndexKind`.

use pando_index::{Limits, RangeIndex, Result};
use pando_inner::Node;
use pando_inner::layout::Link;
use pando_pmem::Domain;
use pando_ranged::RangeLeaf;
use pando_tree::blocks::Reserved;
use pando_tree::checked::{Steps, undamaged};
use pando_tree::context::Context;
use pando_tree::handle::Handle;
use pando_tree::index_kind;
use pando_tree::index_operations;
use pando_tree::key::Side;
use pando_tree::maps::{Audit, Tree, Unit};

use crate::build::{self, Room, Wanted};
use crate::layout::LIMITS;
use crate::leaf::{Leaf, Superseded};
use crate::node::Probe;
use crate::options::Options;
use crate::teardown::values;
use crate::tree::BzTree;

impl<D: Domain> RangeIndex for BzTree<D> {
    fn limits(&self) -> Limits {
        LIMITS
    }

    index_operations!(modify, read_many, upsert_many, remove_many);

    fn len(&self) -> Result<u64> {
        self.count_records(|guard, from| {
            let context = self.context(guard);
            let probe = Some(Probe::new(from));
            let found = self.find_fenced(context, probe, Side::Holding);
            let records = self.content(context, &Leaf::new(found.leaf)).len() as u64;
            Ok(Some((records, found.fence.high.map(<[u8]>::to_vec))))
        })
    }
}

impl<D: Domain> Tree for BzTree<D> {
    type Domain = D;
    type Options = Options;

    const IS_SHAREABLE: bool = true;

    fn first_block<'op>(context: Context<'op, D>, options: Options) -> Reserved<'op, D> {
        let free_bytes = u64::from(options.fitted().free_bytes);
        let room = Room { free_bytes, wanted: Wanted::NONE };
        let leaf = build::leaf(context, &[], room)?;
        Ok(leaf.block)
    }

    fn open(handle: Handle<D, Options>) -> Self {
        Self::new(handle)
    }

    /// Writes nothing that is shared, and allocates nothing.
    #[inline]
    fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        LIMITS.check_key(key)?;
        let guard = self.pin()?;
        let context = self.context(&guard);
        let upper = pando_inner::Probe::new(key);
        let leaf = self.upper().find_leaf(context, upper);
        let found = upper.number.and_then(|number| RangeLeaf::find(context, leaf, number));
        let Some(value) = found else {
            return self.read_from(context, leaf.link, key, visit);
        };
        undamaged(&guard)?;
        Ok(value.map(|value| visit(&value.to_le_bytes())))
    }

    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        self.walk_tree(visit)
    }

    fn next_unit(context: Context<'_, D>, root_off: u64, _: Options) -> Unit {
        pando_inner::next_unit(context, root_off, |leaf| values(context, &Leaf::new(leaf)))
    }
}

impl<D: Domain> BzTree<D> {
    /// [`read_with`](Tree::read_with) from the leaf on that `link` names: with a key that is no
    /// number, or in a leaf that is no range leaf.
    #[inline(never)]
    fn read_from<R>(
        &self,
        context: Context<'_, D>,
        link: Link,
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let (probe, guard) = (Probe::new(key), context.guard);
        let mut leaf = Leaf::new(Node::at(context, link));
        let mut steps = Steps::of_attempts();
        loop {
            if let Some(leaf) = leaf.ranged(context) {
                let value = probe.number.and_then(|number| leaf.get(context, number));
                undamaged(guard)?;
                return Ok(value.map(|value| visit(&value.to_le_bytes())));
            }
            let found = leaf.get(context, probe);
            // The value's block was superseded or deleted meanwhile: look again.
            let Err(Superseded) = found else {
                undamaged(guard)?;
                return Ok(found.ok().flatten().map(visit));
            };
            steps.take(guard, self.root_off)?;
            leaf = self.find_leaf(context, probe);
        }
    }
}

index_kind! {
    /// BzTrees.
    pub enum BzTrees = 1, "bztree",
    "BzTree, a latch-free B+-tree on PMwCAS",
    BzTree<D>, Options;
}
