//! The writes of a transaction before its commit; usually one.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

/// The new value of a record, or `None` to remove it.
pub(crate) type Write = Option<Vec<u8>>;

/// Writes, ordered by key.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// The only write; `None` if there are none, or several.
    one: Option<(Vec<u8>, Write)>,
    several: BTreeMap<Vec<u8>, Write>,
}

impl Writes {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.one.is_none() && self.several.is_empty()
    }

    /// Adds a write, in place of an earlier one of that key.
    #[inline]
    pub(crate) fn insert(&mut self, key: Vec<u8>, write: Write) {
        if self.is_empty() || self.one.as_ref().is_some_and(|(one, _)| *one == key) {
            self.one = Some((key, write));
            return;
        }
        self.several.extend(self.one.take());
        self.several.insert(key, write);
    }

    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Write> {
        match &self.one {
            Some((one, write)) => (one.as_slice() == key).then_some(write),
            None => self.several.get(key),
        }
    }

    /// The only write, if there is exactly one.
    #[inline]
    pub(crate) fn only(&self) -> Option<(&[u8], Option<&[u8]>)> {
        self.one.as_ref().map(|(key, write)| (key.as_slice(), write.as_deref()))
    }

    /// All writes, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Write)> {
        let one = self.one.iter().map(|(key, write)| (key, write));
        one.chain(&self.several).map(|(key, write)| (key.as_slice(), write))
    }

    /// The writes of keys within bounds; the first bound must not be greater than the second.
    pub(crate) fn range(
        &self,
        bounds: impl RangeBounds<Vec<u8>>,
    ) -> impl Iterator<Item = (&[u8], &Write)> {
        let one = self.one.iter().filter(|(key, _)| bounds.contains(key));
        let one: Vec<_> = one.map(|(key, write)| (key, write)).collect();
        let all = one.into_iter().chain(self.several.range(bounds));
        all.map(|(key, write)| (Borrow::<[u8]>::borrow(key), write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_as_a_map_however_many_they_are() {
        let mut random = fastrand::Rng::with_seed(1);
        for most in [1, 2, 3, 20] {
            let (mut writes, mut model) = (Writes::default(), BTreeMap::new());
            for _ in 0..most {
                let key = vec![random.u8(..most + 1)];
                let write = random.bool().then(|| vec![random.u8(..)]);
                writes.insert(key.clone(), write.clone());
                model.insert(key, write);
                assert!(writes.iter().eq(model.iter().map(|(key, write)| (key.as_slice(), write))));
                let bounds = vec![1]..vec![1 + random.u8(..most)];
                assert!(
                    (writes.range(bounds.clone()))
                        .eq(model.range(bounds).map(|(key, write)| (key.as_slice(), write)))
                );
                for key in 0..=most {
                    assert_eq!(writes.get(&[key]), model.get(&vec![key]));
                }
                assert_eq!(writes.only().is_some(), model.len() == 1);
            }
        }
    }
}
