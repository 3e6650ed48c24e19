//! Batches, and sessions that apply each batch once.

use std::sync::{Arc, Mutex};

use pando::{Outcome as Applied, Session, SessionId, WriteBatch};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::handle::{Handle, Opened, locked};
use crate::map::PyMap;
use crate::values;

/// Writes of several keys, and conditions on keys, that take place as one commit (`Pool.write`), or
/// once for each number of a session (`Session.apply`). Each method returns the batch.
///
/// >>> import pando
/// >>> pool = pando.Pool.volatile()
/// >>> trees = pool.map("trees", key=str, transactional=True)
/// >>> batch = pando.WriteBatch().require(trees, "ash", None).put(trees, "ash", b"1")
/// >>> lsn = pool.write(batch)
/// >>> try:
/// ...     pool.write(batch)
/// ... except pando.ConditionFailedError as error:
/// ...     error.key
/// b'ash'
#[pyclass(module = "pando", name = "WriteBatch", frozen)]
#[derive(Default)]
pub struct PyBatch {
    /// The steps, of which each has the bytes of a key, and what becomes of it.
    steps: Mutex<Vec<Step>>,
}

struct Step {
    map: Py<PyMap>,
    key: Vec<u8>,
    kind: Kind,
}

enum Kind {
    Put(Vec<u8>),
    Remove,
    Require(Option<Vec<u8>>),
}

impl PyBatch {
    fn push(&self, map: &Bound<'_, PyMap>, key: &Bound<'_, PyAny>, kind: Kind) -> PyResult<()> {
        let key = map.get().key.encode(key)?.into_owned();
        let step = Step { map: map.clone().unbind(), key, kind };
        locked(&self.steps).push(step);
        Ok(())
    }

    /// The batch for the pool.
    pub fn made(&self, py: Python<'_>) -> PyResult<WriteBatch> {
        let added = |batch: WriteBatch, Step { map, key, kind }: &Step| {
            map.get().map.with(|map| {
                Ok(match kind {
                    Kind::Put(value) => batch.put(map, key, value),
                    Kind::Remove => batch.remove(map, key),
                    Kind::Require(value) => batch.require(map, key, value.as_deref()),
                })
            })
        };
        let steps = locked(&self.steps);
        let made = steps.iter().try_fold(WriteBatch::new(), added);
        // An exception may run anything, such as another call with the batch.
        drop(steps);
        made.map_err(|failure| failure.raise(py))
    }
}

#[pymethods]
impl PyBatch {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Appends: give the key this value.
    fn put<'py>(
        slf: PyRef<'py, Self>,
        map: &Bound<'py, PyMap>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<PyRef<'py, Self>> {
        slf.push(map, key, Kind::Put(values::value(value)?.into_owned()))?;
        Ok(slf)
    }

    /// Appends: remove the key, if it is present.
    fn remove<'py>(
        slf: PyRef<'py, Self>,
        map: &Bound<'py, PyMap>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<PyRef<'py, Self>> {
        slf.push(map, key, Kind::Remove)?;
        Ok(slf)
    }

    /// Appends a condition: before the batch the key has this value, or is absent if it is `None`.
    fn require<'py>(
        slf: PyRef<'py, Self>,
        map: &Bound<'py, PyMap>,
        key: &Bound<'py, PyAny>,
        value: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<PyRef<'py, Self>> {
        let value = value.map(values::value).transpose()?.map(|value| value.into_owned());
        slf.push(map, key, Kind::Require(value))?;
        Ok(slf)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The collector must not wait. If a thread that appends was interrupted, the maps are seen
        // the next time.
        let Ok(steps) = self.steps.try_lock() else { return Ok(()) };
        steps.iter().try_for_each(|step| visit.call(&step.map))
    }

    fn __len__(&self) -> usize {
        locked(&self.steps).len()
    }
}

/// Numbers the batches of a client and applies each number once, however often it is sent. It keeps
/// the outcomes of its newest 128 batches.
///
/// >>> import pando
/// >>> pool = pando.Pool.volatile()
/// >>> trees = pool.map("trees", key=str, transactional=True)
/// >>> session = pool.new_session()
/// >>> batch = pando.WriteBatch().put(trees, "ash", b"1")
/// >>> session.apply(1, batch)
/// 'applied'
/// >>> pool.session(session.id).outcome(1)
/// 'applied'
#[pyclass(module = "pando", name = "Session", frozen)]
pub struct PySession {
    session: Arc<Handle<Session>>,
    id: SessionId,
}

fn word(outcome: Applied) -> &'static str {
    match outcome {
        Applied::Applied { .. } => "applied",
        Applied::ConditionFailed { .. } => "condition failed",
        Applied::NotApplied => "not applied",
    }
}

impl PySession {
    pub fn open(py: Python<'_>, opened: &Opened, id: Option<SessionId>) -> PyResult<Self> {
        let open = |pool: &pando::Pool| {
            Ok(match id {
                None => pool.new_session()?,
                Some(id) => pool.session(id)?,
            })
        };
        let session = py.detach(|| opened.object("session", open));
        let session = session.map_err(|failure| failure.raise(py))?;
        let id = session.with(|session| Ok(session.id())).map_err(|failure| failure.raise(py))?;
        Ok(Self { session, id })
    }
}

#[pymethods]
impl PySession {
    /// The number of the session: 32 hexadecimal digits, which the client keeps.
    #[getter]
    fn id(&self) -> String {
        self.id.to_string()
    }

    /// Applies the batch with that number, or finds that it was applied. Returns "applied", or
    /// "condition failed".
    fn apply(
        &self,
        py: Python<'_>,
        sequence: u64,
        batch: &Bound<'_, PyBatch>,
    ) -> PyResult<&'static str> {
        let batch = batch.get().made(py)?;
        let run = || self.session.with(|session| Ok(session.apply(sequence, &batch)?));
        py.detach(run).map(word).map_err(|failure| failure.raise(py))
    }

    /// The outcome of a number. If it has none, it is closed: "not applied", and no batch is
    /// applied with it later.
    fn outcome(&self, py: Python<'_>, sequence: u64) -> PyResult<&'static str> {
        let run = || self.session.with(|session| Ok(session.outcome(sequence)?));
        py.detach(run).map(word).map_err(|failure| failure.raise(py))
    }

    /// Removes the session and its receipts from the pool.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let run = || self.session.with(|session| Ok(session.clone().end()?));
        py.detach(run).map_err(|failure| failure.raise(py))
    }
}
