//! Process memory of participants: one value for each slot, made as the table of participants
//! grows.
//!
//! The values of the first segment are made at once. The values of another segment are made when
//! one of them is first used. Two threads may make the same segment; the thread whose CAS comes
//! second drops its values. No thread waits.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::layout::{SEGMENT_COUNT, slot_place};

/// One `T` for each slot of a pool's table of participants.
#[derive(Debug)]
pub struct PerSlot<T> {
    first: Box<[T]>,
    /// The first value of each further segment.
    more: [AtomicPtr<T>; SEGMENT_COUNT],
}

fn boxed<T: Default>(count: usize) -> Box<[T]> {
    (0..count).map(|_| T::default()).collect()
}

impl<T: Default> PerSlot<T> {
    /// Values for the `first` slots of the first segment; more are made as they are used.
    pub(crate) fn new(first: usize) -> Self {
        Self { first: boxed(first), more: Default::default() }
    }

    /// The value of `slot`.
    #[inline(always)]
    pub fn get(&self, slot: usize) -> &T {
        match self.first.get(slot) {
            Some(value) => value,
            None => self.far(slot),
        }
    }

    #[cold]
    fn far(&self, slot: usize) -> &T {
        let place = slot_place(slot, self.first.len());
        let segment = &self.more[place.segment];
        // Acquire: pairs with the CAS below, which publishes the values.
        let mut found = segment.load(Ordering::Acquire);
        if found.is_null() {
            let made = Box::into_raw(boxed::<T>(place.slots));
            let null = ptr::null_mut();
            let order = (Ordering::AcqRel, Ordering::Acquire);
            found = match segment.compare_exchange(null, made.cast(), order.0, order.1) {
                Ok(_) => made.cast(),
                Err(other) => {
                    // SAFETY: made above, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    other
                }
            };
        }
        // SAFETY: a segment has a value for each of its slots, and stays until this object is
        // dropped; `slot_place` returns the number of the slot's value.
        unsafe { &*found.add(place.index) }
    }
}

impl<T> Drop for PerSlot<T> {
    fn drop(&mut self) {
        for (segment, values) in self.more.iter_mut().enumerate() {
            let values = std::mem::replace(values.get_mut(), ptr::null_mut());
            if !values.is_null() {
                let values = ptr::slice_from_raw_parts_mut(values, self.first.len() << segment);
                // SAFETY: `far` made the segment, by `Box::into_raw`, with this number of values.
                drop(unsafe { Box::from_raw(values) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn each_slot_has_a_value_of_its_own_whoever_asks_first() {
        let values = PerSlot::<AtomicU64>::new(2);
        let slots = 2 << SEGMENT_COUNT;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..slots).for_each(|slot| {
                        values.get(slot).fetch_add(slot as u64, Ordering::Relaxed);
                    });
                });
            }
        });
        for slot in 0..slots {
            assert_eq!(values.get(slot).load(Ordering::Relaxed), 4 * slot as u64);
        }
    }
}
