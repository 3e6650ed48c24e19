//! A subject in a domain, as a trial knows it: by its model alone.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use pando_device::simulated::Simulated;
use pando_pmem::Pool;
use pando_pmem::testing::{Arena, with_few_slots};

use crate::lab::LabDomain;
use crate::lab::domain::set_write_back;
use crate::subjects::{Model, Observed, Opened, Subject};

/// A subject in an open pool.
pub(super) type Open<M> = Arc<dyn Opened<M>>;

/// A subject of this model in a domain.
pub(super) trait AnySubject<M: Model> {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Whether it survives crashes.
    fn survives(&self) -> bool;

    /// Size of its pool.
    fn pool_bytes(&self) -> u64;

    /// Whether lines must be written back.
    fn needs_write_back(&self) -> bool;

    /// Creates a pool with so many slots at first in the arena.
    fn create(&self, arena: &Rc<Arena>, slots: usize, files: &Simulated)
    -> Result<Open<M>, String>;

    /// Opens the pool in the arena.
    fn open(&self, arena: &Rc<Arena>, slots: usize, files: &Simulated) -> Result<Open<M>, String>;

    /// Rebuilds the subject from its files alone; `None` if it has no files.
    fn rebuild(&self, files: &Simulated) -> Result<Option<Observed<M>>, String>;
}

/// The subject `S`, with write-backs or without.
pub(super) struct In<S> {
    pub needs_write_back: bool,
    pub subject: PhantomData<S>,
}

impl<S: Subject> In<S> {
    /// Opens the subject in the pool that `pool` makes.
    fn opened(
        &self,
        slots: usize,
        files: &Simulated,
        pool: impl FnOnce() -> pando_pmem::Result<Arc<Pool<LabDomain>>>,
    ) -> Result<Open<S::Model>, String> {
        set_write_back(self.needs_write_back);
        let pool = with_few_slots(slots, pool).map_err(|error| error.to_string())?;
        Ok(Arc::new(S::open(pool, files)?))
    }
}

impl<S: Subject> AnySubject<S::Model> for In<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn survives(&self) -> bool {
        S::SURVIVES
    }

    fn pool_bytes(&self) -> u64 {
        S::POOL_BYTES
    }

    fn needs_write_back(&self) -> bool {
        self.needs_write_back
    }

    fn create(
        &self,
        arena: &Rc<Arena>,
        slots: usize,
        files: &Simulated,
    ) -> Result<Open<S::Model>, String> {
        self.opened(slots, files, || Pool::create_in(arena))
    }

    fn open(
        &self,
        arena: &Rc<Arena>,
        slots: usize,
        files: &Simulated,
    ) -> Result<Open<S::Model>, String> {
        self.opened(slots, files, || Pool::open_in(arena))
    }

    fn rebuild(&self, files: &Simulated) -> Result<Option<Observed<S::Model>>, String> {
        S::rebuild(files)
    }
}
