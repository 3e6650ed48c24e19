//! The callbacks of the data type.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use redis_module::raw;

use super::api;
use super::context::{Ctx, bytes_of, set_type_pointer};
use super::hooks::hooks;
use super::io::{Digest, Io};
use crate::stub::Stub;

/// The version of the type in files.
pub const VERSION: c_int = 1;

/// The stub behind a value, for the duration of a callback.
///
/// # Safety
///
/// The value must be one of our type that the keyspace has.
unsafe fn stub<'call>(value: *const c_void) -> &'call Stub {
    // SAFETY: a value of our type is an `Arc<Stub>` as a raw pointer.
    unsafe { &*value.cast::<Stub>() }
}

/// A new value for the keyspace.
fn value(stub: Option<Stub>) -> *mut c_void {
    stub.map_or(null_mut(), |stub| Arc::into_raw(Arc::new(stub)).cast_mut().cast())
}

// SAFETY (all callbacks): the server calls them with pointers that are valid during the call, and
// with values of our type.

unsafe extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    // SAFETY: see above.
    let io = unsafe { Io::new(io) };
    value(hooks().and_then(|hooks| (hooks.load)(io, version)))
}

unsafe extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    let Some(hooks) = hooks() else { return };
    // SAFETY: see above.
    unsafe { (hooks.save)(Io::new(io), stub(value)) };
}

unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    name: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    let Some(hooks) = hooks() else { return };
    // SAFETY: see above.
    unsafe { (hooks.rewrite)(Io::new(io), bytes_of(name), stub(value)) };
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: see above.
    let stub = unsafe { stub(value) };
    hooks().map_or(0, |hooks| (hooks.mem_usage)(stub))
}

unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    let Some(hooks) = hooks() else { return };
    // SAFETY: see above.
    unsafe { (hooks.digest)(Digest::new(digest), stub(value)) };
}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: see above; the keyspace gives its reference back.
    let stub = unsafe { Arc::from_raw(value.cast::<Stub>().cast_const()) };
    if let Some(hooks) = hooks() {
        (hooks.free)(&stub);
    }
}

unsafe extern "C" fn free_effort(_: *mut raw::RedisModuleString, _: *const c_void) -> usize {
    // The records are removed by a thread in any case.
    1
}

unsafe extern "C" fn unlink(options: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    let Some(hooks) = hooks() else { return };
    // SAFETY: see above.
    unsafe {
        let name = bytes_of(api!(RedisModule_GetKeyNameFromOptCtx(options)));
        let database = api!(RedisModule_GetDbIdFromOptCtx(options));
        (hooks.unlink)(database as u32, name, stub(value));
    }
}

unsafe extern "C" fn copy(
    options: *mut raw::RedisModuleKeyOptCtx,
    from: *const c_void,
) -> *mut c_void {
    let Some(hooks) = hooks() else { return null_mut() };
    // SAFETY: see above.
    unsafe {
        let name = bytes_of(api!(RedisModule_GetToKeyNameFromOptCtx(options)));
        let database = api!(RedisModule_GetToDbIdFromOptCtx(options));
        value((hooks.copy)(database as u32, name, stub(from)))
    }
}

unsafe extern "C" fn aux_save(io: *mut raw::RedisModuleIO, _: c_int) {
    let Some(hooks) = hooks() else { return };
    // SAFETY: see above.
    (hooks.save_identity)(unsafe { Io::new(io) });
}

unsafe extern "C" fn aux_load(io: *mut raw::RedisModuleIO, version: c_int, _: c_int) -> c_int {
    // SAFETY: see above.
    let io = unsafe { Io::new(io) };
    let is_accepted = hooks().is_some_and(|hooks| (hooks.load_identity)(io, version));
    (if is_accepted { raw::REDISMODULE_OK } else { raw::REDISMODULE_ERR }) as c_int
}

/// Registers the type; false if the server refuses it.
pub fn register_type(ctx: Ctx<'_>) -> bool {
    let mut methods = raw::RedisModuleTypeMethods {
        // The version of Redis 7.0; later servers accept it.
        version: 4,
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: Some(mem_usage),
        digest: Some(digest),
        free: Some(free),
        aux_load: Some(aux_load),
        aux_save: Some(aux_save),
        aux_save_triggers: raw::REDISMODULE_AUX_BEFORE_RDB as c_int,
        free_effort: Some(free_effort),
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: Some(unlink),
        copy2: Some(copy),
        aux_save2: None,
    };
    // The server wants 9 letters.
    let name = c"pando-map";
    // SAFETY: the context is valid, the name ends with a zero byte, and the server copies both.
    let registered = unsafe {
        api!(RedisModule_CreateDataType(
            ctx.raw,
            name.as_ptr().cast::<c_char>(),
            VERSION,
            &mut methods
        ))
    };
    set_type_pointer(registered);
    // SAFETY: the context is valid. With this option a damaged file is an error here, and not the
    // end of the server.
    unsafe {
        api!(RedisModule_SetModuleOptions(
            ctx.raw,
            raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS as c_int
        ))
    };
    !registered.is_null()
}
