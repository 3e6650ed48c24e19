//! The layers in process memory, as the handles of a tree share them.

use crate::volatile::node::Root;

/// The layers in process memory, which all handles of one tree share.
#[derive(Debug)]
pub(crate) struct Layers {
    /// The root, and what waits to be given back.
    pub root: Root,
    /// Why the tree could not be built of its blocks.
    pub damage: Option<Damaged>,
}

/// Where the tree is damaged, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damaged {
    pub off: u64,
    pub what: &'static str,
}
