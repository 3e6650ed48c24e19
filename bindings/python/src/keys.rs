//! Typed keys: Python objects as the bytes of `docs/typed-keys.md`.

use std::borrow::Cow;

use pando::{AsKey, Key, KeyError, KeyRange};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};

use crate::failure::{exception, raise};
use crate::values;

/// The type of a map's keys.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyType {
    Bytes,
    Text,
    Integer {
        is_signed: bool,
        bits: u32,
    },
    Float {
        bits: u32,
    },
    Bool,
    Char,
    Uuid,
    /// As a `datetime`.
    Time,
    /// As nanoseconds since 1970.
    TimeNs,
    Tuple(Vec<KeyType>),
    Optional(Box<KeyType>),
}

const ALLOWED: &str = "bytes, str, int, float, bool, uuid.UUID, datetime.datetime, tuple[...], \
                       X | None, or the name of a type of docs/typed-keys.md such as \"u32\"";

/// How many types may be inside of each other. Each level takes some stack in many calls.
const MAX_DEPTH: usize = 64;

/// A key that has no bytes, or bytes that are no key.
fn no_key(py: Python<'_>, message: String) -> PyErr {
    exception(py, "KeyTypeError", message)
}

fn wrong(py: Python<'_>, error: KeyError) -> PyErr {
    raise(py, error.into())
}

impl KeyType {
    /// The type that Python names by a class, a generic alias, or a text.
    pub fn of(name: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        name.map_or(Ok(Self::Bytes), |name| Self::of_object(name, MAX_DEPTH))
    }

    /// The same, of at most `depth` levels.
    fn of_object(name: &Bound<'_, PyAny>, depth: usize) -> PyResult<Self> {
        let inside = depth.checked_sub(1).ok_or_else(|| refused(name))?;
        if let Ok(text) = name.extract::<String>() {
            let mut rest = text.as_str();
            let parsed = Self::parse(&mut rest, depth).filter(|_| rest.trim().is_empty());
            return parsed.ok_or_else(|| refused(name));
        }
        let py = name.py();
        if let Ok(class) = name.cast::<PyType>() {
            let is = |other: &Bound<'_, PyType>| class.is(other);
            let imported = |module: &str, name: &str| -> PyResult<bool> {
                Ok(class.is(&PyModule::import(py, module)?.getattr(name)?))
            };
            return match () {
                () if is(&py.get_type::<PyBytes>()) => Ok(Self::Bytes),
                () if is(&py.get_type::<PyString>()) => Ok(Self::Text),
                () if is(&py.get_type::<PyBool>()) => Ok(Self::Bool),
                () if is(&py.get_type::<PyInt>()) => {
                    Ok(Self::Integer { is_signed: true, bits: 64 })
                }
                () if is(&py.get_type::<PyFloat>()) => Ok(Self::Float { bits: 64 }),
                () if imported("uuid", "UUID")? => Ok(Self::Uuid),
                () if imported("datetime", "datetime")? => Ok(Self::Time),
                () => Err(refused(name)),
            };
        }
        let arguments = name.getattr("__args__").map_err(|_| refused(name))?;
        let arguments: Vec<Bound<'_, PyAny>> = arguments.extract()?;
        if name.getattr("__origin__").is_ok_and(|origin| origin.is(py.get_type::<PyTuple>())) {
            let parts = arguments.iter().map(|part| Self::of_object(part, inside));
            return Ok(Self::Tuple(parts.collect::<PyResult<_>>()?));
        }
        let none = py.None().bind(py).get_type();
        let (nones, others): (Vec<_>, Vec<_>) = arguments.iter().partition(|part| part.is(&none));
        match (&nones[..], &others[..]) {
            ([_], [other]) => Ok(Self::Optional(Box::new(Self::of_object(other, inside)?))),
            _ => Err(refused(name)),
        }
    }

    /// Takes a type of at most `depth` levels from the beginning of a text.
    fn parse(rest: &mut &str, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        *rest = rest.trim_start();
        if let Some(inside) = rest.strip_prefix('(') {
            *rest = inside;
            let mut parts = Vec::new();
            loop {
                parts.push(Self::parse(rest, depth)?);
                *rest = rest.trim_start();
                match rest.chars().next()? {
                    ',' => *rest = &rest[1..],
                    ')' => break,
                    _ => return None,
                }
            }
            *rest = &rest[1..];
            return Some(Self::Tuple(parts));
        }
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        *rest = behind;
        let integer = |is_signed, bits: &str| {
            let bits = bits.parse().ok().filter(|bits| [8, 16, 32, 64, 128].contains(bits))?;
            Some(Self::Integer { is_signed, bits })
        };
        match word {
            "bytes" => Some(Self::Bytes),
            "string" => Some(Self::Text),
            "bool" => Some(Self::Bool),
            "char" => Some(Self::Char),
            "uuid" => Some(Self::Uuid),
            "time" => Some(Self::Time),
            "time_ns" => Some(Self::TimeNs),
            "f32" => Some(Self::Float { bits: 32 }),
            "f64" => Some(Self::Float { bits: 64 }),
            "option" => {
                *rest = rest.trim_start().strip_prefix('(')?;
                let inside = Self::parse(rest, depth)?;
                *rest = rest.trim_start().strip_prefix(')')?;
                Some(Self::Optional(Box::new(inside)))
            }
            _ => match word.split_at_checked(1)? {
                ("i", bits) => integer(true, bits),
                ("u", bits) => integer(false, bits),
                _ => None,
            },
        }
    }

    /// Its name in `docs/typed-keys.md`.
    pub fn name(&self) -> String {
        match self {
            Self::Bytes => "bytes".to_owned(),
            Self::Text => "string".to_owned(),
            Self::Integer { is_signed, bits } => {
                format!("{}{bits}", if *is_signed { 'i' } else { 'u' })
            }
            Self::Float { bits } => format!("f{bits}"),
            Self::Bool => "bool".to_owned(),
            Self::Char => "char".to_owned(),
            Self::Uuid => "uuid".to_owned(),
            Self::Time => "time".to_owned(),
            Self::TimeNs => "time_ns".to_owned(),
            Self::Tuple(parts) => {
                format!("({})", parts.iter().map(Self::name).collect::<Vec<_>>().join(","))
            }
            Self::Optional(inside) => format!("option({})", inside.name()),
        }
    }

    /// The bytes of a whole key.
    pub fn encode<'key>(&self, key: &'key Bound<'_, PyAny>) -> PyResult<Cow<'key, [u8]>> {
        match self {
            Self::Bytes => values::bytes(key, "a key"),
            Self::Text => text(key).map(Cow::Borrowed),
            _ => {
                let mut bytes = Vec::new();
                self.encode_element(key, &mut bytes)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Appends the bytes of a key inside a tuple.
    fn encode_element(&self, key: &Bound<'_, PyAny>, bytes: &mut Vec<u8>) -> PyResult<()> {
        let py = key.py();
        let encoded = match self {
            Self::Bytes => {
                AsKey::<Vec<u8>>::encode_element(&values::bytes(key, "a key")?.into_owned(), bytes)
            }
            Self::Text => {
                // The text was checked: it is UTF-8.
                AsKey::<Vec<u8>>::encode_element(&text(key)?.to_vec(), bytes)
            }
            Self::Integer { is_signed, bits } => {
                integer(key, *is_signed, *bits, bytes)?;
                Ok(())
            }
            Self::Float { bits } => {
                if !key.is_instance_of::<PyFloat>() {
                    integer_like(key, "a float")?;
                }
                let number: f64 = key.extract()?;
                if *bits == 32 {
                    #[expect(clippy::cast_possible_truncation, reason = "compared below")]
                    let short = number as f32;
                    if !number.is_nan() && f64::from(short) != number {
                        let message = format!("the key {number} has more digits than an f32");
                        return Err(no_key(py, message));
                    }
                    AsKey::<f32>::encode_element(&short, bytes)
                } else {
                    AsKey::<f64>::encode_element(&number, bytes)
                }
            }
            Self::Bool => match key.cast::<PyBool>() {
                Ok(key) => AsKey::<bool>::encode_element(&key.is_true(), bytes),
                Err(_) => return Err(mistyped(key, "a bool")),
            },
            Self::Char => AsKey::<char>::encode_element(&key.extract::<char>()?, bytes),
            Self::Uuid => {
                let number = key.getattr("bytes").map_err(|_| mistyped(key, "a uuid.UUID"))?;
                let number: [u8; 16] =
                    number.extract().map_err(|_| mistyped(key, "a uuid.UUID"))?;
                AsKey::<[u8; 16]>::encode_element(&number, bytes)
            }
            Self::Time => AsKey::<(i64, u32)>::encode_element(&time(key)?, bytes),
            Self::TimeNs => {
                integer_like(key, "an int")?;
                let nanoseconds: i128 = key.extract()?;
                let (seconds, rest) =
                    (nanoseconds.div_euclid(1_000_000_000), nanoseconds.rem_euclid(1_000_000_000));
                let seconds = i64::try_from(seconds).map_err(|_| too_large(key, "time_ns"))?;
                let rest = u32::try_from(rest).unwrap_or_default();
                AsKey::<(i64, u32)>::encode_element(&(seconds, rest), bytes)
            }
            Self::Tuple(parts) => {
                let key = tuple(key)?;
                if key.len() != parts.len() {
                    let message = format!(
                        "a key of this map is a tuple of {}; found one of {}",
                        parts.len(),
                        key.len()
                    );
                    return Err(no_key(py, message));
                }
                return encode_parts(parts, key, bytes);
            }
            Self::Optional(inside) => {
                bytes.push(u8::from(!key.is_none()));
                if key.is_none() {
                    return Ok(());
                }
                return inside.encode_element(key, bytes);
            }
        };
        encoded.map_err(|error| wrong(py, error))
    }

    /// The keys that begin with `prefix`: a part of a text or of bytes, or the first elements of a
    /// tuple.
    pub fn prefix(&self, prefix: &Bound<'_, PyAny>) -> PyResult<KeyRange> {
        match self {
            Self::Bytes | Self::Text => Ok(KeyRange::prefix(&self.encode(prefix)?)),
            Self::Tuple(parts) => {
                let prefix = tuple(prefix)?;
                if prefix.len() > parts.len() {
                    return Err(no_key(
                        prefix.py(),
                        format!("a prefix has at most {} elements here", parts.len()),
                    ));
                }
                let mut bytes = Vec::new();
                encode_parts(&parts[..prefix.len()], prefix, &mut bytes)?;
                Ok(KeyRange::prefix(&bytes))
            }
            other => {
                let message = format!("keys of the type {} have no prefixes", other.name());
                Err(PyTypeError::new_err(message))
            }
        }
    }

    /// The key that has these bytes.
    pub fn decode<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Bytes => Ok(PyBytes::new(py, bytes).into_any()),
            Self::Text => {
                let text = String::decode(bytes).map_err(|error| wrong(py, error))?;
                text.into_bound_py_any(py)
            }
            _ => {
                let mut rest = bytes;
                let key = self.decode_element(py, &mut rest)?;
                if rest.is_empty() {
                    return Ok(key);
                }
                let left = KeyError::TrailingBytes { found_bytes: rest.len() };
                Err(wrong(py, left))
            }
        }
    }

    fn decode_element<'py>(
        &self,
        py: Python<'py>,
        bytes: &mut &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        fn of<'py, K: Key + IntoPyObject<'py>>(
            py: Python<'py>,
            bytes: &mut &[u8],
        ) -> PyResult<Bound<'py, PyAny>> {
            K::decode_element(bytes).map_err(|error| wrong(py, error))?.into_bound_py_any(py)
        }
        match self {
            Self::Bytes => {
                let key = Vec::<u8>::decode_element(bytes).map_err(|error| wrong(py, error))?;
                Ok(PyBytes::new(py, &key).into_any())
            }
            Self::Text => of::<String>(py, bytes),
            Self::Integer { is_signed, bits } => match (is_signed, bits) {
                (true, 8) => of::<i8>(py, bytes),
                (true, 16) => of::<i16>(py, bytes),
                (true, 32) => of::<i32>(py, bytes),
                (true, 64) => of::<i64>(py, bytes),
                (true, _) => of::<i128>(py, bytes),
                (false, 8) => of::<u8>(py, bytes),
                (false, 16) => of::<u16>(py, bytes),
                (false, 32) => of::<u32>(py, bytes),
                (false, 64) => of::<u64>(py, bytes),
                (false, _) => of::<u128>(py, bytes),
            },
            Self::Float { bits: 32 } => of::<f32>(py, bytes),
            Self::Float { .. } => of::<f64>(py, bytes),
            Self::Bool => of::<bool>(py, bytes),
            Self::Char => of::<char>(py, bytes),
            Self::Uuid => {
                let number = <[u8; 16]>::decode_element(bytes).map_err(|error| wrong(py, error))?;
                let options = PyDict::new(py);
                options.set_item("bytes", PyBytes::new(py, &number))?;
                PyModule::import(py, "uuid")?.getattr("UUID")?.call((), Some(&options))
            }
            Self::Time => {
                let (seconds, nanoseconds) = decoded_time(py, bytes)?;
                if nanoseconds % 1000 != 0 {
                    let message = format!(
                        "the key has {nanoseconds} nanoseconds, and a datetime has whole \
                         microseconds; open the map with key=\"time_ns\""
                    );
                    return Err(no_key(py, message));
                }
                let datetime = PyModule::import(py, "datetime")?;
                let span =
                    datetime.getattr("timedelta")?.call1((0, seconds, nanoseconds / 1000))?;
                epoch(py)?.call_method1("__add__", (span,))
            }
            Self::TimeNs => {
                let (seconds, nanoseconds) = decoded_time(py, bytes)?;
                let whole = i128::from(seconds) * 1_000_000_000;
                (whole + i128::from(nanoseconds)).into_bound_py_any(py)
            }
            Self::Tuple(parts) => {
                let elements = parts.iter().map(|part| part.decode_element(py, bytes));
                let elements = elements.collect::<PyResult<Vec<_>>>()?;
                Ok(PyTuple::new(py, elements)?.into_any())
            }
            Self::Optional(inside) => match bytes.split_first() {
                Some((0, rest)) => {
                    *bytes = rest;
                    Ok(py.None().into_bound(py))
                }
                Some((1, rest)) => {
                    *bytes = rest;
                    inside.decode_element(py, bytes)
                }
                _ => {
                    // The error of an option that has neither 0 nor 1.
                    Err(Option::<u8>::decode_element(bytes)
                        .map_or_else(|error| wrong(py, error), |_| refused(py.None().bind(py))))
                }
            },
        }
    }
}

fn refused(found: &Bound<'_, PyAny>) -> PyErr {
    let found = found.repr().map_or_else(|_| "an object".to_owned(), |text| text.to_string());
    PyTypeError::new_err(format!("the type of keys is {found}; allowed is {ALLOWED}"))
}

fn mistyped(found: &Bound<'_, PyAny>, allowed: &str) -> PyErr {
    let found = found.get_type().name().map_or_else(|_| "an object".to_owned(), |n| n.to_string());
    PyTypeError::new_err(format!("a key of this map is {allowed}; found {found}"))
}

fn too_large(key: &Bound<'_, PyAny>, name: &str) -> PyErr {
    let found = key.repr().map_or_else(|_| String::new(), |text| text.to_string());
    PyOverflowError::new_err(format!("the key {found} is outside the range of {name}"))
}

/// An `int`, and no `bool`, although a `bool` is an `int` in Python.
fn integer_like(key: &Bound<'_, PyAny>, allowed: &str) -> PyResult<()> {
    if key.is_instance_of::<PyInt>() && !key.is_instance_of::<PyBool>() {
        return Ok(());
    }
    Err(mistyped(key, allowed))
}

fn integer(
    key: &Bound<'_, PyAny>,
    is_signed: bool,
    bits: u32,
    bytes: &mut Vec<u8>,
) -> PyResult<()> {
    fn of<'py, K>(key: &Bound<'py, PyAny>, bytes: &mut Vec<u8>) -> PyResult<()>
    where
        K: Key + for<'a> FromPyObject<'a, 'py>,
    {
        let name = std::any::type_name::<K>();
        let number: K = key.extract().map_err(|_| too_large(key, name))?;
        number.encode_element(bytes).map_err(|error| wrong(key.py(), error))
    }
    integer_like(key, "an int")?;
    match (is_signed, bits) {
        (true, 8) => of::<i8>(key, bytes),
        (true, 16) => of::<i16>(key, bytes),
        (true, 32) => of::<i32>(key, bytes),
        (true, 64) => of::<i64>(key, bytes),
        (true, _) => of::<i128>(key, bytes),
        (false, 8) => of::<u8>(key, bytes),
        (false, 16) => of::<u16>(key, bytes),
        (false, 32) => of::<u32>(key, bytes),
        (false, 64) => of::<u64>(key, bytes),
        (false, _) => of::<u128>(key, bytes),
    }
}

/// The bytes of a `str`, which are UTF-8: a `str` with half of a surrogate pair has none.
fn text<'key>(key: &'key Bound<'_, PyAny>) -> PyResult<&'key [u8]> {
    match key.cast::<PyString>() {
        Ok(text) => Ok(text.to_str()?.as_bytes()),
        Err(_) => Err(mistyped(key, "a str")),
    }
}

fn tuple<'key, 'py>(key: &'key Bound<'py, PyAny>) -> PyResult<&'key Bound<'py, PyTuple>> {
    key.cast::<PyTuple>().map_err(|_| mistyped(key, "a tuple"))
}

fn encode_parts(parts: &[KeyType], key: &Bound<'_, PyTuple>, bytes: &mut Vec<u8>) -> PyResult<()> {
    parts.iter().zip(key.iter()).try_for_each(|(part, key)| part.encode_element(&key, bytes))
}

fn epoch(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let datetime = PyModule::import(py, "datetime")?;
    let utc = datetime.getattr("timezone")?.getattr("utc")?;
    let options = PyDict::new(py);
    options.set_item("tzinfo", utc)?;
    datetime.getattr("datetime")?.call((1970, 1, 1), Some(&options))
}

/// The seconds and nanoseconds of an aware `datetime`.
fn time(key: &Bound<'_, PyAny>) -> PyResult<(i64, u32)> {
    let py = key.py();
    if !key.is_instance(&PyModule::import(py, "datetime")?.getattr("datetime")?)? {
        return Err(mistyped(key, "a datetime"));
    }
    if key.call_method0("utcoffset")?.is_none() {
        let message = "a datetime without a time zone is no instant; give it one (tzinfo)";
        return Err(PyValueError::new_err(message));
    }
    let span = key.call_method1("__sub__", (epoch(py)?,))?;
    let days: i64 = span.getattr("days")?.extract()?;
    let seconds: i64 = span.getattr("seconds")?.extract()?;
    let microseconds: u32 = span.getattr("microseconds")?.extract()?;
    Ok((days * 86_400 + seconds, microseconds * 1000))
}

/// The seconds and nanoseconds of a time.
fn decoded_time(py: Python<'_>, bytes: &mut &[u8]) -> PyResult<(i64, u32)> {
    let (seconds, nanoseconds) =
        <(i64, u32)>::decode_element(bytes).map_err(|error| wrong(py, error))?;
    if nanoseconds >= 1_000_000_000 {
        return Err(no_key(py, format!("the key has {nanoseconds} nanoseconds in a second")));
    }
    Ok((seconds, nanoseconds))
}
