//! Maps.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use pando::Order;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple, PyType};

use crate::failure::{Failure, Outcome, exception, missing};
use crate::handle::{Handle, Opened};
use crate::keys::KeyType;
use crate::ranges::Range;
use crate::scan::{Part, PyScan, Records};
use crate::values;

/// From this size on, a batch releases the interpreter's lock.
const LONG_BATCH: usize = 64;

/// An ordered map of a pool, from keys of one type to `bytes`. Threads and processes may use it at
/// once. It has the methods of a `collections.abc.MutableMapping`.
///
/// >>> import pando
/// >>> trees = pando.Pool.volatile().map("trees", key=str)
/// >>> trees["aspen"] = b"Populus tremuloides"
/// >>> trees["oak"] = b"Quercus robur"
/// >>> trees["aspen"], "elm" in trees, len(trees)
/// (b'Populus tremuloides', False, 2)
/// >>> list(trees.scan(prefix="o"))
/// [('oak', b'Quercus robur')]
#[pyclass(module = "pando", name = "Map", frozen, mapping, weakref)]
pub struct PyMap {
    pub map: Arc<Handle<pando::Map>>,
    opened: Arc<Opened>,
    /// The `Pool`.
    pool: Py<PyAny>,
    pub key: KeyType,
    name: String,
    /// Whether calls may wait for a disk.
    pub waits: bool,
    /// Whether `synced` has made it.
    is_synced: bool,
}

type Object<'py> = Bound<'py, PyAny>;
type OwnedRecord = (Vec<u8>, Vec<u8>);
/// Keys and values as they were passed, and as bytes.
type Pairs<'py> = Vec<(Object<'py>, Object<'py>)>;

impl PyMap {
    /// The map that `open` opens in the pool, which is `pool` in Python.
    pub fn new(
        pool: &Object<'_>,
        opened: &Arc<Opened>,
        waits: bool,
        key: KeyType,
        name: &str,
        open: impl FnOnce(&pando::Pool) -> Outcome<pando::Map> + Send,
    ) -> PyResult<Self> {
        let py = pool.py();
        let map = py.detach(|| opened.object("map", open)).map_err(|failure| failure.raise(py))?;
        let (opened, pool, name) = (Arc::clone(opened), pool.clone().unbind(), name.to_owned());
        Ok(Self { map, opened, pool, key, name, waits, is_synced: false })
    }

    /// Runs a short call: the interpreter's lock is released only if the call may wait for a disk.
    pub fn call<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&pando::Map) -> Result<R, pando::Error> + Send,
    ) -> PyResult<R> {
        self.call_with(py, self.waits, body)
    }

    fn call_with<R: Send>(
        &self,
        py: Python<'_>,
        is_long: bool,
        body: impl FnOnce(&pando::Map) -> Result<R, pando::Error> + Send,
    ) -> PyResult<R> {
        let run = || self.map.with(|map| body(map).map_err(Failure::from));
        let done = if is_long { py.detach(run) } else { run() };
        done.map_err(|failure| failure.raise(py))
    }

    /// Runs a long call without the interpreter's lock.
    fn long<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&pando::Map) -> Result<R, pando::Error> + Send,
    ) -> PyResult<R> {
        self.call_with(py, true, body)
    }

    fn read<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if self.waits {
            let value = self.long(py, |map| map.get(key))?;
            return Ok(values::optional(py, value.as_deref()));
        }
        let read = self.map.with(|map| Ok(map.read(key, |value| PyBytes::new(py, value))?));
        read.map_err(|failure| failure.raise(py))
    }

    fn record<'py>(
        &self,
        py: Python<'py>,
        record: Option<OwnedRecord>,
    ) -> PyResult<Option<(Object<'py>, Bound<'py, PyBytes>)>> {
        let Some((key, value)) = record else { return Ok(None) };
        Ok(Some((self.key.decode(py, &key)?, PyBytes::new(py, &value))))
    }

    fn scanned(&self, py: Python<'_>, range: Range, part: Part) -> PyResult<PyScan> {
        let Range { keys, order } = range;
        let begun = self.map.with(|map| Ok(map.range(keys)));
        let scan = begun.map_err(|failure| failure.raise(py))?;
        let made = self.opened.object("scan", |_| Ok(Mutex::new(Records::Map(Box::new(scan)))));
        let records = made.map_err(|failure| failure.raise(py))?;
        Ok(PyScan { records, order, key: self.key.clone(), part, waits: self.waits })
    }

    fn all(&self, py: Python<'_>, order: Order, part: Part) -> PyResult<PyScan> {
        self.scanned(py, Range { keys: pando::KeyRange::all(), order }, part)
    }

    /// A view of the standard library over the map.
    fn view<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Object<'py>> {
        PyModule::import(slf.py(), "collections.abc")?.getattr(name)?.call1((slf,))
    }

    /// The bytes of keys and values.
    fn encoded<'pairs>(&self, pairs: &'pairs Pairs<'_>) -> PyResult<Encoded<'pairs>> {
        let bytes = |pair: &'pairs (Object<'_>, Object<'_>)| {
            Ok((self.key.encode(&pair.0)?, values::value(&pair.1)?))
        };
        pairs.iter().map(bytes).collect()
    }

    fn is_transactional_map(&self, py: Python<'_>) -> PyResult<bool> {
        self.map.with(|map| Ok(map.is_transactional())).map_err(|failure| failure.raise(py))
    }
}

type Encoded<'pairs> = Vec<(Cow<'pairs, [u8]>, Cow<'pairs, [u8]>)>;

fn empty(py: Python<'_>) -> PyErr {
    exception(py, "KeyNotFoundError", "the map has no record".to_owned())
}

/// The pairs of a mapping, or of an iterable of pairs.
fn pairs_of<'py>(records: &Object<'py>) -> PyResult<Pairs<'py>> {
    let iterable = if records.hasattr("keys")? {
        let keys = records.call_method0("keys")?;
        let pairs = keys.try_iter()?.map(|key| {
            let key = key?;
            let value = records.get_item(&key)?;
            Ok((key, value))
        });
        return pairs.collect();
    } else {
        records.try_iter()?
    };
    iterable
        .map(|pair| {
            let pair = pair?;
            if let Ok(pair) = pair.cast_exact::<PyTuple>()
                && pair.len() == 2
            {
                return Ok((pair.get_item(0)?, pair.get_item(1)?));
            }
            let found = pair.len().unwrap_or(0);
            if found != 2 {
                let message = format!("a record is a key and a value; found {found} elements");
                return Err(PyTypeError::new_err(message));
            }
            Ok((pair.get_item(0)?, pair.get_item(1)?))
        })
        .collect()
}

#[pymethods]
impl PyMap {
    /// `Map[str]` in annotations, at run time too.
    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        key: &Object<'py>,
    ) -> PyResult<Object<'py>> {
        values::generic(class, key)
    }

    /// The name of the map in its pool.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The pool of the map.
    #[getter]
    fn pool(&self, py: Python<'_>) -> Py<PyAny> {
        self.pool.clone_ref(py)
    }

    /// The type of the keys, by its name in `docs/typed-keys.md`.
    #[getter]
    fn key_type(&self) -> String {
        self.key.name()
    }

    /// Whether the map takes part in transactions.
    #[getter]
    fn is_transactional(&self, py: Python<'_>) -> PyResult<bool> {
        self.is_transactional_map(py)
    }

    /// The longest key and the longest value, in bytes.
    #[getter]
    fn limits(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.call(py, |map| {
            let limits = map.limits();
            Ok((limits.max_key_bytes, limits.max_value_bytes))
        })
    }

    /// The pool may be an object of a subclass that holds this map: the collector must see that.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.pool)
    }

    fn __repr__(&self) -> String {
        format!("<pando.Map {:?} of {}>", self.name, self.key.name())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Object<'py>, Bound<'py, PyTuple>)> {
        let py = slf.py();
        let map = slf.get();
        let reopen = PyModule::import(py, "pando._pando")?.getattr("_reopen_map")?;
        let arguments = (map.pool.clone_ref(py), &map.name, map.key.name(), map.is_synced);
        Ok((reopen, arguments.into_pyobject(py)?))
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Object<'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.read(py, &self.key.encode(key)?)?.ok_or_else(|| missing(key))
    }

    fn __setitem__(&self, py: Python<'_>, key: &Object<'_>, value: &Object<'_>) -> PyResult<()> {
        let (key, value) = (self.key.encode(key)?, values::value(value)?);
        self.call(py, |map| map.put(&key, &value))
    }

    fn __delitem__(&self, py: Python<'_>, key: &Object<'_>) -> PyResult<()> {
        let bytes = self.key.encode(key)?;
        match self.call(py, |map| map.remove(&bytes))? {
            true => Ok(()),
            false => Err(missing(key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &Object<'_>) -> PyResult<bool> {
        let key = self.key.encode(key)?;
        self.call(py, |map| map.contains_key(&key))
    }

    /// The number of records. It visits every leaf of the map, and in a store every record. Beside
    /// writers it is approximate.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let len = self.long(py, pando::Map::len)?;
        Ok(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Whether there is a record.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |map| map.is_empty().map(|is_empty| !is_empty))
    }

    /// The keys in order. Others may write meanwhile: a key that is present during the whole
    /// iteration appears, and one that is absent does not.
    fn __iter__(&self, py: Python<'_>) -> PyResult<PyScan> {
        self.all(py, Order::Ascending, Part::Key)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<PyScan> {
        self.all(py, Order::Descending, Part::Key)
    }

    /// A view of the keys, in order.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Object<'py>> {
        Self::view(slf, "KeysView")
    }

    /// An iterator over the values, in the order of the keys.
    fn values(&self, py: Python<'_>) -> PyResult<PyScan> {
        self.all(py, Order::Ascending, Part::Value)
    }

    /// An iterator over the records, in order.
    fn items(&self, py: Python<'_>) -> PyResult<PyScan> {
        self.all(py, Order::Ascending, Part::Both)
    }

    /// The records from `start` on and before `stop`, or those whose keys begin with `prefix` (of
    /// a tuple: its first elements); from the back with `reverse`. Not a snapshot: see `__iter__`.
    ///
    /// >>> import pando
    /// >>> cities = pando.Pool.volatile().map("cities", key=tuple[str, int])
    /// >>> cities.update({("de", 10115): b"Berlin", ("de", 1067): b"Dresden", ("ch", 1): b"Bern"})
    /// >>> [name for _, name in cities.scan(prefix=("de",), reverse=True)]
    /// [b'Berlin', b'Dresden']
    /// >>> next(cities.scan(start=("ch", 2)))
    /// (('de', 1067), b'Dresden')
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn scan(
        &self,
        py: Python<'_>,
        start: Option<&Object<'_>>,
        stop: Option<&Object<'_>>,
        prefix: Option<&Object<'_>>,
        reverse: bool,
    ) -> PyResult<PyScan> {
        let range = Range::of(py, &self.key, start, stop, prefix, reverse)?;
        self.scanned(py, range, Part::Both)
    }

    /// The value of the key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Object<'py>,
        default: Option<Object<'py>>,
    ) -> PyResult<Option<Object<'py>>> {
        let value = self.read(py, &self.key.encode(key)?)?;
        Ok(value.map(Bound::into_any).or(default))
    }

    /// The values of keys, in their order; `None` for each absent key. Faster than as many calls of
    /// `get`. Each key is read by itself.
    fn get_many<'py>(&self, py: Python<'py>, keys: &Object<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<Object<'py>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let bytes = keys.iter().map(|key| self.key.encode(key)).collect::<PyResult<Vec<_>>>()?;
        let bytes: Vec<&[u8]> = bytes.iter().map(|key| &**key).collect();
        if self.waits || bytes.len() >= LONG_BATCH {
            let found = self.long(py, |map| map.get_many(&bytes))?;
            let found = found.iter().map(|value| values::optional(py, value.as_deref()));
            return PyList::new(py, found.collect::<Vec<_>>());
        }
        let mut found = vec![None; bytes.len()];
        let visit = |index: usize, value: Option<&[u8]>| found[index] = values::optional(py, value);
        let read = self.map.with(|map| Ok(map.read_many(&bytes, visit)?));
        read.map_err(|failure| failure.raise(py))?;
        PyList::new(py, found)
    }

    /// Puts records, a mapping or pairs, in their order. Each is an operation of its own: after an
    /// error, those before the refused one are written. `update` is one commit in a transactional
    /// map.
    fn put_many(&self, py: Python<'_>, records: &Object<'_>) -> PyResult<()> {
        let pairs = pairs_of(records)?;
        let bytes = self.encoded(&pairs)?;
        let records: Vec<(&[u8], &[u8])> =
            bytes.iter().map(|(key, value)| (&**key, &**value)).collect();
        let is_long = self.waits || records.len() >= LONG_BATCH;
        self.call_with(py, is_long, |map| map.upsert_many(&records))
    }

    /// Removes keys, in their order, and returns how many were present. Each is an operation of its
    /// own.
    fn remove_many(&self, py: Python<'_>, keys: &Object<'_>) -> PyResult<u64> {
        let keys: Vec<Object<'_>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let bytes = keys.iter().map(|key| self.key.encode(key)).collect::<PyResult<Vec<_>>>()?;
        let bytes: Vec<&[u8]> = bytes.iter().map(|key| &**key).collect();
        self.long(py, |map| map.remove_many(&bytes))
    }

    /// Puts records, a mapping or pairs, and keywords for keys of `str`. In a transactional map
    /// this is one commit: all of it takes place, or nothing. In another map each record is an
    /// operation of its own, as by `put_many`.
    #[pyo3(signature = (records=None, /, **more))]
    fn update(
        &self,
        py: Python<'_>,
        records: Option<&Object<'_>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let mut pairs = records.map(pairs_of).transpose()?.unwrap_or_default();
        if let Some(more) = more {
            pairs.extend(more.iter());
        }
        let bytes = self.encoded(&pairs)?;
        if !self.is_transactional_map(py)? {
            let records: Vec<(&[u8], &[u8])> =
                bytes.iter().map(|(key, value)| (&**key, &**value)).collect();
            let is_long = self.waits || records.len() >= LONG_BATCH;
            return self.call_with(py, is_long, |map| map.upsert_many(&records));
        }
        let run = || {
            self.map.with_pool(|map, pool| {
                let batch = bytes.iter().fold(pando::WriteBatch::new(), |batch, (key, value)| {
                    batch.put(map, key, value)
                });
                Ok(pool.write(&batch).map(drop)?)
            })
        };
        py.detach(run).map_err(|failure| failure.raise(py))
    }

    /// Adds a record with a new key. `KeyExistsError` if the key is present.
    fn insert(&self, py: Python<'_>, key: &Object<'_>, value: &Object<'_>) -> PyResult<()> {
        let (key, value) = (self.key.encode(key)?, values::value(value)?);
        self.call(py, |map| map.insert(&key, &value))
    }

    /// Replaces the value of a present key. `KeyNotFoundError` if the key is absent.
    fn replace(&self, py: Python<'_>, key: &Object<'_>, value: &Object<'_>) -> PyResult<()> {
        let (key, value) = (self.key.encode(key)?, values::value(value)?);
        self.call(py, |map| map.update(&key, &value))
    }

    /// Gives the key this value, and returns the value that it replaces, or `None`, as one step.
    fn swap<'py>(
        &self,
        py: Python<'py>,
        key: &Object<'py>,
        value: &Object<'py>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (key, value) = (self.key.encode(key)?, values::value(value)?);
        let old = self.call(py, |map| map.swap(&key, &value))?;
        Ok(values::optional(py, old.as_deref()))
    }

    /// The value of the key; `default` is put first if the key is absent. One step.
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: &Object<'py>,
        default: &Object<'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (key, default) = (self.key.encode(key)?, values::value(default)?);
        let left = self.call(py, |map| map.entry(&key).or_insert(&default))?;
        Ok(PyBytes::new(py, &left))
    }

    /// Removes the record and returns its value, as one step. If the key is absent, returns
    /// `default`, or raises `KeyError` without one.
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: &Object<'py>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Object<'py>> {
        if default.len() > 1 {
            let found = default.len() + 1;
            let message = format!("pop takes a key and at most one default; found {found}");
            return Err(PyTypeError::new_err(message));
        }
        let bytes = self.key.encode(key)?;
        match self.call(py, |map| map.take(&bytes))? {
            Some(value) => Ok(PyBytes::new(py, &value).into_any()),
            None => default.iter().next().ok_or_else(|| missing(key)),
        }
    }

    /// Removes the record with the largest key and returns it. Each record comes to one caller. In
    /// a transactional map it is the last one at the instant of its removal. `KeyError` if there is
    /// none.
    fn popitem<'py>(&self, py: Python<'py>) -> PyResult<(Object<'py>, Bound<'py, PyBytes>)> {
        self.popped(py, Order::Descending)?.ok_or_else(|| empty(py))
    }

    /// As `popitem`, of the smallest key.
    fn popfirst<'py>(&self, py: Python<'py>) -> PyResult<(Object<'py>, Bound<'py, PyBytes>)> {
        self.popped(py, Order::Ascending)?.ok_or_else(|| empty(py))
    }

    /// The record with the smallest key, or `None`.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<(Object<'py>, Bound<'py, PyBytes>)>> {
        self.record(py, self.call(py, pando::Map::first)?)
    }

    /// The record with the largest key, or `None`.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<(Object<'py>, Bound<'py, PyBytes>)>> {
        self.record(py, self.call(py, pando::Map::last)?)
    }

    /// Replaces the value of the key by `new` if it is `expected`, as one step. `KeyNotFoundError`
    /// if the key is absent; `ValueMismatchError` if the value is another one.
    fn compare_exchange(
        &self,
        py: Python<'_>,
        key: &Object<'_>,
        expected: &Object<'_>,
        new: &Object<'_>,
    ) -> PyResult<()> {
        let (key, expected) = (self.key.encode(key)?, values::value(expected)?);
        let new = values::value(new)?;
        self.call(py, |map| map.compare_exchange(&key, &expected, &new))
    }

    /// Removes the record if its value is `expected`; otherwise as `compare_exchange`.
    fn compare_remove(
        &self,
        py: Python<'_>,
        key: &Object<'_>,
        expected: &Object<'_>,
    ) -> PyResult<()> {
        let (key, expected) = (self.key.encode(key)?, values::value(expected)?);
        self.call(py, |map| map.compare_remove(&key, &expected))
    }

    /// Removes all records. In a transactional map this is one commit, of at most 16 MiB
    /// (`LengthError`). In another map each record is a step of its own, and records that others
    /// insert meanwhile may stay.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_transactional_map(py)? {
            return self.long(py, |map| map.clear().map(drop));
        }
        self.transaction(py, |transaction, map| {
            let keys = transaction.range(map, ..).map(|record| Ok(record?.0));
            let keys = keys.collect::<Result<Vec<_>, pando::Error>>()?;
            keys.iter().try_for_each(|key| transaction.remove(map, key))
        })
    }

    /// The same map, whose writes return when they survive a power cut. For a transactional map of
    /// a pool with a log, and of a store.
    pub fn synced(&self, py: Python<'_>) -> PyResult<Self> {
        let pool = self.pool.bind(py);
        let clone = self.map.with(|map| Ok(map.clone()));
        let map = clone.map_err(|failure| failure.raise(py))?;
        let open = |_: &pando::Pool| Ok(map.acknowledge(pando::Acknowledge::Synced)?);
        let synced = Self::new(pool, &self.opened, true, self.key.clone(), &self.name, open)?;
        Ok(Self { is_synced: true, ..synced })
    }
}

impl PyMap {
    fn popped<'py>(
        &self,
        py: Python<'py>,
        order: Order,
    ) -> PyResult<Option<(Object<'py>, Bound<'py, PyBytes>)>> {
        let is_transactional = self.is_transactional_map(py)?;
        loop {
            let seen = if is_transactional {
                self.transaction(py, |transaction, map| at_end(transaction, map, order))?
            } else {
                self.call(py, |map| match order {
                    Order::Ascending => map.first(),
                    Order::Descending => map.last(),
                })?
            };
            let Some((key, value)) = seen else { return Ok(None) };
            // The record stays if its key is none of this type. The key becomes an object outside
            // of the transaction, since that may run anything, such as a close of the pool.
            let object = self.key.decode(py, &key)?;
            let removed = if is_transactional {
                self.transaction(py, |transaction, map| {
                    let last = at_end(transaction, map, order)?.filter(|last| last.0 == key);
                    last.iter().try_for_each(|_| transaction.remove(map, &key))?;
                    Ok(last.map(|last| last.1))
                })?
            } else {
                self.call(py, |map| match map.compare_remove(&key, &value) {
                    Ok(()) => Ok(Some(value)),
                    Err(pando::Error::KeyNotFound | pando::Error::ValueMismatch { .. }) => Ok(None),
                    Err(error) => Err(error),
                })?
            };
            // Otherwise another thread was faster.
            if let Some(value) = removed {
                return Ok(Some((object, PyBytes::new(py, &value))));
            }
        }
    }

    /// Runs `body` in a transaction, again after each conflict.
    fn transaction<R: Send>(
        &self,
        py: Python<'_>,
        body: impl Fn(&mut pando::Transaction<'_>, &pando::Map) -> Result<R, pando::Error> + Sync,
    ) -> PyResult<R> {
        let run = || {
            self.map.with_pool(|map, pool| {
                let done = pool.transaction(|transaction| body(transaction, map));
                done.map_err(Failure::from)
            })
        };
        py.detach(run).map_err(|failure| failure.raise(py))
    }
}

/// The first record, or the last one.
fn at_end(
    transaction: &mut pando::Transaction<'_>,
    map: &pando::Map,
    order: Order,
) -> Result<Option<OwnedRecord>, pando::Error> {
    match order {
        Order::Ascending => transaction.first(map),
        Order::Descending => transaction.last(map),
    }
}
