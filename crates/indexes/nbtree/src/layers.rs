//! The layers in process memory, as the handles of a tree share them.

use pando_index::Result;
use pando_tree::checked::damaged;

use crate::volatile::node::Root;

/// The layers in process memory, which all handles of one tree share.
#[derive(Debug)]
pub(crate) struct Layers {
    /// The root, and what waits to be given back.
    pub root: Root,
    /// Why the tree could not be built of its blocks.
    pub damage: Option<Damaged>,
}

impl Layers {
    /// Refuses an operation on a tree that could not be built.
    #[inline(always)]
    pub fn check(&self) -> Result<()> {
        match self.damage {
            None => Ok(()),
            Some(Damaged { off, what }) => Err(damaged(off, what)),
        }
    }
}

/// Where the tree is damaged, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damaged {
    pub off: u64,
    pub what: &'static str,
}
