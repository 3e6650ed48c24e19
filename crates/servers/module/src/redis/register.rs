//! Registration of commands, parameters, events and INFO.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use redis_module::raw;

use super::api;
use super::context::{Ctx, bytes_of};
use super::hooks::hooks;
use super::info::Info;

/// Where the keys of a command are among its words.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// The first word behind the command.
    First,
    /// Each second word: key, payload, key, payload.
    EachSecond,
    /// The first word is their number.
    Counted,
}

/// How a command uses its keys.
#[derive(Clone, Copy, Debug)]
pub enum KeyUse {
    Reads,
    /// Writes without a reply of old values.
    Writes,
    /// Writes, and replies with values.
    ReadsAndWrites,
    Deletes,
}

/// A command.
pub struct Command {
    /// In lower case.
    pub name: &'static str,
    /// The flags of `RedisModule_CreateCommand`.
    pub flags: &'static str,
    /// The number of words with the command; negative if that is the least number.
    pub arity: c_int,
    pub keys: Keys,
    pub key_use: KeyUse,
    pub summary: &'static str,
    pub complexity: &'static str,
    /// Replies to it. The words are without the command.
    pub run: fn(Ctx<'_>, &[&[u8]]),
}

static COMMANDS: OnceLock<&'static [Command]> = OnceLock::new();

unsafe extern "C" fn run(
    ctx: *mut raw::RedisModuleCtx,
    words: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: the server passes its context, and `count` valid strings, for this call.
    let (ctx, words) = unsafe {
        let words = std::slice::from_raw_parts(words, count as usize);
        let words: Vec<&[u8]> = words.iter().map(|&word| bytes_of(word)).collect();
        (Ctx::new(ctx), words)
    };
    let Some((name, words)) = words.split_first() else { return 0 };
    let commands = COMMANDS.get().copied().unwrap_or_default();
    match commands.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name)) {
        Some(command) => (command.run)(ctx, words),
        None => ctx.reply_error("ERR the command was renamed, which the module does not support"),
    }
    0
}

/// A text that stays as long as the process: the server keeps pointers to some.
fn kept(text: &str) -> *const c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

fn key_spec(command: &Command) -> raw::RedisModuleCommandKeySpec {
    let flags = match command.key_use {
        KeyUse::Reads => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyUse::Writes => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
        KeyUse::ReadsAndWrites => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        KeyUse::Deletes => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
    };
    // SAFETY: all of its fields may be zero.
    let mut spec: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
    spec.flags = flags.into();
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = 1;
    let range = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    let counted = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
    match command.keys {
        Keys::First => {
            spec.find_keys_type = range;
            spec.fk.range.lastkey = 0;
            spec.fk.range.keystep = 1;
        }
        Keys::EachSecond => {
            spec.find_keys_type = range;
            spec.fk.range.lastkey = -1;
            spec.fk.range.keystep = 2;
        }
        Keys::Counted => {
            spec.find_keys_type = counted;
            spec.fk.keynum.keynumidx = 0;
            spec.fk.keynum.firstkey = 1;
            spec.fk.keynum.keystep = 1;
        }
    }
    spec
}

fn register_command(ctx: Ctx<'_>, command: &Command) -> bool {
    let name = kept(command.name);
    let flags = CString::new(command.flags).unwrap_or_default();
    let (first, last, step) = match command.keys {
        Keys::First => (1, 1, 1),
        Keys::EachSecond => (1, -1, 2),
        Keys::Counted => (0, 0, 0),
    };
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    // SAFETY: all of its fields may be zero; a zero entry ends the list.
    let mut specs = [key_spec(command), unsafe { std::mem::zeroed() }];
    let info = raw::RedisModuleCommandInfo {
        version: &version,
        summary: kept(command.summary),
        complexity: kept(command.complexity),
        since: null(),
        history: null_mut(),
        tips: null(),
        arity: command.arity,
        key_specs: specs.as_mut_ptr(),
        args: null_mut(),
    };
    // SAFETY: the context is valid, and the texts end with a zero byte. The server copies the
    // specification of the command.
    unsafe {
        let status = api!(RedisModule_CreateCommand(
            ctx.raw,
            name,
            Some(run),
            flags.as_ptr(),
            first,
            last,
            step
        ));
        if status as isize != raw::REDISMODULE_OK {
            return false;
        }
        let registered = api!(RedisModule_GetCommand(ctx.raw, name));
        if registered.is_null()
            || api!(RedisModule_SetCommandInfo(registered, &info)) as isize != raw::REDISMODULE_OK
        {
            return false;
        }
        // A category of its own, if the server has such calls (7.4 or later). A call replaces the
        // categories that follow from the flags.
        if let Some(set) = raw::RedisModule_SetCommandACLCategories
            && let Some(_) = raw::RedisModule_AddACLCategory
        {
            let speed = if command.flags.contains("fast") { "fast" } else { "slow" };
            let access = if command.flags.contains("readonly") { "read" } else { "write" };
            let categories = CString::new(format!("pando {access} {speed}")).unwrap_or_default();
            set(registered, categories.as_ptr());
        }
    }
    true
}

/// Registers the commands; false if the server refuses one.
pub fn register_commands(ctx: Ctx<'_>, commands: &'static [Command]) -> bool {
    let commands = *COMMANDS.get_or_init(|| commands);
    // SAFETY: the context is valid; the server copies the name.
    unsafe {
        if let Some(add) = raw::RedisModule_AddACLCategory {
            add(ctx.raw, c"pando".as_ptr());
        }
    }
    commands.iter().all(|command| register_command(ctx, command))
}

/// A parameter with a number, or a truth value.
#[derive(Debug)]
pub struct Number {
    pub name: &'static str,
    pub default: i64,
    pub least: i64,
    pub most: i64,
    /// In bytes, with units.
    pub is_memory: bool,
    /// `yes` or `no`.
    pub is_truth: bool,
    /// Whether only the configuration file may set it.
    pub is_fixed: bool,
    /// Relaxed: no other memory follows from it.
    pub value: AtomicI64,
}

/// A parameter with a text, which only the configuration file may set.
#[derive(Debug)]
pub struct Text {
    pub name: &'static str,
    pub default: &'static str,
    pub value: Mutex<Option<String>>,
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub enum Parameter {
    Number(&'static Number),
    Text(&'static Text),
}

/// The number behind a pointer that was registered.
///
/// # Safety
///
/// The pointer must be that of a static [`Number`].
unsafe fn number(data: *mut c_void) -> &'static Number {
    // SAFETY: as the caller guarantees.
    unsafe { &*data.cast::<Number>() }
}

// SAFETY (of the callbacks of parameters): `data` is the pointer that was registered, and the
// server passes valid strings.

unsafe extern "C" fn get_number(_: *const c_char, data: *mut c_void) -> c_longlong {
    // SAFETY: see above.
    unsafe { number(data) }.value.load(Ordering::Relaxed)
}

unsafe extern "C" fn set_number(
    _: *const c_char,
    value: c_longlong,
    data: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: see above.
    unsafe { number(data) }.value.store(value, Ordering::Relaxed);
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get_truth(_: *const c_char, data: *mut c_void) -> c_int {
    // SAFETY: see above.
    unsafe { number(data) }.value.load(Ordering::Relaxed) as c_int
}

unsafe extern "C" fn set_truth(
    _: *const c_char,
    value: c_int,
    data: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: see above.
    unsafe { number(data) }.value.store(value.into(), Ordering::Relaxed);
    raw::REDISMODULE_OK as c_int
}

/// The string that `get_text` has returned: it belongs to the module.
static LENT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

unsafe extern "C" fn get_text(_: *const c_char, data: *mut c_void) -> *mut raw::RedisModuleString {
    // SAFETY: see above.
    let text = unsafe { &*data.cast::<Text>() };
    let value = text.get();
    let mut lent = LENT.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: a null context is allowed, and the strings lent before are not used any more: the
    // server copies each before it asks for another one.
    unsafe {
        for old in lent.drain(..) {
            api!(RedisModule_FreeString(null_mut(), old as *mut raw::RedisModuleString));
        }
        let new = api!(RedisModule_CreateString(null_mut(), value.as_ptr().cast(), value.len()));
        lent.push(new as usize);
        new
    }
}

unsafe extern "C" fn set_text(
    _: *const c_char,
    value: *mut raw::RedisModuleString,
    data: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: see above.
    let (text, value) = unsafe { (&*data.cast::<Text>(), bytes_of(value)) };
    let value = String::from_utf8_lossy(value).into_owned();
    *text.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    raw::REDISMODULE_OK as c_int
}

impl Text {
    pub fn get(&self) -> String {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        value.clone().unwrap_or_else(|| self.default.to_owned())
    }
}

impl Number {
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

fn register_parameter(ctx: Ctx<'_>, parameter: Parameter) -> bool {
    let fixed = raw::REDISMODULE_CONFIG_IMMUTABLE;
    // SAFETY: the context is valid, the names end with a zero byte and are copied, and the data is
    // static.
    let status = unsafe {
        match parameter {
            Parameter::Text(text) => {
                let data: *const Text = text;
                let default = kept(text.default);
                api!(RedisModule_RegisterStringConfig(
                    ctx.raw,
                    kept(text.name),
                    default,
                    fixed,
                    Some(get_text),
                    Some(set_text),
                    None,
                    data.cast_mut().cast()
                ))
            }
            Parameter::Number(number) => {
                let data: *const Number = number;
                let data = data.cast_mut().cast();
                let mut flags = if number.is_fixed { fixed } else { 0 };
                if number.is_truth {
                    let default = number.default as c_int;
                    api!(RedisModule_RegisterBoolConfig(
                        ctx.raw,
                        kept(number.name),
                        default,
                        flags,
                        Some(get_truth),
                        Some(set_truth),
                        None,
                        data
                    ))
                } else {
                    if number.is_memory {
                        flags |= raw::REDISMODULE_CONFIG_MEMORY;
                    }
                    api!(RedisModule_RegisterNumericConfig(
                        ctx.raw,
                        kept(number.name),
                        number.default,
                        flags,
                        number.least,
                        number.most,
                        Some(get_number),
                        Some(set_number),
                        None,
                        data
                    ))
                }
            }
        }
    };
    status as isize == raw::REDISMODULE_OK
}

/// Registers the parameters, and reads those of the configuration file; false if the server
/// refuses one, and has said why.
pub fn register_parameters(ctx: Ctx<'_>, parameters: &[Parameter]) -> bool {
    parameters.iter().all(|&parameter| register_parameter(ctx, parameter)) && {
        // SAFETY: the context is valid.
        let status = unsafe { api!(RedisModule_LoadConfigs(ctx.raw)) };
        status as isize == raw::REDISMODULE_OK
    }
}

unsafe extern "C" fn on_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    step: u64,
    data: *mut c_void,
) {
    let Some(hooks) = hooks() else { return };
    // SAFETY: the server passes its context, and the data of the event, for this call.
    unsafe {
        let ctx = Ctx::new(ctx);
        match (event.id, step) {
            (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_START) => {
                let database = (*data.cast::<raw::RedisModuleFlushInfoV1>()).dbnum;
                let is_transferring = ctx.flags().is_transferring();
                (hooks.flush)(ctx, u32::try_from(database).ok(), is_transferring);
            }
            (raw::REDISMODULE_EVENT_SWAPDB, _) => {
                let swapped = &*data.cast::<raw::RedisModuleSwapDbInfoV1>();
                (hooks.swap)(swapped.dbnum_first as u32, swapped.dbnum_second as u32);
            }
            (
                raw::REDISMODULE_EVENT_LOADING,
                raw::REDISMODULE_SUBEVENT_LOADING_RDB_START
                | raw::REDISMODULE_SUBEVENT_LOADING_AOF_START
                | raw::REDISMODULE_SUBEVENT_LOADING_REPL_START,
            ) => (hooks.load_begins)(),
            (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_ENDED) => {
                (hooks.load_ends)(ctx);
            }
            (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_FAILED) => {
                (hooks.load_fails)();
            }
            (
                raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
                raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER,
            ) => (hooks.promotion)(),
            (
                raw::REDISMODULE_EVENT_PERSISTENCE,
                raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_RDB_START
                | raw::REDISMODULE_SUBEVENT_PERSISTENCE_SYNC_AOF_START,
            ) => (hooks.save_on_main_thread)(true),
            (
                raw::REDISMODULE_EVENT_PERSISTENCE,
                raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED
                | raw::REDISMODULE_SUBEVENT_PERSISTENCE_FAILED,
            ) => (hooks.save_on_main_thread)(false),
            (raw::REDISMODULE_EVENT_CONFIG, _) => (hooks.configured)(),
            (
                raw::REDISMODULE_EVENT_REPLICA_CHANGE,
                raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE,
            ) => (hooks.replica_comes)(ctx),
            (raw::REDISMODULE_EVENT_SHUTDOWN, _) => (hooks.shutdown)(ctx),
            (
                raw::REDISMODULE_EVENT_EVENTLOOP,
                raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP,
            ) => (hooks.sleep)(ctx),
            _ => {}
        }
    }
}

unsafe extern "C" fn on_notification(
    ctx: *mut raw::RedisModuleCtx,
    _: c_int,
    event: *const c_char,
    name: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes its context and valid strings for this call.
    unsafe {
        let event = CStr::from_ptr(event).to_bytes();
        if let Some(hooks) = hooks() {
            (hooks.notification)(Ctx::new(ctx), event, bytes_of(name));
        }
    }
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn on_info(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report == 0 {
        // SAFETY: the server passes a valid pointer for this call.
        let info = unsafe { Info::new(info) };
        if let Some(hooks) = hooks() {
            (hooks.info)(info);
        }
    }
}

/// Subscribes to events and notifications, and registers INFO; false if the server refuses one.
pub fn register_events(ctx: Ctx<'_>) -> bool {
    let wanted = [
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_PERSISTENCE,
        raw::REDISMODULE_EVENT_CONFIG,
        raw::REDISMODULE_EVENT_REPLICA_CHANGE,
        raw::REDISMODULE_EVENT_SHUTDOWN,
        raw::REDISMODULE_EVENT_EVENTLOOP,
    ];
    // Not `NEW`: it comes in the middle of RENAME, when both names are there.
    let notifications = raw::REDISMODULE_NOTIFY_GENERIC
        | raw::REDISMODULE_NOTIFY_STRING
        | raw::REDISMODULE_NOTIFY_LIST
        | raw::REDISMODULE_NOTIFY_SET
        | raw::REDISMODULE_NOTIFY_HASH
        | raw::REDISMODULE_NOTIFY_ZSET
        | raw::REDISMODULE_NOTIFY_EXPIRED
        | raw::REDISMODULE_NOTIFY_EVICTED
        | raw::REDISMODULE_NOTIFY_STREAM
        | raw::REDISMODULE_NOTIFY_MODULE
        | raw::REDISMODULE_NOTIFY_LOADED;
    // SAFETY: the context is valid, and the callbacks stay as long as the module.
    unsafe {
        wanted.into_iter().all(|id| {
            let event = raw::RedisModuleEvent { id, dataver: 1 };
            let status = api!(RedisModule_SubscribeToServerEvent(ctx.raw, event, Some(on_event)));
            status as isize == raw::REDISMODULE_OK
        }) && api!(RedisModule_SubscribeToKeyspaceEvents(
            ctx.raw,
            notifications,
            Some(on_notification)
        )) as isize
            == raw::REDISMODULE_OK
            && api!(RedisModule_RegisterInfoFunc(ctx.raw, Some(on_info))) as isize
                == raw::REDISMODULE_OK
    }
}
