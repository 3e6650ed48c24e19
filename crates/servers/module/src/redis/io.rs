//! Reading and writing of RDB files, payloads and the append-only file.

use std::ffi::{CString, c_char};
use std::marker::PhantomData;
use std::ops::Deref;

use redis_module::raw;

use super::api;
use super::context::bytes_of;

/// A file, or a payload, that is read or written.
#[derive(Clone, Copy, Debug)]
pub struct Io<'call> {
    raw: *mut raw::RedisModuleIO,
    call: PhantomData<&'call ()>,
}

/// Bytes that were read. The server has allocated them.
#[derive(Debug)]
pub struct Bytes {
    pointer: *mut c_char,
    length: usize,
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the server has returned a buffer of so many bytes, which `drop` frees.
        unsafe { std::slice::from_raw_parts(self.pointer.cast(), self.length) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: the buffer came from the server's allocator, and is freed once.
        unsafe { api!(RedisModule_Free(self.pointer.cast())) };
    }
}

impl Io<'_> {
    /// # Safety
    ///
    /// The pointer must be one that the server has handed to a callback for this call.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleIO) -> Self {
        Self { raw, call: PhantomData }
    }

    pub fn save_number(self, number: u64) {
        // SAFETY: the pointer is valid during the call. So below.
        unsafe { api!(RedisModule_SaveUnsigned(self.raw, number)) };
    }

    pub fn save_bytes(self, bytes: &[u8]) {
        // SAFETY: see `save_number`; the server copies the bytes.
        unsafe { api!(RedisModule_SaveStringBuffer(self.raw, bytes.as_ptr().cast(), bytes.len())) };
    }

    fn is_failed(self) -> bool {
        // SAFETY: see `save_number`.
        unsafe { api!(RedisModule_IsIOError(self.raw)) != 0 }
    }

    /// None if the file ends, or has something else there.
    pub fn load_number(self) -> Option<u64> {
        // SAFETY: see `save_number`.
        let number = unsafe { api!(RedisModule_LoadUnsigned(self.raw)) };
        (!self.is_failed()).then_some(number)
    }

    /// None if the file ends, or has something else there.
    pub fn load_bytes(self) -> Option<Bytes> {
        let mut length = 0;
        // SAFETY: see `save_number`.
        let pointer = unsafe { api!(RedisModule_LoadStringBuffer(self.raw, &mut length)) };
        if pointer.is_null() {
            return None;
        }
        let bytes = Bytes { pointer, length };
        (!self.is_failed()).then_some(bytes)
    }

    /// The database and the name of the key, if there is one.
    pub fn name(self) -> Option<(u32, Vec<u8>)> {
        // SAFETY: see `save_number`; the name is valid during the call, and is copied.
        unsafe {
            let name = api!(RedisModule_GetKeyNameFromIO(self.raw));
            let database = api!(RedisModule_GetDbIdFromIO(self.raw));
            if name.is_null() {
                return None;
            }
            Some((u32::try_from(database).ok()?, bytes_of(name).to_vec()))
        }
    }

    /// Writes a command with two words to the append-only file.
    pub fn emit(self, command: &str, one: &[u8], other: &[u8]) {
        let command = CString::new(command).unwrap_or_default();
        // SAFETY: see `save_number`. The format `bb` takes two pairs of a buffer and its length.
        unsafe {
            api!(RedisModule_EmitAOF(
                self.raw,
                command.as_ptr(),
                c"bb".as_ptr(),
                one.as_ptr().cast::<c_char>(),
                one.len(),
                other.as_ptr().cast::<c_char>(),
                other.len()
            ))
        };
    }
}

/// A digest of DEBUG DIGEST.
#[derive(Clone, Copy, Debug)]
pub struct Digest<'call> {
    raw: *mut raw::RedisModuleDigest,
    call: PhantomData<&'call ()>,
}

impl Digest<'_> {
    /// # Safety
    ///
    /// As for [`Io::new`].
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleDigest) -> Self {
        Self { raw, call: PhantomData }
    }

    /// Adds a record.
    pub fn add(self, key: &[u8], value: &[u8]) {
        // SAFETY: the pointer is valid during the call.
        unsafe {
            api!(RedisModule_DigestAddStringBuffer(self.raw, key.as_ptr().cast(), key.len()));
            api!(RedisModule_DigestAddStringBuffer(self.raw, value.as_ptr().cast(), value.len()));
            api!(RedisModule_DigestEndSequence(self.raw));
        }
    }
}
