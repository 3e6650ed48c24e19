//! The section of INFO.

use std::ffi::CString;

use redis_module::raw;

use super::api;

/// The section of INFO.
#[derive(Clone, Copy, Debug)]
pub struct Info(*mut raw::RedisModuleInfoCtx);

impl Info {
    /// Begins the section.
    ///
    /// # Safety
    ///
    /// The pointer must be one that the server has handed to a callback for this call.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleInfoCtx) -> Self {
        // SAFETY: as the caller guarantees. An empty name is that of the module.
        unsafe { api!(RedisModule_InfoAddSection(raw, c"".as_ptr())) };
        Self(raw)
    }

    pub fn number(self, name: &str, value: u64) {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the pointer is valid during the callback; the server copies the name.
        unsafe { api!(RedisModule_InfoAddFieldULongLong(self.0, name.as_ptr(), value)) };
    }

    pub fn text(self, name: &str, value: &str) {
        let clean = |text: &str| CString::new(text).unwrap_or_default();
        let (name, value) = (clean(name), clean(value));
        // SAFETY: as above.
        unsafe {
            api!(RedisModule_InfoAddFieldCString(self.0, name.as_ptr(), value.as_ptr()));
        }
    }
}
