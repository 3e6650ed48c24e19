//! Keys, whatever they hold: whether they are there, what they are, and how they go.

use pando_keyspace::failure::Result;

use super::strings::exists;
use crate::commands::command::{Command, Context};
use crate::spec::{Arguments, Keys, flags};

/// The commands of this group.
pub(super) static COMMANDS: &[Command] = &[
    Command::new("del", -2, remove).flags(flags::WRITE).keys(Keys::Range(1, -1, 1)).about(
        "generic",
        "1.0.0",
        "Delete a key",
    ),
    // What a key held is removed in the background in either case.
    Command::new("unlink", -2, remove)
        .flags(flags::WRITE.and(flags::FAST))
        .keys(Keys::Range(1, -1, 1))
        .about(
            "generic",
            "4.0.0",
            "Delete a key asynchronously in another thread. Otherwise it is just as DEL, but non \
             blocking.",
        ),
    Command::new("exists", -2, count_present)
        .flags(flags::READ.and(flags::FAST))
        .keys(Keys::Range(1, -1, 1))
        .about("generic", "1.0.0", "Determine if a key exists"),
    Command::new("touch", -2, count_present)
        .flags(flags::READ.and(flags::FAST))
        .keys(Keys::Range(1, -1, 1))
        .about(
            "generic",
            "3.2.1",
            "Alters the last access time of a key(s). Returns the number of existing keys \
             specified.",
        ),
    Command::new("type", 2, kind)
        .flags(flags::READ.and(flags::FAST))
        .keys(Keys::Range(1, 1, 1))
        .about("generic", "1.0.0", "Determine the type stored at key"),
];

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
