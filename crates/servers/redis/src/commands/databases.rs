//! Whole databases: FLUSHDB, FLUSHALL, SWAPDB, DBSIZE.

use pando_keyspace::failure::{Failure, Result, fail};
use pando_keyspace::layout::DATABASES;

use crate::commands::command::{Command, Context, commands};
use crate::decimal;
use crate::errors::{NOT_AN_INTEGER, SYNTAX};
use crate::spec::Arguments;

/// The keys of a store are not counted yet.
const COUNTING: Failure =
    fail("BUSY the keys are counted once after the start, which is not finished; ask again later");

pub(super) static COMMANDS: &[Command] = commands! {
    ["server": (WRITE | WHOLE | DANGEROUS), NONE]
    "flushdb", -1, "1.0.0", flushdb, "Remove all keys from the current database";
    "flushall", -1, "1.0.0", flushall, "Remove all keys from all databases";
    ["server": (WRITE | FAST | WHOLE | DANGEROUS), NONE]
    "swapdb", 3, "4.0.0", swapdb, "Swaps two Redis databases";
    ["server": (READ | FAST), NONE]
    "dbsize", 1, "1.0.0", dbsize, "Return the number of keys in the selected database";
};

fn flushdb(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let database = context.session.database;
    flush(context, arguments, database..=database)
}

fn flushall(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    flush(context, arguments, 0..=DATABASES - 1)
}

fn flush(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
    databases: std::ops::RangeInclusive<u8>,
) -> Result<()> {
    // ASYNC and SYNC do the same, because the time does not depend on the number of keys.
    match arguments {
        [_] => {}
        [_, how] if how.eq_ignore_ascii_case(b"async") || how.eq_ignore_ascii_case(b"sync") => {}
        _ => return Err(SYNTAX),
    }
    context.transaction.flush(databases)?;
    context.reply.ok();
    Ok(())
}

fn swapdb(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let index = |text: &[u8], wrong: &'static str| {
        let index = decimal::parse_i64(text).and_then(|index| i32::try_from(index).ok());
        index.ok_or(fail(wrong))
    };
    let one = index(arguments[1], "ERR invalid first DB index")?;
    let other = index(arguments[2], "ERR invalid second DB index")?;
    let (one, other) = (database(one.into())?, database(other.into())?);
    context.transaction.swap_databases(one, other);
    context.reply.ok();
    Ok(())
}

/// Parses the number of a database.
pub(super) fn read_database(text: &[u8]) -> Result<u8> {
    let index = decimal::parse_i64(text).ok_or(NOT_AN_INTEGER)?;
    if i32::try_from(index).is_err() {
        return Err(fail(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    database(index)
}

fn database(index: i64) -> Result<u8> {
    let database = u8::try_from(index).ok().filter(|&index| index < DATABASES);
    database.ok_or(fail("ERR DB index is out of range"))
}

fn dbsize(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let count = context.transaction.count(context.session.database)?;
    context.reply.count(count.ok_or(COUNTING)?);
    Ok(())
}
