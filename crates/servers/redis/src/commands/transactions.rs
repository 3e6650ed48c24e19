//! MULTI, EXEC, DISCARD, WATCH, UNWATCH. `dispatch.rs` executes EXEC itself, because it first locks
//! the keys of all queued commands.

use pando_keyspace::Store;
use pando_keyspace::failure::{Result, fail};

use crate::commands::command::{Command, Context, commands};
use crate::session::Multi;
use crate::spec::Arguments;

/// The approximate memory of a watched key, in addition to twice its bytes.
const WATCHED_BYTES: usize = 100;

pub(super) static COMMANDS: &[Command] = commands! {
    ["transactions": (NO_SCRIPT | ANYTIME | FAST | ALLOW_BUSY | NOT_QUEUED), NONE]
    "multi", 1, "1.2.0", multi, "Starts a transaction.";
    "discard", 1, "2.0.0", discard, "Discards a transaction.";
    ["transactions": (NO_SCRIPT | ANYTIME | SKIP_SLOWLOG | NOT_QUEUED), NONE]
    "exec", 1, "1.2.0", exec_without_multi, "Executes all commands in a transaction.";
    ["transactions": (NO_SCRIPT | ANYTIME | FAST | ALLOW_BUSY | WRITE | NOT_QUEUED | ONLY_ABOUT), ALL]
    "watch", -2, "2.2.0", watch,
        "Monitors changes to keys to determine the execution of a transaction.";
    ["transactions": (NO_SCRIPT | ANYTIME | FAST | ALLOW_BUSY), NONE]
    "unwatch", 1, "2.2.0", unwatch, "Forgets about watched keys of a transaction.";
};

fn multi(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    if context.session.multi.is_some() {
        return Err(fail("ERR MULTI calls can not be nested"));
    }
    context.session.multi = Some(Multi::default());
    context.session.client.note_queued(Some((0, 0)));
    context.reply.ok();
    Ok(())
}

fn exec_without_multi(_: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    Err(fail("ERR EXEC without MULTI"))
}

fn discard(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    if context.session.multi.is_none() {
        return Err(fail("ERR DISCARD without MULTI"));
    }
    context.session.end_transaction();
    context.reply.ok();
    Ok(())
}

fn watch(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    if context.session.multi.is_some() {
        return Err(fail("ERR WATCH inside MULTI is not allowed"));
    }
    for key in &arguments[1..] {
        let watched = (context.session.database, key.to_vec());
        if context.session.watched.contains(&watched) {
            continue;
        }
        // A key that has expired is removed now. So its later removal by the sweep is not a change.
        if context.transaction.is_overdue(context.space, key)? {
            context.server.store.check_writes()?;
            context.session.may_write = true;
            context.transaction.remove_head(context.space, key)?;
        }
        context.session.watched.insert(watched);
        context.session.client.note_watched(2 * key.len() + WATCHED_BYTES);
        if let Some(stripe) = context.transaction.held().stripe_mut(Store::stripe_of_key(key)) {
            let changed = context.session.changed.get_or_insert_default();
            stripe.watch(context.space, key, changed);
        }
    }
    context.reply.ok();
    Ok(())
}

fn unwatch(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.session.take_watched();
    context.reply.ok();
    Ok(())
}
