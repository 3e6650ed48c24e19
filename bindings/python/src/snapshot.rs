//! Snapshots.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use crate::failure::{Failure, Outcome};
use crate::handle::{Handle, Opened, locked};
use crate::map::PyMap;
use crate::ranges::Range;
use crate::scan::{Part, PyScan, Records};
use crate::snapshot_cell::SnapshotCell;
use crate::values;

/// The transactional maps of a pool at one moment, while others go on. Ends at the end of `with`,
/// or when it is collected.
///
/// >>> import pando
/// >>> pool = pando.Pool.volatile()
/// >>> trees = pool.map("trees", key=str, transactional=True)
/// >>> with pool.snapshot() as before:
/// ...     trees["ash"] = b"1"
/// ...     before.get(trees, "ash"), list(before.scan(trees))
/// (None, [])
#[pyclass(module = "pando", name = "Snapshot", frozen)]
pub struct PySnapshot {
    snapshot: Arc<Handle<Mutex<Option<Arc<SnapshotCell>>>>>,
    opened: Arc<Opened>,
}

impl PySnapshot {
    pub fn take(py: Python<'_>, opened: &Arc<Opened>) -> PyResult<Self> {
        let take = |pool: &pando::Pool| {
            let cell = SnapshotCell::try_new(pool.clone(), pando::Pool::snapshot)?;
            Ok(Mutex::new(Some(Arc::new(cell))))
        };
        let taken = py.detach(|| opened.object("snapshot", take));
        let snapshot = taken.map_err(|failure| failure.raise(py))?;
        Ok(Self { snapshot, opened: Arc::clone(opened) })
    }

    fn cell(&self) -> Outcome<Arc<SnapshotCell>> {
        self.snapshot.with(|cell| locked(cell).clone().ok_or(Failure::Closed("snapshot")))
    }
}

#[pymethods]
impl PySnapshot {
    /// The log sequence number of the newest commit of the snapshot.
    #[getter]
    fn lsn(&self, py: Python<'_>) -> PyResult<u64> {
        let cell = self.cell().map_err(|failure| failure.raise(py))?;
        Ok(cell.borrow_dependent().lsn())
    }

    /// The value that the key had, or `default`.
    #[pyo3(signature = (map, key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        map: &Bound<'py, PyMap>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let map = map.get();
        let key = map.key.encode(key)?;
        let run = || {
            let cell = self.cell()?;
            map.map.with(|map| Ok(cell.borrow_dependent().get(map, &key)?))
        };
        let value: Option<Vec<u8>> = py.detach(run).map_err(|failure| failure.raise(py))?;
        Ok(values::or_default(py, value.as_deref(), default))
    }

    /// The records that the map had; otherwise as `Map.scan`. The scan keeps the snapshot.
    #[pyo3(signature = (map, start=None, stop=None, *, prefix=None, reverse=false))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        map: &Bound<'py, PyMap>,
        start: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyAny>>,
        prefix: Option<&Bound<'py, PyAny>>,
        reverse: bool,
    ) -> PyResult<PyScan> {
        let map = map.get();
        let Range { keys, order } = Range::of(py, &map.key, start, stop, prefix, reverse)?;
        let begin = || {
            let cell = self.cell()?;
            let records = map.map.with(|map| Ok(Records::of_snapshot(cell, map, keys)))?;
            self.opened.object("scan", |_| Ok(Mutex::new(records)))
        };
        let records = begin().map_err(|failure| failure.raise(py))?;
        Ok(PyScan { records, order, key: map.key.clone(), part: Part::Both, waits: map.waits })
    }

    /// Ends the snapshot when its scans have ended. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        let run = || {
            self.snapshot.with(|cell| {
                locked(cell).take();
                Ok(())
            })
        };
        // If the pool is closed, or belongs to the parent, there is nothing to end.
        let _ = py.detach(run);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }
}
