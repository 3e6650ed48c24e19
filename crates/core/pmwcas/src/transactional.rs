//! The execution by one hardware transaction: all targets are compared, then all are changed.
//!
//! The processor makes it whole: another thread, and a crash, see all of it or nothing. So there is
//! no reference for a reader to meet, and no descriptor for a recovery. It serves plain operations
//! (without blocks) where nothing is written back, and no more often than the processor commits: a
//! target under a descriptor's reference, or [`ATTEMPTS`] aborts, and the operation takes the other
//! way, on which nobody waits.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, rtm};

use crate::descriptor::WordEntry;
use crate::pmwcas::Pmwcas;
use crate::word::CONTROL_BITS;

/// How often a transaction is tried.
const ATTEMPTS: usize = 8;

/// What a transaction that was committed has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// All targets held what is expected, and hold the new values.
    Match,
    /// One held another value.
    Mismatch,
    /// One was under a descriptor.
    Reference,
}

impl<D: Domain> Pmwcas<D> {
    /// Tries the operation on `targets` (an operation without any succeeds); whether it succeeded.
    /// `None` if it is to be executed otherwise.
    #[inline]
    pub(crate) fn try_transaction(&self, targets: &[WordEntry]) -> Option<bool> {
        let change = || {
            // Relaxed, all: the processor makes a transaction's accesses one, before and after
            // which all others of this thread stand, as those of a locked instruction do.
            for target in targets {
                let found = self.pool().word(target.off).load(Ordering::Relaxed);
                if found != target.old {
                    let is_value = found & CONTROL_BITS == 0;
                    return if is_value { Found::Mismatch } else { Found::Reference };
                }
            }
            for target in targets {
                self.pool().word(target.off).store(target.new, Ordering::Relaxed);
            }
            Found::Match
        };
        match (0..ATTEMPTS).find_map(|_| rtm::attempt(change).ok())? {
            Found::Match => Some(true),
            Found::Mismatch => Some(false),
            Found::Reference => None,
        }
    }
}
