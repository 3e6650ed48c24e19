//! What the models of PMwCAS share: references, statuses, descriptors
//! (`pando-pmwcas/src/word.rs`, `descriptor.rs`).

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

/// A target: which word, its old value, its new value.
pub type Target = [u64; 3];

#[derive(Default)]
pub struct Descriptor {
    pub status: Atomic,
    pub entries: [[Atomic; 3]; 2],
}
