//! A store as an engine: its maps are larger than memory, and all are transactional.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pando_bwtree::BwTrees;
use pando_index::RangeIndex;
use pando_pmem::medium;
use pando_store::{MAX_NAME_BYTES, ReadableMaps, Store, StoreOptions};
use pando_tc::SnapshotOptions;
use pando_tree::maps::{IndexKind, OptionValues};

use super::transactional::{AnySnapshot, AnyTransaction, transaction_stat};
use super::{Engine, Held, OpenedMap, Stamped};
use crate::options::Created;
use crate::report::{
    CheckReport, Compacted, LogProgress, LogStat, MapInfo, MapStat, PoolStat, Problem,
    ProblemClass, ProcessStat, Promise, RecoveryStat, StoreStat,
};
use crate::{DomainChoice, Error, MapOptions};

/// A store in a directory.
pub(super) struct Stored {
    store: Store,
    path: PathBuf,
    duration_ns: u64,
}

/// Opens the store in the directory `path`, with so many bytes of memory for its pages; creates it
/// if there is none.
pub(crate) fn open_store(path: &Path, memory_bytes: u64) -> Result<Box<dyn Engine>, Error> {
    open_by(Store::open, path, memory_bytes)
}

/// Opens it without a change of its files.
pub(crate) fn open_store_unchanged(
    path: &Path,
    memory_bytes: u64,
) -> Result<Box<dyn Engine>, Error> {
    open_by(Store::open_unchanged, path, memory_bytes)
}

fn open_by(
    open: fn(&Path, &StoreOptions) -> pando_store::Result<Store>,
    path: &Path,
    memory_bytes: u64,
) -> Result<Box<dyn Engine>, Error> {
    let begin = std::time::Instant::now();
    let options = StoreOptions { memory_bytes, ..StoreOptions::default() };
    let store = open(path, &options).map_err(Error::of_store)?;
    let duration_ns = begin.elapsed().as_nanos() as u64;
    Ok(Box::new(Stored { store, path: path.to_owned(), duration_ns }))
}

impl Stored {
    fn not_here<T>(what: &'static str) -> Result<T, Error> {
        Err(Error::NotInAStore { what })
    }

    fn index_name() -> &'static str {
        BwTrees::NAME
    }
}

/// The pages of a store may leave memory at any time, so its values are copied.
struct NothingHeld;

impl Held for NothingHeld {
    fn covers(&self, _: &[u8]) -> bool {
        false
    }
}

/// The maps. One whose name is in a damaged page has its number alone.
fn infos(list: ReadableMaps) -> impl Iterator<Item = MapInfo> {
    let info = |(name, number)| MapInfo {
        name,
        index: Stored::index_name().to_owned(),
        is_transactional: true,
        slot: number,
        damage: None,
    };
    let damage = format!("its name cannot be read: {}", list.damage.join("; "));
    let without_name = list.unnamed.into_iter().map(move |number| {
        let damage = Some(damage.clone());
        MapInfo { damage, ..info((String::new(), number)) }
    });
    list.maps.into_iter().map(info).chain(without_name)
}

impl Engine for Stored {
    fn max_map_name_bytes(&self) -> usize {
        MAX_NAME_BYTES
    }

    fn created(&self, name: &str) -> Result<Option<Created>, Error> {
        let found = self.store.find_map(name).map_err(Error::of_store)?;
        Ok(found.map(|_| Created {
            kind: Self::index_name(),
            values: OptionValues::new(&[]),
            is_transactional: true,
        }))
    }

    fn create_map(&self, name: &str, options: &MapOptions) -> Result<(), Error> {
        let refused = |option: &str, found: &str, allowed: &str| {
            let [option, found, allowed] = [option, found, allowed].map(str::to_owned);
            Err(Error::Option { option, found, allowed })
        };
        if let Some(index) = options.index.as_deref().filter(|index| *index != Self::index_name()) {
            return refused("index", index, "bwtree, in a store");
        }
        if options.is_transactional == Some(false) {
            return refused("transactional", "false", "true, in a store");
        }
        options.applied_to(OptionValues::new(&[]))?;
        self.store.create_map(name).map(drop).map_err(Error::of_store)
    }

    fn open_map(&self, name: &str) -> Result<OpenedMap, Error> {
        let (number, map, index) = self.store.map_and_index(name).map_err(Error::of_store)?;
        Ok(OpenedMap {
            index: Arc::new(map),
            stamped: Some(Stamped { number, index }),
            in_use: None,
        })
    }

    fn begin(
        &self,
        snapshot: Option<SnapshotOptions>,
    ) -> Result<Option<Box<dyn AnyTransaction + '_>>, Error> {
        let component = self.store.component();
        Ok(Some(Box::new(match snapshot {
            None => component.begin(),
            Some(options) => component.begin_over_snapshot(options)?,
        })))
    }

    fn snapshot(
        &self,
        options: SnapshotOptions,
    ) -> Result<Option<Box<dyn AnySnapshot + '_>>, Error> {
        Ok(Some(Box::new(self.store.component().snapshot(options)?)))
    }

    fn hold(&self) -> Result<Arc<dyn Held>, Error> {
        Ok(Arc::new(NothingHeld))
    }

    fn sync(&self, lsn: Option<u64>) -> Result<u64, Error> {
        let component = self.store.component();
        // The caller's commit has taken place, even if this fails.
        let newest = component.newest_lsn().map_err(Error::of_sync)?;
        let lsn = lsn.unwrap_or(newest).min(newest);
        component.sync(lsn).map_err(Error::of_sync)?;
        Ok(lsn)
    }

    fn log_progress(&self) -> Result<Option<LogProgress>, Error> {
        let component = self.store.component();
        Ok(Some(LogProgress {
            newest_lsn: component.newest_lsn()?,
            durable_lsn: component.log().durable_lsn(),
            has_stopped: component.log().has_stopped(),
            tail_bytes: self.store.tail_bytes(),
        }))
    }

    fn log_stat(&self) -> Result<Option<LogStat>, Error> {
        let component = self.store.component();
        // The durable one first, so that it is not above the newest.
        let durable_lsn = component.log().durable_lsn();
        Ok(Some(LogStat {
            path: self.path.join("log"),
            newest_lsn: component.newest_lsn()?,
            durable_lsn,
            image_lsn: self.store.redo_lsn(),
            image_bytes: 0,
            has_stopped: component.log().has_stopped(),
            image_error: None,
        }))
    }

    /// Without the pages the log is no backup: it has only the newest commits, and no list of maps.
    fn log_to_copy(&self) -> Result<PathBuf, Error> {
        Self::not_here(
            "backed up in this way: close it and copy its whole directory, or write the records of \
             its maps to files (Snapshot::dump, or `pando dump`)",
        )
    }

    fn write_image(&self) -> Result<(), Error> {
        self.store.checkpoint().map_err(Error::of_store)
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn processes(&self) -> Result<Vec<ProcessStat>, Error> {
        Ok(Vec::new())
    }

    fn evict(&self, pid: u32) -> Result<(), Error> {
        Err(Error::ProcessNotFound { path: self.path.clone(), pid, present: Vec::new() })
    }

    fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        Ok(infos(self.store.readable_maps().map_err(Error::of_store)?).collect())
    }

    fn map_list_damage(&self) -> Result<Vec<String>, Error> {
        Ok(self.store.readable_maps().map_err(Error::of_store)?.damage)
    }

    fn rename_map(&self, from: &str, to: &str) -> Result<(), Error> {
        self.store.rename_map(from, to).map_err(Error::of_store)
    }

    fn unlist_map(&self, name: &str) -> Result<(), Error> {
        match self.store.drop_map(name) {
            // It is dropped. A thread of the store removes its records when that thread has left.
            Err(pando_store::Error::ThreadInside { .. }) => Ok(()),
            dropped => dropped.map_err(Error::of_store),
        }
    }

    /// A thread of the store does it.
    fn free_dropped(&self) -> Result<bool, Error> {
        self.store.wake_clearing();
        Ok(false)
    }

    fn clear_dropped(&self) -> Result<(), Error> {
        self.store.clear_dropped().map_err(Error::of_store)
    }

    fn promise(&self) -> Promise {
        let file = std::fs::File::open(self.path.join("control"));
        let medium = file.ok().and_then(|file| medium::find(&file).ok());
        Promise {
            domain: DomainChoice::Process.name(),
            medium: medium.map_or_else(|| "unknown".to_owned(), |medium| medium.to_string()),
            guarantee: "what has returned survives the death of any process; commits that are \
                        synced survive a power cut"
                .to_owned(),
            survives_power: false,
        }
    }

    fn stat(&self) -> Result<PoolStat, Error> {
        let promise = self.promise();
        let stat = self.store.stat().map_err(Error::of_store)?;
        let (cache, pages) = (stat.data.cache, stat.data.pages);
        let list = self.store.readable_maps().map_err(Error::of_store)?;
        let map_list_damage = list.damage.clone();
        let maps = infos(list).map(|map| MapStat {
            name: map.name,
            slot: map.slot,
            index: map.index,
            is_transactional: true,
            options: Default::default(),
            figures: None,
            passed_over: map.damage,
        });
        Ok(PoolStat {
            processes: Vec::new(),
            path: Some(self.path.clone()),
            domain: promise.domain.to_owned(),
            medium: promise.medium,
            guarantee: promise.guarantee,
            size_bytes: self.size_and_max_bytes().0,
            max_bytes: u64::MAX,
            recovery: RecoveryStat {
                was_clean: stat.recovery.was_clean,
                duration_ns: self.duration_ns,
                from_log: stat.recovery.was_lost,
                commits: stat.recovery.commits,
                damaged_pages: stat.recovery.damaged_pages,
                ..RecoveryStat::default()
            },
            log: self.log_stat()?,
            transactions: Some(transaction_stat(self.store.component())?),
            store: Some(StoreStat {
                memory_bytes: self.store.memory_bytes(),
                cache_bytes: cache.used_bytes,
                cached_pages: cache.pages,
                changed_pages: cache.changed_pages,
                visits: cache.visits,
                loads: cache.loads,
                part_reads: pages.part_reads,
                moved_part_reads: pages.moved_part_reads,
                evictions: cache.evictions,
                pages: pages.pages,
                pages_by_parts: pages.pages_by_parts.to_vec(),
                live_bytes: pages.live_bytes,
                segment_bytes: pages.segments * pages.segment_bytes,
                appended_bytes: pages.appended_bytes,
                written_bytes: pages.block_bytes + pages.checkpoint_bytes,
                moved_bytes: pages.moved_bytes,
                log_since_checkpoint_bytes: stat.durable_lsn.saturating_sub(stat.redo_lsn),
                dropped_maps: stat.dropped_maps,
                map_list_damage,
            }),
            maps: maps.collect(),
            ..PoolStat::default()
        })
    }

    fn used_bytes(&self) -> u64 {
        self.store.space().live_bytes
    }

    fn size_and_max_bytes(&self) -> (u64, u64) {
        (self.store.space().file_bytes, u64::MAX)
    }

    fn occupied_bytes(&self) -> Result<u64, Error> {
        Ok(self.size_and_max_bytes().0)
    }

    /// Cleaning does it.
    fn release_unused(&self, _: u64) -> Result<u64, Error> {
        Ok(0)
    }

    fn check(&self) -> Result<CheckReport, Error> {
        let problems = self.store.check().map_err(Error::of_store)?;
        let problem = |message| Problem { class: ProblemClass::Unreadable, map: None, message };
        let mut report = CheckReport {
            maps: self.maps()?.len() as u64,
            nodes: self.store.stat().map_err(Error::of_store)?.data.pages.pages,
            problems: problems.into_iter().map(problem).collect(),
            ..CheckReport::default()
        };
        for map in self.maps()? {
            let len = match map.damage {
                Some(damage) => {
                    report.problems.push(problem(format!("map {}: {damage}", map.slot)));
                    continue;
                }
                None => self.store.map(&map.name).map_err(Error::of_store)?.len(),
            };
            match len {
                Ok(records) => report.records += records,
                Err(error) => {
                    report
                        .problems
                        .push(Problem { map: Some(map.name), ..problem(error.to_string()) });
                }
            }
        }
        Ok(report)
    }

    fn salvage(&self, _: &str, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<CheckReport, Error> {
        Self::not_here("opened for salvage")
    }

    fn name_in_slot(&self, slot: u64) -> Result<Option<String>, Error> {
        let maps = self.maps()?.into_iter().filter(|map| map.damage.is_none());
        Ok(maps.filter(|map| map.slot == slot).map(|map| map.name).next())
    }

    fn unlist_slot(&self, _: u64, _: &MapOptions) -> Result<(), Error> {
        Self::not_here("told to drop a map by its slot")
    }

    fn salvage_slot(
        &self,
        slot: u64,
        _: &MapOptions,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error> {
        let map = self.maps()?.into_iter().find(|map| map.slot == slot);
        let map = map.ok_or(Error::SlotEmpty { slot })?;
        let name = (!map.name.is_empty()).then_some(map.name);
        let mut report = CheckReport { maps: 1, ..CheckReport::default() };
        let mut count = |key: &[u8], value: &[u8]| {
            report.records += 1;
            visit(key, value);
        };
        let damage = self.store.lend_readable(slot, &mut count).map_err(Error::of_store)?;
        let problem =
            |message| Problem { class: ProblemClass::Unreadable, map: name.clone(), message };
        report.problems.extend(damage.into_iter().map(problem));
        Ok(report)
    }

    fn compact(self: Box<Self>) -> Result<Compacted, Error> {
        Self::not_here("compacted: it cleans itself")
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.store.close().map_err(Error::of_store)
    }
}
