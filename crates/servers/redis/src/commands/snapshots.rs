//! Snapshots: SAVE, BGSAVE, LASTSAVE.

use pando_keyspace::failure::{Result, fail, fail_with};

use crate::commands::command::{Command, Context, commands};
use crate::errors::SYNTAX;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["server": (ADMIN | NO_MULTI | NO_SCRIPT | NO_ASYNC_LOADING), NONE]
    "save", 1, "1.0.0", save, "Synchronously saves the database(s) to disk.";
    ["server": (ADMIN | NO_SCRIPT | NO_ASYNC_LOADING), NONE]
    "bgsave", -1, "1.0.0", save_in_background, "Asynchronously saves the database(s) to disk.";
    ["server": (FAST | ANYTIME), NONE]
    "lastsave", 1, "1.0.0", last_save,
        "Returns the Unix timestamp of the last successful save to disk.";
};

fn save(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.server.save()?;
    context.reply.ok();
    Ok(())
}

fn save_in_background(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    match arguments {
        [_] => {}
        [_, when] if when.eq_ignore_ascii_case(b"schedule") => {}
        _ => return Err(SYNTAX),
    }
    if context.server.store.snapshot_state().is_writing {
        return Err(fail("ERR Background save already in progress"));
    }
    // The task logs errors.
    let begun = context.server.begin_task("snapshot", |server| drop(server.save()));
    begun.map_err(|error| {
        fail_with(format!("ERR cannot start a thread for the snapshot: {error}"))
    })?;
    context.reply.simple("Background saving started");
    Ok(())
}

fn last_save(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let finished = context.server.store.snapshot_state().finished_system_ms;
    let since = if finished == 0 { context.server.started_system_ms } else { finished };
    context.reply.count(since / 1000);
    Ok(())
}
