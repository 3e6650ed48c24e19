//! The paper's log (figures 5 and 6), in a ring of the pool.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool};

/// Bytes of the ring.
pub(super) const LOG_BYTES: u64 = 32 * 1024;

/// A log, and the writes that wait for it.
#[derive(Debug)]
pub(super) struct Log {
    off: u64,
    /// Where the next record begins, and where the part begins that is not written back yet.
    at: Cell<u64>,
    flushed: Cell<u64>,
    waiting: RefCell<Vec<(u64, u64)>>,
}

impl Log {
    pub fn new(off: u64) -> Self {
        Self { off, at: Cell::new(0), flushed: Cell::new(0), waiting: RefCell::default() }
    }

    fn write<D: Domain>(&self, pool: &Pool<D>, words: &[u64]) {
        if self.at.get() + words.len() as u64 * 8 > LOG_BYTES {
            self.flush(pool);
            self.at.set(0);
            self.flushed.set(0);
        }
        for &word in words {
            pool.word(self.off + self.at.get()).store(word, Ordering::Relaxed);
            self.at.set(self.at.get() + 8);
        }
    }

    fn flush<D: Domain>(&self, pool: &Pool<D>) {
        pool.flush(self.off + self.flushed.get(), self.at.get() - self.flushed.get());
        self.flushed.set(self.at.get());
    }

    fn flush_and_fence<D: Domain>(&self, pool: &Pool<D>) {
        self.flush(pool);
        D::fence();
    }

    /// `WriteUndoRedo`: the record is stable before the word is written.
    pub fn write_undo_redo<D: Domain>(&self, pool: &Pool<D>, off: u64, new: u64) {
        let word = pool.word(off);
        self.write(pool, &[off, word.load(Ordering::Relaxed), new]);
        self.flush_and_fence(pool);
        word.store(new, Ordering::Relaxed);
    }

    /// `NewRedo`: of a place that was not used, whose old value means nothing.
    pub fn new_redo<D: Domain>(&self, pool: &Pool<D>, off: u64, new: u64) {
        self.write(pool, &[off, new]);
        pool.word(off).store(new, Ordering::Relaxed);
    }

    /// `CommitNewRedo`.
    pub fn commit_new_redo<D: Domain>(&self, pool: &Pool<D>) {
        self.flush_and_fence(pool);
    }

    /// `WriteRedoOnly`: the word is written at the commit.
    pub fn write_redo_only<D: Domain>(&self, pool: &Pool<D>, off: u64, new: u64) {
        self.write(pool, &[off, new]);
        self.waiting.borrow_mut().push((off, new));
    }

    /// `CommitRedoWrites`: records, and what was written back before, are stable before the words
    /// are written.
    pub fn commit_redo_writes<D: Domain>(&self, pool: &Pool<D>) {
        self.flush_and_fence(pool);
        for (off, new) in self.waiting.borrow_mut().drain(..) {
            pool.word(off).store(new, Ordering::Relaxed);
        }
    }

    /// What `AllocNode` logs: which node was allocated.
    pub fn allocated<D: Domain>(&self, pool: &Pool<D>, off: u64) {
        self.write(pool, &[off]);
        self.flush_and_fence(pool);
    }
}
