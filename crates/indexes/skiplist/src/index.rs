//! The skip list as a [`RangeIndex`].

use std::ops::Bound;

use pando_index::{Cursor, Error, Intent, KeyRange, Limits, Order, RangeIndex, Upserted};
use pando_pmem::Domain;
use pando_tree::checked::{damaged, sound};

use crate::cursor::ListCursor;
use crate::layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use crate::list::SkipList;
use crate::node::Probe;
use crate::style::Links;

impl<D: Domain, S: Links> SkipList<D, S> {
    /// Lends the value of `key` to `visit` and returns its result; `None` if the key is absent.
    /// Allocates nothing, and in the style of several words writes nothing that is shared.
    #[inline]
    pub(crate) fn read_with<R>(
        &self,
        key: &[u8],
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        Self::check_key(key)?;
        let guard = self.pin()?;
        let context = self.context(&guard);
        let node = self.find_node(context, Probe::new(key));
        // A node that is deleted was so since this operation began: then the key was absent.
        let value = node.and_then(|node| context.value(node));
        sound(&guard)?;
        Ok(value.map(|(_, value)| visit(value.as_bytes())))
    }
}

impl<D: Domain, S: Links> RangeIndex for SkipList<D, S> {
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

    // Inlined, so that who knows the type of the list knows that of the cursor.
    #[inline]
    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error> {
        Ok(Box::new(ListCursor::new(self, range, order)))
    }

    /// Linear in the number of records: each is visited.
    fn len(&self) -> Result<u64, Error> {
        let mut records = 0;
        let mut from = Bound::Unbounded;
        loop {
            let (live, rest) = self.count_from(&from)?;
            records += live;
            match rest {
                Some(key) if matches!(&from, Bound::Excluded(from) if key <= *from) => {
                    return Err(damaged(self.root_off(), "its keys do not ascend"));
                }
                Some(key) => from = Bound::Excluded(key),
                None => return Ok(records),
            }
        }
    }
}
