//! The skip list as an index of a pool: `RangeIndex`, `Tree` and `IndexKind`.

use pando_index::{Limits, RangeIndex, Result};
use pando_pmem::Domain;
use pando_tree::blocks::Reserved;
use pando_tree::checked::undamaged;
use pando_tree::context::Context;
use pando_tree::handle::Handle;
use pando_tree::index_operations;
use pando_tree::key::Probe;
use pando_tree::maps::{Audit, Tree, Unit};

use crate::layout::LIMITS;
use crate::list::SkipList;
use crate::options::Options;
use crate::style::Links;
use crate::teardown::next_unit;

impl<D: Domain, S: Links<D>> RangeIndex for SkipList<D, S> {
    fn limits(&self) -> Limits {
        LIMITS
    }

    index_operations!(modify, read_many, upsert_many, remove_many);

    /// Linear in the number of records: each is visited.
    fn len(&self) -> Result<u64> {
        self.count_records(|guard, from| Ok(Some(self.count_from(self.context(guard), from))))
    }
}

impl<D: Domain, S: Links<D>> Tree for SkipList<D, S> {
    type Domain = D;
    type Options = Options;

    const IS_SHAREABLE: bool = true;

    fn first_block<'op>(context: Context<'op, D>, options: Options) -> Reserved<'op, D> {
        Self::first_head(context, options)
    }

    fn open(handle: Handle<D, Options>) -> Self {
        Self::new(handle)
    }

    /// Allocates nothing, and in the style of several words writes nothing that is shared.
    #[inline]
    fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        LIMITS.check_key(key)?;
        let guard = self.pin()?;
        let context = self.context(&guard);
        let node = self.find_node(context, Probe::new(key));
        // A deleted node was deleted since this operation began: at that time the key was absent.
        let value = node.and_then(|node| node.value(context));
        undamaged(&guard)?;
        Ok(value.map(|(_, value)| visit(value.as_bytes())))
    }

    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        self.walk_list(visit)
    }

    fn next_unit(context: Context<'_, D>, root_off: u64, _: Options) -> Unit {
        next_unit(context, root_off)
    }
}
