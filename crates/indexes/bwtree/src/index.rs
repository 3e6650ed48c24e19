//! The Bw-tree as an index of a pool: `RangeIndex`, `Tree` and `IndexKind`.

use pando_index::{Intent, Limits, RangeIndex, Result, Upserted};
use pando_pmem::Domain;
use pando_tree::blocks::Reserved;
use pando_tree::context::Context;
use pando_tree::handle::Handle;
use pando_tree::index_operations;
use pando_tree::key::{Probe, Target};
use pando_tree::maps::{Audit, Tree, Unit};

use crate::layout::LIMITS;
use crate::options::Options;
use crate::search::Found;
use crate::style::Style;
use crate::table::first_anchor;
use crate::teardown::next_unit;
use crate::tree::BwTree;

impl<D: Domain, S: Style<D>> BwTree<D, S> {
    /// Like [`RangeIndex::upsert`], with the log sequence number of the operation. Its delta
    /// carries the number, and later the page that consolidates the delta. A transactional
    /// component can then redo what is newer than a page (paper, section V.A). Zero means no
    /// number. The tree keeps the numbers and does not use them.
    pub fn upsert_at_lsn(&self, key: &[u8], value: &[u8], lsn: u64) -> Result<Upserted> {
        self.put_at_lsn(key, value, Intent::Upsert, lsn)
    }

    /// Like [`RangeIndex::remove`], with the log sequence number of the operation.
    pub fn remove_at_lsn(&self, key: &[u8], lsn: u64) -> Result<bool> {
        self.delete_at_lsn(key, None, lsn)
    }

    /// The highest log sequence number that the page of `key` carries.
    pub fn page_lsn(&self, key: &[u8]) -> Result<u64> {
        LIMITS.check_key(key)?;
        self.lsn_of(key)
    }
}

impl<D: Domain, S: Style<D>> RangeIndex for BwTree<D, S> {
    fn limits(&self) -> Limits {
        LIMITS
    }

    index_operations!(modify);

    fn len(&self) -> Result<u64> {
        self.count_records(|guard, from| self.count_leaf(self.context(guard), from).map(Some))
    }
}

impl<D: Domain, S: Style<D>> Tree for BwTree<D, S> {
    type Domain = D;
    type Options = Options;

    fn first_block<'op>(context: Context<'op, D>, _: Options) -> Reserved<'op, D> {
        first_anchor(context)
    }

    fn open(handle: Handle<D, Options>) -> Self {
        Self::new(handle)
    }

    /// Allocates nothing, and writes nothing that is shared.
    #[inline]
    fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        LIMITS.check_key(key)?;
        let guard = self.pin()?;
        let context = self.context(&guard);
        let probe = Probe::new(key);
        let mut at = self.find_leaf(context, Target::Holding(probe))?;
        loop {
            let next = match at.link.find(context, probe, self.options.shortcuts)? {
                Found::Value(value, _) => return Ok(Some(visit(value.bytes(context)?))),
                Found::Absent(_) => return Ok(None),
                Found::Right(right) => self.step_right(context, at, right)?,
                Found::Leaving => self.help(context, at)?,
            };
            at = match next {
                Some(next) => next,
                None => self.find_leaf(context, Target::Holding(probe))?,
            };
        }
    }

    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        self.walk_tree(visit)
    }

    fn next_unit(context: Context<'_, D>, root_off: u64, _: Options) -> Unit {
        next_unit(context, root_off)
    }
}
