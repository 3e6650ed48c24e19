//! Stripes: locks over ranges of hashes, and the data that they guard.
//!
//! A reading command holds the stripe of its key shared, a writing one exclusively, from its first
//! read until its writes are durable. A command with several keys locks their stripes in order. So
//! commands are atomic. Commands of one process wait for each other here, for microseconds each.
//! The locks end with the process, and the indexes below take no locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pando::KeyRange;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::head_counts::HeadCounts;
use crate::layout::{HASH_BITS, head_prefix};

const STRIPE_BITS: u32 = 10;
/// The number of stripes.
pub const STRIPES: usize = 1 << STRIPE_BITS;

/// The number of a stripe.
pub type StripeIndex = u16;

/// Stripes to lock.
pub(crate) type Wanted = SmallVec<[StripeIndex; 4]>;

/// The stripe of a key.
#[inline]
pub(crate) fn stripe_of(hash: u64) -> StripeIndex {
    (hash >> (HASH_BITS - STRIPE_BITS)) as StripeIndex
}

/// The first and the last hash of a stripe.
pub(crate) fn hashes_of(stripe: StripeIndex) -> (u64, u64) {
    let shift = HASH_BITS - STRIPE_BITS;
    let first = u64::from(stripe) << shift;
    (first, first | ((1 << shift) - 1))
}

/// The keys of all heads of a stripe in `space`.
pub(crate) fn stripe_range(space: u8, index: StripeIndex) -> KeyRange {
    let (first, last) = hashes_of(index);
    // The last spaces are not in use, so the sum does not overflow.
    let end = u64::from_be_bytes(head_prefix(space, last)) + 1;
    KeyRange::between(&head_prefix(space, first), &end.to_be_bytes())
}

/// A client that watches a key.
#[derive(Debug)]
struct Watcher {
    space: u8,
    key: Vec<u8>,
    changed: Arc<AtomicBool>,
}

impl Watcher {
    /// Whether the client still holds its flag.
    fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.changed) > 1
    }
}

/// The data that a stripe guards besides records.
#[derive(Debug, Default)]
pub struct Stripe {
    watchers: Vec<Watcher>,
    /// The last snapshot that has this stripe.
    pub saved_in: AtomicU64,
}

impl Stripe {
    /// Notifies the watchers of `key` of a change.
    #[inline]
    pub(crate) fn touch(&mut self, space: u8, key: &[u8]) {
        if !self.watchers.is_empty() {
            self.notify(|watcher| watcher.space == space && watcher.key == key);
        }
    }

    /// Notifies the watchers of those keys of `space` for which `is_there` holds.
    pub(crate) fn touch_space(&mut self, space: u8, is_there: impl Fn(&[u8]) -> bool) {
        self.notify(|watcher| watcher.space == space && is_there(&watcher.key));
    }

    /// Notifies all watchers.
    pub(crate) fn touch_all(&mut self) {
        self.notify(|_| true);
    }

    /// Moves the watchers of each of two spaces to the other one.
    pub(crate) fn exchange_watchers(&mut self, one: u8, other: u8) {
        for watcher in &mut self.watchers {
            watcher.space = match watcher.space {
                space if space == one => other,
                space if space == other => one,
                space => space,
            };
        }
    }

    /// Notifies watchers and removes them, and removes those whose clients are gone.
    fn notify(&mut self, is_meant: impl Fn(&Watcher) -> bool) {
        self.watchers.retain(|watcher| {
            let is_notified = is_meant(watcher);
            if is_notified {
                // Relaxed: it is read under the same lock.
                watcher.changed.store(true, Ordering::Relaxed);
            }
            !is_notified && watcher.is_wanted()
        });
    }

    /// Sets `changed` as soon as `key` changes, as long as the caller holds `changed`.
    pub fn watch(&mut self, space: u8, key: &[u8], changed: &Arc<AtomicBool>) {
        // Only when the list is full, so that the cost per watcher is constant.
        if self.watchers.len() == self.watchers.capacity() {
            self.watchers.retain(Watcher::is_wanted);
        }
        self.watchers.push(Watcher { space, key: key.to_vec(), changed: Arc::clone(changed) });
    }

    /// The number of watchers.
    #[cfg(test)]
    pub(crate) fn watchers(&self) -> usize {
        self.watchers.len()
    }
}

/// All stripes.
#[derive(Debug)]
pub(crate) struct Stripes {
    list: Box<[Padded]>,
}

/// On cache lines of its own, so that neighbours do not share a line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded {
    stripe: RwLock<Stripe>,
    /// A thread that has this lock waits for nothing.
    heads: Mutex<HeadCounts>,
}

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Others may read.
    Shared,
    /// No other access.
    Exclusive,
}

enum Guard<'stripes> {
    Shared(RwLockReadGuard<'stripes, Stripe>),
    Exclusive(RwLockWriteGuard<'stripes, Stripe>),
}

/// Locked stripes, until this is dropped.
pub struct Held<'stripes> {
    /// Ordered by number.
    guards: SmallVec<[(StripeIndex, Guard<'stripes>); 1]>,
}

impl Stripes {
    pub(crate) fn new() -> Self {
        Self { list: (0..STRIPES).map(|_| Padded::default()).collect() }
    }

    /// Locks stripes, in any order and with repetitions allowed.
    pub(crate) fn lock(&self, mut wanted: Wanted, access: Access) -> Held<'_> {
        if wanted.len() > 1 {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let guard = |&index: &StripeIndex| {
            let lock = &self.list[usize::from(index)].stripe;
            let guard = match access {
                Access::Shared => Guard::Shared(lock.read()),
                Access::Exclusive => Guard::Exclusive(lock.write()),
            };
            (index, guard)
        };
        Held { guards: wanted.iter().map(guard).collect() }
    }

    /// Locks all stripes.
    pub(crate) fn lock_all(&self, access: Access) -> Held<'_> {
        self.lock((0..STRIPES as StripeIndex).collect(), access)
    }

    /// The numbers of a stripe's heads. A thread that adds or removes heads holds the stripe.
    #[inline]
    pub(crate) fn heads(&self, index: StripeIndex) -> MutexGuard<'_, HeadCounts> {
        self.list[usize::from(index)].heads.lock()
    }

    /// Those of all stripes, one after the other.
    pub(crate) fn all_heads(&self) -> impl Iterator<Item = MutexGuard<'_, HeadCounts>> {
        self.list.iter().map(|padded| padded.heads.lock())
    }
}

impl Held<'_> {
    /// No stripe at all.
    pub fn none() -> Self {
        Self { guards: SmallVec::new() }
    }

    /// Whether no stripe is held.
    pub fn is_none(&self) -> bool {
        self.guards.is_empty()
    }

    /// A locked stripe; `None` if it is not locked.
    pub(crate) fn stripe(&self, index: StripeIndex) -> Option<&Stripe> {
        let at = self.guards.binary_search_by_key(&index, |(held, _)| *held).ok()?;
        Some(match &self.guards[at].1 {
            Guard::Shared(stripe) => stripe,
            Guard::Exclusive(stripe) => stripe,
        })
    }

    /// An exclusively locked stripe; `None` if it is not.
    #[inline]
    pub fn stripe_mut(&mut self, index: StripeIndex) -> Option<&mut Stripe> {
        let at = self.guards.binary_search_by_key(&index, |(held, _)| *held).ok()?;
        match &mut self.guards[at].1 {
            Guard::Shared(_) => None,
            Guard::Exclusive(stripe) => Some(stripe),
        }
    }

    /// The exclusively locked stripes.
    pub(crate) fn exclusive(&mut self) -> impl Iterator<Item = (StripeIndex, &mut Stripe)> {
        self.guards.iter_mut().filter_map(|(index, guard)| match guard {
            Guard::Shared(_) => None,
            Guard::Exclusive(stripe) => Some((*index, &mut **stripe)),
        })
    }
}
