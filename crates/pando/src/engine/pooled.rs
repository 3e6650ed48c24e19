//! The engine on a pool of persistent memory, for one persistence domain.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pando_device::Directory;
use pando_log::{Log, LogOptions, log_id_of};
use pando_pmem::layout::LOG_OFF;
use pando_pmem::{Domain, Guard, Hold, LogName, draw_id, remove_unfinished};
use pando_pmwcas::Recovered;
use pando_tc::{LEAST_VALUE_BYTES, SnapshotOptions};
use pando_tree::maps::slots::{MAX_NAME_BYTES, MapEntry, MapHeader};
use pando_tree::maps::{Audit, Catalog, MapError, OptionValues, ProblemClass};
use pando_tree::room::{Refusal, Tries, nothing_to_give, with_room};

use super::OpenedMap;
use super::kinds::{Kind, kind_called, kind_of, kinds};
use super::log_directory::LogDirectory;
use super::map_list::header_of;
use super::rebuild::{Lost, Rebuilt, rebuild};
use super::reset::reset;
use super::resumed::Resumed;
use super::sharing::{Recoverer, evict, processes};
use super::transactional::{AnySnapshot, AnyTransaction, Numbered, Transactions};
use super::{Engine, Held, audit};
use crate::options::Created;
use crate::report::{
    CheckReport, Compacted, LogProgress, LogStat, MapInfo, PoolStat, ProcessStat, Promise,
    RecoveryStat,
};
use crate::{Error, MapOptions};

/// An open pool under the domain `D`.
pub(super) struct Pooled<D: Domain> {
    // Dropped before the catalog, whose pool they use.
    resumed: Option<Resumed>,
    recoverer: Option<Recoverer>,
    is_salvaged: bool,
    // Likewise.
    transactions: Transactions<D>,
    catalog: Arc<Catalog<D>>,
    recovery: RecoveryStat,
}

impl<D: Domain> Held for Hold<D> {
    fn covers(&self, value: &[u8]) -> bool {
        Hold::covers(self, value)
    }
}

impl<D: Domain> Pooled<D> {
    /// The engine of the pool that `open` opens; `publish` is called when its log is open. If the
    /// pool has a log, its files are in `directory`, or in `log`, or where the pool says.
    pub fn start(
        open: impl FnOnce() -> Result<Arc<pando_pmem::Pool<D>>, Error>,
        publish: impl FnOnce() -> Result<(), Error>,
        is_salvaged: bool,
        log: Option<&Path>,
        directory: &mut Option<LogDirectory>,
    ) -> Result<Box<dyn Engine>, Error> {
        let begin = Instant::now();
        let catalog = opened(open()?)?;
        check_shareable(catalog.pool())?;
        let settling = Instant::now();
        let transactions = match is_salvaged {
            true => Transactions::none(),
            false => transactions_of(&catalog, log, directory)?,
        };
        let log_tail_ns = match catalog.pool().log_name() {
            Some(_) => nanoseconds_since(settling),
            None => 0,
        };
        publish()?;
        let recovery = RecoveryStat { log_tail_ns, ..recovery_of(&catalog) };
        Self::finish(catalog, transactions, is_salvaged, recovery, begin)
    }

    /// The engine of the pool that `open` opens, with a new log in the directory `log`, or where
    /// the superblock says.
    pub fn reset_log(
        open: impl FnOnce() -> Result<Arc<pando_pmem::Pool<D>>, Error>,
        log: Option<&Path>,
    ) -> Result<Box<dyn Engine>, Error> {
        let begin = Instant::now();
        let catalog = opened(open()?)?;
        let directory = reset(&catalog, indexes_of(&catalog)?, log)?;
        let transactions = transactions_of(&catalog, None, &mut Some(directory))?;
        let recovery = recovery_of(&catalog);
        Self::finish(catalog, transactions, false, recovery, begin)
    }

    /// The engine of a pool that is rebuilt from its log in `directory`, or from a backup with a
    /// new log there.
    pub fn rebuild(
        lost: &Lost<'_>,
        directory: LogDirectory,
        backup: Option<&dyn Directory>,
    ) -> Result<Box<dyn Engine>, Error> {
        let begin = Instant::now();
        // The directory is locked, so no other process rebuilds the pool.
        remove_unfinished(lost.path);
        let files = directory.files();
        let id = match backup {
            Some(_) => draw_id(lost.path).map_err(Error::of_pool)?,
            None => log_id_of(files.as_ref()).map_err(pando_tc::Error::from)?,
        };
        let log = LogName { id, path: directory.path().to_owned() };
        let Rebuilt { unpublished, catalog, recovered, indexes, replayed, emptied } =
            rebuild(lost, backup.unwrap_or(files.as_ref()), log)?;
        let pool = unpublished.pool().clone();
        let options = LogOptions::default();
        let log = match backup {
            Some(_) => Log::create(pool, LOG_OFF, files, (id, recovered.end_lsn()), options),
            None => {
                let former = lost.pool_id.unwrap_or_default();
                Log::resume(pool, LOG_OFF, files, &recovered, former, options)
            }
        };
        let log = log.map_err(pando_tc::Error::from)?;
        let transactions = Transactions::resumed(log, directory, indexes)?;
        if backup.is_some() {
            // The new log has no record of the pool's data: the image has them.
            transactions.log_maps(&catalog)?;
            transactions.write_first_image(&catalog)?;
        }
        // A pool that another process has created here meanwhile is not replaced.
        unpublished.publish(lost.pool_id.is_some()).map_err(Error::of_pool)?;
        transactions.forget_former_pool()?;
        let recovery = RecoveryStat {
            from_log: true,
            image_records: replayed.image_records,
            commits: replayed.commits,
            image_ns: replayed.image_ns,
            log_ns: replayed.log_ns,
            emptied_maps: emptied,
            ..RecoveryStat::default()
        };
        Self::finish(catalog, transactions, false, recovery, begin)
    }

    fn finish(
        catalog: Arc<Catalog<D>>,
        transactions: Transactions<D>,
        is_salvaged: bool,
        recovery: RecoveryStat,
        begin: Instant,
    ) -> Result<Box<dyn Engine>, Error> {
        let others_resume = is_salvaged || catalog.pool().has_joined();
        if !others_resume && !recovery.was_clean {
            let guard = catalog.pool().pin().map_err(Error::of_pool)?;
            catalog.settle_headers(&guard).map_err(Error::of_map)?;
        }
        match transactions.log_maps(&catalog) {
            // A damaged map hides no other. One that the list lacks is not opened until the damaged
            // one is dropped (`open_map`).
            Err(Error::Damaged(_)) => {}
            logged => logged?,
        }
        transactions.keep(&catalog)?;
        transactions.remember_pool(catalog.pool().path());
        let resumed = if others_resume { None } else { Resumed::begin(&catalog) };
        let recoverer = Recoverer::begin(&catalog)?;
        let recovery = RecoveryStat { duration_ns: nanoseconds_since(begin), ..recovery };
        Ok(Box::new(Self { resumed, recoverer, is_salvaged, transactions, catalog, recovery }))
    }

    fn pin(&self) -> Result<Guard<'_, D>, Error> {
        self.catalog.pool().pin().map_err(Error::of_pool)
    }

    fn entries(&self) -> Result<Vec<MapEntry>, Error> {
        Ok(self.catalog.maps(&self.pin()?))
    }

    /// Refuses a call for which no other process may use the pool.
    fn check_alone(&self, call: &str) -> Result<(), Error> {
        match self.catalog.pool().is_shared() {
            true => Err(not_shareable(call, "another process may use the pool meanwhile")),
            false => Ok(()),
        }
    }

    /// Refuses a map that several processes cannot use at once, if they may have the pool open.
    fn check_map(&self, name: &str, kind: &dyn Kind<D>, transactional: bool) -> Result<(), Error> {
        if !self.catalog.pool().is_shared() {
            return Ok(());
        }
        let what = format!("the map {name:?}");
        if transactional {
            return Err(not_shareable(
                &what,
                "it is transactional, and one process writes the log",
            ));
        }
        match kind.is_shareable() {
            true => Ok(()),
            false => Err(not_shareable(
                &what,
                &format!("a {} keeps a part of its state in process memory", kind.name()),
            )),
        }
    }

    /// Walks a map: its kind, its options and the findings.
    fn audit(
        &self,
        entry: &MapEntry,
        header: &MapHeader,
    ) -> Result<(&'static str, OptionValues, Audit), Error> {
        let kind = kind_of::<D>(header)?;
        let options = options_of(kind, header)?;
        let (mut removed, mut unstamped) = (0, 0);
        let mut audit = kind.walk(&self.catalog, entry, &mut |_, value| {
            let is_transactional = header.number != 0;
            removed += u64::from(is_transactional && pando_tc::value_of(value).is_none());
            unstamped += u64::from(is_transactional && !pando_tc::has_stamp(value));
        })?;
        audit.stat.records = audit.stat.records.saturating_sub(removed);
        if unstamped > 0 {
            let what = format!("{unstamped} values of a transactional map have no stamp");
            audit.problem(ProblemClass::Structure, entry.header_off, what);
        }
        Ok((kind.name(), options, audit))
    }

    /// The map `name`. The caller knows that it exists.
    fn entry(&self, guard: &Guard<'_, D>, name: &str) -> Result<MapEntry, Error> {
        let found = self.catalog.find_map(guard, name).map_err(Error::of_map)?;
        found.ok_or_else(|| not_found(name))
    }

    /// The map in `slot`. If its header is damaged, `options` give its index and options.
    fn entry_in_slot(&self, slot: u64, options: &MapOptions) -> Result<MapEntry, Error> {
        let guard = self.pin()?;
        let entry = self.catalog.map_in_slot(&guard, slot).map_err(Error::of_map)?;
        let told = match &options.index {
            Some(kind) => {
                let kind = kind_called::<D>(Some(kind))?;
                let values = options.applied_to(OptionValues::new(kind.options()))?;
                Some((kind.number(), values.encode()))
            }
            None => None,
        };
        self.catalog.with_remains(&guard, entry, told).map_err(Error::of_map)
    }

    /// Takes a map out of the catalog. `free_dropped` frees its blocks afterwards.
    fn unlist(&self, entry: &MapEntry) -> Result<(), Error> {
        let header = header_of(entry)?;
        let kind = kind_of::<D>(header)?;
        // A map that could not be freed is refused.
        options_of(kind, header)?;
        self.check_map(&header.name, kind, header.number != 0)?;
        self.transactions.check_log()?;
        let _claim = self.catalog.claim(entry).map_err(Error::of_map)?;
        if header.number != 0 && !self.transactions.give_up(header.number)? {
            return Err(Error::ThreadInside { name: header.name.clone() });
        }
        self.catalog.unlist_map(entry).map_err(Error::of_map)?;
        self.transactions.forget_dropped(&self.catalog);
        self.transactions.log_changed_maps(&self.catalog)
    }

    /// Compares the reachable blocks with the allocated ones, while no thread changes the pool.
    fn check_at_rest(&self) -> Result<CheckReport, Error> {
        let mut check = audit::Check::default();
        match self.transactions.settle() {
            // A commit that cannot be undone for lack of room is no damage.
            Err(error) if error.is_full() => {}
            settled => settled?,
        }
        let blocks = self.transactions.blocks(self.catalog.pool()).map_err(Error::of_pool)?;
        check.log(self.catalog.pool(), blocks);
        for entry in self.catalog.dropped_maps(&self.pin()?) {
            check.dropped_map(&entry);
        }
        for entry in self.entries()? {
            match &entry.header {
                Ok(header) => {
                    match self.audit(&entry, header) {
                        Ok((_, _, audit)) => check.map(&entry, &header.name, audit),
                        Err(error) => check.map_passed_over(&entry, &header.name, &error),
                    }
                    if self.catalog.slots().has_damaged_copy(&self.pin()?, &entry) {
                        check.damaged_copy(&entry, &header.name);
                    }
                }
                Err(damage) => check.damaged_map(&entry, damage),
            }
        }
        check.finish(self.catalog.pool()).map_err(Error::of_pool)
    }

    fn salvage_entry(
        &self,
        entry: &MapEntry,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error> {
        let header = header_of(entry)?;
        let audit = kind_of(header)?.walk(&self.catalog, entry, &mut |key, value| {
            let value = if header.number == 0 { Some(value) } else { pando_tc::value_of(value) };
            value.into_iter().for_each(|value| visit(key, value));
        })?;
        let mut check = audit::Check::default();
        check.map(entry, &audit::name_of(entry), audit);
        Ok(check.of_maps_alone())
    }
}

/// The transaction component of a pool, if it has one. See [`Pooled::start`].
fn transactions_of<D: Domain>(
    catalog: &Arc<Catalog<D>>,
    log: Option<&Path>,
    directory: &mut Option<LogDirectory>,
) -> Result<Transactions<D>, Error> {
    let pool = catalog.pool_handle();
    match pool.log_name() {
        Some(name) if directory.is_none() => {
            *directory = Some(LogDirectory::open(pool.path(), log.unwrap_or(&name.path))?);
        }
        None if log.is_some() => return Err(Error::NoLog),
        _ => {}
    }
    let transactions = Transactions::open(pool, directory.take(), || indexes_of(catalog))?;
    transactions.forget_dropped(catalog);
    Ok(transactions)
}

fn nanoseconds_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn not_found(name: &str) -> Error {
    Error::MapNotFound { name: name.to_owned(), present: Vec::new() }
}

fn not_shareable(what: &str, why: &str) -> Error {
    Error::NotShareable { what: what.to_owned(), why: why.to_owned() }
}

/// Refuses a pool that several processes cannot use at once, if it was opened so.
fn check_shareable<D: Domain>(pool: &pando_pmem::Pool<D>) -> Result<(), Error> {
    // Acquire: pairs with the thread that gave the pool a log.
    let has_log = pool.log_name().is_some() || pool.word(LOG_OFF).load(Ordering::Acquire) != 0;
    match pool.is_shared() && has_log {
        true => Err(not_shareable(
            &pool.path().display().to_string(),
            "it has a log or transactional maps, and one process writes the log",
        )),
        false => Ok(()),
    }
}

/// The indexes of the transactional maps that can be opened, with their numbers.
fn indexes_of<D: Domain>(catalog: &Arc<Catalog<D>>) -> Result<Numbered, Error> {
    let opened = |entry: &MapEntry| {
        let header = entry.header.as_ref().ok().filter(|header| header.number != 0)?;
        // The error of a map that cannot be opened is returned when the map is asked for.
        let index = kind_of::<D>(header).ok()?.open(catalog, entry).ok()?;
        Some((header.number, index))
    };
    let guard = catalog.pool().pin().map_err(Error::of_pool)?;
    Ok(catalog.maps(&guard).iter().filter_map(opened).collect())
}

/// The catalog of a pool that was opened, recovered.
fn opened<D: Domain>(pool: Arc<pando_pmem::Pool<D>>) -> Result<Arc<Catalog<D>>, Error> {
    let known = kinds::<D>().iter().map(|kind| kind.known()).collect();
    let catalog = Catalog::open(pool).map_err(Error::of_pmwcas)?.with_kinds(known);
    Ok(Arc::new(catalog))
}

/// What the opening of a pool has recovered.
fn recovery_of<D: Domain>(catalog: &Catalog<D>) -> RecoveryStat {
    let Recovered { rolled_forward, rolled_back, .. } = catalog.recovered();
    let joined = catalog.pool().has_joined();
    let was_clean = joined || catalog.pool().was_clean();
    RecoveryStat { was_clean, joined, rolled_forward, rolled_back, ..RecoveryStat::default() }
}

/// The name of the kind of a map, or its number if the kind is not known.
fn kind_name<D: Domain>(header: &MapHeader) -> String {
    kind_of::<D>(header)
        .map_or_else(|_| format!("index {}", header.kind), |kind| kind.name().to_owned())
}

/// The options of a map.
fn options_of<D: Domain>(kind: &dyn Kind<D>, header: &MapHeader) -> Result<OptionValues, Error> {
    OptionValues::decode(kind.options(), header.options).map_err(|refused| {
        let what = format!(
            "the map {:?} has options that no {} has ({refused}): it is damaged, or a newer version \
             created it",
            header.name,
            kind.name()
        );
        Error::Damaged(what.into())
    })
}

impl<D: Domain> Engine for Pooled<D> {
    fn max_map_name_bytes(&self) -> usize {
        MAX_NAME_BYTES
    }

    fn created(&self, name: &str) -> Result<Option<Created>, Error> {
        let guard = self.pin()?;
        let entry = self.catalog.find_map(&guard, name).map_err(Error::of_map)?;
        let Some(entry) = entry else { return Ok(None) };
        let header = header_of(&entry)?;
        let kind = kind_of::<D>(header)?;
        let values = options_of(kind, header)?;
        Ok(Some(Created { kind: kind.name(), values, is_transactional: header.number != 0 }))
    }

    fn create_map(&self, name: &str, options: &MapOptions) -> Result<(), Error> {
        let kind = kind_called::<D>(options.index.as_deref())?;
        let values = options.applied_to(OptionValues::new(kind.options()))?;
        values.check_product()?;
        let is_transactional = options.is_transactional == Some(true);
        self.check_map(name, kind, is_transactional)?;
        if is_transactional && !kind.takes_value_bytes(&values, LEAST_VALUE_BYTES) {
            return Err(Error::Option {
                option: "transactional".to_owned(),
                found: "true, and all values have one length".to_owned(),
                allowed: "false; or an index, or options of it, with values of any length"
                    .to_owned(),
            });
        }
        self.transactions.check_log()?;
        let number = if is_transactional { MapHeader::NEW_NUMBER } else { 0 };
        let create = || kind.create(&self.catalog, name, &values, number);
        with_room(&self.catalog, Tries::Few, nothing_to_give, create).map_err(Error::of_map)?;
        self.transactions.log_changed_maps(&self.catalog)
    }

    fn open_map(&self, name: &str) -> Result<OpenedMap, Error> {
        let found = self.catalog.find_to_use(name).map_err(Error::of_map)?;
        let (entry, in_use) = found.ok_or_else(|| not_found(name))?;
        let in_use: Option<Box<dyn Send + Sync>> =
            if self.is_shared() { Some(Box::new(in_use)) } else { None };
        let header = header_of(&entry)?;
        let kind = kind_of(header)?;
        self.check_map(name, kind, header.number != 0)?;
        let open = || kind.open(&self.catalog, &entry).map_err(Error::of_map);
        // The creation of the map may have failed at this step.
        self.transactions.log_map(&self.catalog, header.number)?;
        match header.number {
            0 => Ok(OpenedMap { index: open()?, stamped: None, in_use }),
            number => self.transactions.map(self.catalog.pool_handle(), number, open),
        }
    }

    fn begin(
        &self,
        snapshot: Option<SnapshotOptions>,
    ) -> Result<Option<Box<dyn AnyTransaction + '_>>, Error> {
        Ok(self.transactions.begin(snapshot)?)
    }

    fn snapshot(
        &self,
        options: SnapshotOptions,
    ) -> Result<Option<Box<dyn AnySnapshot + '_>>, Error> {
        Ok(self.transactions.snapshot(options)?)
    }

    fn hold(&self) -> Result<Arc<dyn Held>, Error> {
        let hold = self.catalog.pool_handle().begin_hold().map_err(Error::of_pool)?;
        Ok(Arc::new(hold))
    }

    fn sync(&self, lsn: Option<u64>) -> Result<u64, Error> {
        self.transactions.sync(lsn)
    }

    fn log_progress(&self) -> Result<Option<LogProgress>, Error> {
        self.transactions.log_progress()
    }

    fn log_stat(&self) -> Result<Option<LogStat>, Error> {
        self.transactions.log_stat()
    }

    fn log_to_copy(&self) -> Result<PathBuf, Error> {
        self.log_stat()?.map(|log| log.path).ok_or(Error::NoLog)
    }

    fn write_image(&self) -> Result<(), Error> {
        self.transactions.write_image()
    }

    fn is_shared(&self) -> bool {
        self.catalog.pool().is_shared()
    }

    fn processes(&self) -> Result<Vec<ProcessStat>, Error> {
        processes(self.catalog.pool())
    }

    fn evict(&self, pid: u32) -> Result<(), Error> {
        evict(&self.catalog, pid)
    }

    fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        let info = |entry: MapEntry| match entry.header {
            Ok(header) => MapInfo {
                index: kind_name::<D>(&header),
                is_transactional: header.number != 0,
                name: header.name,
                slot: entry.slot,
                damage: None,
            },
            Err(damage) => MapInfo {
                index: audit::UNKNOWN_INDEX.to_owned(),
                is_transactional: false,
                name: String::new(),
                slot: entry.slot,
                damage: Some(damage.to_string()),
            },
        };
        Ok(self.entries()?.into_iter().map(info).collect())
    }

    fn map_list_damage(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    fn rename_map(&self, from: &str, to: &str) -> Result<(), Error> {
        self.check_alone("renaming a map")?;
        self.transactions.check_log()?;
        let guard = self.pin()?;
        let entry = self.entry(&guard, from)?;
        self.catalog.rename_map(&guard, &entry, to).map_err(Error::of_map)?;
        drop(guard);
        self.transactions.log_changed_maps(&self.catalog)
    }

    fn unlist_map(&self, name: &str) -> Result<(), Error> {
        let entry = self.entry(&self.pin()?, name)?;
        self.unlist(&entry)
    }

    fn clear_dropped(&self) -> Result<(), Error> {
        self.free_dropped().map(drop)
    }

    fn free_dropped(&self) -> Result<bool, Error> {
        self.catalog.free_dropped(&|| false).map_err(Error::of_map)
    }

    fn name_in_slot(&self, slot: u64) -> Result<Option<String>, Error> {
        let entry = match self.catalog.map_in_slot(&self.pin()?, slot) {
            Ok(entry) => entry,
            Err(MapError::NoHeader { .. }) => return Ok(None),
            Err(error) => return Err(Error::of_map(error)),
        };
        Ok(entry.header.ok().map(|header| header.name))
    }

    fn unlist_slot(&self, slot: u64, options: &MapOptions) -> Result<(), Error> {
        self.check_alone("dropping a map by its slot")?;
        if let Err(MapError::NoHeader { .. }) = self.catalog.map_in_slot(&self.pin()?, slot) {
            self.catalog.clear_slot(slot);
            return Ok(());
        }
        let entry = self.entry_in_slot(slot, options)?;
        // An unknown kind is refused before anything is changed.
        kind_of::<D>(header_of(&entry)?)?;
        let entry = self.catalog.repair_map(&entry).map_err(Error::of_map)?;
        self.unlist(&entry)
    }

    fn promise(&self) -> Promise {
        audit::promise(self.catalog.pool())
    }

    fn stat(&self) -> Result<PoolStat, Error> {
        let mut maps = Vec::new();
        for entry in self.entries()? {
            let audited = match &entry.header {
                Ok(header) => match self.audit(&entry, header) {
                    Ok((kind, options, audit)) => {
                        audit::map_stat(&entry, &header.name, kind, &options, audit.stat)
                    }
                    Err(error) => {
                        audit::map_passed_over(&entry, &header.name, kind_name::<D>(header), &error)
                    }
                },
                Err(damage) => {
                    audit::map_passed_over(&entry, "", audit::UNKNOWN_INDEX.to_owned(), damage)
                }
            };
            // Another process may have dropped it meanwhile, and used its blocks for other maps.
            if !self.is_shared() || self.catalog.is_there(&self.pin()?, &entry) {
                maps.push(audited);
            }
        }
        maps.sort_by(|left, right| (&left.name, left.slot).cmp(&(&right.name, right.slot)));
        let recovery = self.recovery.clone();
        let log = self.log_stat()?;
        let stat = audit::pool_stat(self.catalog.pool(), recovery, maps).map_err(Error::of_pool)?;
        let transactions = self.transactions.stat()?;
        Ok(PoolStat { log, transactions, processes: self.processes()?, ..stat })
    }

    fn used_bytes(&self) -> u64 {
        self.catalog.pool().used_bytes()
    }

    fn size_and_max_bytes(&self) -> (u64, u64) {
        let pool = self.catalog.pool();
        (pool.size_bytes(), pool.geometry().max_bytes)
    }

    fn occupied_bytes(&self) -> Result<u64, Error> {
        self.catalog.pool().occupied_bytes().map_err(Error::of_pool)
    }

    fn release_unused(&self, max_bytes: u64) -> Result<u64, Error> {
        self.catalog.pool().release_unused(max_bytes).map_err(Error::of_pool)
    }

    fn check(&self) -> Result<CheckReport, Error> {
        self.check_alone("a check")?;
        if !self.is_salvaged {
            self.free_dropped()?;
        }
        if let Some(resumed) = &self.resumed {
            resumed.wait();
        }
        self.transactions.without_keeper(&self.catalog, || self.check_at_rest())
    }

    fn salvage(
        &self,
        name: &str,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error> {
        let entry = self.entry(&self.pin()?, name)?;
        self.salvage_entry(&entry, visit)
    }

    fn salvage_slot(
        &self,
        slot: u64,
        options: &MapOptions,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error> {
        let entry = self.entry_in_slot(slot, options)?;
        self.salvage_entry(&entry, visit)
    }

    fn compact(self: Box<Self>) -> Result<Compacted, Error> {
        self.check_alone("compacting a pool")?;
        let path = self.catalog.pool().path().to_path_buf();
        let held = || Error::of_pool(pando_pmem::Error::HandleHeld(path));
        // If its log is not written, the next opening writes it.
        let _ = self.transactions.end();
        let pool = Arc::into_inner(self.catalog).ok_or_else(held)?.into_pool();
        let pando_pmem::Compacted { before_bytes, after_bytes, size_bytes } =
            pando_pmem::Pool::compact(pool).map_err(Error::of_pool)?;
        Ok(Compacted { before_bytes, after_bytes, size_bytes })
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        drop(self.resumed);
        drop(self.recoverer);
        let logged = self.transactions.end();
        // Open maps keep the pool open. It closes when the last of them is dropped.
        if let Some(catalog) = Arc::into_inner(self.catalog) {
            pando_pmem::Pool::close(catalog.into_pool()).map_err(Error::of_pool)?;
        }
        logged
    }
}
