//! Leases of slots: the bits of the word by which a thread has a slot (`participant.rs` says how it
//! changes), and the leases that each thread keeps, one for each pool.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::error::{Error, Result};
use crate::slots::{Local, Slots};
use crate::sys;

/// Bits of a lease that are the version.
pub(crate) const VERSION: u64 = PINNED - 1;
/// The bit of a lease that says that the thread is pinned.
pub(crate) const PINNED: u64 = 1 << 47;
const EPOCH_SHIFT: u32 = 48;

/// The part of a lease by which a thread that is pinned announces `epoch`.
#[inline(always)]
pub(crate) fn announced(epoch: u64) -> u64 {
    epoch << EPOCH_SHIFT | PINNED
}

/// By how many epochs a lease lags behind `epoch`, if its thread is pinned.
pub(crate) fn lag(lease: u64, epoch: u64) -> Option<u64> {
    let lag = epoch.wrapping_sub(lease >> EPOCH_SHIFT) & (u64::MAX >> EPOCH_SHIFT);
    (lease & PINNED != 0).then_some(lag)
}

/// A slot that a thread has taken and keeps in mind; another may have taken it since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// The pool's; zero names no pool, and then nothing else counts.
    pub uid: u64,
    pub version: u64,
    pub word: *const AtomicU64,
    pub local: *const Local,
    pub slot: usize,
}

impl Lease {
    const NONE: Self = Self { uid: 0, version: 0, word: ptr::null(), local: ptr::null(), slot: 0 };

    /// The version that the slot has now; only while the pool, or its [`Slots`], is there.
    fn version(&self) -> u64 {
        // SAFETY: the word lies in the mapping, which lives as long as either; it is only accessed
        // atomically.
        unsafe { &*self.word }.load(Ordering::Relaxed) & VERSION
    }
}

struct Claim {
    lease: Lease,
    slots: Weak<Slots>,
}

/// The slots that a thread keeps in mind, one for each pool.
#[derive(Default)]
struct Claims(RefCell<Vec<Claim>>);

impl Drop for Claims {
    fn drop(&mut self) {
        for claim in self.0.get_mut() {
            if LAST.get().uid == claim.lease.uid {
                LAST.set(Lease::NONE);
            }
            let Some(slots) = claim.slots.upgrade() else { continue };
            // A forked child has a copy of the claim, but the slot is its parent's.
            if slots.is_ours() && claim.lease.version() == claim.lease.version {
                slots.ended.set(claim.lease.slot);
            }
        }
    }
}

thread_local! {
    /// That of the pool used last; nearly always the one wanted.
    static LAST: Cell<Lease> = const { Cell::new(Lease::NONE) };
    static CLAIMS: Claims = Claims::default();
}

/// The calling thread's lease of the pool that it used last.
#[inline(always)]
pub(crate) fn last() -> Lease {
    LAST.get()
}

/// The calling thread's lease of the pool `uid`, if it has one; none at all in a thread that has
/// given its slots back.
pub(crate) fn known(uid: u64) -> Result<Option<Lease>> {
    let known = CLAIMS.try_with(|claims| {
        let claims = claims.0.borrow();
        claims.iter().map(|claim| claim.lease).find(|lease| lease.uid == uid)
    });
    known.map_err(|_| Error::ThreadEnds)
}

/// Makes `lease` that of the pool used last.
pub(crate) fn set_last(lease: Lease) {
    LAST.set(lease);
}

/// Keeps `lease`, of a pool with these slots, in the place of that which the thread had.
pub(crate) fn keep(lease: Lease, slots: &Arc<Slots>) {
    // A child that was just forked looks, at its next use of a pool, whose it is.
    sys::call_in_forked_children(|| LAST.set(Lease::NONE));
    CLAIMS.with(|claims| {
        let mut claims = claims.0.borrow_mut();
        claims.retain(|claim| claim.lease.uid != lease.uid && claim.slots.strong_count() > 0);
        claims.push(Claim { lease, slots: Arc::downgrade(slots) });
    });
    LAST.set(lease);
}

/// The participants that a thread is in its pools, apart from the thread: tests run several
/// logical threads on one thread of the system, and let each find its own when it goes on.
#[cfg(feature = "testing")]
pub struct LogicalThread {
    last: Cell<Lease>,
    claims: Claims,
}

#[cfg(feature = "testing")]
impl Default for LogicalThread {
    fn default() -> Self {
        Self { last: Cell::new(Lease::NONE), claims: Claims::default() }
    }
}

#[cfg(feature = "testing")]
impl LogicalThread {
    /// Exchanges these participants for those of the calling thread.
    pub fn swap(&self) {
        LAST.with(|last| last.swap(&self.last));
        CLAIMS.with(|claims| claims.0.swap(&self.claims.0));
    }
}
