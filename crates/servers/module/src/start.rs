//! The start: which of pool and files has precedence.
//!
//! | found | precedence | why |
//! | --- | --- | --- |
//! | a complete pool | the pool | it has each write that was replied to, and the files may not |
//! | no pool | the files | the module is new here, or its pool was moved away |
//! | a pool that was open when the machine went down, on a medium that keeps no order of writes | the files; the pool is moved aside | it may be damaged |
//! | a pool whose load of files was interrupted | the files | it is incomplete |
//! | `pando.restore yes` | the files; the pool is moved aside | the operator says so |
//! | a pool that cannot be opened for another reason | none: the server does not start | only the operator knows whether the files are as new |
//!
//! The two are never mixed. If the pool has precedence, the files are loaded with no effect on the
//! pool, and then each stub is rebuilt from the directory (`events.rs`). So an older RDB file, a
//! truncated append-only file, and no file at all, give the same maps. If the files have
//! precedence, they are applied to an empty pool, in the state *loading*: a kill during that gives
//! the files precedence again.
//!
//! MODULE LOAD comes when no files are loaded any more. So it makes the stubs itself, before the
//! next command. No other server gets these maps, so it is refused if one has the data of this one.
//!
//! A partial resynchronization across a restart is not possible, because the offset in an RDB file
//! may be behind the pool. With `appendonly yes` Redis restores no replication ID. So a replica,
//! and a node of a cluster, must have it.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use pando::Error;

use crate::child;
use crate::commands;
use crate::events;
use crate::garbage::Collector;
use crate::info;
use crate::log;
use crate::redis::{
    Ctx, Flags, Hooks, ServerInfo, register_commands, register_events, register_parameters,
    register_type, set_hooks, watch_forks,
};
use crate::settings::{self, PARAMETERS};
use crate::state::{Phase, STATE};
use crate::store::Store;
use crate::values;

/// A random identity.
fn draw_id() -> Result<[u8; 16], std::io::Error> {
    let mut id = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id)
}

/// Moves a pool aside; a pool that was moved there earlier is replaced.
fn move_aside(path: &Path) -> Result<(), std::io::Error> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".old");
    match std::fs::rename(path, &aside) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.inspect(|()| log::notice(&format!("the pool is now {}", aside.display()))),
    }
}

/// A start that is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}; to go on with the files of the server, set pando.restore yes for one start")]
    Pool(Error),
    /// Another server has it, or it cannot be created: files would not help.
    #[error("{0}")]
    Place(Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Opens or creates the pool.
fn open(path: &Path) -> Result<(Store, Phase), Refusal> {
    let limits = settings::limits();
    let create = || {
        Ok((Store::create(path, limits, draw_id()?).map_err(Refusal::Place)?, Phase::FilesFirst))
    };
    let load_again = |store: Store| {
        log::warning("a load of files was interrupted: the files have precedence");
        let databases = store.databases();
        store.flush(&databases, true).map_err(Refusal::Pool)?;
        Ok((store, Phase::FilesFirst))
    };
    if settings::restore() {
        match Store::open(path, limits) {
            // Another server has it: it stays.
            Err(busy @ Error::PoolBusy { .. }) => return Err(Refusal::Place(busy)),
            // The start with this parameter was interrupted. The pool that it has moved aside is
            // not replaced.
            Ok(store) if !store.is_complete().map_err(Refusal::Pool)? => return load_again(store),
            _ => {}
        }
        move_aside(path)?;
        log::notice("pando.restore: the files have precedence over the pool");
        return create();
    }
    match Store::open(path, limits) {
        Ok(store) => match store.is_complete().map_err(Refusal::Pool)? {
            true => Ok((store, Phase::PoolFirst)),
            false => load_again(store),
        },
        Err(Error::PoolNotFound { .. }) => create(),
        Err(error @ Error::NotTrusted { .. }) => {
            log::warning(&format!("the files have precedence over the pool: {error}"));
            move_aside(path)?;
            create()
        }
        Err(
            error @ (Error::PoolBusy { .. }
            | Error::PoolNotWritable { .. }
            | Error::NewerPool { .. }),
        ) => Err(Refusal::Place(error)),
        Err(error) => Err(Refusal::Pool(error)),
    }
}

fn before_fork() {
    if let Some(store) = STATE.store()
        && !store.has_forked()
    {
        child::before_fork(&store);
    }
}

/// Whether other servers have the data of this one, and get only what changes from now on.
fn has_copies(flags: Flags) -> bool {
    let info = ServerInfo::of("replication");
    let is_some = |field| info.number(field).is_some_and(|count| count > 0);
    flags.is_replica() || is_some("connected_slaves") || is_some("repl_backlog_active")
}

/// Loads the module; false if the server must not start.
pub fn load(ctx: Ctx<'_>) -> bool {
    set_hooks(Hooks {
        load: values::load,
        save: values::save,
        rewrite: values::rewrite,
        mem_usage: values::mem_usage,
        digest: values::digest,
        free: values::free,
        unlink: values::unlink,
        copy: values::copy,
        save_identity: values::save_identity,
        load_identity: values::load_identity,
        flush: events::on_flush,
        swap: events::on_swap,
        load_begins: events::on_load_begins,
        load_ends: events::on_load_ends,
        load_fails: events::on_load_fails,
        promotion: events::on_promotion,
        save_on_main_thread: events::on_save,
        configured: events::on_configured,
        replica_comes: events::on_replica,
        shutdown: events::on_shutdown,
        sleep: events::on_sleep,
        notification: events::on_notification,
        info: info::report,
    });
    if !register_type(ctx)
        || !register_commands(ctx, commands::COMMANDS)
        || !register_parameters(ctx, &PARAMETERS)
    {
        log::warning("the server refuses the module's type, a command or a parameter");
        return false;
    }
    let flags = ctx.flags();
    if (flags.is_cluster() || flags.is_replica()) && !flags.has_aof() {
        log::warning(
            "a replica, and a node of a cluster, needs `appendonly yes`: an RDB file has a \
             replication offset that may be behind the pool",
        );
        return false;
    }
    let path = settings::pool();
    let (store, phase) = match open(&path) {
        Ok(opened) => opened,
        Err(refusal) => {
            log::warning(&format!("no start: {refusal}"));
            return false;
        }
    };
    // MODULE LOAD in a server that has data: the maps would replace keys of other types.
    let databases = (0..).take_while(|&database| ctx.select(database));
    let keys: u64 = databases.map(|_| ctx.key_count()).sum();
    ctx.select(0);
    if phase == Phase::PoolFirst && keys > 0 {
        log::warning(&format!(
            "no start: {} has maps, and the server has {keys} keys already; load the module at the \
             start of the server (`loadmodule`), or move the pool away",
            path.display()
        ));
        return false;
    }
    // MODULE LOAD: there is a client already. At the start of a server there is none.
    let clients = ServerInfo::of("clients").number("connected_clients");
    let is_late = phase == Phase::PoolFirst && clients.is_some_and(|count| count > 0);
    if is_late && has_copies(flags) {
        log::warning(&format!(
            "no start: {} has maps, and the server is a replica, has replicas, or had some that \
             can come back without a full sync: they would differ; load the module at the start \
             of the server (`loadmodule`)",
            path.display()
        ));
        return false;
    }
    let store = Arc::new(store);
    let collector = match store.garbage() {
        Ok(garbage) => Collector::start(store.clone(), garbage),
        Err(error) => {
            log::warning(&format!("no start: {error}"));
            return false;
        }
    };
    match collector {
        Ok(collector) => STATE.begin(store, collector, phase),
        Err(error) => {
            log::warning(&format!("no start: no thread to remove records: {error}"));
            return false;
        }
    }
    watch_forks(before_fork, child::after_fork_in_server, child::after_fork_in_child);
    if !register_events(ctx) {
        return false;
    }
    if is_late {
        // Nothing is loaded before the next command, which finds the maps.
        events::end_start(ctx);
    }
    true
}
