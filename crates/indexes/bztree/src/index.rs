//! The tree as an index of a pool: `RangeIndex`, `Tree` and `IndexKind`.

use pando_index::{Limits, RangeIndex, Result};
use pando_inner::Upper;
use pando_inner::layout::Link;
use pando_pmem::{Domain, Pool, ReadPin};
use pando_ranged::{Seen, see};
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
use crate::node::{BzLeaves, Probe};
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
        if let Ok(&number) = <&[u8; 8]>::try_from(key)
            && let Some(pin) = self.pool().pin_for_read()
        {
            let number = u64::from_be_bytes(number);
            return match seek_and_see(self.pool(), self.upper(), number) {
                (Seen::Value, value) => {
                    drop(pin);
                    Ok(Some(visit(&value.to_le_bytes())))
                }
                (Seen::Absent, _) => Ok(None),
                (Seen::Unclear, link) => self.read_from(pin, Link(link), key, visit),
            };
        }
        self.read_any(key, visit)
    }

    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        self.walk_tree(visit)
    }

    fn next_unit(context: Context<'_, D>, root_off: u64, _: Options) -> Unit {
        pando_inner::next_unit(context, root_off, |leaf| values(context, &Leaf::new(leaf)))
    }
}

impl<D: Domain> BzTree<D> {
    /// [`read_with`](Tree::read_with) in the general way.
    #[inline(never)]
    fn read_any<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        LIMITS.check_key(key)?;
        let guard = &self.pin()?;
        let context = self.context(guard);
        let probe = Probe::new(key);
        self.read_leaf(context, self.find_leaf(context, probe), probe, visit)
    }

    /// [`read_with`](Tree::read_with) in the general way, below the node that `link` names: the
    /// thread has read the link since it was pinned.
    ///
    /// Nothing was noted before, and no error returned: wherever a check has failed, this finds
    /// what it was. So an answer depends on no damage that a check finds.
    #[inline(never)]
    fn read_from<R>(
        &self,
        pin: ReadPin<'_, D>,
        link: Link,
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let guard = &pin.into_guard();
        let context = self.context(guard);
        let probe = Probe::new(key);
        let leaf = match link {
            NO_LINK => self.find_leaf(context, probe),
            _ => Leaf::new(Upper::<BzLeaves>::find_below(context, link, key)),
        };
        self.read_leaf(context, leaf, probe, visit)
    }

    /// [`read_with`](Tree::read_with) from `leaf` on.
    #[inline(always)]
    fn read_leaf<R>(
        &self,
        context: Context<'_, D>,
        mut leaf: Leaf,
        probe: Probe<'_>,
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let guard = context.guard;
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

/// No node is there.
const NO_LINK: Link = Link(0);

/// The value of a number, or the link below which a thread with a guard has to read it.
// A function of its own: within `read_with`, processors have too few registers for it.
#[inline(never)]
fn seek_and_see<D: Domain>(pool: &Pool<D>, upper: Upper<BzLeaves>, number: u64) -> (Seen, u64) {
    let all = pool.all_words();
    let Some(link) = upper.seek(all, number) else { return (Seen::Unclear, NO_LINK.0) };
    see(all, link.word_index(), number, link.0)
}

index_kind! {
    /// BzTrees.
    pub enum BzTrees = 1, "bztree",
    "BzTree, a latch-free B+-tree on PMwCAS",
    BzTree<D>, Options;
}
