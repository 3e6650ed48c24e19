//! A client that waits for the reply of another thread.

use redis_module::raw;

use super::api;
use super::context::Ctx;

/// A blocked client. It is unblocked when this is dropped, with the replies until then.
#[derive(Debug)]
pub struct Blocked(*mut raw::RedisModuleBlockedClient);

// SAFETY: the server allows a blocked client to be answered and unblocked by any thread.
unsafe impl Send for Blocked {}

impl Blocked {
    /// Blocks the client of a command. It must be allowed (`Flags::denies_blocking`).
    pub fn new(ctx: Ctx<'_>) -> Self {
        // SAFETY: the context is valid during the call; no callback is passed.
        Self(unsafe { api!(RedisModule_BlockClient(ctx.raw, None, None, None, 0)) })
    }

    /// Replies to the client.
    pub fn reply(&self, reply: impl FnOnce(Ctx<'_>)) {
        // SAFETY: the client is blocked until this is dropped. The context is of this thread, is
        // used for replies alone, which need no lock, and is freed once.
        unsafe {
            let raw = api!(RedisModule_GetThreadSafeContext(self.0));
            reply(Ctx::new(raw));
            api!(RedisModule_FreeThreadSafeContext(raw));
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the client is blocked, and is unblocked once.
        unsafe { api!(RedisModule_UnblockClient(self.0, std::ptr::null_mut())) };
    }
}
