//! The figures and problems of a pool and its maps, as reports of the public API.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use pando_pmem::layout::CHUNK_BYTES;
use pando_pmem::{Block, Domain, Guarantee, Pool};
use pando_tree::maps::slots::{Damage, HEADER_BYTES, MapEntry};
use pando_tree::maps::{self, Audit, OptionValues, Stat};
use procfs::process::Process;

use crate::report::{
    AllocatorStat, CheckReport, MapFigures, MapStat, MemoryStat, ParticipantStat, PoolStat,
    Problem, ProblemClass, Promise, RecoveryStat,
};
use crate::{DomainChoice, Error};

/// The medium of a pool and its guarantee.
pub(super) fn promise<D: Domain>(pool: &Pool<D>) -> Promise {
    Promise {
        domain: if D::needs_write_back() { DomainChoice::Adr } else { DomainChoice::Process }
            .name(),
        medium: pool.medium().to_string(),
        guarantee: format!(
            "what has returned survives {}{}",
            pool.guarantee().describe(),
            match pool.log_name() {
                Some(_) => "; commits that are synced to its log survive a power cut",
                None => "",
            }
        ),
        survives_power: pool.guarantee() == Guarantee::PowerLoss,
    }
}

/// The figures of a pool.
pub(super) fn pool_stat<D: Domain>(
    pool: &Pool<D>,
    recovery: RecoveryStat,
    maps: Vec<MapStat>,
) -> pando_pmem::Result<PoolStat> {
    let usage = pool.usage()?;
    let promise = promise(pool);
    let lag = |participant: pando_pmem::Participant| participant.pinned_for_epochs;
    let retired_bytes = usage.inactive_bytes;
    let used_bytes = usage.active_bytes;
    Ok(PoolStat {
        path: (pool.medium() != pando_pmem::Medium::Anonymous).then(|| pool.path().to_owned()),
        domain: promise.domain.to_owned(),
        medium: promise.medium,
        guarantee: promise.guarantee,
        memory: memory_stat(pool.addresses()),
        size_bytes: pool.size_bytes(),
        max_bytes: pool.geometry().max_bytes,
        generation: u64::from(pool.generation()),
        recovery,
        participants: ParticipantStat {
            slots: pool.participant_slots() as u64,
            in_use: pool.participants_claimed() as u64,
            slowest_lag_epochs: pool.participants().into_iter().filter_map(lag).max().unwrap_or(0),
        },
        allocator: AllocatorStat {
            used_bytes,
            free_bytes: (usage.chunks * CHUNK_BYTES).saturating_sub(used_bytes + retired_bytes),
            retired_bytes,
            used_blocks: usage.active_blocks,
        },
        log: None,
        store: None,
        transactions: None,
        processes: Vec::new(),
        maps,
    })
}

/// What this process uses of the memory at `addresses`, as the kernel counts it
/// (`/proc/self/smaps`).
fn memory_stat(addresses: Range<u64>) -> Option<MemoryStat> {
    const HUGE: [&str; 3] = ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"];
    let maps = Process::myself().ok()?.smaps().ok()?;
    let mut stat = MemoryStat::default();
    for map in maps {
        let (start, end) = map.address;
        if start < addresses.end && addresses.start < end {
            let bytes = |name| map.extension.map.get(name).copied().unwrap_or(0);
            stat.resident_bytes += bytes("Rss");
            stat.huge_bytes += HUGE.map(bytes).iter().sum::<u64>();
        }
    }
    Some(stat)
}

/// The name of the kind of a map whose kind is no longer known.
pub(super) const UNKNOWN_INDEX: &str = "unknown";

/// The figures of a map.
pub(super) fn map_stat(
    entry: &MapEntry,
    name: &str,
    kind: &str,
    options: &OptionValues,
    stat: Stat,
) -> MapStat {
    let map_bytes = stat.leaf_bytes + stat.inner_bytes + stat.value_block_bytes;
    let part = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
    MapStat {
        name: name.to_owned(),
        slot: entry.slot,
        index: kind.to_owned(),
        is_transactional: is_transactional(entry),
        options: options.iter().map(|(option, value)| (option.name, option.text(value))).collect(),
        figures: Some(MapFigures {
            height: u32::try_from(stat.height).unwrap_or(u32::MAX),
            inner_nodes: stat.inner_nodes,
            leaves: stat.leaves,
            records: stat.records,
            leaf_fill: part(stat.live_bytes, stat.leaf_bytes),
            bytes: map_bytes,
            bytes_a_record: part(map_bytes, stat.records),
        }),
        passed_over: None,
    }
}

fn is_transactional(entry: &MapEntry) -> bool {
    entry.header.as_ref().is_ok_and(|header| header.number != 0)
}

/// The report of a map that could not be walked.
pub(super) fn map_passed_over(
    entry: &MapEntry,
    name: &str,
    index: String,
    reason: &dyn std::error::Error,
) -> MapStat {
    MapStat {
        name: name.to_owned(),
        slot: entry.slot,
        index,
        is_transactional: is_transactional(entry),
        options: BTreeMap::new(),
        figures: None,
        passed_over: Some(reason.to_string()),
    }
}

/// The name of a map, or its slot if the name is not known.
pub(super) fn name_of(entry: &MapEntry) -> String {
    match &entry.header {
        Ok(header) if !header.name.is_empty() => header.name.clone(),
        _ => format!("slot {}", entry.slot),
    }
}

/// The public API's class of an index's problem.
fn class_of(class: maps::ProblemClass) -> ProblemClass {
    match class {
        maps::ProblemClass::Block => ProblemClass::ReachableButFree,
        maps::ProblemClass::Count => ProblemClass::Count,
        maps::ProblemClass::Separator => ProblemClass::Separator,
        maps::ProblemClass::Order => ProblemClass::Order,
        maps::ProblemClass::Structure => ProblemClass::Unreadable,
    }
}

/// A check in progress: the blocks that were reached so far, and the problems.
#[derive(Default)]
pub(super) struct Check {
    report: CheckReport,
    reached: Vec<Block>,
    /// A map was skipped. Its blocks are not known, and would look like leaks.
    has_passed_over: bool,
}

impl Check {
    /// Adds the findings of the walk of a map.
    pub(super) fn map(&mut self, entry: &MapEntry, name: &str, audit: Audit) {
        self.report.maps += 1;
        self.report.records += audit.stat.records;
        self.report.nodes += audit.stat.leaves + audit.stat.inner_nodes;
        for problem in audit.problems {
            let message = format!("the node at {:#x}: {}", problem.node_off, problem.what);
            self.problem(class_of(problem.class), Some(name), message);
        }
        self.reached.push(Block { off: entry.header_off, bytes: HEADER_BYTES });
        self.reached.extend(audit.blocks);
    }

    /// Adds the blocks of the log, if they are known. Else they would look like leaks.
    pub(super) fn log<D: Domain>(&mut self, pool: &Pool<D>, blocks: Option<Vec<u64>>) {
        self.has_passed_over |= blocks.is_none();
        let bytes = |off| pool.active_block(off).unwrap_or_default();
        let blocks = blocks.into_iter().flatten();
        self.reached.extend(blocks.map(|off| Block { off, bytes: bytes(off) }));
    }

    /// A map cannot be walked: its kind is not known, or its first block is damaged.
    pub(super) fn map_passed_over(&mut self, entry: &MapEntry, name: &str, reason: &Error) {
        self.has_passed_over = true;
        let message = format!("skipped, so that leaks were not looked for: {reason}");
        self.problem(ProblemClass::Unreadable, Some(name), message);
        self.reached.push(Block { off: entry.header_off, bytes: HEADER_BYTES });
    }

    /// One of the two copies of a map's header is damaged.
    pub(super) fn damaged_copy(&mut self, entry: &MapEntry, name: &str) {
        let message = format!(
            "one copy of its header, in the block at {:#x}, is damaged, and the other one is used: copy the records into a \
             new map and drop this one",
            entry.header_off
        );
        self.problem(ProblemClass::HeaderCopy, Some(name), message);
    }

    /// A slot of the catalog is damaged, or both copies of the header that it points to.
    pub(super) fn damaged_map(&mut self, entry: &MapEntry, damage: &Damage) {
        self.has_passed_over = true;
        let slot = entry.slot;
        let message = format!(
            "the map in the catalog's slot {slot} is damaged, so that leaks were not looked for: {damage}; copy its records \
             out by `pando --salvage dump --slot {slot}`, then `pando drop --slot {slot}`"
        );
        self.problem(ProblemClass::Unreadable, None, message);
        if entry.header_off != 0 {
            self.reached.push(Block { off: entry.header_off, bytes: HEADER_BYTES });
        }
    }

    /// A map is dropped, and cannot be freed here: the pool is open for salvage, or the header is
    /// damaged.
    pub(super) fn dropped_map(&mut self, entry: &MapEntry) {
        self.has_passed_over = true;
        if let Err(damage) = &entry.header {
            let slot = entry.slot;
            let message = format!(
                "the map that was in the catalog's slot {slot} is dropped and cannot be freed: {damage}; name its \
                 index by `pando drop --slot {slot} --index NAME`"
            );
            self.problem(ProblemClass::Unreadable, None, message);
        }
        self.reached.push(Block { off: entry.header_off, bytes: HEADER_BYTES });
    }

    /// The report on the maps alone, without the allocator.
    pub(super) fn of_maps_alone(self) -> CheckReport {
        CheckReport { reached_blocks: self.reached.len() as u64, ..self.report }
    }

    /// Compares the reached blocks with the allocated ones.
    pub(super) fn finish<D: Domain>(mut self, pool: &Pool<D>) -> pando_pmem::Result<CheckReport> {
        let mut reached = std::mem::take(&mut self.reached);
        reached.extend(pool.segment_spans());
        reached.sort_unstable();
        for pair in reached.windows(2).filter(|pair| pair[0].off == pair[1].off) {
            let message = format!("the block at {:#x} is reached twice", pair[0].off);
            self.problem(ProblemClass::ReachableButFree, None, message);
        }
        reached.dedup_by_key(|block| block.off);
        let mut next = reached.iter().peekable();
        pool.visit_active(&mut |active| {
            self.report.used_blocks += 1;
            if pool.would_give_out(active.off) {
                let message = format!("the block at {:#x} is in use and marked as free", active.off);
                self.problem(ProblemClass::ReachableButFree, None, message);
            }
            while let Some(block) = next.next_if(|block| block.off < active.off) {
                self.reached_but_free(block);
            }
            match next.peek().map(|block| block.off.cmp(&active.off)) {
                Some(Ordering::Equal) => {
                    next.next();
                }
                _ if self.has_passed_over => {}
                _ => {
                    let Block { off, bytes } = active;
                    let message = format!("the block of {bytes} bytes at {off:#x} is allocated and not reached: a leak");
                    self.problem(ProblemClass::Leaked, None, message);
                }
            }
            ControlFlow::Continue(())
        })?;
        next.for_each(|block| self.reached_but_free(block));
        self.report.reached_blocks = reached.len() as u64;
        Ok(self.report)
    }

    fn reached_but_free(&mut self, block: &Block) {
        let message = format!("the block at {:#x} is reached and not allocated", block.off);
        self.problem(ProblemClass::ReachableButFree, None, message);
    }

    fn problem(&mut self, class: ProblemClass, map: Option<&str>, message: String) {
        self.report.problems.push(Problem { class, map: map.map(str::to_owned), message });
    }
}
