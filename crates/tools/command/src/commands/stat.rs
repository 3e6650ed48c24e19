//! `stat`: a pool's medium, its guarantee, and its figures.

use std::time::Duration;

use indicatif::BinaryBytes;
use pando::{
    LogStat, MapFigures, MapStat, MemoryStat, PoolStat, ProcessStat, RecoveryStat, StoreStat,
    TransactionStat,
};

use crate::arguments::PoolArguments;
use crate::arguments::upkeep::StatArguments;
use crate::failure::Failure;
use crate::output::{self, Output, time_text};
use crate::quantity::counted;

/// With fewer records no mean size is shown.
const RECORDS_FOR_A_MEAN: u64 = 100;

/// A process that holds removed blocks back for so long may be stopped. A shorter time is that of a
/// long scan.
const STALLED_MS: u64 = 1000;

/// With less memory huge pages make no difference.
const SMALL_MEMORY_BYTES: u64 = 8 << 20;

/// Prints the figures.
pub fn run(pool: &PoolArguments, arguments: &StatArguments) -> Result<(), Failure> {
    let pool = pool.open_to_read()?;
    let stat = pool.stat()?;
    pool.close()?;
    output::report(&stat, arguments.json, print)
}

fn print_process(
    process: &ProcessStat,
    retired_bytes: u64,
    output: &mut Output,
) -> Result<(), Failure> {
    let state = match *process {
        ProcessStat { is_alive: false, .. } => "ended; another process recovers it soon",
        ProcessStat { holds_space_back_ms: Some(ms), .. } if ms >= STALLED_MS => &format!(
            "holds {} of removed blocks back for {}; if it is stopped, continue it, or end it with \
             `pando evict {}`",
            BinaryBytes(retired_bytes),
            time_text(Duration::from_millis(ms)),
            process.pid
        ),
        _ => "alive",
    };
    output.line(format_args!(
        "process       {} {}; {}, {} inside a call; {state}",
        process.pid,
        process.name,
        counted(process.threads, "thread"),
        process.threads_inside
    ))
}

fn print(stat: &PoolStat, output: &mut Output) -> Result<(), Failure> {
    let PoolStat { recovery, participants, allocator, .. } = stat;
    let path = stat.path.as_ref().map_or("(none)".to_owned(), |path| path.display().to_string());
    let what = if stat.store.is_some() { "store" } else { "pool " };
    output.line(format_args!("{what}         {path}"))?;
    output.line(format_args!("domain        {}", stat.domain))?;
    output.line(format_args!("medium        {}", stat.medium))?;
    output.line(format_args!("guarantee     {}", stat.guarantee))?;
    if let Some(store) = &stat.store {
        return print_store(stat, store, output);
    }
    output.line(format_args!(
        "size          {} of at most {}",
        BinaryBytes(stat.size_bytes),
        BinaryBytes(stat.max_bytes)
    ))?;
    if let Some(memory) = &stat.memory {
        print_memory(memory, output)?;
    }
    output.line(format_args!("generation    {}", stat.generation))?;
    output.line(format_args!(
        "opened        {} in {}{}; {} completed, {} undone",
        opened_after(recovery),
        time_text(Duration::from_nanos(recovery.duration_ns)),
        match recovery.log_tail_ns {
            0 => String::new(),
            ns => format!(", {} of it for its log", time_text(Duration::from_nanos(ns))),
        },
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
    for process in &stat.processes {
        print_process(process, allocator.retired_bytes, output)?;
    }
    if let Some(log) = &stat.log {
        print_log(log, output)?;
    }
    if let Some(transactions) = &stat.transactions {
        print_transactions(transactions, output)?;
    }
    if recovery.from_log {
        output.line(format_args!(
            "recovered     {} of the image in {}, {} of the log in {}",
            counted(recovery.image_records, "record"),
            time_text(Duration::from_nanos(recovery.image_ns)),
            counted(recovery.commits, "commit"),
            time_text(Duration::from_nanos(recovery.log_ns))
        ))?;
        for name in &recovery.emptied_maps {
            output.line(format_args!("  {name:?} is empty: it is not transactional"))?;
        }
    }
    output.line(format_args!("maps          {}", stat.maps.len()))?;
    stat.maps.iter().try_for_each(|map| print_map(map, output))
}

fn print_store(stat: &PoolStat, store: &StoreStat, output: &mut Output) -> Result<(), Failure> {
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    output.line(format_args!(
        "opened        in {}; {} replayed",
        time_text(Duration::from_nanos(stat.recovery.duration_ns)),
        counted(stat.recovery.commits, "commit")
    ))?;
    if stat.recovery.damaged_pages > 0 {
        output.line(format_args!(
            "damaged       {} that the log could not be replayed over: reads of the keys there \
             fail, and the log is kept and grows; `pando check` names them",
            counted(stat.recovery.damaged_pages, "page")
        ))?;
    }
    for damage in &store.map_list_damage {
        output.line(format_args!(
            "damaged       a part of the list of maps: {damage}; maps without a name are listed by \
             slot, and `pando --store DIR dump --slot N` copies out what can be read of one"
        ))?;
    }
    output.line(format_args!(
        "cache         {} of {}: {}, {} of them changed",
        BinaryBytes(store.cache_bytes),
        BinaryBytes(store.memory_bytes),
        counted(store.cached_pages, "page"),
        store.changed_pages,
    ))?;
    output.line(format_args!(
        "reads         {}, {}, {} and {}, since the opening",
        counted(store.visits, "visit"),
        counted(store.loads, "load"),
        counted(store.evictions, "eviction"),
        counted(store.part_reads, "disk read"),
    ))?;
    output.line(format_args!(
        "  {:.1} % of the visits without the disk; {:.2} disk reads a visit, without cleaning",
        100.0 * (1.0 - share(store.loads, store.visits)).max(0.0),
        share(store.part_reads.saturating_sub(store.moved_part_reads), store.visits)
    ))?;
    let parts = (1..).zip(&store.pages_by_parts).map(|(parts, pages)| parts * pages).sum();
    output.line(format_args!(
        "disk          {}: {} of {:.2} parts, {:.0} % of the segments in use",
        BinaryBytes(store.segment_bytes),
        counted(store.pages, "page"),
        share(parts, store.pages),
        100.0 * share(store.live_bytes, store.segment_bytes)
    ))?;
    output.line(format_args!(
        "written       {} for {} of pages{}, {} of them by cleaning, since the opening",
        BinaryBytes(store.written_bytes),
        BinaryBytes(store.appended_bytes),
        match store.appended_bytes {
            0 => String::new(),
            appended_bytes => format!(" ({:.2}x)", share(store.written_bytes, appended_bytes)),
        },
        BinaryBytes(store.moved_bytes)
    ))?;
    output.line(format_args!(
        "checkpoint    {} of log behind it",
        BinaryBytes(store.log_since_checkpoint_bytes)
    ))?;
    if let Some(log) = &stat.log {
        print_tail(log, output)?;
    }
    if let Some(transactions) = &stat.transactions {
        print_transactions(transactions, output)?;
    }
    output.line(format_args!("maps          {}", stat.maps.len()))?;
    if store.dropped_maps > 0 {
        output.line(format_args!(
            "  besides {}, whose records are not all removed yet",
            counted(store.dropped_maps, "dropped map")
        ))?;
    }
    stat.maps.iter().try_for_each(|map| print_map(map, output))
}

fn print_memory(memory: &MemoryStat, output: &mut Output) -> Result<(), Failure> {
    let MemoryStat { resident_bytes, huge_bytes, .. } = *memory;
    let share = huge_bytes as f64 / resident_bytes.max(1) as f64;
    let has_few = resident_bytes > SMALL_MEMORY_BYTES && share < 0.5;
    output.line(format_args!(
        "memory        {} in use here, {:.0} % on huge pages{}",
        BinaryBytes(resident_bytes),
        share * 100.0,
        if has_few { "; docs/operate.md says how to get more" } else { "" }
    ))
}

fn opened_after(recovery: &RecoveryStat) -> &'static str {
    match recovery {
        RecoveryStat { from_log: true, .. } => "after the pool was lost, rebuilt from its log",
        RecoveryStat { joined: true, .. } => "beside other processes",
        RecoveryStat { was_clean: true, .. } => "after a clean close",
        _ => "after a crash, recovered",
    }
}

/// Where the log is, and how far it is durable.
fn print_tail(log: &LogStat, output: &mut Output) -> Result<(), Failure> {
    output.line(format_args!("log           {}", log.path.display()))?;
    let state = if log.has_stopped { "STOPPED after a failed write or sync, " } else { "" };
    output.line(format_args!(
        "  {state}durable up to LSN {}, {} wait for the disk",
        log.durable_lsn,
        BinaryBytes(log.newest_lsn.saturating_sub(log.durable_lsn))
    ))
}

fn print_transactions(stat: &TransactionStat, output: &mut Output) -> Result<(), Failure> {
    let TransactionStat { undecided, snapshots, kept_bytes, .. } = *stat;
    let oldest = match snapshots {
        0 => String::new(),
        _ => format!(
            "; the oldest is {:?} and lives for {}",
            stat.oldest_holder,
            time_text(Duration::from_nanos(stat.oldest_age_ns))
        ),
    };
    output.line(format_args!(
        "transactions  {} undecided; {} with {} of old values{oldest}",
        counted(undecided, "commit"),
        counted(snapshots, "snapshot"),
        BinaryBytes(kept_bytes)
    ))
}

/// Prints the figures of the log of a pool.
pub fn print_log(log: &LogStat, output: &mut Output) -> Result<(), Failure> {
    print_tail(log, output)?;
    if let Some(error) = &log.image_error {
        output.line(format_args!("  the newest image FAILED: {error}"))?;
    }
    output.line(format_args!(
        "  image of {} at LSN {}, {} of log behind it",
        BinaryBytes(log.image_bytes),
        log.image_lsn,
        BinaryBytes(log.newest_lsn.saturating_sub(log.image_lsn))
    ))
}

fn print_map(map: &MapStat, output: &mut Output) -> Result<(), Failure> {
    let MapStat { name, index, .. } = map;
    let Some(figures) = &map.figures else {
        // Those of a store are not counted: that would read all its pages.
        if map.passed_over.is_none() {
            return output.line(format_args!("  {name:?}  {index}, transactional"));
        }
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
