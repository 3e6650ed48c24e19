//! Transactions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use pando::{Isolation, Order, Pool, Transaction};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use self_cell::self_cell;

use crate::failure::{Failure, Outcome, exception};
use crate::handle::{Handle, Opened, alone};
use crate::map::PyMap;
use crate::ranges::Range;
use crate::values;

type Open<'pool> = Option<Transaction<'pool>>;

self_cell!(
    pub struct TransactionCell {
        owner: Pool,
        #[not_covariant]
        dependent: Open,
    }
);

/// Reads and writes of several keys that take place as a whole at the end of `with`, or not at all.
/// If `with` ends by an exception, nothing takes place. `ConflictError` if another transaction came
/// first; `Pool.run` runs a function again then.
///
/// >>> import pando
/// >>> pool = pando.Pool.volatile()
/// >>> accounts = pool.map("accounts", key=str, transactional=True)
/// >>> accounts["ash"] = b"70"
/// >>> with pool.transaction() as tx:
/// ...     tx.put(accounts, "elm", tx.get(accounts, "ash"))
/// ...     tx.remove(accounts, "ash")
/// >>> dict(accounts.items())
/// {'elm': b'70'}
/// >>> tx.lsn > 0
/// True
#[pyclass(module = "pando", name = "Transaction", frozen)]
pub struct PyTransaction {
    cell: Arc<Handle<Mutex<TransactionCell>>>,
    /// Whether it was committed or aborted, which outlives a close of the pool.
    is_over: AtomicBool,
    /// Set by the commit. It outlives the pool too.
    lsn: OnceLock<u64>,
}

const NAME: &str = "transaction";

pub fn isolation(py: Python<'_>, name: &str) -> PyResult<Isolation> {
    match name {
        "serializable" => Ok(Isolation::Serializable),
        "snapshot" => Ok(Isolation::Snapshot),
        other => {
            let message =
                format!("the isolation is {other:?}; allowed is \"serializable\" or \"snapshot\"");
            Err(exception(py, "OptionError", message))
        }
    }
}

impl PyTransaction {
    pub fn begin(py: Python<'_>, opened: &Opened, isolation: Isolation) -> PyResult<Self> {
        let begin = |pool: &Pool| {
            let cell =
                TransactionCell::try_new(pool.clone(), |pool| pool.begin_with(isolation).map(Some));
            Ok(Mutex::new(cell?))
        };
        let begun = py.detach(|| opened.object(NAME, begin));
        let cell = begun.map_err(|failure| failure.raise(py))?;
        Ok(Self { cell, is_over: AtomicBool::new(false), lsn: OnceLock::new() })
    }

    fn with<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut Transaction<'_>) -> Outcome<R> + Send,
    ) -> PyResult<R> {
        let run = || {
            self.cell.with(|cell| {
                alone(cell, NAME)?.with_dependent_mut(|_, open| match open {
                    Some(transaction) => body(transaction),
                    None => Err(Failure::Over),
                })
            })
        };
        py.detach(run).map_err(|failure| failure.raise(py))
    }

    pub fn commit_outcome(&self, py: Python<'_>) -> Outcome<u64> {
        py.detach(|| {
            self.cell.with(|cell| {
                let mut cell = alone(cell, NAME)?;
                // Relaxed, here and below: only the value counts.
                self.is_over.store(true, Ordering::Relaxed);
                let committed =
                    cell.with_dependent_mut(|_, open| open.take().map(Transaction::commit));
                let lsn = committed.ok_or(Failure::Over)??;
                // A transaction commits once.
                Ok(*self.lsn.get_or_init(|| lsn))
            })
        })
    }

    pub fn end(&self, py: Python<'_>) {
        let end = || {
            self.cell.with(|cell| {
                alone(cell, NAME)?.with_dependent_mut(|_, open| drop(open.take()));
                self.is_over.store(true, Ordering::Relaxed);
                Ok(())
            })
        };
        // If the pool is closed, or belongs to the parent, there is nothing to end.
        let _ = py.detach(end);
    }
}

#[pymethods]
impl PyTransaction {
    /// The log sequence number of the commit, as `commit` returns it; None before the commit, and
    /// if it has failed. It is readable after `with`, also when the pool is closed. A power cut no
    /// longer undoes the commit when `Pool.durable_lsn` has reached it, or after `Pool.sync_to`.
    #[getter]
    fn lsn(&self) -> Option<u64> {
        self.lsn.get().copied()
    }

    /// The value of the key, as the transaction sees it, or `default`.
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
        let value =
            self.with(py, |transaction| map.map.with(|map| Ok(transaction.get(map, &key)?)))?;
        Ok(values::or_default(py, value.as_deref(), default))
    }

    /// Gives the key this value.
    fn put(
        &self,
        py: Python<'_>,
        map: &Bound<'_, PyMap>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let map = map.get();
        let (key, value) = (map.key.encode(key)?, values::value(value)?);
        self.with(py, |transaction| map.map.with(|map| Ok(transaction.put(map, &key, &value)?)))
    }

    /// Removes the key, if it is present.
    fn remove(
        &self,
        py: Python<'_>,
        map: &Bound<'_, PyMap>,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let map = map.get();
        let key = map.key.encode(key)?;
        self.with(py, |transaction| map.map.with(|map| Ok(transaction.remove(map, &key)?)))
    }

    /// The records of a range, as a list of at most `limit`; otherwise as `Map.scan`. The
    /// transaction conflicts with changes of the part that was read.
    #[pyo3(signature = (map, start=None, stop=None, *, prefix=None, reverse=false, limit=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        map: &Bound<'py, PyMap>,
        start: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyAny>>,
        prefix: Option<&Bound<'py, PyAny>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Bound<'py, PyList>> {
        let map = map.get();
        let Range { keys, order } = Range::of(py, &map.key, start, stop, prefix, reverse)?;
        let limit = limit.unwrap_or(usize::MAX);
        let records = self.with(py, |transaction| {
            map.map.with(|map| {
                let scan = transaction.range(map, keys);
                let records: Result<Vec<_>, pando::Error> = match order {
                    Order::Ascending => scan.take(limit).collect(),
                    Order::Descending => scan.rev().take(limit).collect(),
                };
                Ok(records?)
            })
        })?;
        let records = records
            .iter()
            .map(|(key, value)| Ok((map.key.decode(py, key)?, PyBytes::new(py, value))));
        PyList::new(py, records.collect::<PyResult<Vec<_>>>()?)
    }

    /// Commits the transaction, which is over then, and returns its log sequence number. With
    /// `synced`, it survives a power cut when this returns.
    #[pyo3(signature = (*, synced=false))]
    fn commit(&self, py: Python<'_>, synced: bool) -> PyResult<u64> {
        if synced {
            self.with(py, |transaction| {
                transaction.acknowledge(pando::Acknowledge::Synced);
                Ok(())
            })?;
        }
        self.commit_outcome(py).map_err(|failure| failure.raise(py))
    }

    /// Ends the transaction without its writes. A second call, or one after a commit, does nothing.
    fn abort(&self, py: Python<'_>) {
        self.end(py);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (class, *_raised))]
    fn __exit__(
        &self,
        py: Python<'_>,
        class: &Bound<'_, PyAny>,
        _raised: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        if !class.is_none() {
            self.end(py);
            return Ok(());
        }
        match self.commit_outcome(py) {
            // The program may have committed or aborted it. If it has closed the pool instead,
            // nothing has taken place, which is an error.
            Ok(_) | Err(Failure::Over) => Ok(()),
            Err(Failure::Closed(_)) if self.is_over.load(Ordering::Relaxed) => Ok(()),
            Err(failure) => Err(failure.raise(py)),
        }
    }
}
