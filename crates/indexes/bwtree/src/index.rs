//! The Bw-tree as an index of a pool: `RangeIndex`, `Tree` and `IndexKind`.

use pando_index::{BlindChange, Cursor, Error, KeyRange, Known, Limits, Order, RangeIndex, Result};
use pando_pmem::Domain;
use pando_tree::blocks::Reserved;
use pando_tree::context::Context;
use pando_tree::cursor::BatchCursor;
use pando_tree::handle::Handle;
use pando_tree::index_operations;
use pando_tree::key::{Probe, Target};
use pando_tree::maps::{Audit, Tree, Unit};
use pando_tree::room::Attempts;

use crate::context::Value;
use crate::options::Options;
use crate::pages::{PageError, Pages};
use crate::search::Found;
use crate::style::Style;
use crate::table::first_anchor;
use crate::teardown::next_unit;
use crate::tree::BwTree;

impl<D: Domain, S: Style<D>> BwTree<D, S> {
    /// The value of the key.
    #[inline(always)]
    fn find<'op>(&self, context: Context<'op, D>, probe: Probe<'_>) -> Result<Option<Value<'op>>> {
        let mut at = self.find_leaf(context, Target::Holding(probe))?;
        loop {
            let next =
                match at.link.find(context, probe, (self.options.shortcuts, S::MAY_BE_ABSENT))? {
                    Found::Value(value, _) => return Ok(Some(value)),
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

    fn count_by_scan(&self) -> Result<u64> {
        let mut cursor = BatchCursor::new(self, KeyRange::all(), Order::Ascending);
        let mut records = 0;
        while cursor.next()?.is_some() {
            records += 1;
        }
        Ok(records)
    }
}

impl<D: Domain, S: Style<D>> RangeIndex for BwTree<D, S> {
    fn limits(&self) -> Limits {
        S::LIMITS
    }

    index_operations!(modify);

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if !S::MAY_BE_ABSENT {
            return self.upsert(key, value).map(drop);
        }
        S::LIMITS.check_value(value)?;
        let put = &mut |_: Known<'_>, new: &mut Vec<u8>| {
            new.extend_from_slice(value);
            true
        };
        match self.blind_write(key, value.len(), put)? {
            true => Ok(()),
            false => self.upsert(key, value).map(drop),
        }
    }

    fn write_blind(
        &self,
        key: &[u8],
        value_bytes: usize,
        change: &mut BlindChange<'_>,
    ) -> Result<bool> {
        self.blind_write(key, value_bytes, change)
    }

    fn is_only_stored(&self, key: &[u8]) -> Result<bool> {
        if !S::MAY_BE_ABSENT {
            return Ok(false);
        }
        S::LIMITS.check_key(key)?;
        let (probe, mut attempts) = (Probe::new(key), Attempts::default());
        loop {
            let lacks = {
                let guard = self.pin()?;
                self.lacks_now(self.context(&guard), probe)
            };
            match lacks {
                Ok(lacks) => return Ok(lacks),
                // An inner page.
                Err(error) => S::after_failure(self, error, &mut attempts)?,
            }
        }
    }

    fn len(&self) -> Result<u64> {
        if S::MAY_BE_ABSENT {
            return self.count_by_scan();
        }
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
        if !S::MAY_BE_ABSENT {
            return Self::new(handle);
        }
        let pages = handle.catalog.shared_state(handle.root_off, Pages::default);
        Self::new(handle).with_pages(pages)
    }

    /// Allocates nothing, and writes nothing that is shared, if all pages are in the pool.
    #[inline]
    fn read_with<R>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        S::LIMITS.check_key(key)?;
        let probe = Probe::new(key);
        let mut attempts = Attempts::default();
        loop {
            let error = {
                let guard = self.pin()?;
                let context = self.context(&guard);
                match self.find(context, probe) {
                    Ok(Some(value)) if S::MAY_BE_ABSENT => {
                        // `visit` may use the tree, and so need room.
                        let value = value.bytes(context)?.to_vec();
                        drop(guard);
                        return Ok(Some(visit(&value)));
                    }
                    Ok(Some(value)) => return Ok(Some(visit(value.bytes(context)?))),
                    Ok(None) => return Ok(None),
                    Err(error) => error,
                }
            };
            S::after_failure(self, error, &mut attempts)?;
        }
    }

    fn walk(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<Audit> {
        if S::MAY_BE_ABSENT {
            return Err(Error::storage(PageError::NotWalked));
        }
        self.walk_tree(visit)
    }

    fn next_unit(context: Context<'_, D>, root_off: u64, _: Options) -> Unit {
        next_unit(context, root_off)
    }
}
