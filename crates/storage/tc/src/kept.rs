//! Values that are kept for a snapshot, by their places.
//!
//! A skip list follows a pointer at each step of a search, and each such step is a miss of the
//! cache once the list is large. So its nodes hold what almost every comparison needs: the number
//! of the map, and the first bytes of the key as a number. The rest of the key and the value are
//! one block of memory, which is read only where the key is found. The snapshots that keep the same
//! value share the block.

use std::borrow::Borrow;
use std::cmp::Ordering::{self, Equal, Greater, Less};
use std::iter::repeat_n;
use std::ops::Bound;
use std::sync::Arc;

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry;
use pando_index::Order;

/// Where a value is: its map and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place<'key> {
    pub map: u64,
    head: u64,
    pub key: &'key [u8],
}

impl<'key> Place<'key> {
    pub fn new(map: u64, key: &'key [u8]) -> Self {
        Self { map, head: head(key), key }
    }

    /// The bytes that it takes in a list.
    pub fn bytes(self) -> usize {
        size_of::<u64>() + self.key.len()
    }
}

/// The first eight bytes of a key, with zeros behind a shorter one, as a number: keys with
/// different numbers are in the order of the numbers.
pub(crate) fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let found = key.len().min(bytes.len());
    bytes[..found].copy_from_slice(&key[..found]);
    u64::from_be_bytes(bytes)
}

/// A value with its place. It is ordered, and equal, by its place.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    map: u64,
    head: u64,
    key_bytes: usize,
    /// The key, and behind it the value.
    block: Arc<[u8]>,
}

impl Kept {
    pub fn new(place: Place<'_>, value: &[u8]) -> Self {
        let Place { map, head, key } = place;
        // One allocation, and one copy: a `Vec` would be copied into the block.
        let mut block: Arc<[u8]> = repeat_n(0, key.len() + value.len()).collect();
        let (at_key, at_value) = Arc::make_mut(&mut block).split_at_mut(key.len());
        at_key.copy_from_slice(key);
        at_value.copy_from_slice(value);
        Self { map, head, key_bytes: key.len(), block }
    }

    pub fn value(&self) -> &[u8] {
        &self.block[self.key_bytes..]
    }

    /// The bytes of the place and the value.
    pub fn bytes(&self) -> usize {
        size_of::<u64>() + self.block.len()
    }

    /// Whether the other one was cloned from this one, or this one from it.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
    }
}

/// What has a place: lists are searched by a [`Place`] for the [`Kept`] that they hold.
pub(crate) trait Placed {
    /// Reads nothing of the block of a [`Kept`]; so comparisons do only if the numbers are equal.
    fn place(&self) -> Place<'_>;
}

impl Placed for Place<'_> {
    fn place(&self) -> Place<'_> {
        *self
    }
}

impl Placed for Kept {
    fn place(&self) -> Place<'_> {
        Place { map: self.map, head: self.head, key: &self.block[..self.key_bytes] }
    }
}

impl<'kept> Borrow<dyn Placed + 'kept> for Kept {
    fn borrow(&self) -> &(dyn Placed + 'kept) {
        self
    }
}

impl Ord for dyn Placed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for dyn Placed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Placed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for dyn Placed + '_ {}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Kept {}

/// The values that are kept for a snapshot: those that keys had at its cut, and that were replaced
/// since.
#[derive(Default)]
pub(crate) struct Versions(SkipMap<Kept, ()>);

impl Versions {
    /// Adds a value, unless its place has one; whether it was added.
    pub fn add(&self, kept: &Kept) -> bool {
        self.0.get_or_insert(kept.clone(), ()).key().is_same(kept)
    }

    /// Whether the place has a value.
    pub fn has(&self, place: Place<'_>) -> bool {
        self.0.contains_key::<dyn Placed + '_>(&place)
    }

    /// Puts the value of the place into `value`; false if it has none.
    pub fn read(&self, place: Place<'_>, value: &mut Vec<u8>) -> bool {
        let found = self.0.get::<dyn Placed + '_>(&place);
        found.inspect(|found| copy(found.key(), value)).is_some()
    }

    /// Removes values, `most` at most; how many.
    pub fn free(&self, most: usize) -> usize {
        (0..most).take_while(|_| self.0.pop_front().is_some()).count()
    }

    /// A walk in `order` from `place` on.
    pub fn walk(&self, place: Place<'_>, order: Order) -> Walk<'_> {
        let from: Bound<&(dyn Placed + '_)> = Bound::Included(&place);
        let next = match order {
            Order::Ascending => self.0.lower_bound(from),
            Order::Descending => self.0.upper_bound(from),
        };
        Walk { versions: self, order, next }
    }
}

fn copy(kept: &Kept, value: &mut Vec<u8>) {
    value.clear();
    value.extend_from_slice(kept.value());
}

/// A walk over the values that are kept, beside a scan of the map. A step costs less than a search.
/// (A `Range` of crossbeam-skiplist 0.1.3 keeps each entry that it passes for ever.)
pub(crate) struct Walk<'versions> {
    versions: &'versions Versions,
    order: Order,
    next: Option<Entry<'versions, Kept, ()>>,
}

impl Walk<'_> {
    fn step(&mut self) {
        self.next = self.next.as_ref().and_then(|next| match self.order {
            Order::Ascending => next.next(),
            Order::Descending => next.prev(),
        });
    }

    /// Puts the value of the place, which comes behind the last one, into `value`; false if it has
    /// none.
    pub fn read(&mut self, place: Place<'_>, value: &mut Vec<u8>) -> bool {
        while let Some(next) = &self.next {
            match (next.key().place().cmp(&place), self.order) {
                (Equal, _) => {
                    copy(next.key(), value);
                    return true;
                }
                (Less, Order::Ascending) | (Greater, Order::Descending) => self.step(),
                _ => break,
            }
        }
        // It may be kept since the walk has come this far.
        self.versions.read(place, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places are in the order of the maps, and then of the keys, whatever the lengths.
    #[test]
    fn places_are_in_the_order_of_keys() {
        let mut keys: Vec<Vec<u8>> = vec![vec![]];
        for length in 1..=10 {
            for last in [0, 1, 0x7f, 0x80, 0xff] {
                keys.push([vec![0; length - 1], vec![last]].concat());
                keys.push([vec![0xff; length - 1], vec![last]].concat());
            }
        }
        let places = [1, 2, 256].map(|map| keys.iter().map(move |key| (map, key.as_slice())));
        let places: Vec<(u64, &[u8])> = places.into_iter().flatten().collect();
        for a in &places {
            for b in &places {
                let [first, second] = [a, b].map(|&(map, key)| Place::new(map, key));
                assert_eq!(first.cmp(&second), a.cmp(b), "{a:?} {b:?}");
                let kept = [first, second].map(|place| Kept::new(place, b"value"));
                assert_eq!(kept[0].cmp(&kept[1]), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(kept[0].place(), first);
            }
        }
    }

    #[test]
    fn a_value_is_kept_as_it_was() {
        let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
        for key_bytes in [0, 1, 8, 9, 300] {
            for value_bytes in [0, 1, 100, 65_536] {
                let (key, value) = (&bytes[..key_bytes], &bytes[7..7 + value_bytes]);
                let kept = Kept::new(Place::new(3, key), value);
                assert_eq!((kept.place(), kept.value()), (Place::new(3, key), value));
                assert_eq!(kept.bytes(), 8 + key_bytes + value_bytes);
                assert!(kept.is_same(&kept.clone()));
            }
        }
    }

    /// The values that a walk has passed are freed with their snapshot.
    #[test]
    fn values_that_were_walked_are_freed() {
        let mut all = Vec::new();
        for round in 0..10_000_u32 {
            let versions = Versions::default();
            let places = [0, 1, 2, 3_u32].map(u32::to_be_bytes);
            for key in &places {
                let kept = Kept::new(Place::new(1, key), &[7; 8]);
                assert!(versions.add(&kept));
                all.push(Arc::downgrade(&kept.block));
            }
            let order = if round % 2 == 0 { Order::Ascending } else { Order::Descending };
            let (first, last) = match order {
                Order::Ascending => (places[0], places[3]),
                Order::Descending => (places[3], places[0]),
            };
            let mut walk = versions.walk(Place::new(1, &first), order);
            assert!(walk.read(Place::new(1, &last), &mut Vec::new()));
            drop(walk);
            assert_eq!(versions.free(usize::MAX), 4);
        }
        // Some wait for threads that look at skip lists.
        let live = all.iter().filter(|kept| kept.strong_count() > 0).count();
        assert!(live < 10_000, "{live} of {} are not freed", all.len());
    }
}
