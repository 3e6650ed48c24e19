//! How many keys there are, as far as that is known without reading them.

use pando::{KeyRange, Order};
use smallvec::SmallVec;

use super::Store;
use super::layout::head_prefix;
use super::stripes::{Access, STRIPES, StripeIndex};

use crate::failure::Result;

impl Store {
    /// Keys of all databases, those that have expired and were not removed yet among them; `None` until
    /// [`count`](Store::count) has read them.
    pub(crate) fn known_count(&self) -> Option<u64> {
        let spaces = self.spaces();
        let mut sum = 0;
        for index in 0..STRIPES as StripeIndex {
            let held = self.stripes.lock(SmallVec::from_slice(&[index]), Access::Shared);
            let counts = held.stripe(index)?.counts.as_ref()?;
            let used = counts.iter().filter(|(space, _)| spaces.contains(space));
            sum += used.map(|(_, count)| count).sum::<u64>();
        }
        Some(sum)
    }

    /// Whether no database has a key; then it is known from now on how many there are.
    pub(super) fn count_none(&self) -> Result<bool> {
        let mut held = self.stripes.lock_all(Access::Alone);
        for space in self.spaces() {
            let heads = KeyRange::between(&head_prefix(space, 0), &head_prefix(space + 1, 0));
            if self.map.scan(heads, Order::Ascending)?.next_record()?.is_some() {
                return Ok(false);
            }
        }
        held.alone().for_each(|(_, stripe)| stripe.counts = Some(SmallVec::new()));
        Ok(true)
    }
}
