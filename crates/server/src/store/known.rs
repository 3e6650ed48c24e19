//! How many keys there are, as far as that is known without reading them.

use smallvec::SmallVec;

use super::Store;
use super::stripes::{Access, STRIPES, StripeIndex};

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
}
