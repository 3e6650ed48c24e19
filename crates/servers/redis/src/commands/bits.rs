//! Bits of strings: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP. The highest bit of each byte is its
//! first.

use std::ops::{ControlFlow, Range};

use pando_keyspace::failure::{Result, fail};
use pando_keyspace::layout::Head;

use super::string_ranges::{MAX_STRING_BYTES, clamp, edit};
use super::strings::Changing;
use crate::commands::command::{Command, Context, commands};
use crate::decimal;
use crate::errors::{NOT_AN_INTEGER, SYNTAX};
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["bitmap": (WRITE | DENYOOM), ONE]
    "setbit", 4, "2.2.0", setbit,
        "Sets or clears the bit at offset in the string value stored at key";
    ["bitmap": (READ | FAST), ONE]
    "getbit", 3, "2.2.0", getbit,
        "Returns the bit value at offset in the string value stored at key";
    ["bitmap": (READ), ONE]
    "bitcount", -2, "2.6.0", bitcount, "Count set bits in a string";
    "bitpos", -3, "2.8.7", bitpos, "Find first bit set or clear in a string";
    ["bitmap": (WRITE | DENYOOM), FROM_SECOND]
    "bitop", -4, "2.6.0", bitop, "Perform bitwise operations between strings";
};

/// The index of the bit's byte, and the mask of the bit in it.
fn read_offset(text: &[u8]) -> Result<(usize, u8)> {
    let offset = decimal::parse_i64(text).and_then(|offset| u64::try_from(offset).ok());
    let offset = offset.filter(|offset| offset >> 3 < MAX_STRING_BYTES);
    let offset = offset.ok_or(fail("ERR bit offset is not an integer or out of range"))?;
    Ok(((offset >> 3) as usize, mask(offset)))
}

fn mask(bit: u64) -> u8 {
    0x80 >> (bit & 7)
}

fn setbit(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let key = arguments[1];
    let (byte, mask) = read_offset(arguments[2])?;
    let is_set = match decimal::parse_i64(arguments[3]) {
        Some(bit @ 0..=1) => bit == 1,
        _ => return Err(fail("ERR bit is not an integer or out of range")),
    };
    let mut was_set = false;
    edit(
        context,
        key,
        1,
        |_| Ok(byte as u64),
        |_, part| {
            was_set = part[0] & mask != 0;
            part[0] = if is_set { part[0] | mask } else { part[0] & !mask };
        },
    )?;
    context.reply.integer(i64::from(was_set));
    Ok(())
}

fn getbit(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (byte, mask) = read_offset(arguments[2])?;
    let byte = byte as u64;
    let mut is_set = false;
    let choose = |_: &mut bool, _| Ok(byte..byte + 1);
    let look = |is_set: &mut bool, _, bytes: &[u8]| {
        *is_set = bytes.first().is_some_and(|byte| byte & mask != 0);
        ControlFlow::Break(())
    };
    let Context { transaction, space, .. } = context;
    transaction.visit_string(*space, arguments[1], &mut is_set, choose, look)?;
    context.reply.integer(i64::from(is_set));
    Ok(())
}

/// Whether the unit of a range is bits.
fn read_unit(word: &[u8]) -> Result<bool> {
    match word.to_ascii_lowercase().as_slice() {
        b"bit" => Ok(true),
        b"byte" => Ok(false),
        _ => Err(SYNTAX),
    }
}

/// The bits of the range in a string of `length` bytes; `None` if the range is empty.
fn bits_of(start: i64, end: i64, is_bits: bool, length: usize) -> Option<(u64, u64)> {
    if is_bits {
        return clamp(start, end, length * 8).map(|(start, end)| (start as u64, end as u64));
    }
    clamp(start, end, length).map(|(start, end)| (start as u64 * 8, end as u64 * 8 + 7))
}

/// The first and the last bit of a range in a string, both included.
type Bits = (u64, u64);

/// The bytes that contain these bits.
fn bytes_of((first, last): Bits) -> Range<u64> {
    first >> 3..(last >> 3) + 1
}

/// Replaces the unwanted bits of a byte by `rest`. The byte is at `index` in its string.
fn cut(byte: u8, index: u64, (first, last): Bits, rest: bool) -> u8 {
    let mut inside = 0xFF;
    if index == first >> 3 {
        inside &= 0xFF >> (first & 7);
    }
    if index == last >> 3 {
        inside &= 0xFF << (7 - (last & 7));
    }
    if rest { byte | !inside } else { byte & inside }
}

fn bitcount(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let choose = |(wanted, _): &mut (Option<Bits>, u64), length: Option<u64>| {
        // Redis checks the other arguments only if the key exists.
        let Some(length) = length else { return Ok(0..0) };
        let length = length as usize;
        *wanted = match arguments {
            [_, _] => bits_of(0, -1, false, length),
            [_, _, start, end] | [_, _, start, end, _] => {
                let start = decimal::parse_i64(start).ok_or(NOT_AN_INTEGER)?;
                let end = decimal::parse_i64(end).ok_or(NOT_AN_INTEGER)?;
                let is_reversed = start < 0 && end < 0 && start > end;
                if is_reversed {
                    return Ok(0..0);
                }
                let is_bits = arguments.get(4).map(|unit| read_unit(unit)).transpose()?;
                bits_of(start, end, is_bits.unwrap_or(false), length)
            }
            _ => return Err(SYNTAX),
        };
        Ok(wanted.map_or(0..0, bytes_of))
    };
    let look = |(wanted, count): &mut (Option<Bits>, u64), at: u64, bytes: &[u8]| {
        *count += bytes.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        // The first and the last byte may have unwanted bits.
        let (first, last) = wanted.unwrap_or_default();
        let is_same = first >> 3 == last >> 3;
        for end in [Some(first >> 3), (!is_same).then_some(last >> 3)].into_iter().flatten() {
            if let Some(&byte) = end.checked_sub(at).and_then(|place| bytes.get(place as usize)) {
                *count -= u64::from((byte ^ cut(byte, end, (first, last), false)).count_ones());
            }
        }
        ControlFlow::Continue(())
    };
    let mut state = (None, 0);
    let Context { transaction, space, .. } = context;
    transaction.visit_string(*space, arguments[1], &mut state, choose, look)?;
    context.reply.count(state.1);
    Ok(())
}

/// The state of BITPOS.
#[derive(Default)]
struct Search {
    wanted: Option<Bits>,
    /// The string's length, if the key exists.
    length: Option<u64>,
    found: Option<u64>,
}

fn bitpos(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is_one = match decimal::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)? {
        0 => false,
        1 => true,
        _ => return Err(fail("ERR The bit argument must be 1 or 0.")),
    };
    let choose = |search: &mut Search, length: Option<u64>| {
        search.length = length;
        let Some(length) = length else { return Ok(0..0) };
        let length = length as usize;
        search.wanted = match arguments {
            [_, _, _] => bits_of(0, -1, false, length),
            [_, _, _, start, rest @ ..] if rest.len() <= 2 => {
                let start = decimal::parse_i64(start).ok_or(NOT_AN_INTEGER)?;
                let is_bits = rest.get(1).map(|unit| read_unit(unit)).transpose()?;
                let end = rest.first().map(|end| decimal::parse_i64(end).ok_or(NOT_AN_INTEGER));
                let end = end.transpose()?.unwrap_or(-1);
                bits_of(start, end, is_bits.unwrap_or(false), length)
            }
            _ => return Err(SYNTAX),
        };
        Ok(search.wanted.map_or(0..0, bytes_of))
    };
    let look = |search: &mut Search, at: u64, bytes: &[u8]| {
        let bits = search.wanted.unwrap_or_default();
        search.found = (at..).zip(bytes).find_map(|(index, &byte)| {
            let byte = cut(byte, index, bits, !is_one);
            let before = if is_one { byte.leading_zeros() } else { byte.leading_ones() };
            (before < 8).then_some(index * 8 + u64::from(before))
        });
        if search.found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut search = Search::default();
    let Context { transaction, space, .. } = context;
    transaction.visit_string(*space, arguments[1], &mut search, choose, look)?;
    // Without an end in the arguments, zeros follow the string.
    let is_open = !is_one && arguments.len() <= 4;
    let position = match search {
        Search { length: None, .. } if is_one => -1,
        Search { length: None, .. } => 0,
        Search { found: Some(found), .. } => found as i64,
        Search { length: Some(length), wanted: Some(_), .. } if is_open => length as i64 * 8,
        Search { .. } => -1,
    };
    context.reply.integer(position);
    Ok(())
}

fn bitop(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let [_, operation, target, sources @ ..] = arguments else { return Err(SYNTAX) };
    let operation = operation.to_ascii_lowercase();
    let combine: fn(u8, u8) -> u8 = match operation.as_slice() {
        b"and" => |one, other| one & other,
        b"or" => |one, other| one | other,
        b"xor" => |one, other| one ^ other,
        b"not" if sources.len() == 1 => |one, _| !one,
        b"not" => return Err(fail("ERR BITOP NOT must be called with a single source key.")),
        _ => return Err(SYNTAX),
    };
    let mut strings = Vec::new();
    for source in sources {
        strings.push(Changing::find(context, source)?.unwrap_or_default().bytes);
    }
    let length = strings.iter().map(Vec::len).max().unwrap_or(0);
    let mut strings = strings.into_iter();
    let mut result = strings.next().unwrap_or_default();
    result.resize(length, 0);
    if operation == b"not" {
        result.iter_mut().for_each(|byte| *byte = combine(*byte, 0));
    }
    for string in strings {
        let padded = string.into_iter().chain(std::iter::repeat(0));
        result.iter_mut().zip(padded).for_each(|(byte, other)| *byte = combine(*byte, other));
    }
    if length == 0 {
        context.transaction.remove_head(context.space, target)?;
    } else {
        context.transaction.put_head(context.space, target, &Head::string(&result))?;
    }
    context.reply.count(length as u64);
    Ok(())
}
