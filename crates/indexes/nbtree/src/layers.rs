//! The layers in process memory, shared by the handles of a tree.

use pando_index::Result;
use pando_tree::checked::damaged;

use crate::volatile::node::Root;

/// The layers in process memory, which all handles of one tree share.
#[derive(Debug)]
pub(crate) struct Layers {
    /// The root, and the retired nodes.
    pub root: Root,
    /// Why the layers could not be rebuilt from the blocks.
    pub damage: Option<Damaged>,
}

impl Layers {
    /// Refuses an operation on a tree whose layers could not be rebuilt.
    #[inline(always)]
    pub fn check(&self) -> Result<()> {
        match self.damage {
            None => Ok(()),
            Some(Damaged { off, what }) => Err(damaged(off, what)),
        }
    }
}

/// The place and kind of damage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damaged {
    pub off: u64,
    pub what: &'static str,
}
