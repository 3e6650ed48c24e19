//! The known number of free chunks below the frontier: a hint, which says whether a search for free
//! chunks may find some before the pool grows.
//!
//! A process that has the pool alone keeps it in its memory. Processes that share a pool have one
//! count in the control page. Else a process that only adds records would not learn of the chunks
//! that another one frees, and the pool would grow without bound.
//!
//! ```text
//! bits  63..32      31..0
//!       generation  chunks
//! ```

use std::sync::atomic::Ordering;

use crate::domain::Domain;
use crate::layout::FREED_OFF;
use crate::mutant;
use crate::pool::Pool;

impl<D: Domain> Pool<D> {
    /// The known number of free chunks.
    pub(super) fn freed_chunks(&self) -> u64 {
        if !self.has_shared_count() {
            return self.cache.freed_chunks();
        }
        // Relaxed, here and below: a hint.
        self.freed_in(self.word(FREED_OFF).load(Ordering::Relaxed))
    }

    /// Notes that chunks were freed.
    pub(super) fn note_freed(&self, chunks: u64) {
        match self.has_shared_count() {
            true => self.change_freed(|freed| freed.saturating_add(chunks)),
            false => self.cache.note_freed(chunks),
        }
    }

    /// Notes that free chunks were claimed.
    pub(super) fn note_claimed(&self, chunks: u64) {
        match self.has_shared_count() {
            true => self.change_freed(|freed| freed.saturating_sub(chunks)),
            false => self.cache.note_claimed(chunks),
        }
    }

    /// Notes that a search found no free chunk, though `known` were counted. Does nothing if the
    /// count has changed since.
    pub(super) fn forget_freed(&self, known: u64) {
        if !self.has_shared_count() {
            return self.cache.forget_freed(known);
        }
        let word = self.word(FREED_OFF);
        let found = word.load(Ordering::Relaxed);
        if self.freed_in(found) == known {
            let _ = word.compare_exchange_transient(found, self.freed_word(0));
        }
    }

    fn has_shared_count(&self) -> bool {
        self.is_shared() && !mutant!("chunks-freed-in-secret")
    }

    fn freed_in(&self, word: u64) -> u64 {
        self.value_now(word).into()
    }

    fn freed_word(&self, freed: u64) -> u64 {
        self.word_now(u32::try_from(freed).unwrap_or(u32::MAX))
    }

    fn change_freed(&self, change: impl Fn(u64) -> u64) {
        let word = self.word(FREED_OFF);
        loop {
            let found = word.load(Ordering::Relaxed);
            let next = self.freed_word(change(self.freed_in(found)));
            if found == next || word.compare_exchange_transient(found, next).is_ok() {
                return;
            }
        }
    }
}
