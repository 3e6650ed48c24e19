//! What an operation reads: published bytes, keys and values, and damage.

use pando_index::Error;
use pando_pmem::Domain;
use pando_tree::checked;
use pando_tree::context::Context;
use pando_tree::value_block::HEADER_BYTES;

use crate::layout::Link;

/// A page's identifier: the offset of its mapping word.
pub(crate) type Pid = u64;

/// Damage: something that no undamaged tree has. Or no damage, but a page of which there is only a
/// partial page (`blind.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged(u64);

/// Bit of a page's PID that must be loaded first; not of an offset.
const UNREAD: u64 = 1 << 63;

impl Damaged {
    /// Damage at this offset.
    #[inline(always)]
    pub fn at(off: u64) -> Self {
        Self(off & !UNREAD)
    }

    /// The page with this PID must be loaded first.
    #[cold]
    pub fn unread(pid: Pid) -> Self {
        Self(pid | UNREAD)
    }

    /// The PID of the page that must be loaded first, if that is all.
    #[cold]
    pub fn unread_pid(self) -> Option<Pid> {
        (self.0 & UNREAD != 0).then_some(self.0 & !UNREAD)
    }
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
        match damaged.unread_pid() {
            Some(pid) => Self::storage(Absent { pid }),
            None => checked::damaged(damaged.0, "it is no page or delta that could be there"),
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
    Damaged::at(at.pid).into()
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
        Err(Damaged::at(off))
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
