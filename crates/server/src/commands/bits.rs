//! Strings as rows of bits, the highest bit of each byte first: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP.

use super::string_ranges::{MAX_STRING_BYTES, clamp};
use super::strings::Changing;
use super::{Arguments, Command, Context, Keys, flags};
use crate::failure::{NOT_AN_INTEGER, Result, SYNTAX, WRONG_TYPE, said};
use crate::number;
use crate::store::layout::{Content, Head};

/// The commands of this group.
pub(super) static COMMANDS: &[Command] = &[
    Command::new("setbit", 4, setbit)
        .flags(flags::WRITE.and(flags::DENYOOM))
        .keys(Keys::Range(1, 1, 1))
        .about(
            "bitmap",
            "2.2.0",
            "Sets or clears the bit at offset in the string value stored at key",
        ),
    Command::new("getbit", 3, getbit)
        .flags(flags::READ.and(flags::FAST))
        .keys(Keys::Range(1, 1, 1))
        .about(
            "bitmap",
            "2.2.0",
            "Returns the bit value at offset in the string value stored at key",
        ),
    Command::new("bitcount", -2, bitcount).flags(flags::READ).keys(Keys::Range(1, 1, 1)).about(
        "bitmap",
        "2.6.0",
        "Count set bits in a string",
    ),
    Command::new("bitpos", -3, bitpos).flags(flags::READ).keys(Keys::Range(1, 1, 1)).about(
        "bitmap",
        "2.8.7",
        "Find first bit set or clear in a string",
    ),
    Command::new("bitop", -4, bitop)
        .flags(flags::WRITE.and(flags::DENYOOM))
        .keys(Keys::Range(2, -1, 1))
        .about("bitmap", "2.6.0", "Perform bitwise operations between strings"),
];

/// A bit's byte, and its mask there.
fn read_offset(text: &[u8]) -> Result<(usize, u8)> {
    let offset = number::parse_i64(text).and_then(|offset| u64::try_from(offset).ok());
    let offset = offset.filter(|offset| offset >> 3 < MAX_STRING_BYTES);
    let offset = offset.ok_or(said("ERR bit offset is not an integer or out of range"))?;
    Ok(((offset >> 3) as usize, mask(offset)))
}

fn mask(bit: u64) -> u8 {
    0x80 >> (bit & 7)
}

fn setbit(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let key = arguments[1];
    let (byte, mask) = read_offset(arguments[2])?;
    let is_set = match number::parse_i64(arguments[3]) {
        Some(bit @ 0..=1) => bit == 1,
        _ => return Err(said("ERR bit is not an integer or out of range")),
    };
    let mut changed = Changing::find(context, key)?.unwrap_or_default();
    if changed.bytes.len() <= byte {
        changed.bytes.resize(byte + 1, 0);
    }
    let was_set = changed.bytes[byte] & mask != 0;
    if is_set {
        changed.bytes[byte] |= mask;
    } else {
        changed.bytes[byte] &= !mask;
    }
    changed.put(context, key)?;
    context.reply.integer(i64::from(was_set));
    Ok(())
}

fn getbit(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (byte, mask) = read_offset(arguments[2])?;
    let is_set = look(context, arguments[1], |bytes| {
        bytes.and_then(|bytes| bytes.get(byte)).is_some_and(|byte| byte & mask != 0)
    })?;
    context.reply.integer(i64::from(is_set));
    Ok(())
}

/// Lends the string at `key`.
fn look<Answer>(
    context: &Context<'_, '_>,
    key: &[u8],
    look: impl FnOnce(Option<&[u8]>) -> Answer,
) -> Result<Answer> {
    context.transaction.head(context.space, key, |head| match head.map(|head| head.content) {
        Some(Content::String(bytes)) => Ok(look(Some(bytes))),
        Some(Content::Collection(..)) => Err(WRONG_TYPE),
        None => Ok(look(None)),
    })?
}

/// Whether a range counts bits.
fn read_unit(word: &[u8]) -> Result<bool> {
    match word.to_ascii_lowercase().as_slice() {
        b"bit" => Ok(true),
        b"byte" => Ok(false),
        _ => Err(SYNTAX),
    }
}

/// The bits from the first to the last of `length` bytes; `None` if there are none.
fn bits_of(start: i64, end: i64, is_bits: bool, length: usize) -> Option<(u64, u64)> {
    if is_bits {
        return clamp(start, end, length * 8).map(|(start, end)| (start as u64, end as u64));
    }
    clamp(start, end, length).map(|(start, end)| (start as u64 * 8, end as u64 * 8 + 7))
}

/// The byte at `index`, without the bits that are not from `first` to `last`; those become as `rest`.
fn cut(bytes: &[u8], index: usize, (first, last): (u64, u64), rest: bool) -> u8 {
    let mut inside = 0xFF;
    if index as u64 == first >> 3 {
        inside &= 0xFF >> (first & 7);
    }
    if index as u64 == last >> 3 {
        inside &= 0xFF << (7 - (last & 7));
    }
    if rest { bytes[index] | !inside } else { bytes[index] & inside }
}

fn bitcount(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let count = look(context, arguments[1], |bytes| {
        // As Redis, which looks at the rest only then.
        let Some(bytes) = bytes else { return Ok(0) };
        let range = match arguments {
            [_, _] => bits_of(0, -1, false, bytes.len()),
            [_, _, start, end] | [_, _, start, end, _] => {
                let start = number::parse_i64(start).ok_or(NOT_AN_INTEGER)?;
                let end = number::parse_i64(end).ok_or(NOT_AN_INTEGER)?;
                let is_reversed = start < 0 && end < 0 && start > end;
                if is_reversed {
                    return Ok(0);
                }
                let is_bits = arguments.get(4).map(|unit| read_unit(unit)).transpose()?;
                bits_of(start, end, is_bits.unwrap_or(false), bytes.len())
            }
            _ => return Err(SYNTAX),
        };
        let Some((first, last)) = range else { return Ok(0) };
        let (begin, end) = ((first >> 3) as usize, (last >> 3) as usize);
        let inner: u64 = bytes[begin..=end].iter().map(|byte| u64::from(byte.count_ones())).sum();
        // The ends may be cut.
        let mut outside =
            u64::from((bytes[begin] ^ cut(bytes, begin, (first, last), false)).count_ones());
        if end > begin {
            outside += u64::from((bytes[end] ^ cut(bytes, end, (first, last), false)).count_ones());
        }
        Ok(inner - outside)
    })??;
    context.reply.count(count);
    Ok(())
}

fn bitpos(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let wanted = match number::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)? {
        0 => false,
        1 => true,
        _ => return Err(said("ERR The bit argument must be 1 or 0.")),
    };
    let position = look(context, arguments[1], |bytes| {
        let Some(bytes) = bytes else { return Ok(if wanted { -1 } else { 0 }) };
        let range = match arguments {
            [_, _, _] => bits_of(0, -1, false, bytes.len()),
            [_, _, _, start, rest @ ..] if rest.len() <= 2 => {
                let start = number::parse_i64(start).ok_or(NOT_AN_INTEGER)?;
                let is_bits = rest.get(1).map(|unit| read_unit(unit)).transpose()?;
                let end = rest.first().map(|end| number::parse_i64(end).ok_or(NOT_AN_INTEGER));
                let end = end.transpose()?.unwrap_or(-1);
                bits_of(start, end, is_bits.unwrap_or(false), bytes.len())
            }
            _ => return Err(SYNTAX),
        };
        let Some((first, last)) = range else { return Ok(-1) };
        let (begin, end) = ((first >> 3) as usize, (last >> 3) as usize);
        let found = (begin..=end).find_map(|index| {
            let byte = cut(bytes, index, (first, last), !wanted);
            let before = if wanted { byte.leading_zeros() } else { byte.leading_ones() };
            (before < 8).then_some(index as i64 * 8 + i64::from(before))
        });
        // Behind a string whose end nobody named there are zeros.
        let is_open = !wanted && arguments.len() <= 4;
        Ok(found.unwrap_or(if is_open { bytes.len() as i64 * 8 } else { -1 }))
    })??;
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
        b"not" => return Err(said("ERR BITOP NOT must be called with a single source key.")),
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
