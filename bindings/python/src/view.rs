//! Values that views show. This is the only file with `unsafe`: Python asks for the address of a
//! value, and says when it does not need it any more.
//!
//! A value owns what it shows: the pin, the map and the pool stay as long as it does. Each view
//! refers to the value, and so does each view of a view. So no view has an address that is used
//! again, whatever is closed before. The count of values is for the error at the end of `with`.
#![allow(unsafe_code, reason = "the buffer protocol")]

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pando::PinnedValue;
use pyo3::prelude::*;
use pyo3::{PyErr, ffi};

use crate::handle::Kept;

/// A value that a pin has lent, for a `memoryview`.
#[pyclass(module = "pando", name = "_Value", frozen)]
pub struct PyValue {
    value: Kept<PinnedValue>,
    _counted: Counted,
}

impl PyValue {
    pub fn new(value: Kept<PinnedValue>, counted: Counted) -> Self {
        Self { value, _counted: counted }
    }
}

/// Counts a value for as long as it lives: a view, or what a view was made of.
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub fn new(views: &Arc<AtomicUsize>) -> Self {
        // Relaxed, here and below: it is a count.
        views.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(views))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[pymethods]
impl PyValue {
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let value = this.value.get().map_err(|failure| failure.raise(slf.py()))?;
        let len = ffi::Py_ssize_t::try_from(value.len())?;
        let (bytes, is_read_only) = (value.as_ptr().cast_mut().cast(), 1);
        // SAFETY: `view` is what Python has passed. It is filled with bytes that live as long as
        // this object, to which the buffer takes a reference, and that no one writes to: a request
        // for a buffer that can be written is refused.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes, len, is_read_only, flags) };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}
