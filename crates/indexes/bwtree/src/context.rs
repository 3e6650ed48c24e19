//! What an operation reads: published bytes, keys and values, and damage.

use std::cmp::Ordering as Compare;

use pando_index::Error;
use pando_pmem::Domain;
use pando_tree::checked;
use pando_tree::context::Context;
use pando_tree::value_block::HEADER_BYTES;

use crate::layout::{Link, head_of};

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

impl At {
    /// What the mapping table has of the page now.
    #[inline(always)]
    pub fn now<D: Domain>(context: Context<'_, '_, D>, pid: Pid) -> Self {
        Self { pid, link: Link::at(context, pid) }
    }
}

#[cold]
pub(crate) fn damaged(at: At) -> Error {
    Damaged { off: at.pid }.into()
}

/// Bytes of a published page, delta or value.
#[inline(always)]
pub(crate) fn published<'op, D: Domain>(
    context: Context<'op, '_, D>,
    off: u64,
    bytes: u64,
) -> &'op [u8] {
    // SAFETY: base pages, deltas and values' blocks are written before the word that leads to them
    // is, and never after; what is written beside them is another delta's place. The guard keeps
    // what was reachable since it was taken from being reused. The offset came from there.
    unsafe { context.pool().bytes(off, bytes) }
}

impl Link {
    /// What the mapping table has of a page.
    #[inline(always)]
    pub fn at<D: Domain>(context: Context<'_, '_, D>, pid: Pid) -> Self {
        Self(context.read(pid))
    }

    /// Of a page that is removed now.
    pub fn removed_now<D: Domain>(context: Context<'_, '_, D>) -> Self {
        Self::removed(context.pool().generation(), 0)
    }
}

/// A value, as a record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'op> {
    Inline(&'op [u8]),
    /// In the block at this offset.
    Block(u64),
}

impl<'op> Value<'op> {
    /// Its bytes.
    #[inline(always)]
    pub fn bytes<D: Domain>(self, context: Context<'op, '_, D>) -> Result<&'op [u8], Damaged> {
        match self {
            Self::Inline(bytes) => Ok(bytes),
            Self::Block(off) => Self::of_block(context, off),
        }
    }

    fn of_block<D: Domain>(context: Context<'op, '_, D>, off: u64) -> Result<&'op [u8], Damaged> {
        // A checked access would note damage, and a scan then returns no record at all: those
        // before this one are undamaged.
        let end = context.pool().size_bytes();
        let is_in_pool = |bytes: u64| off.checked_add(bytes).is_some_and(|at| at <= end);
        if off.is_multiple_of(8) && is_in_pool(HEADER_BYTES) {
            let bytes = context.fixed(off);
            if is_in_pool(bytes.saturating_add(HEADER_BYTES)) {
                return Ok(published(context, off + HEADER_BYTES, bytes));
            }
        }
        Err(Damaged { off })
    }

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
