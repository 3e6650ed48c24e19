//! Parts of strings: APPEND, STRLEN, GETRANGE, SETRANGE.

use super::strings::Changing;
use super::{Arguments, Command, Context, Keys, flags};
use crate::failure::{NOT_AN_INTEGER, Result, WRONG_TYPE, said};
use crate::number;
use crate::store::layout::Content;

/// Longest string, in bytes.
pub(super) const MAX_STRING_BYTES: u64 = 512 << 20;

/// The commands of this group.
pub(super) static COMMANDS: &[Command] = &[
    Command::new("append", 3, append)
        .flags(flags::WRITE.and(flags::DENYOOM).and(flags::FAST))
        .keys(Keys::Range(1, 1, 1))
        .about("string", "2.0.0", "Append a value to a key"),
    Command::new("strlen", 2, strlen)
        .flags(flags::READ.and(flags::FAST))
        .keys(Keys::Range(1, 1, 1))
        .about("string", "2.2.0", "Get the length of the value stored in a key"),
    Command::new("getrange", 4, getrange).flags(flags::READ).keys(Keys::Range(1, 1, 1)).about(
        "string",
        "2.4.0",
        "Get a substring of the string stored at a key",
    ),
    Command::new("substr", 4, getrange).flags(flags::READ).keys(Keys::Range(1, 1, 1)).about(
        "string",
        "1.0.0",
        "Get a substring of the string stored at a key",
    ),
    Command::new("setrange", 4, setrange)
        .flags(flags::WRITE.and(flags::DENYOOM))
        .keys(Keys::Range(1, 1, 1))
        .about(
            "string",
            "2.2.0",
            "Overwrite part of a string at key starting at the specified offset",
        ),
];

/// An error if a string of `bytes` bytes with `more` behind them is too long.
fn check_length(bytes: u64, more: usize) -> Result<()> {
    match bytes.checked_add(more as u64) {
        Some(..=MAX_STRING_BYTES) => Ok(()),
        _ => Err(said("ERR string exceeds maximum allowed size (proto-max-bulk-len)")),
    }
}

/// From `start` to `end`, each included and perhaps counted from the end, of `length`; `None` if there
/// is nothing.
pub(super) fn clamp(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    let length = length as i64;
    let from_begin = |index: i64| if index < 0 { (length + index).max(0) } else { index };
    let (start, end) = (from_begin(start), from_begin(end).min(length - 1));
    (start <= end).then_some((start as usize, end as usize))
}

fn append(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (key, more) = (arguments[1], arguments[2]);
    let found = Changing::find(context, key)?;
    if let Some(found) = &found {
        check_length(found.bytes.len() as u64, more.len())?;
    }
    let mut changed = found.unwrap_or_default();
    changed.bytes.extend_from_slice(more);
    changed.put(context, key)?;
    context.reply.count(changed.bytes.len() as u64);
    Ok(())
}

fn strlen(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let reply = &mut *context.reply;
    context.transaction.head(context.space, arguments[1], |head| {
        match head.map(|head| head.content) {
            Some(Content::String(bytes)) => reply.count(bytes.len() as u64),
            Some(Content::Collection(..)) => return Err(WRONG_TYPE),
            None => reply.integer(0),
        }
        Ok(())
    })?
}

fn getrange(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let start = number::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)?;
    let end = number::parse_i64(arguments[3]).ok_or(NOT_AN_INTEGER)?;
    let reply = &mut *context.reply;
    context.transaction.head(context.space, arguments[1], |head| {
        let bytes = match head.map(|head| head.content) {
            Some(Content::String(bytes)) => bytes,
            Some(Content::Collection(..)) => return Err(WRONG_TYPE),
            None => &[],
        };
        // Both before the begin, in the wrong order, are not both cut to the begin.
        let is_reversed = start < 0 && end < 0 && start > end;
        match clamp(start, end, bytes.len()).filter(|_| !is_reversed) {
            Some((start, end)) => reply.bulk(&bytes[start..=end]),
            None => reply.bulk(b""),
        }
        Ok(())
    })?
}

fn setrange(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (key, part) = (arguments[1], arguments[3]);
    let offset = number::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)?;
    let offset = u64::try_from(offset).map_err(|_| said("ERR offset is out of range"))?;
    let found = Changing::find(context, key)?;
    let mut changed = match found {
        found if part.is_empty() => {
            context.reply.count(found.map_or(0, |found| found.bytes.len() as u64));
            return Ok(());
        }
        found => found.unwrap_or_default(),
    };
    check_length(offset, part.len())?;
    let end = offset as usize + part.len();
    if changed.bytes.len() < end {
        changed.bytes.resize(end, 0);
    }
    changed.bytes[offset as usize..end].copy_from_slice(part);
    changed.put(context, key)?;
    context.reply.count(changed.bytes.len() as u64);
    Ok(())
}
