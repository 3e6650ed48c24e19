//! Bytes, texts and places that a caller passes.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::Failure;

/// Bytes that are lent.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pando_slice {
    /// The first byte; may be NULL if len is 0.
    data: *const u8,
    /// How many bytes.
    len: usize,
}

/// What the address of empty bytes points to.
static EMPTY: [u8; 1] = [0];

impl pando_slice {
    pub(crate) fn lend(bytes: &[u8]) -> Self {
        // Rust has no address for empty bytes: it is 1, which Go takes for a bad pointer.
        let data = if bytes.is_empty() { EMPTY.as_ptr() } else { bytes.as_ptr() };
        Self { data, len: bytes.len() }
    }

    /// Whether the field of a struct is not set.
    pub(crate) fn is_unset(&self) -> bool {
        self.data.is_null() && self.len == 0
    }

    /// The bytes; `what` is the name of the parameter.
    pub(crate) fn bytes<'call>(self, what: &str) -> Result<&'call [u8], Failure> {
        if self.len == 0 {
            return Ok(&[]);
        }
        if self.data.is_null() {
            return Err(Failure::null(&format!("data of {what}, whose len is {},", self.len)));
        }
        if isize::try_from(self.len).is_err() {
            return Err(Failure::option(&format!("len of {what}"), self.len, "less than 2^63"));
        }
        // SAFETY: only C code makes such a slice for a call, and lends `len` bytes for its
        // duration (`pando.h`).
        Ok(unsafe { std::slice::from_raw_parts(self.data, self.len) })
    }
}

/// `count` items at `items`; `what` is the name of the parameter.
pub(crate) fn items<'call, T>(
    items: *const T,
    count: usize,
    what: &str,
) -> Result<&'call [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check_items(items, count, what)?;
    // SAFETY: C code lends `count` items for the duration of the call (`pando.h`).
    Ok(unsafe { std::slice::from_raw_parts(items, count) })
}

/// The same, to write them.
pub(crate) fn items_mut<'call, T>(
    items: *mut T,
    count: usize,
    what: &str,
) -> Result<&'call mut [T], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    check_items(items, count, what)?;
    // SAFETY: as in `items`, and the caller lets no other thread use them meanwhile.
    Ok(unsafe { std::slice::from_raw_parts_mut(items, count) })
}

fn check_items<T>(items: *const T, count: usize, what: &str) -> Result<(), Failure> {
    if items.is_null() {
        return Err(Failure::null(&format!("{what}, of which there are {count},")));
    }
    let bytes = count.checked_mul(size_of::<T>()).and_then(|bytes| isize::try_from(bytes).ok());
    match bytes {
        Some(_) => Ok(()),
        None => Err(Failure::option(&format!("the number of {what}"), count, "fewer")),
    }
}

/// Bytes that belong to the caller. Begin with PANDO_BYTES_INIT, and change no field. A copy of the
/// struct must not be freed too.
#[repr(C)]
pub struct pando_bytes {
    /// The first byte; NULL if no call has put bytes there.
    data: *mut u8,
    /// How many bytes.
    len: usize,
    /// For the library.
    capacity: usize,
}

impl pando_bytes {
    fn take(&mut self) -> Vec<u8> {
        let Self { data, len, capacity } = std::mem::replace(self, Self::empty());
        if data.is_null() || capacity == 0 || len > capacity {
            return Vec::new();
        }
        // SAFETY: the three fields are those of a vector that `set` has taken apart. They are
        // zero now, so that nobody frees it twice.
        unsafe { Vec::from_raw_parts(data, len, capacity) }
    }

    /// Whether `bytes` lie in these ones, which `fill` overwrites or frees.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let (first, room) = (self.data as usize, self.capacity);
        (first..first.saturating_add(room)).contains(&(bytes.as_ptr() as usize))
    }

    fn empty() -> Self {
        Self { data: std::ptr::null_mut(), len: 0, capacity: 0 }
    }

    fn set(&mut self, bytes: Vec<u8>) {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        let (len, capacity) = (bytes.len(), bytes.capacity());
        // As in `lend`. Without capacity, nothing is written there, and nothing freed.
        let data = if capacity == 0 { EMPTY.as_ptr().cast_mut() } else { bytes.as_mut_ptr() };
        *self = Self { data, len, capacity };
    }

    /// Replaces the bytes, in the same memory if there is room.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        let mut room = self.take();
        room.clear();
        room.extend_from_slice(bytes);
        self.set(room);
    }
}

/// The places of a key and of its value, which may be NULL and must differ.
pub(crate) fn two_places<'call>(
    key: *mut pando_bytes,
    value: *mut pando_bytes,
) -> Result<[Option<&'call mut pando_bytes>; 2], Failure> {
    if key == value && !key.is_null() {
        let found = "the place of the value too";
        return Err(Failure::option("the place of the key", found, "another place"));
    }
    // SAFETY: each is NULL or a struct that C code lets this call change (`pando.h`), and the two
    // were compared.
    Ok(unsafe { [key.as_mut(), value.as_mut()] })
}

/// Puts `bytes` into `place`, if the caller wants them.
pub(crate) fn fill(place: Option<&mut pando_bytes>, bytes: &[u8]) {
    if let Some(place) = place {
        place.fill(bytes);
    }
}

/// Frees the bytes, and sets the struct to zeros, so that it may be freed again, or used again.
/// NULL is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn pando_bytes_free(bytes: Option<&mut pando_bytes>) {
    if let Some(bytes) = bytes {
        drop(bytes.take());
    }
}

/// The text at `text`, or none if it is NULL.
pub(crate) fn optional_text<'call>(
    text: *const c_char,
    what: &str,
) -> Result<Option<&'call str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: C code lends a text that ends with NUL for the duration of the call (`pando.h`).
    let text = unsafe { CStr::from_ptr(text) };
    match text.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Failure::option(what, format!("{text:?}"), "text in UTF-8")),
    }
}

pub(crate) fn text<'call>(text: *const c_char, what: &str) -> Result<&'call str, Failure> {
    optional_text(text, what)?.ok_or_else(|| Failure::null(what))
}

/// The path at `path`, which need not be UTF-8; none if it is NULL.
pub(crate) fn optional_path<'call>(path: *const c_char) -> Option<&'call Path> {
    // SAFETY: as in `optional_text`.
    let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })?;
    Some(Path::new(OsStr::from_bytes(path.to_bytes())))
}

pub(crate) fn path<'call>(path: *const c_char) -> Result<&'call Path, Failure> {
    optional_path(path).ok_or_else(|| Failure::null("the path"))
}

/// An output parameter.
pub(crate) type Out<'call, T> = Option<&'call mut MaybeUninit<T>>;

/// Writes an output parameter that may be NULL.
pub(crate) fn put<T>(out: Out<'_, T>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

/// An output parameter that must not be NULL.
pub(crate) fn required<'call, T>(
    out: Out<'call, T>,
    what: &str,
) -> Result<&'call mut MaybeUninit<T>, Failure> {
    out.ok_or_else(|| Failure::null(what))
}
