//! The indexes that are explored. A new one is one entry here, and one line in
//! [`crate::campaign::subjects`].

use super::map::{Change, Indexed};
use super::moments::OfMoments;

/// BzTrees.
pub struct BzTrees;

impl Indexed for BzTrees {
    type Kind = pando_bztree::BzTrees;

    const SMALL: &'static [(&'static str, &'static str)] = &[
        ("leaf_bytes", "368"),
        ("inner_bytes", "256"),
        // Slots in more than one line.
        ("free_bytes", "144"),
        ("merge_bytes", "136"),
        ("inline_bytes", "64"),
    ];
    const CHANGES: &'static [Change] = Change::OF_TREES;
}

impl OfMoments for BzTrees {
    const NAME: &'static str = "bztree-moments";
}

/// Skip lists.
pub struct SkipLists;

impl Indexed for SkipLists {
    type Kind = pando_skiplist::SkipLists;

    // Values of all three kinds, and nodes that are raised.
    const SMALL: &'static [(&'static str, &'static str)] =
        &[("inline_bytes", "64"), ("levels_at_once", "2")];
    // A node is a leaf; the height is that of the highest.
    const CHANGES: &'static [Change] =
        &[Change::LeafSplit, Change::RootSplit, Change::LeafMerge, Change::RootCollapse];
}

/// Sorted arrays.
pub struct SortedArrays;

impl Indexed for SortedArrays {
    type Kind = pando_sorted_array::SortedArrays;

    const SMALL: &'static [(&'static str, &'static str)] = &[];
    const CHANGES: &'static [Change] = &[Change::Consolidation];
    const REMOVES_NEED_ROOM: bool = true;
}
