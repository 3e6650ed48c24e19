//! The Python package of Pando. `docs/python.md` is the page for users; the classes are documented
//! here, and their docstrings are tested. `python/pando` has the errors and the stubs.
//!
//! Each object of a pool is behind a [`handle::Handle`], which knows whether its pool is closed and
//! whether the process has forked. Calls that may take long, or wait for a disk, release the
//! interpreter's lock. Nothing in this crate needs that lock to be correct.
#![deny(unsafe_code)]

mod failure;
mod handle;
mod keys;
mod map;
mod pin;
mod pool;
mod ranges;
mod scan;
mod session;
mod snapshot;
mod snapshot_cell;
mod transaction;
mod values;
mod view;

/// The classes of the package `pando`.
#[pyo3::pymodule(gil_used = false)]
mod _pando {
    #[pymodule_export]
    use crate::map::PyMap;
    #[pymodule_export]
    use crate::pin::PyPin;
    #[pymodule_export]
    use crate::pool::{_reopen, _reopen_map, PyPool, PyStore};
    #[pymodule_export]
    use crate::scan::PyScan;
    #[pymodule_export]
    use crate::session::{PyBatch, PySession};
    #[pymodule_export]
    use crate::snapshot::PySnapshot;
    #[pymodule_export]
    use crate::transaction::PyTransaction;
}
