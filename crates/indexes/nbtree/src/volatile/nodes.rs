//! The nodes in process memory, field by field. `leaf.rs` and `inner.rs` read them; `node.rs` has
//! the references between them. Only `node.rs` uses the addresses in a slot and a replacement.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

use crate::layout::MAX_SLOTS;
use crate::separator::Separator;

/// The most children of a node.
pub(crate) const MAX_CHILDREN: usize = 64;
/// Slices between two samples.
pub(super) const STRIDE: usize = 8;
/// The last slice of each stride, except for the last stride.
pub(super) const SAMPLES: usize = MAX_CHILDREN / STRIDE - 1;

const _: () = {
    assert!(SAMPLES == 7 && std::mem::size_of::<Inner>() == 1664);
    assert!(std::mem::offset_of!(Inner, slices) == 64);
    assert!(std::mem::offset_of!(Inner, children) == 576);
};

/// All bytes of a separator that does not have eight.
pub(super) type Odd = Arc<[u8]>;

/// An inner node (`inner.rs`).
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Inner {
    pub(super) samples: [u64; SAMPLES],
    pub(super) len: u32,
    /// Its height over the leaves, from 1.
    pub level: u32,
    pub(super) slices: [u64; MAX_CHILDREN],
    pub(super) children: [Slot; MAX_CHILDREN],
    /// The separators that do not have eight bytes; empty if there are none.
    pub(super) odd: Box<[Option<Odd>]>,
}

/// A word that holds a node, and a hint beside it: the offset of its block, if it is a leaf. The
/// hint is stored after the word, and may be that of another leaf; nothing relies on it.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Slot {
    pub(super) node: AtomicPtr<()>,
    pub(super) block_hint: AtomicU64,
}

/// Words of fingerprints.
pub(super) const FINGERPRINT_WORDS: usize = MAX_SLOTS.div_ceil(8);

/// The metadata of a leaf in process memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Leaf {
    pub(super) control: AtomicU64,
    /// Offset of its block.
    pub block_off: u64,
    pub(super) fingerprints: [AtomicU64; FINGERPRINT_WORDS],
    /// The replacement, if it is decided (paper 3.1: `copy_ptr` and `flag`).
    pub replacement: AtomicPtr<Replacement>,
    /// The lowest key that it may hold.
    pub low: Separator,
    /// The number of slots whose records were deleted.
    pub(super) deleted: AtomicU32,
    /// Empty in a domain without write-backs.
    pub(super) dirty: Box<[AtomicU8]>,
}

const _: () = {
    assert!(std::mem::offset_of!(Leaf, replacement) == 64);
    assert!(std::mem::size_of::<Leaf>() == 128);
};

/// The replacement of a leaf (paper 3.1: `copy_ptr`): two leaves, one, or none if it was empty and
/// is dropped.
#[derive(Debug, Default)]
pub(crate) struct Replacement {
    pub(super) left: Option<NonNull<Leaf>>,
    pub(super) right: Option<NonNull<Leaf>>,
}
