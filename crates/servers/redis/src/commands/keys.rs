//! Commands for keys of any type: their existence, their type, their removal.

use pando_keyspace::failure::Result;

use super::strings::exists;
use crate::commands::command::{Command, Context, commands};
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["generic": (READ | FAST | ONLY_ABOUT), ONE]
    "type", 2, "1.0.0", kind, "Determine the type stored at key";
    ["generic": (WRITE | ONLY_CHANGES), ALL]
    "del", -2, "1.0.0", remove, "Delete a key";
    ["generic": (WRITE | FAST | ONLY_CHANGES), ALL]
    // In both cases the elements are removed in the background.
    "unlink", -2, "4.0.0", remove,
        "Delete a key asynchronously in another thread. Otherwise it is just as DEL, but non blocking.";
    ["generic": (READ | FAST | ONLY_ABOUT), ALL]
    "exists", -2, "1.0.0", count_present, "Determine if a key exists";
    "touch", -2, "3.2.1", count_present,
        "Alters the last access time of a key(s). Returns the number of existing keys specified.";
};

fn remove(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let mut count = 0;
    for key in &arguments[1..] {
        count += i64::from(context.transaction.remove_head(context.space, key)?);
    }
    context.reply.integer(count);
    Ok(())
}

fn count_present(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let mut count = 0;
    for key in &arguments[1..] {
        count += i64::from(exists(context, key)?);
    }
    context.reply.integer(count);
    Ok(())
}

fn kind(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let name = context
        .transaction
        .head(context.space, arguments[1], |head| head.map_or("none", |head| head.kind().name()))?;
    context.reply.simple(name);
    Ok(())
}
