//! Pins: values as views, without a copy, for the time of a `with`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pando::Pin;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyTuple};

use crate::failure::{Failure, Outcome};
use crate::handle::{Handle, Kept, Opened, locked};
use crate::map::PyMap;
use crate::view::{Counted, PyValue};

/// Lends values as `memoryview`s, without a copy, until the end of `with`. A view has the value
/// that the key had when it was read, whatever others write meanwhile.
///
/// All views must be released by then: by `view.release()`, by `with` of their own, or because
/// nothing refers to them any more. If one is left, the end of `with` raises `BufferError`, unless
/// another exception is under way. That view stays valid, and keeps the pool open.
///
/// The pool reuses almost no replaced or removed value meanwhile, and grows with each write, so
/// the block should be short. A process has at most 1,024 pins of a pool at a time, and 128 of a
/// shared one; else `TooManyThreadsError`. The values of a `Store` are copied. A forked child must
/// not read the views of its parent: the pool is not mapped there, and the child would end by
/// SIGSEGV.
///
/// >>> import pando
/// >>> pool = pando.Pool.volatile()
/// >>> trees = pool.map("trees", key=str)
/// >>> trees["aspen"] = b"Populus tremuloides"
/// >>> with pool.pin() as pin:
/// ...     with pin.get(trees, "aspen") as view:
/// ...         trees["aspen"] = b"Populus tremula"
/// ...         bytes(view[8:])
/// b'tremuloides'
#[pyclass(module = "pando", name = "Pin", frozen)]
pub struct PyPin {
    pin: Arc<Handle<Mutex<Option<Pin>>>>,
    /// How many views are alive.
    views: Arc<AtomicUsize>,
}

impl PyPin {
    pub fn begin(py: Python<'_>, opened: &Opened) -> PyResult<Self> {
        let begun = opened.object("pin", |pool| Ok(Mutex::new(Some(pool.pin()?))));
        let pin = begun.map_err(|failure| failure.raise(py))?;
        Ok(Self { pin, views: Arc::default() })
    }

    /// Ends the pin; its views keep what they need.
    fn end(&self) {
        // If the pool is closed, or belongs to the parent, there is nothing to end.
        let _: Outcome<()> = self.pin.with(|pin| {
            locked(pin).take();
            Ok(())
        });
    }

    /// Fails if a view is alive.
    fn check_views(&self) -> PyResult<()> {
        // Relaxed: the count is of objects that this thread, or a thread that it has waited for,
        // has released.
        match self.views.load(Ordering::Relaxed) {
            0 => Ok(()),
            1 => Err(alive("1 view of the pin is alive; release it")),
            views => Err(alive(&format!("{views} views of the pin are alive; release them"))),
        }
    }
}

fn alive(what: &str) -> PyErr {
    let message = format!("{what} before the pin ends, or keep a copy by bytes(view)");
    PyBufferError::new_err(message)
}

#[pymethods]
impl PyPin {
    /// The value of the key as a `memoryview`, which is read-only, or `default`.
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
        // Before the pin is cloned: the end of `with` in another thread counts it.
        let counted = Counted::new(&self.views);
        let run = || {
            self.pin.with_pool(|pin, pool| {
                let pin = locked(pin).clone().ok_or(Failure::Closed("pin"))?;
                let value = map.map.with(|map| Ok(pin.get(map, &key)?))?;
                Ok(value.map(|value| Kept::new(value, pool)))
            })
        };
        let found = if map.waits { py.detach(run) } else { run() };
        match found.map_err(|failure| failure.raise(py))? {
            None => Ok(default),
            Some(value) => {
                let value = Bound::new(py, PyValue::new(value, counted))?;
                Ok(Some(PyMemoryView::from(&value)?.into_any()))
            }
        }
    }

    /// Ends the pin. `BufferError` if a view is alive. A second call does nothing else.
    fn close(&self) -> PyResult<()> {
        self.end();
        self.check_views()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (class, *_raised))]
    fn __exit__(&self, class: &Bound<'_, PyAny>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.end();
        if class.is_none() { self.check_views() } else { Ok(()) }
    }
}
