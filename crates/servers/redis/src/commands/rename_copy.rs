//! Commands that move or copy a key: RENAME, COPY, MOVE.

use pando_keyspace::failure::{Failure, Result, fail};

use super::databases::read_database;
use super::strings::exists;
use crate::commands::command::{Command, Context, commands};
use crate::errors::{NO_SUCH_KEY, SYNTAX};
use crate::spec::Arguments;

const SAME_PLACE: Failure = fail("ERR source and destination objects are the same");

pub(super) static COMMANDS: &[Command] = commands! {
    ["generic": (WRITE), TWO]
    "rename", 3, "1.0.0", rename, "Rename a key";
    ["generic": (WRITE | FAST), TWO]
    "renamenx", 3, "1.0.0", renamenx, "Rename a key, only if the new key does not exist";
    ["generic": (WRITE | DENYOOM), TWO]
    "copy", -3, "6.2.0", copy, "Copy a key";
    ["generic": (WRITE | FAST), ONE]
    // The key has the same hash in the other database, so it is locked there, too.
    "move", 3, "1.0.0", move_key, "Move a key to another database";
};

fn rename(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (from, to) = (arguments[1], arguments[2]);
    if !exists(context, from)? {
        return Err(NO_SUCH_KEY);
    }
    if from != to {
        context.transaction.move_head((context.space, from), (context.space, to))?;
    }
    context.reply.ok();
    Ok(())
}

fn renamenx(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (from, to) = (arguments[1], arguments[2]);
    if !exists(context, from)? {
        return Err(NO_SUCH_KEY);
    }
    let is_free = !exists(context, to)?;
    if is_free {
        context.transaction.move_head((context.space, from), (context.space, to))?;
    }
    context.reply.integer(i64::from(is_free));
    Ok(())
}

fn copy(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (from, to) = (arguments[1], arguments[2]);
    let (mut space, mut replaces) = (context.space, false);
    let mut words = &arguments[3..];
    while let [word, rest @ ..] = words {
        words = rest;
        match (word.to_ascii_lowercase().as_slice(), rest) {
            (b"replace", _) => replaces = true,
            (b"db", [index, behind @ ..]) => {
                space = context.transaction.space(read_database(index)?);
                words = behind;
            }
            _ => return Err(SYNTAX),
        }
    }
    if space == context.space && from == to {
        return Err(SAME_PLACE);
    }
    let is_there = exists(context, from)?;
    let is_free = replaces || context.transaction.head(space, to, |head| head.is_none())?;
    if is_there && is_free {
        context.transaction.copy_head((context.space, from), (space, to))?;
    }
    context.reply.integer(i64::from(is_there && is_free));
    Ok(())
}

fn move_key(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let key = arguments[1];
    let space = context.transaction.space(read_database(arguments[2])?);
    if space == context.space {
        return Err(SAME_PLACE);
    }
    let is_there = exists(context, key)?;
    let is_free = context.transaction.head(space, key, |head| head.is_none())?;
    if is_there && is_free {
        context.transaction.move_head((context.space, key), (space, key))?;
    }
    context.reply.integer(i64::from(is_there && is_free));
    Ok(())
}
