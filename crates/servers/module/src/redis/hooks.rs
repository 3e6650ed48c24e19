//! The functions of the module that the server's callbacks call. They are set once, so that this
//! folder imports nothing of its users.

use std::sync::OnceLock;

use super::context::Ctx;
use super::info::Info;
use super::io::{Digest, Io};

use crate::stub::Stub;

/// What the server tells and asks.
pub struct Hooks {
    /// Reads a value of a file or payload; none if it is refused.
    pub load: fn(Io<'_>, i32) -> Option<Stub>,
    pub save: fn(Io<'_>, &Stub),
    /// Writes commands to the append-only file that make the value.
    pub rewrite: fn(Io<'_>, &[u8], &Stub),
    /// In bytes.
    pub mem_usage: fn(&Stub) -> usize,
    pub digest: fn(Digest<'_>, &Stub),
    /// The keyspace has no reference any more; perhaps on another thread.
    pub free: fn(&Stub),
    /// A key of this database and name loses the value.
    pub unlink: fn(u32, &[u8], &Stub),
    /// A copy for a key of this database and name; none if it is refused.
    pub copy: fn(u32, &[u8], &Stub) -> Option<Stub>,
    pub save_identity: fn(Io<'_>),
    /// Whether the file may be loaded.
    pub load_identity: fn(Io<'_>, i32) -> bool,
    /// All databases, or one, are emptied; whether a full sync follows.
    pub flush: fn(Ctx<'_>, Option<u32>, bool),
    pub swap: fn(u32, u32),
    pub load_begins: fn(),
    pub load_ends: fn(Ctx<'_>),
    pub load_fails: fn(),
    /// A replica becomes a primary.
    pub promotion: fn(),
    /// A save on the main thread begins, or ends.
    pub save_on_main_thread: fn(bool),
    /// A parameter of the server was set.
    pub configured: fn(),
    /// A replica of this server has come up.
    pub replica_comes: fn(Ctx<'_>),
    pub shutdown: fn(Ctx<'_>),
    pub sleep: fn(Ctx<'_>),
    /// An event and the name of its key.
    pub notification: fn(Ctx<'_>, &[u8], &[u8]),
    pub info: fn(Info),
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the functions; only the first call has an effect.
pub fn set_hooks(hooks: Hooks) {
    let _ = HOOKS.set(hooks);
}

/// The functions, if they are set.
pub(super) fn hooks() -> Option<&'static Hooks> {
    HOOKS.get()
}
