//! The tree as a [`RangeIndex`].

use pando_index::{Cursor, Error, Intent, KeyRange, Limits, Order, RangeIndex, Upserted};
use pando_pmem::Domain;
use pando_tree::checked::{Steps, damaged, sound};

use crate::cursor::TreeCursor;
use crate::layout::{FIXED_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES};
use crate::node::{Probe, Seek};
use crate::tree::WbTree;
use crate::write::with_value;

impl<D: Domain> WbTree<D> {
    /// Lends the value of `key` to `visit` and returns its result; `None` if the key is absent.
    /// Writes no record and allocates nothing, but slot words that a crash has left invalid are
    /// written anew.
    #[inline]
    pub fn read_with<R>(
        &self,
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        if !self.may_hold(key)? {
            return Ok(None);
        }
        let probe = Probe::new(key);
        if !self.shape().is_variable
            && let Some(value) = self.peek(probe)?
        {
            return Ok(Some(visit(&value.to_le_bytes())));
        }
        let (guard, hint) = self.pin_at_leaf(probe)?;
        let context = self.context(&guard);
        let found = self.lookup(context, probe, hint)?;
        let Some(record) = found else { return sound(&guard).map(|()| None) };
        with_value(context, &record, |value| sound(&guard).map(|()| Some(visit(value))))
    }
}

impl<D: Domain> RangeIndex for WbTree<D> {
    fn limits(&self) -> Limits {
        if self.shape().is_variable {
            Limits { max_key_bytes: MAX_KEY_BYTES, max_value_bytes: MAX_VALUE_BYTES }
        } else {
            Limits { max_key_bytes: FIXED_BYTES, max_value_bytes: FIXED_BYTES }
        }
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted, Error> {
        self.put_record(key, value, intent)
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        Ok(self.read_with(key, visit)?.is_some())
    }

    fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        self.delete(key)
    }

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
        let mut from = Vec::new();
        let mut steps = Steps::of_attempts();
        loop {
            let guard = self.pin()?;
            let context = self.context(&guard);
            steps.take(&guard, self.root_off())?;
            let Some(found) = self.seek(context, Seek::Holding(Probe::new(&from)), 0)? else {
                continue;
            };
            let Ok(fence) = found.node.fence(context, found.state) else { continue };
            records += found.state.count(found.node.kind) as u64;
            let high = context.key(&fence);
            sound(&guard)?;
            if fence.link == 0 {
                return Ok(records);
            }
            if high <= from {
                return Err(damaged(found.node.off, "it ends before it begins"));
            }
            from = high;
            steps = Steps::of_attempts();
        }
    }
}
