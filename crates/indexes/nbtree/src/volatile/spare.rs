//! Memory of nodes that were given back, kept for the next ones: a structure modification makes as
//! many nodes as it gives back, and the system's allocator takes a third of its time for memory
//! that begins at a line.
//!
//! Each place holds one node's memory or nothing. Who takes it swaps the place's pointer out, who
//! gives it puts it into an empty one, so no thread sees memory that another has; where to look
//! first is a guess.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Places: as many nodes as are given back at once.
const PLACES: usize = 64;

/// Memory for nodes of one kind.
#[derive(Debug)]
pub(crate) struct Spares<T> {
    places: [AtomicPtr<MaybeUninit<T>>; PLACES],
    /// Where memory was put last.
    top: AtomicUsize,
}

impl<T> Default for Spares<T> {
    fn default() -> Self {
        let places = [const { AtomicPtr::new(std::ptr::null_mut()) }; PLACES];
        Self { places, top: AtomicUsize::new(0) }
    }
}

impl<T> Spares<T> {
    /// A box with `value`, in memory that was given back if there is some.
    pub fn boxed(&self, value: T) -> Box<T> {
        match self.take() {
            Some(memory) => Box::write(memory, value),
            None => Box::new(value),
        }
    }

    /// Drops what is in the box, and keeps its memory if there is room.
    pub fn keep(&self, boxed: Box<T>) {
        let node = Box::into_raw(boxed);
        // SAFETY: the box's, which nobody else has; what is left of it is memory.
        let memory = unsafe {
            std::ptr::drop_in_place(node);
            Box::from_raw(node.cast::<MaybeUninit<T>>())
        };
        let memory = Box::into_raw(memory);
        let top = self.top.load(Ordering::Relaxed);
        for turn in 1..=PLACES {
            let at = (top + turn) % PLACES;
            let null = std::ptr::null_mut();
            // Release: pairs with the swap in `take`, whose thread writes to the memory.
            if self.places[at]
                .compare_exchange(null, memory, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                self.top.store(at, Ordering::Relaxed);
                return;
            }
        }
        // SAFETY: made of a box above, and put nowhere.
        drop(unsafe { Box::from_raw(memory) });
    }

    fn take(&self) -> Option<Box<MaybeUninit<T>>> {
        let top = self.top.load(Ordering::Relaxed);
        for turn in 0..PLACES {
            let at = (top + PLACES - turn) % PLACES;
            // Relaxed: a look before the swap decides.
            if self.places[at].load(Ordering::Relaxed).is_null() {
                continue;
            }
            // Acquire: pairs with `keep`.
            let found = self.places[at].swap(std::ptr::null_mut(), Ordering::Acquire);
            if let Some(memory) = NonNull::new(found) {
                self.top.store((at + PLACES - 1) % PLACES, Ordering::Relaxed);
                // SAFETY: made of a box by `keep`, and now taken out of the only place that had it.
                return Some(unsafe { Box::from_raw(memory.as_ptr()) });
            }
        }
        None
    }
}

impl<T> Drop for Spares<T> {
    fn drop(&mut self) {
        while let Some(memory) = self.take() {
            drop(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_once_and_values_are_dropped() {
        let spares = Spares::default();
        let shared = std::sync::Arc::new(());
        let boxes: Vec<_> = (0..PLACES + 10).map(|_| spares.boxed(shared.clone())).collect();
        let first: std::collections::BTreeSet<_> =
            boxes.iter().map(|one| std::ptr::from_ref(&**one).addr()).collect();
        boxes.into_iter().for_each(|one| spares.keep(one));
        assert_eq!(std::sync::Arc::strong_count(&shared), 1);
        let again: Vec<_> = (0..PLACES).map(|_| spares.boxed(shared.clone())).collect();
        let second: std::collections::BTreeSet<_> =
            again.iter().map(|one| std::ptr::from_ref(&**one).addr()).collect();
        assert_eq!(second.len(), PLACES, "allocated twice");
        assert!(second.is_subset(&first));
    }

    #[test]
    fn threads_share_it() {
        let spares = Spares::default();
        let turns = if cfg!(miri) { 200 } else { 20_000 };
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let spares = &spares;
                scope.spawn(move || {
                    for turn in 0..turns {
                        let boxes: Vec<_> = (0..8).map(|_| spares.boxed((thread, turn))).collect();
                        assert!(boxes.iter().all(|one| **one == (thread, turn)));
                        boxes.into_iter().for_each(|one| spares.keep(one));
                    }
                });
            }
        });
    }
}
