//! The indexes that are explored. A new index is one entry here, and one line in
//! [`crate::campaign::subjects`].

use super::map::{Change, Indexed};

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
        ("numbers", "sorted"),
    ];
    const CHANGES: &'static [Change] = Change::OF_TREES;
    const MERGES_LATER: bool = true;
}

/// BzTrees with range leaves.
pub struct RangedBzTrees;

impl Indexed for RangedBzTrees {
    type Kind = pando_bztree::BzTrees;

    const NAME: &'static str = "bztree-ranged";
    const FIXED: bool = true;
    const SMALL: &'static [(&'static str, &'static str)] = &[
        ("leaf_bytes", "512"),
        ("inner_bytes", "256"),
        ("free_bytes", "64"),
        ("merge_bytes", "96"),
        ("numbers", "ranged"),
    ];
    // The inner nodes are those of `BzTrees`, and have room for all leaves here.
    const CHANGES: &'static [Change] =
        &[Change::Consolidation, Change::LeafSplit, Change::LeafMerge];
}

/// NBTrees.
pub struct NbTrees;

impl Indexed for NbTrees {
    type Kind = pando_nbtree::NbTrees;

    const SMALL: &'static [(&'static str, &'static str)] =
        &[("leaf_slots", "6"), ("inner_children", "4")];
    // An inner node is removed with its last child, and the root when it has one child.
    const CHANGES: &'static [Change] = &[
        Change::Churn,
        Change::LeafSplit,
        Change::InnerSplit,
        Change::RootSplit,
        Change::LeafMerge,
        Change::InnerMerge,
        Change::RootCollapse,
    ];
    // Only a replacement of the leaf opens a closed value word, and it needs blocks.
    const REMOVES_NEED_ROOM: bool = true;
}

/// Skip lists.
pub struct SkipLists;

impl Indexed for SkipLists {
    type Kind = pando_skiplist::SkipLists;

    // Values of all three kinds, and high nodes among few records; the same heights in each run.
    const SMALL: &'static [(&'static str, &'static str)] = &[
        ("inline_bytes", "64"),
        ("levels_at_once", "2"),
        ("height_seed", "1"),
        ("even_gaps", "off"),
    ];
    // A node counts as a leaf. The height is that of the highest node.
    const CHANGES: &'static [Change] =
        &[Change::LeafSplit, Change::RootSplit, Change::LeafMerge, Change::RootCollapse];
}

/// Bw-trees.
pub struct BwTrees;

impl Indexed for BwTrees {
    type Kind = pando_bwtree::BwTrees;

    const SMALL: &'static [(&'static str, &'static str)] = &[
        ("leaf_bytes", "320"),
        ("inner_bytes", "128"),
        ("merge_bytes", "112"),
        ("inline_bytes", "64"),
        ("chain_deltas", "3"),
        ("delta_bytes", "192"),
    ];
    const CHANGES: &'static [Change] = Change::OF_TREES;
    // A delta without room beside its base needs a new base.
    const REMOVES_NEED_ROOM: bool = true;
}

/// Bw-trees in the paper's design: each delta is a block.
pub struct PlainBwTrees;

impl Indexed for PlainBwTrees {
    type Kind = pando_bwtree::BwTrees;

    const NAME: &'static str = "bwtree-plain";
    const SMALL: &'static [(&'static str, &'static str)] = &[
        ("leaf_bytes", "320"),
        ("inner_bytes", "128"),
        ("merge_bytes", "112"),
        ("inline_bytes", "64"),
        ("chain_deltas", "2"),
        ("delta_bytes", "0"),
        ("shortcuts", "off"),
        ("runs", "off"),
    ];
    const CHANGES: &'static [Change] = Change::OF_TREES;
    const REMOVES_NEED_ROOM: bool = true;
}

/// Bw-trees by single-word CAS.
pub struct CasBwTrees;

impl Indexed for CasBwTrees {
    type Kind = pando_bwtree::CasBwTrees;

    const SMALL: &'static [(&'static str, &'static str)] = &[
        ("leaf_bytes", "320"),
        ("inner_bytes", "128"),
        ("merge_bytes", "112"),
        ("inline_bytes", "64"),
        // Two deltas of an inner page. With one, the chain would be consolidated before each new
        // index entry.
        ("chain_deltas", "5"),
        ("delta_bytes", "192"),
    ];
    const CHANGES: &'static [Change] = Change::OF_TREES;
    const SURVIVES: bool = false;
}

/// Sorted arrays.
pub struct SortedArrays;

impl Indexed for SortedArrays {
    type Kind = pando_sorted_array::SortedArrays;

    // Each write needs a chunk for a copy of the array.
    const POOL_BYTES: u64 = 12 << 20;
    const SMALL: &'static [(&'static str, &'static str)] = &[];
    const CHANGES: &'static [Change] = &[Change::Consolidation];
    const REMOVES_NEED_ROOM: bool = true;
}

/// wB+-Trees.
pub struct WbTrees;

impl Indexed for WbTrees {
    type Kind = pando_wbtree::WbTrees;

    const SMALL: &'static [(&'static str, &'static str)] =
        &[("node_lines", "4"), ("node_versions", "8")];
    const CHANGES: &'static [Change] = Change::OF_TREES;
}

/// wB+-Trees whose records are cells, without blocks.
pub struct FixedWbTrees;

impl Indexed for FixedWbTrees {
    type Kind = pando_wbtree::WbTrees;

    const NAME: &'static str = "wbtree-fixed";
    const FIXED: bool = true;
    const SMALL: &'static [(&'static str, &'static str)] =
        &[("records", "fixed"), ("node_lines", "3"), ("node_versions", "8")];
    const CHANGES: &'static [Change] = Change::OF_TREES;
}

/// wB+-Trees with bitmap-only leaves.
pub struct BitmapOnlyWbTrees;

impl Indexed for BitmapOnlyWbTrees {
    type Kind = pando_wbtree::WbTrees;

    const NAME: &'static str = "wbtree-bitmap-only";
    const FIXED: bool = true;
    const SMALL: &'static [(&'static str, &'static str)] = &[
        ("leaf", "bitmap-only"),
        ("records", "fixed"),
        ("node_lines", "3"),
        ("node_versions", "8"),
    ];
    const CHANGES: &'static [Change] = Change::OF_TREES;
}

/// wB+-Trees with slot-only nodes.
pub struct SlotOnlyWbTrees;

impl Indexed for SlotOnlyWbTrees {
    type Kind = pando_wbtree::WbTrees;

    const NAME: &'static str = "wbtree-slot-only";
    const FIXED: bool = true;
    const SMALL: &'static [(&'static str, &'static str)] =
        &[("leaf", "slot-only"), ("records", "fixed"), ("node_lines", "2"), ("node_versions", "8")];
    const CHANGES: &'static [Change] = Change::OF_TREES;
}
