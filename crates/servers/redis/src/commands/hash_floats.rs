//! HINCRBYFLOAT.

use pando_keyspace::collection::{Collection, check_name};
use pando_keyspace::failure::{Result, fail};
use pando_keyspace::layout::{Element, Kind};

use crate::commands::command::{Command, Context, commands};
use crate::errors::NOT_A_FLOAT;
use crate::long_double::LongDouble;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["hash": (WRITE | DENYOOM | FAST), ONE]
    "hincrbyfloat", 4, "2.6.0", hincrbyfloat,
        "Increment the float value of a hash field by the given amount";
};

fn hincrbyfloat(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let increment = LongDouble::parse(arguments[3]).ok_or(NOT_A_FLOAT)?;
    if increment == LongDouble::Infinite {
        return Err(fail("ERR value is NaN or Infinity"));
    }
    let hash =
        Collection::find_or_begin(context.transaction, context.space, arguments[1], Kind::Hash)?;
    let field = Element::Field(arguments[2]);
    check_name(arguments[2])?;
    let value = hash.get(context.transaction, field, |value| match value {
        Some(value) => LongDouble::parse(value).ok_or(fail("ERR hash value is not a float")),
        None => Ok(LongDouble::zero()),
    })??;
    let sum = value.plus(increment);
    let sum = sum.ok_or(fail("ERR increment would produce NaN or Infinity"))?;
    let text = sum.format();
    hash.put_only(context.transaction, field, text.as_bytes(), false)?;
    context.reply.bulk(text.as_bytes());
    Ok(())
}
