//! `scan` and `dump`: records in order.

use std::ops::Bound;

use indicatif::HumanCount;
use pando::{KeyRange, Map, Order, Pool, Scan};

use super::check::problem_text;
use crate::arguments::PoolArguments;
use crate::arguments::records::{DumpArguments, ScanArguments};
use crate::failure::Failure;
use crate::format::OutputFormat;
use crate::output::Output;
use crate::pool_access::argument_bytes;

/// Prints the records of a range.
pub fn scan(pool: &PoolArguments, arguments: &ScanArguments) -> Result<(), Failure> {
    let range = range(arguments)?;
    let order = if arguments.reverse { Order::Descending } else { Order::Ascending };
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let name = arguments.map.checked_name()?;
    let pool = pool.open_to_read()?;
    let map = pool.open_map(name)?;
    let mut output = Output::new();
    let parts = if arguments.keys_only { Parts::Keys } else { Parts::Records };
    if arguments.count {
        output.line(count(&map, range, order, limit)?)?;
    } else {
        print(&map, range, order, limit, (arguments.format, parts), &mut output)?;
    }
    output.flush()?;
    drop(map);
    Ok(pool.close()?)
}

/// Prints all records.
pub fn dump(arguments_of_pool: &PoolArguments, arguments: &DumpArguments) -> Result<(), Failure> {
    let is_by_number = arguments_of_pool.store.is_some() && arguments.slot.slot.is_some();
    if arguments_of_pool.salvage || is_by_number {
        return salvage(arguments_of_pool.open_to_read()?, arguments);
    }
    if let Some(slot) = arguments.slot.slot {
        return Err(Failure::Input(format!(
            "--slot {slot} is for a map that cannot be opened; add --salvage before dump, or name the map by --map"
        )));
    }
    let name = arguments.map.checked_name()?;
    let pool = arguments_of_pool.open_to_read()?;
    let map = pool.open_map(name)?;
    let mut output = Output::compressed(arguments.compression)?;
    let form = (arguments.format, Parts::Records);
    print(&map, KeyRange::all(), Order::Ascending, u64::MAX, form, &mut output)?;
    output.finish()?;
    drop(map);
    Ok(pool.close()?)
}

/// Prints all readable records, and reports the unreadable parts on standard error.
fn salvage(pool: Pool, arguments: &DumpArguments) -> Result<(), Failure> {
    let mut output = Output::compressed(arguments.compression)?;
    output.bytes(arguments.format.header())?;
    let (mut line, mut printed, mut copied) = (Vec::new(), Ok(()), 0_u64);
    let mut print = |key: &[u8], value: &[u8]| {
        if printed.is_ok() {
            line.clear();
            arguments.format.append(key, value, &mut line);
            printed = output.bytes(&line);
            copied += 1;
        }
    };
    let report = match arguments.slot.slot {
        Some(slot) => pool.salvage_slot(slot, &arguments.slot.options(), &mut print)?,
        None => pool.salvage(&arguments.map.name, &mut print)?,
    };
    pool.close()?;
    printed?;
    output.finish()?;
    for problem in &report.problems {
        eprintln!("{}", problem_text(problem));
    }
    eprintln!(
        "{} records copied; {} problems, whose records are not among them",
        HumanCount(copied),
        HumanCount(report.problems.len() as u64)
    );
    report.gravest().map_or(Ok(()), |class| Err(Failure::Problems(class)))
}

fn range(arguments: &ScanArguments) -> Result<KeyRange, Failure> {
    if let Some(prefix) = &arguments.prefix {
        return Ok(KeyRange::prefix(&argument_bytes("the prefix", prefix)?));
    }
    let low = match &arguments.from {
        Some(from) => Bound::Included(argument_bytes("FROM", from)?),
        None => Bound::Unbounded,
    };
    let high = match &arguments.to {
        Some(to) => Bound::Excluded(argument_bytes("TO", to)?),
        None => Bound::Unbounded,
    };
    Ok(KeyRange { low, high })
}

/// What is printed of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    /// Key and value.
    Records,
    /// The key.
    Keys,
}

fn print(
    map: &Map,
    range: KeyRange,
    order: Order,
    limit: u64,
    (format, parts): (OutputFormat, Parts),
    output: &mut Output,
) -> Result<(), Failure> {
    output.bytes(match parts {
        Parts::Records => format.header(),
        Parts::Keys => format.key_header(),
    })?;
    let mut scan = scan_of(map, range, limit);
    let mut line = Vec::new();
    for _ in 0..limit {
        let Some((key, value)) = scan.next_record_in(order)? else { break };
        line.clear();
        match parts {
            Parts::Records => format.append(key, value, &mut line),
            Parts::Keys => format.append_key(key, &mut line),
        }
        output.bytes(&line)?;
    }
    Ok(())
}

fn count(map: &Map, range: KeyRange, order: Order, limit: u64) -> Result<u64, Failure> {
    let mut scan = scan_of(map, range, limit);
    let mut counted = 0;
    while counted < limit && scan.next_record_in(order)?.is_some() {
        counted += 1;
    }
    Ok(counted)
}

fn scan_of(map: &Map, range: KeyRange, limit: u64) -> Scan<'_> {
    map.range(range).expecting(usize::try_from(limit).unwrap_or(usize::MAX))
}
