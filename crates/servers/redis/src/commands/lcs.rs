//! LCS: the longest common subsequence of two strings.

use pando_keyspace::failure::{Failure, Result, fail};

use super::strings::Changing;
use crate::commands::command::{Command, Context, commands};
use crate::decimal;
use crate::errors::{NOT_AN_INTEGER, SYNTAX};
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["string": (READ), TWO]
    "lcs", -3, "7.0.0", lcs, "Find longest common substring";
};

/// The most memory of one LCS, in bytes: the size of the longest string.
const MAX_TABLE_BYTES: usize = 512 << 20;

/// The options of LCS.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    is_length: bool,
    is_ranges: bool,
    has_lengths: bool,
    min_length: u64,
}

impl Options {
    fn read(mut words: &[&[u8]]) -> Result<Self> {
        let mut options = Self::default();
        while let [word, rest @ ..] = words {
            words = rest;
            match (word.to_ascii_lowercase().as_slice(), rest) {
                (b"idx", _) => options.is_ranges = true,
                (b"len", _) => options.is_length = true,
                (b"withmatchlen", _) => options.has_lengths = true,
                (b"minmatchlen", [length, behind @ ..]) => {
                    let length = decimal::parse_i64(length).ok_or(NOT_AN_INTEGER)?;
                    options.min_length = u64::try_from(length).unwrap_or(0);
                    words = behind;
                }
                _ => return Err(SYNTAX),
            }
        }
        if options.is_ranges && options.is_length {
            return Err(fail("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

/// A match of consecutive bytes: its end in each string, and its length.
#[derive(Clone, Copy, Debug)]
struct Match {
    one_end: usize,
    other_end: usize,
    bytes: usize,
}

fn lcs(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let string = |context: &Context<'_, '_>, key: &[u8]| match Changing::find(context, key) {
        Ok(found) => Ok(found.unwrap_or_default().bytes),
        Err(Failure::Reply(_)) => Err(fail("ERR The specified keys must contain string values")),
        Err(other) => Err(other),
    };
    let one = string(context, arguments[1])?;
    let other = string(context, arguments[2])?;
    let options = Options::read(&arguments[3..])?;
    let table = Table::new(&one, &other)?;
    let length = table.at(one.len(), other.len());
    if options.is_length {
        context.reply.count(length.into());
        return Ok(());
    }
    let matches = table.matches(&one, &other);
    if !options.is_ranges {
        let common: Vec<u8> = matches
            .iter()
            .rev()
            .flat_map(|found| &one[found.one_end - found.bytes..found.one_end])
            .copied()
            .collect();
        context.reply.bulk(&common);
        return Ok(());
    }
    let reply = &mut *context.reply;
    reply.map(2);
    reply.bulk(b"matches");
    let is_long = |found: &&Match| found.bytes as u64 >= options.min_length;
    reply.array(matches.iter().filter(is_long).count());
    for found in matches.iter().filter(is_long) {
        reply.array(2 + usize::from(options.has_lengths));
        for end in [found.one_end, found.other_end] {
            reply.array(2);
            reply.count((end - found.bytes) as u64);
            reply.count(end as u64 - 1);
        }
        if options.has_lengths {
            reply.count(found.bytes as u64);
        }
    }
    reply.bulk(b"len");
    reply.count(length.into());
    Ok(())
}

/// The lengths of the longest common subsequences of all pairs of prefixes.
struct Table {
    lengths: Vec<u32>,
    width: usize,
}

impl Table {
    fn new(one: &[u8], other: &[u8]) -> Result<Self> {
        let width = other.len() + 1;
        let cells = (one.len() + 1).checked_mul(width);
        let fits = |cells: &usize| cells.saturating_mul(size_of::<u32>()) <= MAX_TABLE_BYTES;
        let cells = cells.filter(fits).ok_or(fail(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ))?;
        let mut lengths = Vec::new();
        lengths.try_reserve_exact(cells).map_err(|_| {
            fail("ERR Insufficient memory, failed allocating transient memory for LCS")
        })?;
        lengths.resize(cells, 0);
        let mut table = Self { lengths, width };
        for (row, byte) in one.iter().enumerate() {
            for (column, another) in other.iter().enumerate() {
                let length = match byte == another {
                    true => table.at(row, column) + 1,
                    false => table.at(row, column + 1).max(table.at(row + 1, column)),
                };
                table.lengths[(row + 1) * width + column + 1] = length;
            }
        }
        Ok(table)
    }

    fn at(&self, row: usize, column: usize) -> u32 {
        self.lengths[row * self.width + column]
    }

    /// The matches of the subsequence, from the last to the first.
    fn matches(&self, one: &[u8], other: &[u8]) -> Vec<Match> {
        let (mut row, mut column) = (one.len(), other.len());
        let mut matches: Vec<Match> = Vec::new();
        let mut is_in_match = false;
        while row > 0 && column > 0 {
            if one[row - 1] == other[column - 1] {
                match matches.last_mut().filter(|_| is_in_match) {
                    Some(found) => found.bytes += 1,
                    None => matches.push(Match { one_end: row, other_end: column, bytes: 1 }),
                }
                is_in_match = true;
                (row, column) = (row - 1, column - 1);
            } else {
                is_in_match = false;
                if self.at(row - 1, column) > self.at(row, column - 1) {
                    row -= 1;
                } else {
                    column -= 1;
                }
            }
        }
        matches
    }
}
