//! Freed memory of nodes, kept for new ones. A structure modification frees as many nodes as it
//! makes, and the system's allocator takes a third of its time for memory that is aligned to a
//! line.
//!
//! Each place holds the memory of one node or nothing. To take memory, a thread swaps the place's
//! pointer out; to keep memory, it puts the pointer into an empty place. So no two threads have the
//! same memory. The place where a search begins is a guess.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Places: as many as nodes are freed at once.
const PLACES: usize = 64;

/// Memory for nodes of one kind.
#[derive(Debug)]
pub(crate) struct Spares<T> {
    places: [AtomicPtr<MaybeUninit<T>>; PLACES],
    /// The place where memory was put last.
    top: AtomicUsize,
}

impl<T> Default for Spares<T> {
    fn default() -> Self {
        let places = [const { AtomicPtr::new(std::ptr::null_mut()) }; PLACES];
        Self { places, top: AtomicUsize::new(0) }
    }
}

impl<T> Spares<T> {
    /// A box with `value`, in freed memory if there is some.
    pub fn boxed(&self, value: T) -> Box<T> {
        match self.take() {
            Some(memory) => Box::write(memory, value),
            None => Box::new(value),
        }
    }

    /// Drops the content of the box, and keeps its memory if there is a free place.
    pub fn keep(&self, boxed: Box<T>) {
        let node = Box::into_raw(boxed);
        // SAFETY: the memory belongs to the box, which only this thread has; its value is dropped,
        // so only memory is left.
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
        // SAFETY: made from a box above, and in no place.
        drop(unsafe { Box::from_raw(memory) });
    }

    fn take(&self) -> Option<Box<MaybeUninit<T>>> {
        let top = self.top.load(Ordering::Relaxed);
        for turn in 0..PLACES {
            let at = (top + PLACES - turn) % PLACES;
            // Relaxed: a check; the swap decides.
            if self.places[at].load(Ordering::Relaxed).is_null() {
                continue;
            }
            // Acquire: pairs with `keep`.
            let found = self.places[at].swap(std::ptr::null_mut(), Ordering::Acquire);
            if let Some(memory) = NonNull::new(found) {
                self.top.store((at + PLACES - 1) % PLACES, Ordering::Relaxed);
                // SAFETY: `keep` made it from a box, and the swap has just removed it from its only
                // place.
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
