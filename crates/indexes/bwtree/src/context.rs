//! What an operation reads: published bytes, keys and values, and damage.

use pando_index::Error;
use pando_pmem::Domain;
use pando_tree::checked;
use pando_tree::context::Context;
use pando_tree::value_block::HEADER_BYTES;

use crate::layout::Link;

/// A page's identifier: the offset of its mapping word.
pub(crate) type Pid = u64;

/// A page cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// Something is at this offset that no undamaged tree has.
    At(u64),
    /// No damage: of the page with this PID there is only a residue (`blind.rs`). It must be loaded
    /// first.
    Unread(Pid),
}

/// The page must be loaded first. No operation returns this error.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the page at {pid:#x} is absent")]
pub(crate) struct Absent {
    pub pid: Pid,
}

impl From<Damaged> for Error {
    #[cold]
    fn from(damaged: Damaged) -> Self {
        match damaged {
            Damaged::At(off) => checked::damaged(off, "it is no page or delta that could be there"),
            Damaged::Unread(pid) => Self::storage(Absent { pid }),
        }
    }
}

/// A page, and the link that its mapping word held when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub pid: Pid,
    pub link: Link,
}

impl At {
    /// The page with the link that its mapping word holds now.
    #[inline(always)]
    pub fn now<D: Domain>(context: Context<'_, D>, pid: Pid) -> Self {
        Self { pid, link: Link::at(context, pid) }
    }
}

#[cold]
pub(crate) fn damaged(at: At) -> Error {
    Damaged::At(at.pid).into()
}

impl Link {
    /// The link in the mapping word of a page.
    #[inline(always)]
    pub fn at<D: Domain>(context: Context<'_, D>, pid: Pid) -> Self {
        Self(context.read(pid))
    }

    /// The word of a page that is removed now.
    pub fn removed_now<D: Domain>(context: Context<'_, D>) -> Self {
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
    pub fn bytes<D: Domain>(self, context: Context<'op, D>) -> Result<&'op [u8], Damaged> {
        match self {
            Self::Inline(bytes) => Ok(bytes),
            Self::Block(off) => Self::of_block(context, off),
        }
    }

    fn of_block<D: Domain>(context: Context<'op, D>, off: u64) -> Result<&'op [u8], Damaged> {
        // A checked access would note damage, and then a scan returns no record at all. But the
        // records before this one are undamaged.
        let end = context.pool().size_bytes();
        let is_in_pool = |bytes: u64| off.checked_add(bytes).is_some_and(|at| at <= end);
        if off.is_multiple_of(8) && is_in_pool(HEADER_BYTES) {
            let bytes = context.fixed(off);
            if is_in_pool(bytes.saturating_add(HEADER_BYTES)) {
                return Ok(context.published(off + HEADER_BYTES, bytes));
            }
        }
        Err(Damaged::At(off))
    }

    /// The child, if this is a record of an inner page.
    #[inline(always)]
    pub fn child(self) -> Pid {
        match self {
            Self::Inline(bytes) => word_of(bytes),
            Self::Block(_) => 0,
        }
    }

    /// The offset of the value's block; zero if it has none.
    pub fn block_off(self) -> u64 {
        match self {
            Self::Inline(_) => 0,
            Self::Block(off) => off,
        }
    }
}

/// The eight bytes as a word.
#[inline(always)]
pub(crate) fn word_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
