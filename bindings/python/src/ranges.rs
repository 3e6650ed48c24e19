//! The keys of a scan, from Python's arguments.

use std::ops::Bound as End;

use pando::{KeyRange, Order};
use pyo3::prelude::*;

use crate::failure::exception;
use crate::keys::KeyType;

/// The keys and the order of a scan.
pub struct Range {
    pub keys: KeyRange,
    pub order: Order,
}

impl Range {
    pub fn of(
        py: Python<'_>,
        key: &KeyType,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Self> {
        let order = if reverse { Order::Descending } else { Order::Ascending };
        let keys = match prefix {
            Some(_) if start.is_some() || stop.is_some() => {
                let message = "a scan has a prefix and a start or a stop; allowed is a prefix, or \
                               a start and a stop";
                return Err(exception(py, "OptionError", message.to_owned()));
            }
            Some(prefix) => key.prefix(prefix)?,
            None => {
                let encoded = |end: &Bound<'_, PyAny>| key.encode(end).map(|key| key.into_owned());
                KeyRange {
                    low: start.map(encoded).transpose()?.map_or(End::Unbounded, End::Included),
                    high: stop.map(encoded).transpose()?.map_or(End::Unbounded, End::Excluded),
                }
            }
        };
        Ok(Self { keys, order })
    }
}
