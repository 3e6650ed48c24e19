//! The module API of Redis, as safe types. All unsafe code of the module is in this folder.
//!
//! * `context.rs`: commands and events: keys, replies, replication
//! * `blocked.rs`: clients that wait for another thread
//! * `io.rs`: RDB files, payloads, the append-only file, digests
//! * `data_type.rs`: the callbacks of the data type
//! * `register.rs`: commands, events and parameters; `info.rs`: INFO
//! * `hooks.rs`: the functions of the module that callbacks call
//! * `fork.rs`: handlers of `fork`
//! * `server_info.rs`: what the server says in INFO

mod blocked;
mod context;
mod data_type;
mod fork;
mod hooks;
mod info;
mod io;
mod register;
mod server_info;

pub use blocked::Blocked;
pub use context::{Class, Ctx, Flags, Found};
pub use data_type::{VERSION, register_type};
pub use fork::{end_at_once, kill_this_process, watch_forks};
pub use hooks::{Hooks, set_hooks};
pub use info::Info;
pub use io::{Digest, Io};
pub use register::{
    Command, KeyUse, Keys, Number, Parameter, Text, register_commands, register_events,
    register_parameters,
};
pub use server_info::ServerInfo;

/// Calls a function of the module API.
macro_rules! api {
    ($name:ident($($argument:expr),* $(,)?)) => {
        match redis_module::raw::$name {
            Some(function) => function($($argument),*),
            None => $crate::redis::missing(stringify!($name)),
        }
    };
}
use api;

/// The server has no such function: it is older than 7.0, which the start checks.
#[cold]
fn missing(name: &str) -> ! {
    eprintln!("pando: this server has no {name}; it needs Redis 7.0 or later");
    std::process::abort();
}
