//! What an index tells of a dropped map: which of its parts goes next (`teardown.rs`).

use pando_pmem::Domain;
use pando_pmwcas::MAX_WORDS;

use crate::context::Context;

use super::options::{OptionSpec, OptionValues};

/// A word that changes as a unit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its offset.
    pub off: u64,
    /// What it holds.
    pub old: u64,
    /// What it is to hold, which it has never held.
    pub new: u64,
}

/// The part of a dropped map that goes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The word that leads to the unit, to be changed to zero or to what follows.
    pub leading: Change,
    /// Another word that has to change with it.
    pub other: Option<Change>,
    /// Blocks that only the unit leads to, in an order that is the same until the unit is gone,
    /// whichever of them are free by then.
    pub owned: Vec<u64>,
    /// The blocks of the unit itself, at most [`MAX_OWN`](Self::MAX_OWN).
    pub own: Vec<u64>,
}

impl Unit {
    /// Most blocks of a unit itself: what one operation can free; one less if another word changes.
    pub const MAX_OWN: usize = MAX_WORDS - 1;

    /// The block at `block`, to which the word at `off` leads that holds `old`; the word becomes
    /// `new`.
    pub fn of_block(off: u64, old: u64, new: u64, block: u64) -> Self {
        Self { leading: Change { off, old, new }, other: None, owned: Vec::new(), own: vec![block] }
    }

    /// Nothing that can be freed: the word at `off`, which holds `old`, leads to no unit.
    pub fn passed_over(off: u64, old: u64) -> Self {
        let leading = Change { off, old, new: 0 };
        Self { leading, other: None, owned: Vec::new(), own: Vec::new() }
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        [Some(self.leading), self.other].into_iter().flatten()
    }
}

/// Which unit of a map goes next, given the offset of its entry word, which is not zero.
pub type NextUnit<D> = fn(Context<'_, D>, u64, &OptionValues) -> Unit;

/// A kind of index whose dropped maps can be freed.
#[derive(Clone, Copy, Debug)]
pub struct KnownKind<D: Domain> {
    /// Its number in the catalog.
    pub number: u64,
    /// What a user may set of it.
    pub options: &'static [OptionSpec],
    /// Which unit goes next.
    pub next_unit: NextUnit<D>,
}
