//! The next part of a dropped map to be freed, as an index describes it (`teardown.rs`).

use pando_pmem::Domain;
use pando_pmwcas::MAX_WORDS;

use crate::context::Context;

use super::options::{OptionSpec, OptionValues};

/// A word that changes when a unit is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its offset.
    pub off: u64,
    /// Its present value.
    pub old: u64,
    /// Its new value, which it has never had.
    pub new: u64,
}

/// The next part of a dropped map to be freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The word that leads to the unit; it changes to zero, or leads to the next part.
    pub leading: Change,
    /// Another word that must change with it.
    pub other: Option<Change>,
    /// Blocks that only the unit leads to. Their order is always the same until the unit is freed,
    /// whichever of them are free by then.
    pub owned: Vec<u64>,
    /// The blocks of the unit itself, at most [`MAX_OWN`](Self::MAX_OWN).
    pub own: Vec<u64>,
}

impl Unit {
    /// The most own blocks of a unit: as many as one operation can free; one less if another word
    /// changes.
    pub const MAX_OWN: usize = MAX_WORDS - 1;

    /// The unit of the block at `block`. The word at `off`, which has the value `old`, leads to it,
    /// and changes to `new`.
    pub fn of_block(off: u64, old: u64, new: u64, block: u64) -> Self {
        Self { leading: Change { off, old, new }, other: None, owned: Vec::new(), own: vec![block] }
    }

    /// No unit that can be freed: the word at `off`, with the value `old`, leads to none.
    pub fn passed_over(off: u64, old: u64) -> Self {
        let leading = Change { off, old, new: 0 };
        Self { leading, other: None, owned: Vec::new(), own: Vec::new() }
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        [Some(self.leading), self.other].into_iter().flatten()
    }
}

/// Returns the next unit of a map, given the offset of its entry word, which is not zero.
pub type NextUnit<D> = fn(Context<'_, D>, u64, &OptionValues) -> Unit;

/// An index whose dropped maps can be freed.
#[derive(Clone, Copy, Debug)]
pub struct KnownKind<D: Domain> {
    /// Its number in the catalog.
    pub number: u64,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Returns the next unit.
    pub next_unit: NextUnit<D>,
}
