//! Snapshots: SAVE, BGSAVE, LASTSAVE.

use pando_keyspace::failure::{Result, said, told};

use super::{Arguments, Command, Context, Keys, flags};
use crate::errors::SYNTAX;

/// The commands of this group.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "save",
        arity: 1,
        flags: flags::ADMIN.and(flags::NO_MULTI).and(flags::NO_SCRIPT).and(flags::NO_ASYNC_LOADING),
        keys: Keys::None,
        group: "server",
        since: "1.0.0",
        summary: "Synchronously saves the database(s) to disk.",
        subcommands: &[],
        run: save,
    },
    Command {
        name: "bgsave",
        arity: -1,
        flags: flags::ADMIN.and(flags::NO_SCRIPT).and(flags::NO_ASYNC_LOADING),
        keys: Keys::None,
        group: "server",
        since: "1.0.0",
        summary: "Asynchronously saves the database(s) to disk.",
        subcommands: &[],
        run: save_in_background,
    },
    Command {
        name: "lastsave",
        arity: 1,
        flags: flags::FAST.and(flags::ANYTIME),
        keys: Keys::None,
        group: "server",
        since: "1.0.0",
        summary: "Returns the Unix timestamp of the last successful save to disk.",
        subcommands: &[],
        run: last_save,
    },
];

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
        return Err(said("ERR Background save already in progress"));
    }
    // Errors are in the log.
    let begun = context.server.begin_task("snapshot", |server| drop(server.save()));
    begun.map_err(|error| told(format!("ERR no thread for the snapshot: {error}")))?;
    context.reply.simple("Background saving started");
    Ok(())
}

fn last_save(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let finished = context.server.store.snapshot_state().finished_system_ms;
    let since = if finished == 0 { context.server.started_system_ms } else { finished };
    context.reply.count(since / 1000);
    Ok(())
}
