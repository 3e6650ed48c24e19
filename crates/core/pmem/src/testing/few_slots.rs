//! Pools with a small table of participants, so that a few threads let it grow.

use std::cell::Cell;

use crate::layout::FIRST_PARTICIPANTS;

thread_local! {
    static FIRST_SLOTS: Cell<usize> = const { Cell::new(FIRST_PARTICIPANTS) };
}

/// Slots of the first segment in a pool that this thread creates or opens.
pub(crate) fn first_slots() -> usize {
    FIRST_SLOTS.get()
}

/// Runs `work`. The pools that this thread creates and opens meanwhile have a first segment of
/// `slots` slots, a power of two of at most 128. Such a pool is always opened with the same number.
pub fn with_few_slots<R>(slots: usize, work: impl FnOnce() -> R) -> R {
    assert!(slots.is_power_of_two() && slots <= FIRST_PARTICIPANTS, "{slots} slots");
    let before = FIRST_SLOTS.replace(slots);
    let result = work();
    FIRST_SLOTS.set(before);
    result
}
