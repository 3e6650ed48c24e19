//! The common part of the models of PMwCAS: references, statuses, descriptors
//! (`pando-pmwcas/src/word.rs`, `descriptor.rs`).

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::atomic::Atomic;

pub const MWCAS: u64 = 1 << 63;
pub const RDCSS: u64 = 1 << 62;
pub const CONTROL_BITS: u64 = MWCAS | RDCSS;

pub const FREE: u64 = 0;
pub const FILLING: u64 = 1;
pub const UNDECIDED: u64 = 2;
pub const SUCCEEDED: u64 = 3;
pub const FAILED: u64 = 4;
pub const HELPING: u64 = 5;
pub const INSTALLING: u64 = 6;

/// One life of one descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub index: usize,
    pub sequence: u64,
}

impl Life {
    pub fn reference(self, entry: usize) -> u64 {
        MWCAS | self.sequence << 20 | (entry as u64) << 16 | self.index as u64
    }

    pub fn conditional(self, entry: usize) -> u64 {
        RDCSS | self.sequence << 20 | (entry as u64) << 16 | self.index as u64
    }

    pub fn of(word: u64) -> (Self, usize) {
        let index = (word & 0xFFFF) as usize;
        let entry = (word >> 16 & 0xF) as usize;
        (Self { index, sequence: word >> 20 & 0xFFFF }, entry)
    }
}

pub fn status(state: u64, sequence: u64) -> u64 {
    state << 48 | sequence
}

pub fn state_of(status: u64) -> u64 {
    status >> 48
}

pub fn sequence_of(status: u64) -> u64 {
    status & 0xFFFF
}

/// A target: the index of the word, its old value, its new value.
pub type Target = [u64; 3];

#[derive(Default)]
pub struct Descriptor {
    pub status: Atomic,
    pub entries: [[Atomic; 3]; 2],
}

/// The orderings of the accesses to words and entries.
#[derive(Clone, Copy)]
pub struct Orderings {
    /// A success of the CASes, by which references and values are published.
    pub swap: Ordering,
    /// The stores of a descriptor's entries.
    pub fill: Ordering,
    /// The loads of a descriptor's entries.
    pub copy: Ordering,
}

impl Orderings {
    pub const AS_WRITTEN: Self = Self { swap: SeqCst, fill: Release, copy: Acquire };
    // Mutants.
    pub const SWAP_RELAXED: Self = Self { swap: Relaxed, ..Self::AS_WRITTEN };
    pub const FILL_RELAXED: Self = Self { fill: Relaxed, ..Self::AS_WRITTEN };
    pub const COPY_RELAXED: Self = Self { copy: Relaxed, ..Self::AS_WRITTEN };
}

/// Words, and the descriptors of the operations that change them. Mutants change `code`.
pub struct Pmwcas<Code, const DESCRIPTORS: usize> {
    pub code: Code,
    orderings: Orderings,
    pub words: [Atomic; 3],
    pub descriptors: [Descriptor; DESCRIPTORS],
}

impl<Code, const DESCRIPTORS: usize> Pmwcas<Code, DESCRIPTORS> {
    pub fn new(code: Code, orderings: Orderings) -> Arc<Self> {
        let descriptors = std::array::from_fn(|_| Descriptor::default());
        Arc::new(Self { code, orderings, words: Default::default(), descriptors })
    }

    pub fn cas(&self, word: &Atomic, current: u64, new: u64) -> Result<u64, u64> {
        word.compare_exchange(current, new, self.orderings.swap, SeqCst)
    }

    /// A field of an entry: the word, its old value or its new value.
    pub fn entry(&self, life: Life, entry: usize, field: usize) -> u64 {
        self.descriptors[life.index].entries[entry][field].load(self.orderings.copy)
    }

    /// Stores the entries of a descriptor, and then its status.
    pub fn publish_entries(&self, life: Life, targets: [Target; 2], state: u64) {
        let descriptor = &self.descriptors[life.index];
        for (entry, target) in descriptor.entries.iter().zip(targets) {
            for (word, value) in entry.iter().zip(target) {
                word.store(value, self.orderings.fill);
            }
        }
        descriptor.status.store(status(state, life.sequence), Release);
    }
}
