//! The subject of the suite, and the data of a case.

use super::random::Random;
use super::reference::Reference;
use crate::RangeIndex;

/// An index under test, with everything that it needs: a pool, a temporary folder.
pub trait Subject {
    /// The index.
    fn index(&self) -> &dyn RangeIndex;

    /// Panics if an invariant of the index is broken or a block has leaked. No other thread uses
    /// the index while it runs.
    fn check(&self) {}

    /// The part of the work that it gets. Less than 1 if the cost of a write depends on the length
    /// of the map, so that the suite's maps are too large.
    fn scale(&self) -> f64 {
        1.0
    }
}

impl Subject for Box<dyn RangeIndex> {
    fn index(&self) -> &dyn RangeIndex {
        self.as_ref()
    }
}

impl Subject for Reference {
    fn index(&self) -> &dyn RangeIndex {
        self
    }
}

/// Makes fresh, empty subjects; every `Fn() -> impl Subject` is one.
pub trait Factory {
    /// A subject with an empty index, which no other test uses.
    fn create(&self) -> Box<dyn Subject>;
}

impl<Make, Made> Factory for Make
where
    Make: Fn() -> Made,
    Made: Subject + 'static,
{
    fn create(&self) -> Box<dyn Subject> {
        Box::new(self())
    }
}

/// The data of a case: fresh indexes, random numbers, and the amount of work.
pub(super) struct Trial<'factory> {
    pub(super) factory: &'factory dyn Factory,
    pub(super) random: Random,
    /// Whether to search for a smaller failure after one.
    pub(super) shrinks: bool,
    /// The factor of all counts.
    pub(super) scale: f64,
}

impl Trial<'_> {
    /// `count`, multiplied by `PANDO_CONFORMANCE_SCALE` and [`Subject::scale`], and at least one.
    pub(super) fn scaled(&self, count: usize) -> usize {
        ((count as f64 * self.scale) as usize).max(1)
    }

    /// Runs `body` on a fresh index, then the index's own check.
    pub(super) fn on_fresh_index(&mut self, body: impl FnOnce(&dyn RangeIndex, &mut Random)) {
        let subject = self.factory.create();
        body(subject.index(), &mut self.random);
        subject.check();
    }
}
