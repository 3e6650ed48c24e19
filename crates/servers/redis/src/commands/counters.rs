//! Strings that contain numbers: INCR, DECR and similar commands.

use pando_keyspace::failure::{Result, WRONG_TYPE, fail};
use pando_keyspace::layout::{Content, Head};

use super::strings::{Changing, renewed};
use crate::commands::command::{Command, Context, commands};
use crate::decimal;
use crate::errors::{NOT_A_FLOAT, NOT_AN_INTEGER, OUT_OF_RANGE};
use crate::long_double::LongDouble;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["string": (WRITE | DENYOOM | FAST), ONE]
    "incr", 2, "1.0.0", |context, arguments| add(context, arguments[1], 1),
        "Increment the integer value of a key by one";
    "decr", 2, "1.0.0", |context, arguments| add(context, arguments[1], -1),
        "Decrement the integer value of a key by one";
    "incrby", 3, "1.0.0", incrby, "Increment the integer value of a key by the given amount";
    "decrby", 3, "1.0.0", decrby, "Decrement the integer value of a key by the given number";
    "incrbyfloat", 3, "2.6.0", incrbyfloat,
        "Increment the float value of a key by the given amount";
};

fn incrby(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let increment = decimal::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)?;
    add(context, arguments[1], increment)
}

fn decrby(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let decrement = decimal::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)?;
    let increment = decrement.checked_neg().ok_or(fail("ERR decrement would overflow"))?;
    add(context, arguments[1], increment)
}

fn add(context: &mut Context<'_, '_>, key: &[u8], increment: i64) -> Result<()> {
    let store = context.transaction.store();
    let sum = context.transaction.change_string(context.space, key, |head, next| {
        let value = match head.map(|head| head.content) {
            None => 0,
            Some(Content::String(bytes)) => decimal::parse_i64(bytes).ok_or(NOT_AN_INTEGER)?,
            Some(Content::Long(_)) => return Err(NOT_AN_INTEGER),
            Some(Content::Collection(..)) => return Err(WRONG_TYPE),
        };
        let sum = value.checked_add(increment).ok_or(OUT_OF_RANGE)?;
        let mut text = itoa::Buffer::new();
        let bytes = text.format(sum).as_bytes();
        let memcached = head.and_then(|head| head.memcached).map(|former| renewed(store, former));
        let expires_at = head.and_then(|head| head.expires_at);
        next.put(&Head { expires_at, memcached, content: Content::String(bytes) });
        Ok(sum)
    })?;
    context.reply.integer(sum);
    Ok(())
}

fn incrbyfloat(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let key = arguments[1];
    let found = Changing::find(context, key)?;
    let value = match &found {
        Some(found) => LongDouble::parse(&found.bytes).ok_or(NOT_A_FLOAT)?,
        None => LongDouble::zero(),
    };
    let increment = LongDouble::parse(arguments[2]).ok_or(NOT_A_FLOAT)?;
    let sum = value.plus(increment);
    let sum = sum.ok_or(fail("ERR increment would produce NaN or Infinity"))?;
    let changed = Changing { bytes: sum.format().into_bytes(), ..found.unwrap_or_default() };
    changed.put(context, key)?;
    context.reply.bulk(&changed.bytes);
    Ok(())
}
