//! Parts of strings: APPEND, STRLEN, GETRANGE, SETRANGE.

use std::ops::ControlFlow;

use pando_keyspace::failure::{Result, fail};

use super::strings::renewed;
use crate::commands::command::{Command, Context, commands};
use crate::decimal;
use crate::errors::NOT_AN_INTEGER;
use crate::resp::reply::Reply;
use crate::spec::Arguments;

/// The longest string, in bytes.
pub(super) const MAX_STRING_BYTES: u64 = 512 << 20;

pub(super) static COMMANDS: &[Command] = commands! {
    ["string": (WRITE | DENYOOM | FAST | ONLY_CHANGES), ONE]
    "append", 3, "2.0.0", append, "Append a value to a key";
    ["string": (READ | FAST | ONLY_ABOUT), ONE]
    "strlen", 2, "2.2.0", strlen, "Get the length of the value stored in a key";
    ["string": (READ), ONE]
    "getrange", 4, "2.4.0", getrange, "Get a substring of the string stored at a key";
    "substr", 4, "1.0.0", getrange, "Get a substring of the string stored at a key";
    ["string": (WRITE | DENYOOM | ONLY_CHANGES), ONE]
    "setrange", 4, "2.2.0", setrange,
        "Overwrite part of a string at key starting at the specified offset";
};

/// Refuses a string of `bytes + more` bytes if it is too long.
fn check_length(bytes: u64, more: usize) -> Result<()> {
    match bytes.checked_add(more as u64) {
        Some(..=MAX_STRING_BYTES) => Ok(()),
        _ => Err(fail("ERR string exceeds maximum allowed size (proto-max-bulk-len)")),
    }
}

/// The range from `start` to `end` in `length` bytes; `None` if it is empty. Both ends are
/// included, and negative ones count from the end.
pub(super) fn clamp(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    let length = length as i64;
    let from_begin = |index: i64| if index < 0 { (length + index).max(0) } else { index };
    let (start, end) = (from_begin(start), from_begin(end).min(length - 1));
    (start <= end).then_some((start as usize, end as usize))
}

/// Changes `bytes` bytes of the string at `key`, at the offset that `place` returns; see
/// [`Transaction::edit_string`](pando_keyspace::Transaction::edit_string).
pub(super) fn edit(
    context: &mut Context<'_, '_>,
    key: &[u8],
    bytes: usize,
    place: impl Fn(u64) -> Result<u64>,
    edit: impl FnMut(usize, &mut [u8]),
) -> Result<u64> {
    let store = context.transaction.store();
    let renew = |former| renewed(store, former);
    context.transaction.edit_string(context.space, key, bytes, place, renew, edit)
}

/// The length of the string at `key`; `None` if the key does not exist.
fn length_of(context: &Context<'_, '_>, key: &[u8]) -> Result<Option<u64>> {
    let mut found = None;
    let choose = |found: &mut Option<u64>, length: Option<u64>| {
        *found = length;
        Ok(0..0)
    };
    let visit = |_: &mut Option<u64>, _: u64, _: &[u8]| ControlFlow::Break(());
    context.transaction.visit_string(context.space, key, &mut found, choose, visit)?;
    Ok(found)
}

fn append(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (key, more) = (arguments[1], arguments[2]);
    // As in Redis, the limit applies only to an existing value.
    let place = |length: u64| match length {
        0 => Ok(0),
        length => check_length(length, more.len()).map(|()| length),
    };
    let length = edit(context, key, more.len(), place, |from, part| {
        part.copy_from_slice(&more[from..from + part.len()]);
    })?;
    context.reply.count(length);
    Ok(())
}

fn strlen(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let length = length_of(context, arguments[1])?;
    context.reply.count(length.unwrap_or(0));
    Ok(())
}

fn getrange(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let start = decimal::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)?;
    let end = decimal::parse_i64(arguments[3]).ok_or(NOT_AN_INTEGER)?;
    let Context { transaction, reply, space, .. } = context;
    let choose = |reply: &mut &mut Reply, length: Option<u64>| {
        // If both ends are before the begin of the string, in the wrong order, the range is empty,
        // although both would become the begin.
        let is_reversed = start < 0 && end < 0 && start > end;
        let wanted = clamp(start, end, length.unwrap_or(0) as usize).filter(|_| !is_reversed);
        let range = wanted.map_or(0..0, |(start, end)| start as u64..end as u64 + 1);
        reply.begin_bulk(range.end - range.start);
        Ok(range)
    };
    transaction.visit_string(*space, arguments[1], reply, choose, |reply, _, bytes| {
        reply.part_of_bulk(bytes);
        ControlFlow::Continue(())
    })?;
    reply.end_bulk();
    Ok(())
}

fn setrange(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (key, part) = (arguments[1], arguments[3]);
    let offset = decimal::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)?;
    let offset = u64::try_from(offset).map_err(|_| fail("ERR offset is out of range"))?;
    let length = match part {
        [] => length_of(context, key)?.unwrap_or(0),
        _ => {
            let place = |_| check_length(offset, part.len()).map(|()| offset);
            edit(context, key, part.len(), place, |from, piece| {
                piece.copy_from_slice(&part[from..from + piece.len()]);
            })?
        }
    };
    context.reply.count(length);
    Ok(())
}
