//! `stat`: a pool's medium, its guarantee, and its figures.

use std::time::Duration;

use indicatif::BinaryBytes;
use pando::{MapFigures, MapStat, PoolStat};

use crate::arguments::{PoolArguments, StatArguments};
use crate::failure::Failure;
use crate::output::{self, Output, time_text};
use crate::quantity::counted;

/// With fewer records no mean size is shown.
const RECORDS_FOR_A_MEAN: u64 = 100;

/// Prints the figures.
pub fn run(pool: &PoolArguments, arguments: &StatArguments) -> Result<(), Failure> {
    let pool = pool.open()?;
    let stat = pool.stat()?;
    pool.close()?;
    output::report(&stat, arguments.json, print)
}

fn print(stat: &PoolStat, output: &mut Output) -> Result<(), Failure> {
    let PoolStat { recovery, participants, allocator, .. } = stat;
    let path = stat.path.as_ref().map_or("(none)".to_owned(), |path| path.display().to_string());
    output.line(format_args!("pool          {path}"))?;
    output.line(format_args!("domain        {}", stat.domain))?;
    output.line(format_args!("medium        {}", stat.medium))?;
    output.line(format_args!("guarantee     {}", stat.guarantee))?;
    output.line(format_args!(
        "size          {} of at most {}",
        BinaryBytes(stat.size_bytes),
        BinaryBytes(stat.max_bytes)
    ))?;
    output.line(format_args!("generation   {}", stat.generation))?;
    output.line(format_args!(
        "opened        {} in {}; {} completed, {} undone",
        if recovery.was_clean { "after a clean close" } else { "after a crash, recovered" },
        time_text(Duration::from_nanos(recovery.duration_ns)),
        counted(recovery.rolled_forward, "operation"),
        recovery.rolled_back
    ))?;
    output.line(format_args!(
        "participants  {} of {}; the slowest lags {}",
        participants.in_use,
        participants.slots,
        counted(participants.slowest_lag_epochs, "epoch")
    ))?;
    output.line(format_args!(
        "allocator     {} in {}; {} free, {} wait for readers",
        BinaryBytes(allocator.used_bytes),
        counted(allocator.used_blocks, "block"),
        BinaryBytes(allocator.free_bytes),
        BinaryBytes(allocator.retired_bytes)
    ))?;
    output.line(format_args!("maps          {}", stat.maps.len()))?;
    stat.maps.iter().try_for_each(|map| print_map(map, output))
}

fn print_map(map: &MapStat, output: &mut Output) -> Result<(), Failure> {
    let MapStat { name, index, .. } = map;
    let Some(figures) = &map.figures else {
        let reason = map.passed_over.as_deref().unwrap_or_default();
        if name.is_empty() {
            return output.line(format_args!("  slot {}  damaged: {reason}", map.slot));
        }
        return output.line(format_args!("  {name:?}  {index}, passed over: {reason}"));
    };
    output.line(format_args!(
        "  {name:?}  {index}{}, {} in {} and {}, height {}, leaves {:.0} % full, {}{}",
        if map.is_transactional { ", transactional" } else { "" },
        counted(figures.records, "record"),
        if figures.leaves == 1 {
            "1 leaf".to_owned()
        } else {
            format!("{} leaves", figures.leaves)
        },
        counted(figures.inner_nodes, "inner node"),
        figures.height,
        figures.leaf_fill * 100.0,
        BinaryBytes(figures.bytes),
        bytes_a_record(figures)
    ))
}

/// The bytes per record, if there are enough records: a map also takes some bytes without any.
fn bytes_a_record(figures: &MapFigures) -> String {
    if figures.records < RECORDS_FOR_A_MEAN {
        return String::new();
    }
    format!(", {:.1} bytes a record", figures.bytes_a_record)
}
