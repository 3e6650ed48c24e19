//! The entry point of the module.

use std::ffi::c_int;

use redis_module::raw;

use crate::redis::Ctx;
use crate::start;

/// The version that `MODULE LIST` shows: 0.1.0.
const VERSION: c_int = 100;

/// Called by the server when it loads the module.
///
/// # Safety
///
/// Only the server may call it, with a valid context.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name that the server looks for")]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    _: *mut *mut raw::RedisModuleString,
    _: c_int,
) -> c_int {
    // SAFETY: the server passes a valid context. The name ends with a zero byte.
    let is_loaded = unsafe {
        let status = raw::Export_RedisModule_Init(
            ctx,
            c"pando".as_ptr(),
            VERSION,
            raw::REDISMODULE_APIVER_1 as c_int,
        );
        status as isize == raw::REDISMODULE_OK && {
            let Some(_) = raw::RedisModule_LoadConfigs else {
                eprintln!("pando: the module needs Redis 7.0 or later");
                return raw::REDISMODULE_ERR as c_int;
            };
            start::load(Ctx::new(ctx))
        }
    };
    (if is_loaded { raw::REDISMODULE_OK } else { raw::REDISMODULE_ERR }) as c_int
}
