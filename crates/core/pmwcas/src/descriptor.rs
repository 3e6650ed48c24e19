//! Descriptors: their layout in the pool, and how one is written and read.
//!
//! ```text
//! byte   0        8        16       24       32       40       48       56
//! 0      status   info     address  old      new      address  old      new       entries 0, 1
//! 64     address  old      new      address  ...                                  entries 2 ..
//! ...                                                                  to 256     entry 9
//! ```
//!
//! * `info`: bits 15..0 are the number of entries. From bit 16 on, each entry has three bits: its
//!   recycling policy.
//! * An entry with address zero is no target. It owns the blocks of its old and new value under its
//!   policy: a split, for example, owns the node that it replaces and the sibling that it makes.
//! * A participant's partition has eight descriptors. The first is the record of the participant's
//!   conditional references as a helper. A thread borrows from other partitions when its own has no
//!   free descriptor.
//!
//! An operation on one or two words lies in one line, so one write-back makes it durable. Stores to
//! one line reach the medium in order, and `status` is written last, so no fence is needed before
//! it. The other lines are durable before the status is written, if recovery would act upon their
//! content.

use std::sync::atomic::Ordering;

use pando_pmem::layout::{DESCRIPTORS_OFF, MAX_PARTICIPANTS, PARTITION_BYTES};
use pando_pmem::{Domain, Pool, Word};

use crate::error::{Error, Result};
use crate::pmwcas::Pmwcas;
use crate::policy::Policy;
use crate::word::{Life, MAX_WORDS, State, Status};

pub(crate) const DESCRIPTOR_BYTES: u64 = 256;
pub(crate) const DESCRIPTORS_PER_PARTITION: u64 = PARTITION_BYTES / DESCRIPTOR_BYTES;
pub(crate) const INFO_AT: u64 = 8;
pub(crate) const ENTRIES_AT: u64 = 16;
pub(crate) const ENTRY_BYTES: u64 = 24;
/// Entries that share the first line with the status.
const FIRST_LINE_ENTRIES: usize = 2;

const _: () = {
    assert!(ENTRIES_AT + MAX_WORDS as u64 * ENTRY_BYTES == DESCRIPTOR_BYTES);
    assert!(ENTRIES_AT + FIRST_LINE_ENTRIES as u64 * ENTRY_BYTES == 64);
    assert!(DESCRIPTORS_PER_PARTITION == 8);
    // A reference has 16 bits for the descriptor.
    assert!(MAX_PARTICIPANTS as u64 * DESCRIPTORS_PER_PARTITION <= 1 << 16);
};

/// The offset of descriptor `index`; its slot must exist in the pool's table.
#[inline(always)]
pub(crate) fn descriptor_off<D: Domain>(pool: &Pool<D>, index: u64) -> u64 {
    if index < pool.first_slots() as u64 * DESCRIPTORS_PER_PARTITION {
        return DESCRIPTORS_OFF + index * DESCRIPTOR_BYTES;
    }
    far_descriptor_off(pool, index).expect("the descriptor exists: it was allocated, or checked")
}

#[cold]
fn far_descriptor_off<D: Domain>(pool: &Pool<D>, index: u64) -> Option<u64> {
    let partition = pool.partition_off((index / DESCRIPTORS_PER_PARTITION) as usize)?;
    Some(partition + index % DESCRIPTORS_PER_PARTITION * DESCRIPTOR_BYTES)
}

/// Whether descriptor `index` exists: a damaged word may hold any index.
#[inline(always)]
pub(crate) fn is_descriptor<D: Domain>(pool: &Pool<D>, index: u64) -> bool {
    index < pool.first_slots() as u64 * DESCRIPTORS_PER_PARTITION
        || far_descriptor_off(pool, index).is_some()
}

/// One target or owned block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WordEntry {
    pub off: u64,
    pub old: u64,
    pub new: u64,
    pub policy: Policy,
}

/// The entries of an operation, as they were added or in order of address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries {
    list: [WordEntry; MAX_WORDS],
    count: usize,
}

impl Entries {
    pub const EMPTY: Self = Self {
        list: [WordEntry { off: 0, old: 0, new: 0, policy: Policy::None }; MAX_WORDS],
        count: 0,
    };

    #[inline(always)]
    pub fn all(&self) -> &[WordEntry] {
        &self.list[..self.count]
    }

    #[inline(always)]
    pub fn all_mut(&mut self) -> &mut [WordEntry] {
        &mut self.list[..self.count]
    }

    #[inline]
    pub fn add(&mut self, entry: WordEntry) -> Result<()> {
        if self.count == MAX_WORDS {
            return Err(Error::TooManyWords);
        }
        if entry.off != 0 && self.all().iter().any(|other| other.off == entry.off) {
            return Err(Error::DuplicateAddress { off: entry.off });
        }
        self.list[self.count] = entry;
        self.count += 1;
        Ok(())
    }

    /// The same entries in order of address, owned blocks last.
    ///
    /// Each entry's position is counted, so no branch depends on an address. A sort by comparisons
    /// has such branches. Half of them are mispredicted, and each misprediction costs as much as a
    /// swap.
    #[inline]
    pub fn sorted(&self) -> Self {
        // Zero minus one is the largest number, so owned blocks come last.
        let key = |entry: &WordEntry| entry.off.wrapping_sub(1);
        let mut sorted = Self { count: self.count, ..Self::EMPTY };
        for (index, entry) in self.all().iter().enumerate() {
            let (before, behind) = self.all().split_at(index);
            let not_above = before.iter().filter(|other| key(other) <= key(entry)).count();
            let below = behind.iter().filter(|other| key(other) < key(entry)).count();
            sorted.list[not_above + below] = *entry;
        }
        sorted
    }

    /// Whether all entries are targets, and the operation owns no blocks.
    #[inline(always)]
    pub fn are_plain(&self) -> bool {
        self.all().iter().all(|entry| entry.policy == Policy::None && entry.off != 0)
    }

    /// Whether the operation has targets and owns no blocks: only then may it be committed with
    /// clean-up pending.
    pub fn may_be_pending(&self) -> bool {
        self.are_plain() && self.count > 0
    }

    /// Whether the end of the operation may free blocks.
    pub fn own_blocks(&self) -> bool {
        self.all().iter().any(|entry| entry.policy != Policy::None)
    }

    fn info(&self) -> u64 {
        let mut info = self.count as u64;
        for (index, entry) in self.all().iter().enumerate() {
            info |= (entry.policy as u64) << (16 + 3 * index);
        }
        info
    }
}

/// The entries that are targets; owned blocks come after them.
#[inline(always)]
pub(crate) fn targets(entries: &Entries) -> &[WordEntry] {
    let all = entries.all();
    match all.last() {
        Some(last) if last.off == 0 => {
            &all[..all.iter().position(|entry| entry.off == 0).unwrap_or(all.len())]
        }
        _ => all,
    }
}

#[inline(always)]
pub(crate) fn status_word<D: Domain>(pool: &Pool<D>, index: u64) -> Word<'_, D> {
    pool.word(descriptor_off(pool, index))
}

/// A word of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// The offset of the target.
    Address = 0,
    /// The value that the target must hold.
    Old = 1,
    /// The value that it will hold.
    New = 2,
}

#[inline(always)]
fn entry_word<D: Domain>(pool: &Pool<D>, index: u64, entry: usize, field: Field) -> Word<'_, D> {
    pool.word(
        descriptor_off(pool, index) + ENTRIES_AT + entry as u64 * ENTRY_BYTES + field as u64 * 8,
    )
}

/// Reads a descriptor; `None` for content that no thread can have written.
///
/// The caller checks afterwards that the status still is of the expected life. The loads are
/// acquire, paired with the owner's release stores: a thread that sees an entry of a later life
/// also sees the status of that life.
pub(crate) fn entries<D: Domain>(pool: &Pool<D>, index: u64) -> Option<Entries> {
    let info = pool.word(descriptor_off(pool, index) + INFO_AT).load(Ordering::Acquire);
    let count = (info & 0xFFFF) as usize;
    if count > MAX_WORDS {
        return None;
    }
    let mut entries = Entries { count, ..Entries::EMPTY };
    for entry in 0..count {
        let field = |field| entry_word(pool, index, entry, field).load(Ordering::Acquire);
        entries.list[entry] = WordEntry {
            off: field(Field::Address),
            old: field(Field::Old),
            new: field(Field::New),
            policy: Policy::decode((info >> (16 + 3 * entry)) & 7)?,
        };
    }
    Some(entries)
}

impl<D: Domain> Pmwcas<D> {
    #[inline(always)]
    pub(crate) fn status_word(&self, index: u64) -> Word<'_, D> {
        status_word(self.pool(), index)
    }

    #[inline(always)]
    pub(crate) fn entry_word(&self, index: u64, entry: usize, field: Field) -> Word<'_, D> {
        entry_word(self.pool(), index, entry, field)
    }

    /// See [`entries`].
    pub(crate) fn entries(&self, index: u64) -> Option<Entries> {
        entries(self.pool(), index)
    }

    #[inline(always)]
    fn write_entry(&self, descriptor: u64, index: usize, entry: &WordEntry) {
        // Release: a helper of an earlier life that sees one of these stores also sees that the
        // status has changed.
        self.entry_word(descriptor, index, Field::Address).store(entry.off, Ordering::Release);
        self.entry_word(descriptor, index, Field::Old).store(entry.old, Ordering::Release);
        self.entry_word(descriptor, index, Field::New).store(entry.new, Ordering::Release);
    }

    /// Writes the descriptor and puts it into `state`; durable after the next fence.
    #[inline]
    pub(crate) fn publish(&self, life: Life, entries: &Entries, state: State) {
        let off = descriptor_off(self.pool(), life.index);
        if entries.count > FIRST_LINE_ENTRIES {
            for (index, entry) in entries.all().iter().enumerate().skip(FIRST_LINE_ENTRIES) {
                self.write_entry(life.index, index, entry);
            }
            let bytes = ENTRIES_AT + entries.count as u64 * ENTRY_BYTES - 64;
            self.pool().flush(off + 64, bytes);
            if entries.own_blocks() {
                // A recovery that finds the status acts upon these entries, since they own blocks.
                // It does not act upon targets alone: no word refers to the descriptor before the
                // next fence.
                D::fence();
            }
        }
        for (index, entry) in entries.all().iter().enumerate().take(FIRST_LINE_ENTRIES) {
            self.write_entry(life.index, index, entry);
        }
        self.pool().word(off + INFO_AT).store(entries.info(), Ordering::Release);
        let status = self.status_word(life.index);
        status.store(Status::new(state, life.sequence).encode(), Ordering::Release);
        status.flush();
    }
}
