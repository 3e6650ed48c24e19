//! What the module does when the server tells of an event.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::kill_point::kill_point;
use crate::log;
use crate::redis::{Ctx, Found};
use crate::settings;
use crate::state::{Phase, STATE};
use crate::store::Store;
use crate::stub::Stub;

/// A change of the keyspace that cannot be refused, and that the pool does not take. The process
/// ends before it replies: the next start finds the state from before.
fn give_up(what: &str, error: &pando::Error) -> ! {
    log::fatal(&format!("{what}, and the pool cannot store that; the server ends: {error}"));
}

/// All databases, or one, are emptied. Redis calls `unlink` for none of their keys. If the data of
/// a primary are loaded next, the pool is incomplete from here on: a start before the end of the
/// load applies the files, which have the old data of all types.
///
/// The names come first: with the old directory go all maps that it has, and a map that has moved
/// to another database must not be there any more.
pub fn on_flush(ctx: Ctx<'_>, database: Option<u32>, is_before_load: bool) {
    if STATE.phase() == Phase::PoolFirst {
        return;
    }
    let Some((store, collector)) = STATE.parts() else { return };
    if let Err(error) = STATE.names.set_all(ctx, &store, collector) {
        give_up("names have changed, and databases are flushed", &error);
    }
    let databases = database.map_or_else(|| store.databases(), |database| vec![database]);
    match store.flush(&databases, is_before_load) {
        Ok(garbage) => garbage.into_iter().for_each(|garbage| collector.remove(garbage)),
        Err(error) => give_up("databases were flushed", &error),
    }
}

/// Two databases are exchanged.
pub fn on_swap(one: u32, other: u32) {
    if STATE.phase() == Phase::PoolFirst {
        return;
    }
    let Some((store, _)) = STATE.parts() else { return };
    STATE.names.swap(one, other);
    if let Err(error) = store.swap(one, other) {
        give_up("databases were exchanged", &error);
    }
}

/// Files are loaded. At a start the phase says what they mean already.
pub fn on_load_begins() {
    let Some((store, _)) = STATE.parts() else { return };
    if STATE.phase() == Phase::Serving {
        STATE.set_phase(Phase::Loading);
        if let Err(error) = store.set_complete(false) {
            give_up("files are loaded", &error);
        }
    }
}

/// The files are loaded completely.
pub fn on_load_ends(ctx: Ctx<'_>) {
    if STATE.phase() == Phase::Loading {
        complete(ctx);
        // Redis writes its append-only file anew after a full sync.
        if ctx.flags().is_replica() {
            STATE.files.set_written();
        }
    }
}

/// The files cannot be loaded. The pool stays incomplete, until a load succeeds or the server
/// becomes a primary: a start before that applies the files.
pub fn on_load_fails() {
    if STATE.phase() == Phase::Loading {
        STATE.set_phase(Phase::Serving);
    }
}

/// From now on this server's own writes count.
pub fn on_promotion() {
    let Some((store, _)) = STATE.parts() else { return };
    if STATE.phase() == Phase::Serving
        && let Err(error) = store.set_complete(true)
    {
        log::warning(&format!("a start would apply the files, and not the pool: {error}"));
    }
}

/// The maps of the pool are those of the keyspace, from here on.
fn complete(ctx: Ctx<'_>) {
    let Some((store, collector)) = STATE.parts() else { return };
    let names = STATE.names.set_all(ctx, &store, collector);
    if let Err(error) = names.and_then(|()| store.set_complete(true)) {
        give_up("files were loaded", &error);
    }
    STATE.set_phase(Phase::Serving);
}

/// A save on the main thread begins or ends.
pub fn on_save(begins: bool) {
    STATE.is_saving.store(begins, Ordering::Relaxed);
    if begins
        && let Some(store) = STATE.store()
        && let Err(error) = store.next_save()
    {
        log::warning(&format!("the save has the number of the one before: {error}"));
    }
}

/// A parameter of the server was set, perhaps the policy of `maxmemory`.
pub fn on_configured() {
    settings::forget_policy();
    let policy = settings::check_policy();
    let has_warned = STATE.has_warned_of_policy.swap(policy.is_err(), Ordering::Relaxed);
    if let Err(evicts) = policy
        && !has_warned
    {
        log::warning(&format!("{evicts}; the server may remove maps from now on"));
    }
}

/// A replica has come up.
pub fn on_replica(ctx: Ctx<'_>) {
    if !ctx.flags().has_aof() {
        log::warning(
            "a replica is attached to a primary without `appendonly yes`: a restart of this \
             primary could lead to a partial resynchronization from an RDB file that is behind \
             the pool, and the replica would differ; set `appendonly yes` now, or detach it before \
             a restart",
        );
    }
}

/// The server ends in order.
pub fn on_shutdown(ctx: Ctx<'_>) {
    if let Some((store, collector)) = STATE.parts()
        && let Err(error) = STATE.names.set_all(ctx, &store, collector)
    {
        log::warning(&format!("the next start has some old names: {error}"));
    }
    STATE.workers.stop();
    if let Some(collector) = STATE.collector() {
        collector.stop();
    }
    let Some(mut store) = STATE.take_store() else { return };
    // A thread that serves a child may have it still; the child was killed.
    let deadline = Instant::now() + Duration::from_secs(1);
    let closed = loop {
        match Arc::try_unwrap(store) {
            Ok(store) => break store.close().map_err(|error| error.to_string()),
            Err(_) if Instant::now() > deadline => break Err("a thread reads it".to_owned()),
            Err(shared) => store = shared,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    if let Err(reason) = closed {
        log::warning(&format!(
            "the pool is not closed cleanly; the next start recovers it: {reason}"
        ));
    }
}

/// The event loop is about to sleep. The first time it ends a start.
pub fn on_sleep(ctx: Ctx<'_>) {
    match STATE.phase() {
        Phase::PoolFirst => end_start(ctx),
        Phase::FilesFirst => complete(ctx),
        Phase::Serving if STATE.names.are_due() => set_names(ctx),
        Phase::Serving | Phase::Loading => {}
    }
    if STATE.phase() == Phase::Serving {
        STATE.files.tend(ctx);
    }
}

fn set_names(ctx: Ctx<'_>) {
    if let Some((store, collector)) = STATE.parts() {
        STATE.names.set(ctx, &store, collector);
    }
}

/// A key has changed.
pub fn on_notification(ctx: Ctx<'_>, event: &[u8], name: &[u8]) {
    if STATE.phase() == Phase::PoolFirst {
        return;
    }
    match event {
        // See `names.rs`.
        b"rename_from" | b"move_from" => return,
        b"rename_to" | b"move_to" | b"copy_to" | b"restore" | b"expire" | b"persist" => {
            STATE.names.note(ctx.database(), name, None);
        }
        b"loaded" if !STATE.names.are_many() => return,
        _ => {}
    }
    if STATE.names.are_due() {
        set_names(ctx);
    }
}

/// Replaces the stubs that the files have made by those of the directory.
pub fn end_start(ctx: Ctx<'_>) {
    let Some((store, _)) = STATE.parts() else { return };
    let begun = Instant::now();
    // Maps that the files have, and the pool may not have.
    let had_others = STATE.placeholders.load(Ordering::Relaxed) > 0;
    let maps = match rebuild(ctx, &store) {
        Ok(maps) => maps,
        Err(error) => give_up("the keyspace is rebuilt from the pool", &error),
    };
    let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    STATE.rebuilt_maps.store(maps, Ordering::Relaxed);
    STATE.rebuilt_us.store(us, Ordering::Relaxed);
    STATE.set_phase(Phase::Serving);
    log::notice(&format!("{maps} maps are taken from the pool, in {us} us"));
    if maps > 0 {
        on_configured();
    }
    if (maps > 0 || had_others) && settings::saves_after_start() {
        STATE.files.set_pending();
    }
}

fn rebuild(ctx: Ctx<'_>, store: &Store) -> Result<u64, pando::Error> {
    let mut maps = 0;
    for database in store.databases() {
        let mut entries = store.entries(database)?.peekable();
        if entries.peek().is_some() && !ctx.select(database) {
            log::warning(&format!(
                "the pool has maps in database {database}, which the server does not have; they \
                 stay in the pool: raise `databases`"
            ));
            continue;
        }
        for entry in entries {
            let (name, entry) = entry?;
            kill_point("rebuild");
            ctx.set(&name, Stub::new(entry.number, None), entry.expiry_ms);
            maps += 1;
        }
    }
    // Maps of the files that the pool does not have.
    let mut database = 0;
    while STATE.placeholders.load(Ordering::Relaxed) > 0 && ctx.select(database) {
        for name in ctx.names() {
            if matches!(ctx.find(&name), Found::Map(stub, _) if stub.is_placeholder()) {
                ctx.delete(&name);
            }
        }
        database += 1;
    }
    ctx.select(0);
    Ok(maps)
}
