//! `scan` and `dump`: records in order.

use std::ops::Bound;

use pando::{KeyRange, Map, Order};

use crate::arguments::{DumpArguments, PoolArguments, ScanArguments};
use crate::failure::Failure;
use crate::format::OutputFormat;
use crate::output::Output;
use crate::pool_access::argument_bytes;

/// Prints the records of a range.
pub fn scan(pool: &PoolArguments, arguments: &ScanArguments) -> Result<(), Failure> {
    let range = range(arguments)?;
    let order = if arguments.reverse { Order::Descending } else { Order::Ascending };
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let pool = pool.open()?;
    print(&pool.open_map(&arguments.map.name)?, range, order, limit, arguments.format)?;
    Ok(pool.close()?)
}

/// Prints all records.
pub fn dump(pool: &PoolArguments, arguments: &DumpArguments) -> Result<(), Failure> {
    let pool = pool.open()?;
    let map = pool.open_map(&arguments.map.name)?;
    print(&map, KeyRange::all(), Order::Ascending, u64::MAX, arguments.format)?;
    drop(map);
    Ok(pool.close()?)
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

fn print(
    map: &Map,
    range: KeyRange,
    order: Order,
    limit: u64,
    format: OutputFormat,
) -> Result<(), Failure> {
    let mut output = Output::new();
    let mut scan = map.scan(range, order)?;
    let mut line = Vec::new();
    for _ in 0..limit {
        let Some((key, value)) = scan.next_record()? else { break };
        line.clear();
        format.append(key, value, &mut line);
        output.bytes(&line)?;
    }
    output.flush()
}
