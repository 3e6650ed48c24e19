//! The execution by one hardware transaction: all targets are compared, then all are changed.
//!
//! The processor makes the change atomic: another thread, or a crash, sees all of it or nothing. So
//! no reader finds a reference, and recovery has nothing to do. The execution serves plain
//! operations (without blocks) where nothing is written back. If a target holds a reference of a
//! descriptor, or after [`ATTEMPTS`] aborts, the operation is executed in another way, which waits
//! for no thread.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, rtm};

use crate::descriptor::WordEntry;
use crate::pmwcas::Pmwcas;
use crate::word::CONTROL_BITS;

/// How often an operation tries a transaction.
const ATTEMPTS: usize = 8;

/// What a committed transaction has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// All targets held their expected values, and now hold the new ones.
    Match,
    /// One target held another value.
    Mismatch,
    /// One target held a reference.
    Reference,
}

impl<D: Domain> Pmwcas<D> {
    /// Tries the operation on `targets`; an operation without targets succeeds. Returns whether it
    /// succeeded; `None` if it must be executed in another way.
    #[inline]
    pub(crate) fn try_transaction(&self, targets: &[WordEntry]) -> Option<bool> {
        let change = || {
            // Relaxed, all: a transaction is atomic. The thread's other accesses come before it or
            // after it, as with a locked instruction.
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
