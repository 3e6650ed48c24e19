//! The blocks that a change of a record allocates and frees.

use pando_pmem::{Domain, Reservation};
use pando_pmwcas::{Descriptor, Policy, Result};

/// A block that is reserved, and freed again unless a change takes it.
pub type NewBlock<'op, D> = Reservation<'op, 'op, D>;

/// A new block, or why the pool has no room for it.
pub type Reserved<'op, D> = pando_pmem::Result<NewBlock<'op, D>>;

/// A block that a change allocates, and one that it frees.
#[derive(Debug)]
pub struct Blocks<'op, D: Domain> {
    /// The new one.
    pub new: Option<NewBlock<'op, D>>,
    /// The offset of the old one; zero if there is none.
    pub old: u64,
}

impl<'op, D: Domain> Blocks<'op, D> {
    /// No block.
    pub const NONE: Self = Self { new: None, old: 0 };

    /// Whether there is no block.
    #[inline(always)]
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.new.is_none() && self.old == 0
    }

    /// Makes the operation own the blocks: if it succeeds, the new one is allocated and the old one
    /// freed; if it fails, the reverse.
    ///
    /// # Errors
    ///
    /// If the operation has no room for them.
    #[inline(always)]
    pub fn give_to(self, operation: &mut Descriptor<'_, 'op, D>) -> Result<()> {
        if self.is_none() {
            return Ok(());
        }
        let Self { new, old } = self;
        let policy = if old == 0 { Policy::FreeNewOnFailure } else { Policy::FreeOldOnSuccess };
        let entry = operation.own_block(old, policy)?;
        if let Some(block) = new {
            operation.activate(entry, block);
        }
        Ok(())
    }
}
