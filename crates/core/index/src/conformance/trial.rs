//! What the suite is run on, and what a case works with.

use super::random::Random;
use super::reference::Reference;
use crate::RangeIndex;

/// An index under test, with whatever it needs to live: a pool, a temporary folder.
pub trait Subject {
    /// The index.
    fn index(&self) -> &dyn RangeIndex;

    /// Panics if an invariant of the index is broken or a block has leaked. No other thread uses
    /// the index while it runs.
    fn check(&self) {}

    /// What part of the work it is given: less than 1 where a write costs what the whole map is
    /// long, so that the suite's maps are out of proportion.
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
    /// A subject whose index is empty and which nobody else uses.
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

/// What a case works with: fresh indexes, random numbers, and how much work to do.
pub(super) struct Trial<'factory> {
    pub(super) factory: &'factory dyn Factory,
    pub(super) random: Random,
    /// Whether a failure is worth the time of looking for a smaller one.
    pub(super) shrinks: bool,
    /// By which counts are multiplied.
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
