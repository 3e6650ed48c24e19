//! Errors as objects, and the frame of each call.

use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pando::Pool;

use crate::bytes::pando_slice;
use crate::failure::{Failure, pando_code};
use crate::handle::{self, Object};

use pando_code as Code;

/// An error. It belongs to the caller.
pub struct pando_error {
    _private: [u8; 0],
}

/// An error behind its handle.
pub(crate) struct ErrorObject {
    failure: Failure,
    text: CString,
}

impl Object for ErrorObject {
    const KIND: u64 = 1;
    const NAME: &'static str = "pando_error";
    fn pool(&self) -> Option<&Pool> {
        None
    }
}

fn give(failure: Failure) -> *mut pando_error {
    let bytes: Vec<u8> = failure.message.bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    handle::give(ErrorObject { failure, text }) as *mut pando_error
}

/// Runs the body of a call. A panic becomes an error.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Failure>) -> *mut pando_error {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(failure)) => give(failure),
        Err(panic) => give(Failure::panicked(&*panic)),
    }
}

/// Frees a handle of an object `T`. NULL is left alone.
pub(crate) fn free<T: Object>(handle: usize) -> *mut pando_error {
    call(|| {
        if handle != 0 {
            drop(handle::take::<T>(handle)?);
        }
        Ok(())
    })
}

fn error(error: *const pando_error) -> Option<&'static ErrorObject> {
    handle::look(error as usize).ok()
}

/// The code of an error; PANDO_CODE_NONE of NULL, and PANDO_CODE_FREED_HANDLE of an
/// error that was freed.
#[unsafe(no_mangle)]
pub extern "C" fn pando_error_code(error: *const pando_error) -> pando_code {
    if error.is_null() {
        return Code::None;
    }
    self::error(error).map_or(Code::FreedHandle, |error| error.failure.code)
}

/// The message of an error: the cause, what is allowed, and what to do next; in UTF-8. Of NULL it
/// is empty. It is valid until the error is freed.
#[unsafe(no_mangle)]
pub extern "C" fn pando_error_message(error: *const pando_error) -> *const c_char {
    if error.is_null() {
        return c"".as_ptr();
    }
    self::error(error).map_or(c"the error was freed".as_ptr(), |error| error.text.as_ptr())
}

/// The bytes of an error: the actual value (PANDO_CODE_VALUE_MISMATCH), or a key
/// (PANDO_CODE_CONFLICT, PANDO_CODE_CONDITION_FAILED); else none. They are valid until
/// the error is freed.
#[unsafe(no_mangle)]
pub extern "C" fn pando_error_bytes(error: *const pando_error) -> pando_slice {
    let found = self::error(error).map_or(&[][..], |error| &error.failure.bytes);
    pando_slice::lend(found)
}

/// Frees an error. NULL, and an error that was freed before, are left alone.
#[unsafe(no_mangle)]
pub extern "C" fn pando_error_free(error: *mut pando_error) {
    let _ = handle::take::<ErrorObject>(error as usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_does_not_unwind() {
        let error = call(|| panic!("deliberate {}", 7));
        assert_eq!(pando_error_code(error), Code::Panic);
        let text = self::error(error).map(|error| error.text.clone()).unwrap_or_default();
        assert!(text.to_string_lossy().contains("deliberate 7"), "{text:?}");
        pando_error_free(error);
        assert_eq!(pando_error_code(error), Code::FreedHandle);
        pando_error_free(error);
    }
}
