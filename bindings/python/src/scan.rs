//! Scans as iterators.

use std::sync::{Arc, Mutex};

use pando::{Order, Record, Scan};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use self_cell::self_cell;

use crate::failure::Outcome;
use crate::handle::{Handle, alone};
use crate::keys::KeyType;
use crate::snapshot_cell::SnapshotCell;
use crate::values;

self_cell!(
    pub struct SnapshotScan {
        owner: Arc<SnapshotCell>,
        #[not_covariant]
        dependent: Scan,
    }
);

/// The records of a map, or of a snapshot.
pub enum Records {
    Map(Box<Scan<'static>>),
    Snapshot(SnapshotScan),
}

impl Records {
    pub fn of_snapshot(
        snapshot: Arc<SnapshotCell>,
        map: &pando::Map,
        keys: pando::KeyRange,
    ) -> Self {
        Self::Snapshot(SnapshotScan::new(snapshot, |snapshot| {
            snapshot.borrow_dependent().range(map, keys)
        }))
    }

    fn next<R>(
        &mut self,
        order: Order,
        then: impl FnOnce(Option<Record<'_>>) -> R,
    ) -> Result<R, pando::Error> {
        match self {
            Self::Map(scan) => scan.next_record_in(order).map(then),
            Self::Snapshot(scan) => {
                scan.with_dependent_mut(|_, scan| scan.next_record_in(order).map(then))
            }
        }
    }
}

/// What an iterator returns of each record.
#[derive(Clone, Copy)]
pub enum Part {
    Key,
    Value,
    Both,
}

/// The records of a range, in order. Each was in the map at some instant of the scan; a scan of a
/// snapshot has one moment. It may be kept, and is used by one thread at a time.
#[pyclass(module = "pando", name = "Scan", frozen)]
pub struct PyScan {
    pub records: Arc<Handle<Mutex<Records>>>,
    pub order: Order,
    pub key: KeyType,
    pub part: Part,
    /// Whether a record may have to be read from the disk.
    pub waits: bool,
}

#[pymethods]
impl PyScan {
    /// `Scan[str]` in annotations, at run time too.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        record: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        values::generic(class, record)
    }

    fn __iter__(scan: PyRef<'_, Self>) -> PyRef<'_, Self> {
        scan
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // The key becomes an object without the locks of the scan: that may run the collector of
        // Python, and with it anything, such as a close of the pool.
        let (key, value) = if self.waits {
            let owned = |(key, value): Record<'_>| (key.to_vec(), value.to_vec());
            let next = py.detach(|| self.step(owned)).map_err(|failure| failure.raise(py))?;
            let Some((key, value)) = next else { return Ok(None) };
            (key, PyBytes::new(py, &value))
        } else {
            let owned = |(key, value): Record<'_>| (key.to_vec(), PyBytes::new(py, value));
            let next = self.step(owned).map_err(|failure| failure.raise(py))?;
            let Some(next) = next else { return Ok(None) };
            next
        };
        Ok(Some(match self.part {
            Part::Key => self.key.decode(py, &key)?,
            Part::Value => value.into_any(),
            Part::Both => {
                PyTuple::new(py, [self.key.decode(py, &key)?, value.into_any()])?.into_any()
            }
        }))
    }
}

impl PyScan {
    fn step<R>(&self, then: impl FnOnce(Record<'_>) -> R) -> Outcome<Option<R>> {
        let then = |record: Option<Record<'_>>| record.map(then);
        self.records.with(|records| Ok(alone(records, "scan")?.next(self.order, then)?))
    }
}
