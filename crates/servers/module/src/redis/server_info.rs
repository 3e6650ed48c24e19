//! What the server itself says in INFO. It needs no command, which the server may have renamed.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use redis_module::raw;

use super::api;

/// A section of the server's INFO, as it is at the call.
#[derive(Debug)]
pub struct ServerInfo(*mut raw::RedisModuleServerInfoData);

impl ServerInfo {
    /// Only the main thread may call this.
    pub fn of(section: &str) -> Self {
        let section = CString::new(section).unwrap_or_default();
        // SAFETY: the server allows a null context, and copies the name.
        Self(unsafe { api!(RedisModule_GetServerInfo(null_mut(), section.as_ptr())) })
    }

    /// A field; none if the server has no such field.
    pub fn text(&self, field: &str) -> Option<String> {
        let field = CString::new(field).unwrap_or_default();
        // SAFETY: the section is valid until `drop`, and so is a text that it returns.
        unsafe {
            let text = api!(RedisModule_ServerInfoGetFieldC(self.0, field.as_ptr()));
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    /// A field that is a number.
    pub fn number(&self, field: &str) -> Option<u64> {
        self.text(field)?.parse().ok()
    }
}

impl Drop for ServerInfo {
    fn drop(&mut self) {
        // SAFETY: the section was made by `of` without a context, and is freed once.
        unsafe { api!(RedisModule_FreeServerInfo(null_mut(), self.0)) };
    }
}
