//! A subject in a domain, as a trial knows it: by its model alone.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use pando_device::simulated::Simulated;
use pando_pmem::testing::{Arena, with_few_slots};
use pando_pmem::{Domain, Pool};

use crate::lab::LabDomain;
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
pub(super) struct In<S, const WRITE_BACK: bool>(pub PhantomData<S>);

impl<S: Subject, const WRITE_BACK: bool> AnySubject<S::Model> for In<S, WRITE_BACK> {
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
        WRITE_BACK
    }

    fn create(
        &self,
        arena: &Rc<Arena>,
        slots: usize,
        files: &Simulated,
    ) -> Result<Open<S::Model>, String> {
        opened::<S, LabDomain<WRITE_BACK>>(with_few_slots(slots, || Pool::create_in(arena)), files)
    }

    fn open(
        &self,
        arena: &Rc<Arena>,
        slots: usize,
        files: &Simulated,
    ) -> Result<Open<S::Model>, String> {
        opened::<S, LabDomain<WRITE_BACK>>(with_few_slots(slots, || Pool::open_in(arena)), files)
    }

    fn rebuild(&self, files: &Simulated) -> Result<Option<Observed<S::Model>>, String> {
        S::rebuild(files)
    }
}

fn opened<S: Subject, D: Domain>(
    pool: pando_pmem::Result<Arc<Pool<D>>>,
    files: &Simulated,
) -> Result<Open<S::Model>, String> {
    Ok(Arc::new(S::open(pool.map_err(|error| error.to_string())?, files)?))
}
