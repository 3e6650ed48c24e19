//! The baselines by name: how their leaves are arranged, and how writes survive a failure.

/// How a baseline's leaves are arranged (paper, figure 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// In order of keys, packed.
    Sorted,
    /// In any order, packed.
    Unsorted,
    /// In any order, with holes; a bitmap says where entries are.
    Bitmap,
}

/// How a baseline's writes survive a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// They do not.
    Volatile,
    /// Each write in place is logged, with its old and new value, before it is made (3.1).
    UndoRedo,
    /// Nodes are copied, and two pointers changed by redo-only logging (3.2).
    Shadow,
}

/// The baselines by the paper's names.
pub const BASELINES: [(&str, Leaves, Scheme); 7] = [
    ("btree (volatile)", Leaves::Sorted, Scheme::Volatile),
    ("btree log", Leaves::Sorted, Scheme::UndoRedo),
    ("unsorted leaf log", Leaves::Unsorted, Scheme::UndoRedo),
    ("uleaf bmp log", Leaves::Bitmap, Scheme::UndoRedo),
    ("btree shadow", Leaves::Sorted, Scheme::Shadow),
    ("unsorted leaf shadow", Leaves::Unsorted, Scheme::Shadow),
    ("uleaf bmp shadow", Leaves::Bitmap, Scheme::Shadow),
];
