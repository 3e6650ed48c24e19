//! What an operation reads with, the keys and values that it meets, and the damage.

use std::cmp::Ordering as Compare;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_index::Error;
use pando_pmem::{Domain, Guard, Pool};
use pando_pmwcas::Pmwcas;
use pando_tree::checked;

use crate::layout::{Link, VALUE_HEADER_BYTES, head_of};

/// A page's identifier: the offset of its mapping word.
pub(crate) type Pid = u64;

/// Something that is in no sound tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    pub off: u64,
}

impl From<Damaged> for Error {
    #[cold]
    fn from(damaged: Damaged) -> Self {
        checked::damaged(damaged.off, "it is no page or delta that could be there")
    }
}

/// A page, and what the mapping table had of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub pid: Pid,
    pub link: Link,
}

#[cold]
pub(crate) fn damaged(at: At) -> Error {
    Damaged { off: at.pid }.into()
}

/// What an operation reads and writes with.
#[derive(Debug)]
pub struct Context<'op, 'pool, D: Domain> {
    pub pmwcas: &'op Pmwcas<D>,
    pub guard: &'op Guard<'pool, D>,
    /// The pool reaches so far at least.
    pub known_end: &'op AtomicU64,
}

impl<D: Domain> Clone for Context<'_, '_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain> Copy for Context<'_, '_, D> {}

impl<'op, 'pool, D: Domain> Context<'op, 'pool, D> {
    #[inline(always)]
    pub fn pool(self) -> &'op Pool<D> {
        self.pmwcas.pool()
    }

    #[inline(always)]
    pub fn read(self, off: u64) -> u64 {
        self.pmwcas.read(self.guard, off)
    }

    /// What the mapping table has of a page.
    #[inline(always)]
    pub fn link(self, pid: Pid) -> Link {
        Link(self.read(pid))
    }

    /// Refuses what is no place for `bytes` bytes, of which the first belong to a word.
    #[inline(always)]
    pub fn check_place(self, off: u64, bytes: u64) -> Result<(), Damaged> {
        let end = off.saturating_add(bytes);
        // Relaxed: a number that only rises.
        let is_known = end <= self.known_end.load(Ordering::Relaxed);
        if off.is_multiple_of(8) && (is_known || self.reaches(end)) {
            return Ok(());
        }
        Err(Damaged { off })
    }

    #[cold]
    fn reaches(self, end: u64) -> bool {
        let known = self.pool().size_bytes();
        self.known_end.fetch_max(known, Ordering::Relaxed);
        end <= known
    }

    /// A word that never changes while it can be reached.
    #[inline(always)]
    pub fn fixed(self, off: u64) -> u64 {
        // Relaxed: what it is of was published by the word that led here, which was read with
        // acquire.
        self.pool().word(off).load(Ordering::Relaxed)
    }

    /// Bytes of a published page, delta or value.
    #[inline(always)]
    pub fn bytes(self, off: u64, bytes: u64) -> &'op [u8] {
        // SAFETY: base pages, deltas and values' blocks are written before the word that leads to
        // them is, and never after; what is written beside them is another delta's place. The guard
        // keeps what was reachable since it was taken from being reused. The offset came from
        // there.
        unsafe { self.pool().bytes(off, bytes) }
    }

    /// The bytes of a value.
    #[inline(always)]
    pub fn value(self, value: Value<'op>) -> Result<&'op [u8], Damaged> {
        match value {
            Value::Inline(bytes) => Ok(bytes),
            Value::Block(off) => self.value_of_block(off),
        }
    }

    fn value_of_block(self, off: u64) -> Result<&'op [u8], Damaged> {
        self.check_place(off, VALUE_HEADER_BYTES)?;
        let bytes = self.fixed(off);
        self.check_place(off, bytes.saturating_add(VALUE_HEADER_BYTES))?;
        Ok(self.bytes(off + VALUE_HEADER_BYTES, bytes))
    }

    /// Refuses what is no value's block, before it is freed. It must be named by a record that is
    /// there still.
    pub fn check_value_block(self, off: u64) -> Result<(), Damaged> {
        let room =
            self.pool().active_block(off).and_then(|bytes| bytes.checked_sub(VALUE_HEADER_BYTES));
        if room.is_some_and(|room| self.fixed(off) <= room) { Ok(()) } else { Err(Damaged { off }) }
    }
}

/// A value, as a record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'op> {
    Inline(&'op [u8]),
    /// In the block at this offset.
    Block(u64),
}

impl Value<'_> {
    /// The offset of its block; zero if it has none.
    pub fn block_off(self) -> u64 {
        match self {
            Self::Inline(_) => 0,
            Self::Block(off) => off,
        }
    }
}

/// A key to be searched for, with what makes comparing it cheap.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'key> {
    pub bytes: &'key [u8],
    pub head: u64,
}

impl<'key> Probe<'key> {
    #[inline(always)]
    pub fn new(bytes: &'key [u8]) -> Self {
        Self { bytes, head: head_of(bytes) }
    }

    /// How a key with the first bytes `head`, and all of it from `key`, compares with this one.
    #[inline(always)]
    pub fn compare_with<'other>(self, head: u64, key: impl FnOnce() -> &'other [u8]) -> Compare {
        match head.cmp(&self.head) {
            Compare::Equal => key().cmp(self.bytes),
            other => other,
        }
    }
}

/// How two keys compare; by their first bytes where these differ.
#[inline(always)]
pub(crate) fn compare_keys(left: &[u8], right: &[u8]) -> Compare {
    Probe::new(right).compare_with(head_of(left), || left)
}

/// Where a descent goes.
#[derive(Clone, Copy, Debug)]
pub enum Target<'key> {
    /// To what holds the key.
    Holding(Probe<'key>),
    /// To what holds the last before the key.
    Before(Probe<'key>),
    /// To the last.
    Last,
}

impl Target<'_> {
    /// Whether it may lie in what begins at a key with the first bytes `head`, or behind.
    #[inline(always)]
    pub fn reaches_head(self, head: u64) -> bool {
        match self {
            Self::Holding(probe) | Self::Before(probe) => head <= probe.head,
            Self::Last => true,
        }
    }

    /// Whether it lies in what begins at `low`, or behind.
    #[inline(always)]
    pub fn reaches(self, low: &[u8]) -> bool {
        match self {
            Self::Holding(probe) => probe.compare_with(head_of(low), || low).is_le(),
            Self::Before(probe) => probe.compare_with(head_of(low), || low).is_lt(),
            Self::Last => true,
        }
    }
}
