//! Groups of writes that wait for the writer, in the order in which they will be in the store.
//!
//! A group's place is fixed when its *slot* is reserved, and its writes are put into the slot
//! later. In between the caller looks whether the pages still are as it has captured them. So a
//! page that is captured later never gets an earlier place.
//!
//! ```text
//! slot    reserved ── filled ── written, refused or failed
//!             └────── abandoned
//! ```
//!
//! | step | who | what |
//! | --- | --- | --- |
//! | reserve | any thread | a CAS puts a new slot in front of the list |
//! | fill | the thread that reserved it | the slot gets the group, if it is still reserved |
//! | take | the writer | a swap takes the list; slots that are still reserved become abandoned |
//! | end | the writer | each slot gets its outcome |
//!
//! No thread waits: a thread that stops with a reserved slot finds it abandoned later, and its
//! caller captures the page again.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use once_cell::race::OnceBox;

use crate::error::NoDelta;
use crate::part::Kind;

/// One write of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub kind: Kind,
    pub pid: u32,
    pub bytes: Vec<u8>,
}

/// Why a group was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// That page takes no delta.
    NeedsBase(u32, NoDelta),
    /// There is no room.
    Full,
    /// The store takes no more writes.
    Failed,
}

/// The end of a group.
pub(crate) type Outcome = Result<(), Refusal>;

/// A place in the order of groups.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// `None` if the slot was abandoned.
    group: OnceBox<Option<Vec<Write>>>,
    outcome: OnceBox<Outcome>,
    /// The slot before this one, until the writer takes the list.
    before: ArcSwapOption<Slot>,
}

impl Slot {
    /// Puts the group into the slot; gives it back if the slot is abandoned.
    pub fn fill(&self, group: Vec<Write>) -> Result<(), Vec<Write>> {
        self.group.set(Box::new(Some(group))).map_err(|group| group.unwrap_or_default())
    }

    /// The group, or `None` if the slot is abandoned. The slot does not change after this call.
    pub fn take(&self) -> Option<&[Write]> {
        // If a group came first, that one stays.
        let _ = self.group.set(Box::new(None));
        self.group.get().and_then(|group| group.as_deref())
    }

    pub fn end(&self, outcome: Outcome) {
        // The writer alone ends slots, each one once.
        let _ = self.outcome.set(Box::new(outcome));
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.get()
    }
}

/// The list of slots.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    newest: ArcSwapOption<Slot>,
}

impl Queue {
    /// Reserves a slot behind all others.
    pub fn reserve(&self) -> Arc<Slot> {
        let slot = Arc::new(Slot::default());
        loop {
            let newest = self.newest.load_full();
            slot.before.store(newest.clone());
            let found = self.newest.compare_and_swap(&newest, Some(slot.clone()));
            if same(found.as_ref(), newest.as_ref()) {
                return slot;
            }
        }
    }

    /// Takes all slots, the oldest first.
    pub fn take(&self) -> Vec<Arc<Slot>> {
        let mut slots = Vec::new();
        let mut next = self.newest.swap(None);
        while let Some(slot) = next {
            // Taken out of the slot, so that a long list is not dropped by recursion.
            next = slot.before.swap(None);
            slots.push(slot);
        }
        slots.reverse();
        slots
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.take());
    }
}

fn same(one: Option<&Arc<Slot>>, other: Option<&Arc<Slot>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(pid: u32) -> Vec<Write> {
        vec![Write { kind: Kind::Free, pid, bytes: Vec::new() }]
    }

    #[test]
    fn slots_keep_the_order_in_which_they_were_reserved() {
        let queue = Queue::default();
        let slots: Vec<_> = (0..5).map(|_| queue.reserve()).collect();
        for pid in [3, 0, 4, 1] {
            slots[pid].fill(group(pid as u32)).expect("reserved");
        }
        let taken = queue.take();
        let pids: Vec<_> = taken.iter().map(|slot| slot.take().map(|group| group[0].pid)).collect();
        assert_eq!(pids, [Some(0), Some(1), None, Some(3), Some(4)]);
        assert!(slots[2].fill(group(2)).is_err(), "it was abandoned");
        assert!(queue.take().is_empty());
    }

    #[test]
    fn a_long_list_is_taken_and_dropped() {
        let queue = Queue::default();
        let last = (0..300_000).map(|_| queue.reserve()).last();
        drop(queue.take());
        drop(last);
        (0..300_000).for_each(|_| drop(queue.reserve()));
    }

    #[test]
    fn threads_reserve_and_one_takes() {
        let queue = Queue::default();
        let taken = std::thread::scope(|scope| {
            for thread in 0..4 {
                let queue = &queue;
                scope.spawn(move || {
                    for number in 0..1000 {
                        let slot = queue.reserve();
                        let _ = slot.fill(group(thread * 1000 + number));
                    }
                });
            }
            let mut taken = Vec::new();
            while taken.len() < 4000 {
                taken.extend(queue.take());
            }
            taken
        });
        let mut next = [0; 4];
        for slot in &taken {
            // A slot that was taken before it was filled is abandoned.
            let Some(group) = slot.take() else { continue };
            let (thread, number) = (group[0].pid / 1000, group[0].pid % 1000);
            assert!(number >= next[thread as usize]);
            next[thread as usize] = number + 1;
        }
    }
}
