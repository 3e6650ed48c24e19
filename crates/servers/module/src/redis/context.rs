//! A call of the server into the module: a command, an event or a notification.

use std::ffi::{CString, c_char, c_int, c_long, c_longlong, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use super::api;
use crate::layout::NEVER;
use crate::stub::Stub;

/// The data type, after its registration.
static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(null_mut());

fn type_pointer() -> *mut raw::RedisModuleType {
    // Relaxed: it is set once, before the first command.
    TYPE.load(Ordering::Relaxed)
}

pub(super) fn set_type_pointer(registered: *mut raw::RedisModuleType) {
    TYPE.store(registered, Ordering::Relaxed);
}

/// The context of a call. It is of the thread that the server has called.
#[derive(Clone, Copy, Debug)]
pub struct Ctx<'call> {
    pub(super) raw: *mut raw::RedisModuleCtx,
    call: PhantomData<&'call ()>,
}

/// A key of the keyspace.
#[derive(Clone, Debug)]
pub enum Found {
    Absent,
    /// A map, and its expiry in milliseconds since 1970 or [`NEVER`].
    Map(Arc<Stub>, u64),
    /// Of another type.
    Other,
}

/// Properties of a call.
#[derive(Clone, Copy, Debug)]
pub struct Flags(c_int);

impl Flags {
    fn has(self, flag: u32) -> bool {
        self.0 as u32 & flag != 0
    }

    /// The command comes from the primary, or from the append-only file.
    pub fn is_replicated(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
    }

    /// Files are loaded.
    pub fn is_loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// The client may not be blocked: MULTI, a script, or a client that says so.
    pub fn denies_blocking(self) -> bool {
        let flags = raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        self.has(flags)
    }

    pub fn is_replica(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }

    /// A replica that refuses writes of clients.
    pub fn is_read_only(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_READONLY)
    }

    /// A replica is about to load, or loads, the data of its primary.
    pub fn is_transferring(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICA_IS_TRANSFERRING)
    }

    pub fn is_cluster(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }

    /// The append-only file is on.
    pub fn has_aof(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_AOF)
    }

    /// `save` has a rule.
    pub fn has_rdb(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_RDB)
    }

    /// `maxmemory` is set, and the policy evicts keys.
    pub fn evicts(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_EVICT)
    }
}

/// The class of a keyspace event.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    Generic,
    Module,
}

/// A string that the server keeps.
struct Name<'call> {
    raw: *mut raw::RedisModuleString,
    ctx: Ctx<'call>,
}

impl<'call> Name<'call> {
    fn new(ctx: Ctx<'call>, bytes: &[u8]) -> Self {
        // SAFETY: the context is valid during the call, and the server copies the bytes.
        let raw =
            unsafe { api!(RedisModule_CreateString(ctx.raw, bytes.as_ptr().cast(), bytes.len())) };
        Self { raw, ctx }
    }
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        // SAFETY: the string was made by `new` for this context, and is not used after this.
        unsafe { api!(RedisModule_FreeString(self.ctx.raw, self.raw)) };
    }
}

/// An open key.
struct Key {
    raw: *mut raw::RedisModuleKey,
}

impl Key {
    fn open(name: &Name<'_>, mode: u32) -> Self {
        let ctx = name.ctx.raw;
        // SAFETY: the context and the string are valid, and the key is closed once, in `drop`.
        Self { raw: unsafe { api!(RedisModule_OpenKey(ctx, name.raw, mode as c_int)) } }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the key was opened by `open`; closing a null key is allowed.
        unsafe { api!(RedisModule_CloseKey(self.raw)) };
    }
}

/// The bytes of a string of the server.
///
/// # Safety
///
/// The string must be valid, and must not change, for `'bytes`.
pub(super) unsafe fn bytes_of<'bytes>(string: *const raw::RedisModuleString) -> &'bytes [u8] {
    let mut length = 0;
    // SAFETY: as the caller guarantees. The server returns a pointer to so many bytes.
    unsafe {
        let pointer = api!(RedisModule_StringPtrLen(string, &mut length));
        match pointer.is_null() {
            true => &[],
            false => std::slice::from_raw_parts(pointer.cast(), length),
        }
    }
}

/// Adds a name to the list of [`Ctx::names`].
unsafe extern "C" fn add_name(
    _: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    _: *mut raw::RedisModuleKey,
    list: *mut c_void,
) {
    // SAFETY: the name is valid during the call, and `list` is what `names` has passed.
    unsafe { (*list.cast::<Vec<Vec<u8>>>()).push(bytes_of(name).to_vec()) };
}

impl<'call> Ctx<'call> {
    /// # Safety
    ///
    /// The pointer must be a context that the server has handed to the module for this call, or a
    /// thread-safe context of this thread, and valid for `'call`.
    pub unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Self {
        Self { raw, call: PhantomData }
    }

    /// Writes a line to the server's log, from any thread.
    pub fn log(level: &str, text: &str) {
        let clean = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let (level, text) = (clean(level), clean(&format!("pando: {text}")));
        // SAFETY: a null context is allowed. Both strings end with a zero byte, and the format has
        // one argument.
        unsafe {
            if let Some(log) = raw::RedisModule_Log {
                log(null_mut(), level.as_ptr(), c"%s".as_ptr(), text.as_ptr());
            } else {
                eprintln!("{}", text.to_string_lossy());
            }
        }
    }

    pub fn flags(self) -> Flags {
        // SAFETY: the context is valid during the call.
        Flags(unsafe { api!(RedisModule_GetContextFlags(self.raw)) })
    }

    /// The properties of the server, where a callback has no context. Those of a client are unset.
    pub fn server_flags() -> Flags {
        // SAFETY: the server allows a null context.
        Flags(unsafe { api!(RedisModule_GetContextFlags(null_mut())) })
    }

    /// The database of the call.
    pub fn database(self) -> u32 {
        // SAFETY: as above.
        unsafe { api!(RedisModule_GetSelectedDb(self.raw)) as u32 }
    }

    /// Changes to another database; false if the server has no such database.
    pub fn select(self, database: u32) -> bool {
        // SAFETY: as above.
        let status = unsafe { api!(RedisModule_SelectDb(self.raw, database as c_int)) };
        status as isize == raw::REDISMODULE_OK
    }

    /// The number of keys in this database.
    pub fn key_count(self) -> u64 {
        // SAFETY: as above.
        unsafe { api!(RedisModule_DbSize(self.raw)) }
    }

    /// The key with this name. It counts as no access. A key that has expired may be deleted.
    pub fn find(self, name: &[u8]) -> Found {
        self.look(name, raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH)
    }

    /// As [`find`](Self::find), as an access of a client.
    pub fn access(self, name: &[u8]) -> Found {
        self.look(name, raw::REDISMODULE_READ)
    }

    fn look(self, name: &[u8], mode: u32) -> Found {
        let name = Name::new(self, name);
        let key = Key::open(&name, mode);
        // SAFETY: the key is open. A value of our type is an `Arc` as a raw pointer, which the
        // keyspace keeps until `free`, and nothing deletes the key meanwhile.
        unsafe {
            if key.raw.is_null()
                || api!(RedisModule_KeyType(key.raw)) as isize == raw::REDISMODULE_KEYTYPE_EMPTY
            {
                return Found::Absent;
            }
            if api!(RedisModule_ModuleTypeGetType(key.raw)) != type_pointer() {
                return Found::Other;
            }
            let value: *const Stub = api!(RedisModule_ModuleTypeGetValue(key.raw)).cast();
            Arc::increment_strong_count(value);
            let expiry = api!(RedisModule_GetAbsExpire(key.raw));
            Found::Map(Arc::from_raw(value), u64::try_from(expiry).unwrap_or(NEVER))
        }
    }

    /// Deletes a key that has expired, and tells of that, where an access leaves it: on a replica
    /// that takes writes. Clients that watch the key see a change.
    pub fn delete_expired(self, name: &[u8]) {
        let name = Name::new(self, name);
        drop(Key::open(&name, raw::REDISMODULE_WRITE));
    }

    /// Sets a key, in the place of any other.
    pub fn set(self, name: &[u8], stub: Stub, expiry_ms: u64) {
        let name = Name::new(self, name);
        let key = Key::open(&name, raw::REDISMODULE_WRITE);
        let value = Arc::into_raw(Arc::new(stub));
        // SAFETY: the key is open for writes. The keyspace now has the reference, which `free`
        // takes back.
        unsafe {
            let status = api!(RedisModule_ModuleTypeSetValue(
                key.raw,
                type_pointer(),
                value.cast_mut().cast()
            ));
            if status as isize != raw::REDISMODULE_OK {
                // The key is of a lookup that failed; the server keeps nothing.
                drop(Arc::from_raw(value));
                return;
            }
            if let Some(expiry) =
                c_longlong::try_from(expiry_ms).ok().filter(|_| expiry_ms != NEVER)
            {
                api!(RedisModule_SetAbsExpire(key.raw, expiry));
            }
        }
    }

    /// Deletes a key.
    pub fn delete(self, name: &[u8]) {
        let name = Name::new(self, name);
        let key = Key::open(&name, raw::REDISMODULE_WRITE);
        // SAFETY: the key is open for writes; the deletion of an empty key is allowed.
        unsafe { api!(RedisModule_DeleteKey(key.raw)) };
    }

    /// Tells clients that watch the key that it has changed.
    pub fn signal(self, name: &[u8]) {
        let name = Name::new(self, name);
        // SAFETY: the context and the string are valid.
        unsafe { api!(RedisModule_SignalModifiedKey(self.raw, name.raw)) };
    }

    /// Publishes a keyspace event.
    pub fn notify(self, class: Class, event: &str, name: &[u8]) {
        let class = match class {
            Class::Generic => raw::REDISMODULE_NOTIFY_GENERIC,
            Class::Module => raw::REDISMODULE_NOTIFY_MODULE,
        };
        let (event, name) = (CString::new(event).unwrap_or_default(), Name::new(self, name));
        // SAFETY: the context and both strings are valid.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent(
                self.raw,
                class as c_int,
                event.as_ptr(),
                name.raw
            ))
        };
    }

    /// Sends the command, as the client has sent it, to replicas and to the append-only file.
    pub fn replicate_verbatim(self) {
        // SAFETY: the context is valid during the call.
        unsafe { api!(RedisModule_ReplicateVerbatim(self.raw)) };
    }

    /// Sends another command to replicas and to the append-only file; false if the server has no
    /// command of that name.
    #[must_use]
    pub fn replicate(self, command: &str, words: &[&[u8]]) -> bool {
        let command = CString::new(command).unwrap_or_default();
        let names: Vec<_> = words.iter().map(|word| Name::new(self, word)).collect();
        let mut raws: Vec<_> = names.iter().map(|name| name.raw).collect();
        // SAFETY: the format `v` takes an array of valid strings and its length; the server copies
        // them.
        let sent = unsafe {
            api!(RedisModule_Replicate(
                self.raw,
                command.as_ptr(),
                c"v".as_ptr(),
                raws.as_mut_ptr(),
                raws.len()
            ))
        };
        sent == raw::REDISMODULE_OK as c_int
    }

    /// Runs a command of the server, without its reply.
    pub fn call(self, command: &str, words: &[&[u8]]) {
        let command = CString::new(command).unwrap_or_default();
        let names: Vec<_> = words.iter().map(|word| Name::new(self, word)).collect();
        let mut raws: Vec<_> = names.iter().map(|name| name.raw).collect();
        // SAFETY: as in `replicate`. A reply, which may be missing, is freed once.
        unsafe {
            let reply = api!(RedisModule_Call(
                self.raw,
                command.as_ptr(),
                c"v".as_ptr(),
                raws.as_mut_ptr(),
                raws.len()
            ));
            if !reply.is_null() {
                api!(RedisModule_FreeCallReply(reply));
            }
        }
    }

    /// The names of all keys of this database.
    pub fn names(self) -> Vec<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        // SAFETY: the context is valid, the cursor lives until the walk has ended, and `add_name`
        // gets the list, which nothing else uses meanwhile.
        unsafe {
            let cursor = api!(RedisModule_ScanCursorCreate());
            let list: *mut Vec<Vec<u8>> = &mut names;
            while api!(RedisModule_Scan(self.raw, cursor, Some(add_name), list.cast())) != 0 {}
            api!(RedisModule_ScanCursorDestroy(cursor));
        }
        names
    }

    pub fn reply_error(self, text: &str) {
        let text = CString::new(text.replace(['\0', '\r', '\n'], " ")).unwrap_or_default();
        // SAFETY: the context is valid, and the server copies the text. So below.
        unsafe { api!(RedisModule_ReplyWithError(self.raw, text.as_ptr())) };
    }

    pub fn reply_simple(self, text: &str) {
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: see `reply_error`.
        unsafe { api!(RedisModule_ReplyWithSimpleString(self.raw, text.as_ptr())) };
    }

    pub fn reply_integer(self, integer: i64) {
        // SAFETY: see `reply_error`.
        unsafe { api!(RedisModule_ReplyWithLongLong(self.raw, integer)) };
    }

    pub fn reply_count(self, count: u64) {
        self.reply_integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub fn reply_bytes(self, bytes: &[u8]) {
        // SAFETY: see `reply_error`.
        unsafe {
            api!(RedisModule_ReplyWithStringBuffer(
                self.raw,
                bytes.as_ptr().cast::<c_char>(),
                bytes.len()
            ))
        };
    }

    pub fn reply_null(self) {
        // SAFETY: see `reply_error`.
        unsafe { api!(RedisModule_ReplyWithNull(self.raw)) };
    }

    /// Begins an array of so many elements.
    pub fn reply_array(self, count: usize) {
        // SAFETY: see `reply_error`.
        unsafe { api!(RedisModule_ReplyWithArray(self.raw, count as c_long)) };
    }

    /// Begins a map of so many pairs; in RESP2 an array of twice as many elements.
    pub fn reply_map(self, count: usize) {
        // SAFETY: see `reply_error`.
        unsafe { api!(RedisModule_ReplyWithMap(self.raw, count as c_long)) };
    }
}
