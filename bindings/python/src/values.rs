//! Bytes that Python passes, and what is returned to it.

use std::borrow::Cow;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

/// The bytes of a `bytes` as they are, and a copy of those of another object with a buffer.
pub fn bytes<'object>(
    object: &'object Bound<'_, PyAny>,
    what: &str,
) -> PyResult<Cow<'object, [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    match PyBuffer::<u8>::get(object) {
        Ok(buffer) => Ok(Cow::Owned(buffer.to_vec(object.py())?)),
        Err(_) => {
            let found = object.get_type().name()?;
            let message = format!("{what} is bytes, or has a buffer of bytes; found {found}");
            Err(PyTypeError::new_err(message))
        }
    }
}

pub fn value<'object>(object: &'object Bound<'_, PyAny>) -> PyResult<Cow<'object, [u8]>> {
    bytes(object, "a value")
}

/// A new `bytes`, or `None`.
pub fn optional<'py>(py: Python<'py>, value: Option<&[u8]>) -> Option<Bound<'py, PyBytes>> {
    value.map(|value| PyBytes::new(py, value))
}

/// A new `bytes`, or `default`.
pub fn or_default<'py>(
    py: Python<'py>,
    value: Option<&[u8]>,
    default: Option<Bound<'py, PyAny>>,
) -> Option<Bound<'py, PyAny>> {
    optional(py, value).map(Bound::into_any).or(default)
}

/// A class with the types of its parameters, as `list[str]` is one.
pub fn generic<'py>(
    class: &Bound<'py, PyType>,
    parameters: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let alias = PyModule::import(class.py(), "types")?.getattr("GenericAlias")?;
    alias.call1((class, parameters))
}
