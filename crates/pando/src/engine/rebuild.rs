//! Rebuilds a pool from an image and a log: those of a lost pool, or of a backup.
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | take the directory of the log | nothing |
//! | create a pool without a name; load the image; replay the log (`pando_tc::replay`) | a file `POOL.new-..`, which the next rebuild removes |
//! | of a lost pool: begin a new generation of its log, which names both pools (`Log::resume`) | a log of the lost pool, which is rebuilt again |
//! | of a backup: create a new log, and write an image into it | a directory with a log that may be removed |
//! | give the pool its name, in the place of the lost one | the pool; the next opening does the next step |
//! | remove the lost pool from the manifest (`Log::forget_former_pool`) | the pool |

use std::collections::{HashMap, HashSet};
use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_device::Directory;
use pando_index::RangeIndex;
use pando_log::Recovered;
use pando_pmem::layout::CATALOG_VERSION_OFF;
use pando_pmem::{CreateOptions, Domain, LogName, Unpublished, mutant};
use pando_tc::{ListedMap, MapList, Rebuild, Replayed, replay};
use pando_tree::maps::{Catalog, OptionValues};

use super::kinds::{kind_numbered, kinds};
use super::map_list::header_of;
use crate::options::OnRecovery;
use crate::{Error, RecoveryProgress};

/// Bytes of the writes of the log that are sorted together.
const SORT_BYTES: usize = 192 << 20;

/// A pool that is to be rebuilt.
pub(super) struct Lost<'open> {
    pub path: &'open Path,
    /// The number of the pool whose file is there, and not trusted; none if there is no file.
    pub pool_id: Option<u128>,
    /// The limit of its size, if the caller names one; else the limit of the lost pool.
    pub max_bytes: Option<u64>,
    pub initial_bytes: Option<u64>,
    pub on_recovery: Option<&'open OnRecovery>,
}

/// A rebuilt pool, without a log and without its name.
pub(super) struct Rebuilt<D: Domain> {
    pub unpublished: Unpublished<D>,
    pub catalog: Arc<Catalog<D>>,
    /// The end of the log that was read.
    pub recovered: Recovered,
    /// The indexes of the transactional maps, by number.
    pub indexes: HashMap<u64, Arc<dyn RangeIndex>>,
    pub replayed: Replayed,
    /// The maps that are not transactional, and so are empty.
    pub emptied: Vec<String>,
}

/// Rebuilds a pool from the image and the log in `source`. `log` names its future log.
pub(super) fn rebuild<D: Domain>(
    lost: &Lost<'_>,
    source: &dyn Directory,
    log: LogName,
) -> Result<Rebuilt<D>, Error> {
    let replay = |sort_bytes| {
        let (begun, indexes, log) = (None, HashMap::new(), log.clone());
        let mut building = Building::<D> { lost, log, begun, indexes, version: 0, sort_bytes };
        let replayed = replay(source, &mut building).map_err(Error::from);
        replayed.map(|replayed| (building, replayed))
    };
    let replayed = match replay(SORT_BYTES) {
        // A pool that is nearly full takes the writes in their order.
        Err(Error::PoolFull { .. } | Error::FileSystemFull { .. } | Error::FileTooLarge { .. }) => {
            replay(0)
        }
        replayed => replayed,
    };
    let (mut building, (recovered, replayed)) = replayed?;
    let has_no_list = building.begun.is_none() && !mutant!("rebuild-without-a-list");
    if has_no_list && replayed.commits > 0 {
        // Each map of a pool is in a list before its first commit, in the image or in the log.
        return Err(Error::LogDamaged {
            path: source.path().into(),
            cause: format!(
                "the {} commits of the log in {} belong to no map, so no pool was made of them: is \
                 it the log of a store?",
                replayed.commits,
                source.path()
            ),
        });
    }
    // A log without any record.
    building.begin(None)?;
    let Building { begun, indexes, version, .. } = building;
    let Some((unpublished, catalog)) = begun else {
        unreachable!("it has begun");
    };
    // Numbers of maps are versions of the catalog, and never come again.
    let word = catalog.pool().word(CATALOG_VERSION_OFF);
    word.store(version.max(word.load(Ordering::Relaxed)), Ordering::Relaxed);
    word.flush();
    D::fence();
    let guard = catalog.pool().pin().map_err(Error::of_pool)?;
    let headers = catalog.maps(&guard).into_iter().filter_map(|entry| entry.header.ok());
    let emptied = headers.filter(|header| header.number == 0).map(|header| header.name).collect();
    drop(guard);
    Ok(Rebuilt { unpublished, catalog, recovered, indexes, replayed, emptied })
}

/// A pool that is being built.
struct Building<'lost, D: Domain> {
    lost: &'lost Lost<'lost>,
    log: LogName,
    /// From the first list of maps on, which says how large it may become.
    begun: Option<(Unpublished<D>, Arc<Catalog<D>>)>,
    indexes: HashMap<u64, Arc<dyn RangeIndex>>,
    /// The highest version of a list.
    version: u64,
    sort_bytes: usize,
}

impl<D: Domain> Building<'_, D> {
    /// The pool's catalog. The pool is created by the first call.
    fn begin(&mut self, max_bytes: Option<u64>) -> Result<Arc<Catalog<D>>, Error> {
        if let Some((_, catalog)) = &self.begun {
            return Ok(catalog.clone());
        }
        let default = CreateOptions::default();
        let max_bytes = self.lost.max_bytes.or(max_bytes).unwrap_or(default.max_bytes);
        let initial_bytes = self.lost.initial_bytes.unwrap_or(default.initial_bytes.min(max_bytes));
        let create = CreateOptions { max_bytes, initial_bytes };
        let unpublished =
            pando_pmem::Pool::prepare(self.lost.path, &create, Some(self.log.clone()))
                .map_err(Error::of_pool)?;
        let known = kinds::<D>().iter().map(|kind| kind.known()).collect();
        let pool = unpublished.pool().clone();
        let catalog = Catalog::open(pool).map_err(Error::of_pmwcas)?.with_kinds(known);
        let catalog = Arc::new(catalog);
        self.begun = Some((unpublished, catalog.clone()));
        Ok(catalog)
    }

    fn change_maps(&mut self, list: &MapList) -> Result<(), Error> {
        let catalog = self.begin(Some(list.max_bytes))?;
        self.version = self.version.max(list.version);
        let guard = catalog.pool().pin().map_err(Error::of_pool)?;
        let (mut present, mut renamed) = (Vec::new(), Vec::new());
        let entries = catalog.maps(&guard);
        let names =
            entries.iter().filter_map(|entry| Some(entry.header.as_ref().ok()?.name.as_str()));
        let taken: HashSet<&str> = names.chain(list.maps.iter().map(|map| &*map.name)).collect();
        let mut passing = (0..).map(|number| format!("\0{number}")).filter(|name| {
            // A map may have any name, and so one of these too.
            !taken.contains(name.as_str())
        });
        for entry in &entries {
            let header = header_of(entry)?;
            let is_listed = |map: &&ListedMap| {
                // A number is that of one map for ever; maps without one have only their name.
                map.number == header.number && (map.number != 0 || map.name == header.name)
            };
            let Some(listed) = list.maps.iter().find(is_listed) else {
                self.indexes.remove(&header.number);
                catalog.unlist_map(entry).map_err(Error::of_map)?;
                continue;
            };
            if listed.name != header.name {
                // First to a name that no map has: maps may have exchanged their names.
                let Some(name) = passing.next() else { unreachable!("there is no last number") };
                let entry = catalog.rename_map(&guard, entry, &name).map_err(Error::of_map)?;
                renamed.push((entry, &listed.name));
            }
            present.push((listed.name.clone(), listed.number));
        }
        for (entry, name) in renamed {
            catalog.rename_map(&guard, &entry, name).map_err(Error::of_map)?;
        }
        drop(guard);
        catalog.free_dropped(&|| false).map_err(Error::of_map)?;
        for map in &list.maps {
            if present.iter().any(|(name, number)| *name == map.name && *number == map.number) {
                continue;
            }
            let kind = kind_numbered::<D>(&map.name, map.kind)?;
            let values = OptionValues::decode(kind.options(), map.options)?;
            let entry =
                kind.create(&catalog, &map.name, &values, map.number).map_err(Error::of_map)?;
            if map.number != 0 {
                let index = kind.open(&catalog, &entry).map_err(Error::of_map)?;
                self.indexes.insert(map.number, index);
            }
        }
        Ok(())
    }
}

impl<D: Domain> Rebuild for Building<'_, D> {
    fn relist(&mut self, list: &MapList) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(self.change_maps(list)?)
    }

    fn index(&self, number: u64) -> Option<Arc<dyn RangeIndex>> {
        self.indexes.get(&number).cloned()
    }

    fn sort_bytes(&self) -> usize {
        self.sort_bytes
    }

    fn progress(&mut self, so_far: &Replayed) {
        let Replayed { image_records, commits, .. } = *so_far;
        if let Some(OnRecovery(report)) = self.lost.on_recovery {
            report(RecoveryProgress { image_records, commits });
        }
    }
}
