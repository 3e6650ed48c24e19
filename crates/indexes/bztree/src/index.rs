//! The tree as a [`RangeIndex`].

use pando_index::{Change, Cursor, Error, Intent, KeyRange, Limits, Order, RangeIndex, Upserted};
use pando_pmem::Domain;
use pando_tree::checked::{Steps, damaged, sound};

use crate::cursor::TreeCursor;
use crate::layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use crate::leaf::Superseded;
use crate::node::{Probe, Side};
use crate::tree::BzTree;

impl<D: Domain> BzTree<D> {
    /// Lends the value of `key` to `visit` and returns its result; `None` if the key is absent.
    /// Writes nothing that is shared, and allocates nothing.
    #[inline]
    pub fn read_with<R>(
        &self,
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        Self::check_key(key)?;
        let probe = Probe::new(key);
        let guard = self.pin()?;
        let context = self.context(&guard);
        let mut steps = Steps::of_attempts();
        loop {
            let found = self.find_leaf(context, probe).get(context, probe);
            // A block that is gone was superseded or deleted meanwhile: look again.
            let Err(Superseded) = found else {
                sound(&guard)?;
                return Ok(found.ok().flatten().map(visit));
            };
            steps.take(&guard, self.root_off())?;
        }
    }

    /// Calls `visit` for the live records of each leaf in turn, with their number.
    fn count_leaves(&self, visit: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let mut from: Option<Vec<u8>> = None;
        loop {
            let guard = self.pin()?;
            let context = self.context(&guard);
            let probe = from.as_deref().map(Probe::new);
            let (leaf, fence) = self.find_fenced(context, probe, Side::Holding);
            visit(leaf.live_records(context).len() as u64);
            sound(&guard)?;
            match fence.high {
                Some(high) if from.as_deref().is_some_and(|from| high <= from) => {
                    return Err(damaged(leaf.node.off, "it is led to by a range that has ended"));
                }
                Some(high) => from = Some(high.to_vec()),
                None => return Ok(()),
            }
        }
    }
}

impl<D: Domain> RangeIndex for BzTree<D> {
    fn limits(&self) -> Limits {
        Limits { max_key_bytes: MAX_KEY_BYTES, max_value_bytes: MAX_VALUE_BYTES }
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted, Error> {
        self.put_record(key, value, intent)
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        Ok(self.read_with(key, visit)?.is_some())
    }

    fn read_many(
        &self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), Error> {
        self.visit_many(keys, visit)
    }

    fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        self.delete(key)
    }

    fn modify(&self, key: &[u8], change: &mut Change<'_>) -> Result<Option<Upserted>, Error> {
        self.read_modify_write(key, change)
    }

    // Inlined, so that who knows the type of the tree knows that of the cursor.
    #[inline]
    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error> {
        Ok(Box::new(TreeCursor::new(self, range, order)))
    }

    fn len(&self) -> Result<u64, Error> {
        let mut records = 0;
        self.count_leaves(&mut |live| records += live)?;
        Ok(records)
    }
}
