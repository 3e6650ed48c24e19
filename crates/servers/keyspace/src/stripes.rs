//! Locks over ranges of hashes, and what each guards.
//!
//! A command that reads a key holds its stripe shared, one that writes it holds it alone, from
//! before it looks until its writes are durable; one with several keys takes their stripes in
//! order. So commands are atomic to each other. Commands of one process wait for each other here,
//! each for microseconds; the death of the process takes the locks with it, and the indexes below
//! know none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pando::KeyRange;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::layout::{HASH_BITS, head_prefix};

const STRIPE_BITS: u32 = 10;
/// How many stripes there are.
pub const STRIPES: usize = 1 << STRIPE_BITS;

/// A number that tells a stripe.
pub type StripeIndex = u16;

/// Stripes to be locked.
pub(crate) type Wanted = SmallVec<[StripeIndex; 4]>;

/// The stripe of a key.
#[inline]
pub(crate) fn stripe_of(hash: u64) -> StripeIndex {
    (hash >> (HASH_BITS - STRIPE_BITS)) as StripeIndex
}

/// The hashes of a stripe: the first, and the last.
pub(crate) fn hashes_of(stripe: StripeIndex) -> (u64, u64) {
    let shift = HASH_BITS - STRIPE_BITS;
    let first = u64::from(stripe) << shift;
    (first, first | ((1 << shift) - 1))
}

/// The keys of all heads of a stripe in `space`.
pub(crate) fn stripe_range(space: u8, index: StripeIndex) -> KeyRange {
    let (first, last) = hashes_of(index);
    // Spaces end below the first byte's last values, so there is a next one.
    let end = u64::from_be_bytes(head_prefix(space, last)) + 1;
    KeyRange::between(&head_prefix(space, first), &end.to_be_bytes())
}

/// A client that wants to know whether a key changes.
#[derive(Debug)]
struct Watcher {
    space: u8,
    key: Vec<u8>,
    changed: Arc<AtomicBool>,
}

impl Watcher {
    /// Whether its client still holds its flag.
    fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.changed) > 1
    }
}

/// What one lock guards besides records.
#[derive(Debug, Default)]
pub struct Stripe {
    watchers: Vec<Watcher>,
    /// Heads by space, once they were counted.
    pub counts: Option<SmallVec<[(u8, u64); 2]>>,
    /// The last snapshot in which the stripe stands.
    pub saved_in: AtomicU64,
}

impl Stripe {
    /// Tells who watches `key` that it has changed.
    #[inline]
    pub(crate) fn touch(&mut self, space: u8, key: &[u8]) {
        if !self.watchers.is_empty() {
            self.tell(|watcher| watcher.space == space && watcher.key == key);
        }
    }

    /// Tells all who watch a key of `space` that `is_there`.
    pub(crate) fn touch_space(&mut self, space: u8, is_there: impl Fn(&[u8]) -> bool) {
        self.tell(|watcher| watcher.space == space && is_there(&watcher.key));
    }

    /// Tells all, who for some reason cannot be told apart.
    pub(crate) fn touch_all(&mut self) {
        self.tell(|_| true);
    }

    /// Who watches a key of one of two spaces watches it in the other from now on.
    pub(crate) fn exchange_watchers(&mut self, one: u8, other: u8) {
        for watcher in &mut self.watchers {
            watcher.space = match watcher.space {
                space if space == one => other,
                space if space == other => one,
                space => space,
            };
        }
    }

    /// Tells watchers, and forgets them, and those whose client has forgotten them.
    fn tell(&mut self, is_meant: impl Fn(&Watcher) -> bool) {
        self.watchers.retain(|watcher| {
            let is_told = is_meant(watcher);
            if is_told {
                // Relaxed: read under the same lock.
                watcher.changed.store(true, Ordering::Relaxed);
            }
            !is_told && watcher.is_wanted()
        });
    }

    /// Sets `changed` as soon as `key` changes, as long as anyone else holds `changed`.
    pub fn watch(&mut self, space: u8, key: &[u8], changed: &Arc<AtomicBool>) {
        // Now and then, so that it costs each no more than there are twice as many as wanted.
        if self.watchers.len() == self.watchers.capacity() {
            self.watchers.retain(Watcher::is_wanted);
        }
        self.watchers.push(Watcher { space, key: key.to_vec(), changed: Arc::clone(changed) });
    }

    /// How many are to be told of a change.
    #[cfg(test)]
    pub(crate) fn watchers(&self) -> usize {
        self.watchers.len()
    }

    /// Notes that `space` has so many heads more.
    pub(crate) fn count(&mut self, space: u8, delta: i64) {
        if let Some(counts) = &mut self.counts {
            match counts.iter_mut().find(|(counted, _)| *counted == space) {
                Some((_, count)) => *count = count.saturating_add_signed(delta),
                None => counts.push((space, delta.max(0) as u64)),
            }
        }
    }
}

/// All stripes.
#[derive(Debug)]
pub(crate) struct Stripes {
    list: Box<[Padded]>,
}

/// On lines of its own: two processors that use neighbours do not wait for each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded(RwLock<Stripe>);

/// Whether locks are taken to read or to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Others may read meanwhile.
    Shared,
    /// Nobody else.
    Alone,
}

enum Guard<'stripes> {
    Shared(RwLockReadGuard<'stripes, Stripe>),
    Alone(RwLockWriteGuard<'stripes, Stripe>),
}

/// Stripes that are held, until it is dropped.
pub struct Held<'stripes> {
    /// In order of their numbers.
    guards: SmallVec<[(StripeIndex, Guard<'stripes>); 1]>,
}

impl Stripes {
    pub(crate) fn new() -> Self {
        Self { list: (0..STRIPES).map(|_| Padded::default()).collect() }
    }

    /// Waits for the stripes, which may stand in any order and more than once.
    pub(crate) fn lock(&self, mut wanted: Wanted, access: Access) -> Held<'_> {
        if wanted.len() > 1 {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let guard = |&index: &StripeIndex| {
            let lock = &self.list[usize::from(index)].0;
            let guard = match access {
                Access::Shared => Guard::Shared(lock.read()),
                Access::Alone => Guard::Alone(lock.write()),
            };
            (index, guard)
        };
        Held { guards: wanted.iter().map(guard).collect() }
    }

    /// Waits for all of them.
    pub(crate) fn lock_all(&self, access: Access) -> Held<'_> {
        self.lock((0..STRIPES as StripeIndex).collect(), access)
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

    /// A stripe that is held; `None` if it is not.
    pub(crate) fn stripe(&self, index: StripeIndex) -> Option<&Stripe> {
        let at = self.guards.binary_search_by_key(&index, |(held, _)| *held).ok()?;
        Some(match &self.guards[at].1 {
            Guard::Shared(stripe) => stripe,
            Guard::Alone(stripe) => stripe,
        })
    }

    /// A stripe that is held alone; `None` if it is not.
    #[inline]
    pub fn stripe_mut(&mut self, index: StripeIndex) -> Option<&mut Stripe> {
        let at = self.guards.binary_search_by_key(&index, |(held, _)| *held).ok()?;
        match &mut self.guards[at].1 {
            Guard::Shared(_) => None,
            Guard::Alone(stripe) => Some(stripe),
        }
    }

    /// The stripes that are held alone.
    pub(crate) fn alone(&mut self) -> impl Iterator<Item = (StripeIndex, &mut Stripe)> {
        self.guards.iter_mut().filter_map(|(index, guard)| match guard {
            Guard::Shared(_) => None,
            Guard::Alone(stripe) => Some((*index, &mut **stripe)),
        })
    }
}
