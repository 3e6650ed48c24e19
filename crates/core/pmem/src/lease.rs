//! Leases of slots: the bits of the lease word (`participant.rs` says how it changes), and the
//! leases that each thread remembers, one for each pool.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::error::{Error, Result};
use crate::slots::{Local, Slots};
use crate::sys;

/// The bits of a lease that are the version.
pub(crate) const VERSION: u64 = PINNED - 1;
/// The bit of a lease that says that the thread is pinned.
pub(crate) const PINNED: u64 = 1 << 47;
const EPOCH_SHIFT: u32 = 48;

/// The bits of a lease by which a pinned thread announces `epoch`.
#[inline(always)]
pub(crate) fn announced(epoch: u64) -> u64 {
    epoch << EPOCH_SHIFT | PINNED
}

/// How many epochs ago a lease was pinned, in `epoch`; `None` if its thread is not pinned.
pub(crate) fn lag(lease: u64, epoch: u64) -> Option<u64> {
    let lag = epoch.wrapping_sub(lease >> EPOCH_SHIFT) & (u64::MAX >> EPOCH_SHIFT);
    (lease & PINNED != 0).then_some(lag)
}

/// A slot that a thread has taken and remembers. Another thread may have taken it since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// The pool's uid. Zero is no pool; then the other fields have no meaning.
    pub uid: u64,
    pub version: u64,
    pub word: *const AtomicU64,
    pub local: *const Local,
    pub slot: usize,
}

impl Lease {
    const NONE: Self = Self { uid: 0, version: 0, word: ptr::null(), local: ptr::null(), slot: 0 };

    /// The version that the slot has now. Only while the pool, or its [`Slots`], exists.
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

/// The slots that a thread remembers, one for each pool.
#[derive(Default)]
struct Claims(RefCell<Vec<Claim>>);

impl Drop for Claims {
    fn drop(&mut self) {
        for claim in self.0.get_mut() {
            if LAST.get().uid == claim.lease.uid {
                LAST.set(Lease::NONE);
            }
            let Some(slots) = claim.slots.upgrade() else { continue };
            // A forked child has a copy of the claim, but the slot belongs to its parent.
            if slots.is_ours() && claim.lease.version() == claim.lease.version {
                slots.ended.set(claim.lease.slot);
            }
        }
    }
}

thread_local! {
    /// The lease of the pool that was used last; nearly always the one that is needed.
    static LAST: Cell<Lease> = const { Cell::new(Lease::NONE) };
    static CLAIMS: Claims = Claims::default();
}

/// The calling thread's lease of the pool that it used last.
#[inline(always)]
pub(crate) fn last() -> Lease {
    LAST.get()
}

/// The calling thread's lease of the pool `uid`, if it has one. An error if the thread is ending,
/// and has given its slots back.
pub(crate) fn known(uid: u64) -> Result<Option<Lease>> {
    let known = CLAIMS.try_with(|claims| {
        let claims = claims.0.borrow();
        claims.iter().map(|claim| claim.lease).find(|lease| lease.uid == uid)
    });
    known.map_err(|_| Error::ThreadEnds)
}

/// Notes that the pool of `lease` was used last.
pub(crate) fn set_last(lease: Lease) {
    LAST.set(lease);
}

/// Remembers `lease`, of the pool with `slots`. It replaces the thread's earlier lease of that
/// pool.
pub(crate) fn keep(lease: Lease, slots: &Arc<Slots>) {
    // Then a forked child takes the slow path at its next use of a pool, and finds that the pool
    // belongs to its parent.
    sys::call_in_forked_children(|| LAST.set(Lease::NONE));
    CLAIMS.with(|claims| {
        let mut claims = claims.0.borrow_mut();
        claims.retain(|claim| claim.lease.uid != lease.uid && claim.slots.strong_count() > 0);
        claims.push(Claim { lease, slots: Arc::downgrade(slots) });
    });
    LAST.set(lease);
}

/// The leases of a logical thread. Tests run several logical threads on one system thread, and
/// exchange the leases when they switch.
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
    /// Exchanges these leases for those of the calling thread.
    pub fn swap(&self) {
        LAST.with(|last| last.swap(&self.last));
        CLAIMS.with(|claims| claims.0.swap(&self.claims.0));
    }
}
