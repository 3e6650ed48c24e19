//! Pools and stores.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pando::{Acknowledge, MapOptions, Pool, PoolOptions, Store, StoreFiles};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::failure::{Failure, exception};
use crate::handle::Opened;
use crate::keys::KeyType;
use crate::map::PyMap;
use crate::pin::PyPin;
use crate::session::{PyBatch, PySession};
use crate::snapshot::PySnapshot;
use crate::transaction::{PyTransaction, isolation};

/// How often `run` runs a transaction.
const ATTEMPTS: usize = 1024;

/// Named maps in one file, that survive `kill -9` at any instant.
///
/// `mode` is "a" to open the pool, or to create it if there is none; "r+" to open it, and "x" to
/// create it. With `shared`, up to 256 processes may have it open, if each of them sets it. Sizes
/// are in bytes: `max_bytes` is 1 MiB to 16 TiB, 64 GiB by default, and fixed when the pool is
/// created. `log` is the directory of a log, by which transactional maps survive a power cut.
/// With `synced`, writes to transactional maps return when they do. Snapshots are revoked beyond
/// `snapshot_max_age` (seconds) and `snapshot_max_bytes`.
///
/// At the end of `with`, and by `close`, all of its maps, scans, transactions and snapshots are
/// closed too.
///
/// >>> import pando, tempfile, os
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> path = os.path.join(folder.name, "grove.pando")
/// >>> with pando.Pool(path) as pool:
/// ...     pool.map("trees", key=str)["aspen"] = b"Populus tremuloides"
/// >>> with pando.Pool(path, mode="r+") as pool:
/// ...     pool.map("trees", key=str)["aspen"]
/// b'Populus tremuloides'
#[pyclass(module = "pando", name = "Pool", subclass, frozen, weakref)]
pub struct PyPool {
    opened: Arc<Opened>,
    /// What a copy in another process opens.
    again: Option<Again>,
    /// Whether a call on records may wait for a disk.
    waits: bool,
}

#[derive(Clone)]
enum Again {
    Pool { path: PathBuf, shared: bool, log: Option<PathBuf>, synced: bool },
    Store { path: PathBuf, mode: StoreMode, memory_bytes: u64, synced: bool },
}

/// How a store is opened.
#[derive(Clone, Copy)]
enum StoreMode {
    Append,
    Read,
}

impl StoreMode {
    fn of(py: Python<'_>, name: &str) -> PyResult<Self> {
        match name {
            "a" => Ok(Self::Append),
            "r" => Ok(Self::Read),
            other => Err(option(py, format!("the mode is {other:?}; allowed is \"a\" or \"r\""))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Append => "a",
            Self::Read => "r",
        }
    }
}

impl PyPool {
    fn opened_by(pool: Pool, again: Option<Again>, waits: bool) -> Self {
        Self { opened: Arc::new(Opened::new(pool)), again, waits }
    }

    fn long<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&Pool) -> Result<R, pando::Error> + Send,
    ) -> PyResult<R> {
        let run = || self.opened.with(|pool| Ok(body(pool)?));
        py.detach(run).map_err(|failure| failure.raise(py))
    }

    /// A report as objects of Python.
    fn report<'py>(
        &self,
        py: Python<'py>,
        body: impl FnOnce(&Pool) -> Result<Result<String, serde_json::Error>, pando::Error> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let text = self.long(py, body)?;
        let text = text.map_err(|error| exception(py, "Error", error.to_string()))?;
        PyModule::import(py, "json")?.getattr("loads")?.call1((text,))
    }
}

/// The path by which a worker of another folder opens the same file.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn option(py: Python<'_>, message: String) -> PyErr {
    exception(py, "OptionError", message)
}

fn limited(
    py: Python<'_>,
    options: PoolOptions,
    max_age: Option<f64>,
    max_bytes: Option<u64>,
) -> PyResult<PoolOptions> {
    let age = match max_age {
        None => Duration::from_secs(3600),
        Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| {
            option(py, format!("snapshot_max_age is {seconds}; allowed is a number of seconds"))
        })?,
    };
    Ok(options.snapshot_limits(age, max_bytes.unwrap_or(1 << 30)))
}

fn acknowledge(synced: bool) -> Acknowledge {
    if synced { Acknowledge::Synced } else { Acknowledge::Buffered }
}

#[pymethods]
impl PyPool {
    #[new]
    #[pyo3(signature = (
        path, *, mode="a", shared=false, max_bytes=None, initial_bytes=None, log=None,
        synced=false, snapshot_max_age=None, snapshot_max_bytes=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        mode: &str,
        shared: bool,
        max_bytes: Option<u64>,
        initial_bytes: Option<u64>,
        log: Option<PathBuf>,
        synced: bool,
        snapshot_max_age: Option<f64>,
        snapshot_max_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let (path, log) = (absolute(path), log.map(absolute));
        let mut options = PoolOptions::new().shared(shared).acknowledge(acknowledge(synced));
        if let Some(bytes) = max_bytes {
            options = options.max_bytes(bytes);
        }
        if let Some(bytes) = initial_bytes {
            options = options.initial_bytes(bytes);
        }
        if let Some(log) = &log {
            options = options.log(log);
        }
        let options = limited(py, options, snapshot_max_age, snapshot_max_bytes)?;
        if !["a", "r+", "x"].contains(&mode) {
            let message = format!("the mode is {mode:?}; allowed is \"a\", \"r+\" or \"x\"");
            return Err(option(py, message));
        }
        let pool = py.detach(|| match mode {
            "r+" => Pool::open(&path, &options),
            "x" => Pool::create(&path, &options),
            _ => Pool::open_or_create(&path, &options),
        });
        let pool = pool.map_err(|error| Failure::from(error).raise(py))?;
        let again = Some(Again::Pool { path, shared, log, synced });
        Ok(Self::opened_by(pool, again, synced))
    }

    /// A pool in the memory of the process, which ends with it. It is not for other processes.
    #[staticmethod]
    #[pyo3(signature = (*, max_bytes=None, snapshot_max_age=None, snapshot_max_bytes=None))]
    fn volatile(
        py: Python<'_>,
        max_bytes: Option<u64>,
        snapshot_max_age: Option<f64>,
        snapshot_max_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let mut options = PoolOptions::new();
        if let Some(bytes) = max_bytes {
            options = options.max_bytes(bytes);
        }
        let options = limited(py, options, snapshot_max_age, snapshot_max_bytes)?;
        let pool = Pool::volatile(&options).map_err(|error| Failure::from(error).raise(py))?;
        Ok(Self::opened_by(pool, None, false))
    }

    /// Creates a pool at `path` from a backup, with a new log in the directory `log`.
    #[staticmethod]
    #[pyo3(signature = (backup, path, *, log, max_bytes=None))]
    fn restore(
        py: Python<'_>,
        backup: PathBuf,
        path: PathBuf,
        log: PathBuf,
        max_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let (path, log) = (absolute(path), absolute(log));
        let mut options = PoolOptions::new().log(&log);
        if let Some(bytes) = max_bytes {
            options = options.max_bytes(bytes);
        }
        let pool = py.detach(|| Pool::restore(&backup, &path, &options));
        let pool = pool.map_err(|error| Failure::from(error).raise(py))?;
        let again = Again::Pool { path, shared: false, log: Some(log), synced: false };
        Ok(Self::opened_by(pool, Some(again), false))
    }

    /// The path of the pool or store; `None` of a volatile pool.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.again.as_ref().map(|again| match again {
            Again::Pool { path, .. } | Again::Store { path, .. } => path.clone(),
        })
    }

    /// Whether other processes may have the pool open too.
    #[getter]
    fn is_shared(&self, py: Python<'_>) -> PyResult<bool> {
        self.long(py, |pool| Ok(pool.is_shared()))
    }

    /// Whether the pool is closed, or belongs to the parent of this process.
    #[getter]
    fn closed(&self) -> bool {
        self.opened.with(|_| Ok(())).is_err()
    }

    fn __repr__(&self) -> String {
        match self.path() {
            Some(path) => format!("<pando.Pool {:?}>", path.display().to_string()),
            None => "<pando.Pool in memory>".to_owned(),
        }
    }

    /// A copy opens the pool or store at its path.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let Some(again) = slf.get().again.clone() else {
            let message = "a pool in the memory of this process cannot be opened by another one";
            return Err(pyo3::exceptions::PyTypeError::new_err(message));
        };
        let module = PyModule::import(py, "pando._pando")?;
        let options = PyDict::new(py);
        let (class, path) = match again {
            Again::Pool { path, shared, log, synced } => {
                options.set_item("mode", "r+")?;
                options.set_item("shared", shared)?;
                options.set_item("log", log)?;
                options.set_item("synced", synced)?;
                ("Pool", path)
            }
            Again::Store { path, mode, memory_bytes, synced } => {
                options.set_item("mode", mode.name())?;
                options.set_item("memory_bytes", memory_bytes)?;
                options.set_item("synced", synced)?;
                ("Store", path)
            }
        };
        let class = module.getattr(class)?;
        Ok((module.getattr("_reopen")?, (class, path, options).into_pyobject(py)?))
    }

    /// Opens the map of that name, or creates it. `key` is the type of its keys: `bytes` (the
    /// default), `str`, `int` (64 bits), `float`, `bool`, `uuid.UUID`, `datetime.datetime`,
    /// `tuple[...]` or `X | None` of these, or the name of a type of `docs/typed-keys.md`. The pool
    /// does not store it. `index` is "bztree" by default; `options` are those of the index.
    #[pyo3(signature = (name, key=None, *, index=None, transactional=None, options=None))]
    fn map(
        slf: &Bound<'_, Self>,
        name: &str,
        key: Option<&Bound<'_, PyAny>>,
        index: Option<String>,
        transactional: Option<bool>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyMap> {
        let mut built = MapOptions::new();
        if let Some(index) = index {
            built = built.index(index);
        }
        if let Some(is_transactional) = transactional {
            built = built.transactional(is_transactional);
        }
        for (name, value) in options.into_iter().flatten() {
            built = built.set(name.extract::<String>()?, value.str()?.to_string());
        }
        let open = |pool: &Pool| Ok(pool.map_with(name, &built)?);
        let pool = slf.get();
        PyMap::new(slf.as_any(), &pool.opened, pool.waits, KeyType::of(key)?, name, open)
    }

    /// Opens the map of that name, which must exist; `key` as in `map`.
    #[pyo3(signature = (name, key=None))]
    fn open_map(
        slf: &Bound<'_, Self>,
        name: &str,
        key: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyMap> {
        let (pool, open) = (slf.get(), |pool: &Pool| Ok(pool.open_map(name)?));
        PyMap::new(slf.as_any(), &pool.opened, pool.waits, KeyType::of(key)?, name, open)
    }

    /// Drops the map of that name, of which no object may be held.
    fn drop_map(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.long(py, |pool| pool.drop_map(name))
    }

    /// The maps, as a list of dicts.
    fn maps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.report(py, |pool| Ok(serde_json::to_string(&pool.maps()?)))
    }

    /// The figures of the pool, as a dict. It visits all nodes of the maps.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.report(py, |pool| Ok(serde_json::to_string(&pool.stat()?)))
    }

    /// Checks the whole pool, and returns a dict whose `problems` is empty if there is none. Nobody
    /// else may use the pool meanwhile.
    fn check<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.report(py, |pool| Ok(serde_json::to_string(&pool.check()?)))
    }

    /// Waits until all commits so far survive a power cut, and returns the log sequence number of
    /// the newest of them.
    fn sync(&self, py: Python<'_>) -> PyResult<u64> {
        self.long(py, Pool::sync)
    }

    /// Waits until all commits up to `lsn` survive a power cut.
    fn sync_to(&self, py: Python<'_>, lsn: u64) -> PyResult<()> {
        self.long(py, |pool| pool.sync_to(lsn))
    }

    /// The log sequence number up to which all commits survive a power cut.
    #[getter]
    fn durable_lsn(&self, py: Python<'_>) -> PyResult<u64> {
        self.long(py, Pool::durable_lsn)
    }

    /// Writes an image of the transactional maps to the log, so that a recovery is faster.
    fn write_image(&self, py: Python<'_>) -> PyResult<()> {
        self.long(py, Pool::write_image)
    }

    /// Copies all commits so far into the new directory `to`, and returns the log sequence number
    /// of the newest of them. Of a store it is an error.
    fn backup(&self, py: Python<'_>, to: PathBuf) -> PyResult<u64> {
        self.long(py, |pool| pool.backup(&to))
    }

    /// Begins a transaction, for `with`. `isolation` is "serializable", or "snapshot", by which
    /// reads are of one moment and never conflict.
    #[pyo3(signature = (*, isolation="serializable"))]
    fn transaction(&self, py: Python<'_>, isolation: &str) -> PyResult<PyTransaction> {
        PyTransaction::begin(py, &self.opened, self::isolation(py, isolation)?)
    }

    /// Runs `body` with a transaction, commits it, and returns its result. If it conflicts with
    /// another one, `body` runs again, up to 1,024 times. Each run has a `Transaction` of its own;
    /// for the log sequence number of the commit, `body` returns it beside its result:
    ///
    /// >>> import pando
    /// >>> pool = pando.Pool.volatile()
    /// >>> counts = pool.map("counts", key=str, transactional=True)
    /// >>> def count(tx):
    /// ...     visits = int(tx.get(counts, "visits", b"0")) + 1
    /// ...     tx.put(counts, "visits", b"%d" % visits)
    /// ...     return visits
    /// >>> pool.run(count), pool.run(count)
    /// (1, 2)
    /// >>> visits, tx = pool.run(lambda tx: (count(tx), tx))
    /// >>> visits, tx.lsn > 0
    /// (3, True)
    #[pyo3(signature = (body, *, isolation="serializable"))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        body: &Bound<'py, PyAny>,
        isolation: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let isolation = self::isolation(py, isolation)?;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let transaction = Bound::new(py, PyTransaction::begin(py, &self.opened, isolation)?)?;
            let result = match body.call1((&transaction,)) {
                Ok(result) => result,
                Err(raised) => {
                    transaction.get().end(py);
                    return Err(raised);
                }
            };
            match transaction.get().commit_outcome(py) {
                Ok(_) => return Ok(result),
                Err(conflict @ Failure::Pando(pando::Error::Conflict { .. })) => {
                    last = Some(conflict);
                }
                Err(failure) => return Err(failure.raise(py)),
            }
        }
        Err(last.map_or_else(|| option(py, "no attempt".to_owned()), |last| last.raise(py)))
    }

    /// Takes a snapshot of the transactional maps, for `with`.
    fn snapshot(&self, py: Python<'_>) -> PyResult<PySnapshot> {
        PySnapshot::take(py, &self.opened)
    }

    /// Lends values as views without a copy, for `with`: see `Pin`.
    fn pin(&self, py: Python<'_>) -> PyResult<PyPin> {
        PyPin::begin(py, &self.opened)
    }

    /// Applies a batch as one commit, and returns its log sequence number. `ConditionFailedError`
    /// if one of its conditions does not hold.
    fn write(&self, py: Python<'_>, batch: &Bound<'_, PyBatch>) -> PyResult<u64> {
        let batch = batch.get().made(py)?;
        self.long(py, |pool| pool.write(&batch))
    }

    /// Begins a session, which stays in the pool until `Session.end`.
    fn new_session(&self, py: Python<'_>) -> PyResult<PySession> {
        PySession::open(py, &self.opened, None)
    }

    /// The session of that number.
    fn session(&self, py: Python<'_>, id: &str) -> PyResult<PySession> {
        let id = id.parse().map_err(|error| Failure::Pando(error).raise(py))?;
        PySession::open(py, &self.opened, Some(id))
    }

    /// Closes the pool and all objects of it. It waits for calls in other threads. A second call,
    /// or one in a forked child, does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.opened.close()).map_err(|failure| failure.raise(py))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

/// Named maps in a directory, of which memory has only some pages: they may be larger than memory.
/// All of them are transactional. `memory_bytes` is 16 MiB or more. It has the methods of a `Pool`.
///
/// `mode` is "a" to open the store, or to create it if there is none; "r" to open it for reading
/// alone, and then no file is changed. Any number of processes may read a store at once, and none
/// may write it meanwhile. Writes are `ReadOnlyError`, and the options but `memory_bytes` are not
/// looked at.
///
/// >>> import pando, tempfile
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> with pando.Store(folder.name + "/store", memory_bytes=16 << 20) as store:
/// ...     trees = store.map("trees", key=str)
/// ...     trees["ash"] = b"Fraxinus"
/// ...     lsn = store.sync()
/// ...     trees["ash"]
/// b'Fraxinus'
#[pyclass(module = "pando", name = "Store", extends = PyPool, frozen)]
pub struct PyStore;

#[pymethods]
impl PyStore {
    #[new]
    #[pyo3(signature = (
        path, *, mode="a", memory_bytes=256 << 20, synced=false, snapshot_max_age=None,
        snapshot_max_bytes=None
    ))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        mode: &str,
        memory_bytes: u64,
        synced: bool,
        snapshot_max_age: Option<f64>,
        snapshot_max_bytes: Option<u64>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let path = absolute(path);
        let options = PoolOptions::new().acknowledge(acknowledge(synced));
        let options = limited(py, options, snapshot_max_age, snapshot_max_bytes)?;
        let mode = StoreMode::of(py, mode)?;
        let store = py.detach(|| match mode {
            StoreMode::Append => Store::open_with(&path, memory_bytes, &options),
            StoreMode::Read => StoreFiles::at(&path).open(memory_bytes),
        });
        let store = store.map_err(|error| Failure::from(error).raise(py))?;
        let again = Some(Again::Store { path, mode, memory_bytes, synced });
        let pool = PyPool::opened_by(store.into_pool(), again, true);
        Ok(PyClassInitializer::from(pool).add_subclass(Self))
    }
}

/// Opens a pool or a store that was pickled.
#[pyfunction]
pub fn _reopen<'py>(
    class: &Bound<'py, PyAny>,
    path: PathBuf,
    options: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let path = path.into_bound_py_any(class.py())?;
    class.call((path,), Some(options))
}

/// Opens a map that was pickled.
#[pyfunction]
#[pyo3(signature = (pool, name, key, synced=false))]
pub fn _reopen_map(
    pool: &Bound<'_, PyPool>,
    name: &str,
    key: &Bound<'_, PyAny>,
    synced: bool,
) -> PyResult<PyMap> {
    let map = PyPool::open_map(pool, name, Some(key))?;
    if synced { map.synced(pool.py()) } else { Ok(map) }
}
