//! Opening a store: its pages, and then its log over them.
//!
//! The pool `control` has the tail of the log. It survives a kill, and not a power cut. An opening
//! that changes no file uses a copy of it in memory (`unchanged.rs`).
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | open the pages: the last checkpoint has the redo LSN | nothing |
//! | `control` is there and trusted: fail its undecided commits; write the tail into the log's files | a tail that is written by the next opening |
//! | replay the log from the redo LSN | pages that have some of it, over which it is replayed again |
//! | `control` is lost: make a new one; the log begins a generation for it; it gets its name | a lost one |
//! | open the transaction component; from now on pages are written as of the durable LSN | a store |
//!
//! Of a new store, first the log is made, then `control` gets its name. If a crash comes in
//! between, the log is empty, and the next opening makes `control` again.
//!
//! If a page is damaged, the replay leaves out its writes (`skipping.rs`), and the store opens. The
//! same holds for a page of the list of maps (`catalog.rs`).
//!
//! A commit that is undecided after a kill has left nothing in the pages, because they have no
//! version above the durable LSN. So there is nothing to undo.

use std::error::Error as StdError;
use std::io::ErrorKind::NotFound;
use std::path::Path;
use std::sync::{Arc, Weak};

use pando_bwtree::{Picture, Pictured};
use pando_device::{Directory, copy_into_memory};
use pando_index::RangeIndex;
use pando_log::{
    Log, LogOptions, Owner, Record, Recovered, Settle, Status, log_id_of, owner_of, recover,
};
use pando_pmem::layout::LOG_OFF;
use pando_pmem::{
    CreateOptions, Domain, Guard, LogName, OpenPool, Pool, Process, ReserveAccess, draw_id, mutant,
};
use pando_tc::{Durable, DurableVersions, MapList, Rebuild, TransactionComponent, push_redo, redo};

use crate::cache::Pictures;
use crate::catalog::{self, CATALOG};
use crate::checkpoint::{self, Redo};
use crate::data_component::{DataComponent, StoreOptions};
use crate::error::{Error, Result};
use crate::maps::{Replaced, StoreMaps, split};
use crate::skipping::Skipping;

/// The most bytes of the file `control`: twice the longest tail, and what the pool needs. It takes
/// no more of the disk than the tail has had.
const CONTROL_BYTES: u64 = 128 << 20;
/// The tail of the log is short if memory is (`maps.rs`), but a long record must fit.
const MEMORY_PER_TAIL: u64 = 256;
const LEAST_TAIL_BYTES: u64 = 256 << 10;

const SEGMENTS_PER_CHECKPOINT: u64 = 8;

/// The transaction component of a store.
pub(crate) type Component<D = Process> = TransactionComponent<D, StoreMaps<D>>;

/// What the opening of a store has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The store was closed, and its next opening has found nothing to replay.
    pub was_clean: bool,
    /// The tail of the log was lost, by a power cut or with its file.
    pub was_lost: bool,
    /// The LSN from which the log was replayed.
    pub from_lsn: u64,
    /// The LSN of the last commit.
    pub end_lsn: u64,
    /// Commits that were replayed.
    pub commits: u64,
    /// Pages that are damaged, so that commits could not be replayed over them. Reads of their
    /// keys are errors, and no checkpoint succeeds.
    pub damaged_pages: u64,
}

/// The pool of the log's tail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control<'path> {
    /// The file at this path, which is created if it is missing.
    In(&'path Path),
    /// A copy in memory of the file at this path, or else a new pool in memory.
    CopyOf(&'path Path),
}

/// An opened store.
pub(crate) struct Opened<D: Domain = Process> {
    pub data: DataComponent<D>,
    pub component: Arc<Component<D>>,
    pub redo: Redo,
    pub recovery: Recovery,
    /// Numbers of dropped maps that may have records.
    pub dropped: Vec<u64>,
}

pub(crate) fn open(
    pages: Arc<dyn Directory>,
    log: &Arc<dyn Directory>,
    control: Control<'_>,
    options: &StoreOptions,
) -> Result<Opened> {
    let mut opening = Opening::new(DataComponent::open(pages, options)?, log, options)?;
    let (Control::In(path) | Control::CopyOf(path)) = control;
    let log = match control.open()? {
        Some(pool) => opening.with_tail(pool)?,
        None => {
            let id = match opening.named()? {
                Some(id) => id,
                None => draw_id(path)?,
            };
            let create = CreateOptions { max_bytes: CONTROL_BYTES, initial_bytes: 0 };
            let log = match control {
                Control::In(path) => {
                    let name = LogName { id, path: "log".into() };
                    let unpublished = Pool::<Process>::prepare(path, &create, Some(name))?;
                    let log = opening.without_tail(unpublished.pool().clone(), id)?;
                    unpublished.publish(true)?;
                    log
                }
                Control::CopyOf(_) => opening.without_tail(Pool::anonymous(&create)?, id)?,
            };
            log.forget_former_pool()?;
            log
        }
    };
    let opened = opening.finish(log)?;
    let listed = catalog::list_readable(&opened.component)?;
    let maps = opened.component.maps();
    listed.maps.iter().for_each(|&(_, number)| maps.add(number));
    listed.unnamed.iter().for_each(|&number| maps.add(number));
    listed.dropped.iter().for_each(|&number| maps.take_out(number));
    Ok(Opened { dropped: listed.dropped, ..opened })
}

/// A store that is being opened: its pages are open, and the log is not.
pub(crate) struct Opening<'log, D: Domain> {
    data: DataComponent<D>,
    maps: StoreMaps<D>,
    log: &'log Arc<dyn Directory>,
    log_options: LogOptions,
    /// Where the last checkpoint says that the replay begins.
    found: Option<Redo>,
    has_pages: bool,
    recovery: Recovery,
}

impl<'log, D: Domain> Opening<'log, D> {
    pub fn new(
        data: DataComponent<D>,
        log: &'log Arc<dyn Directory>,
        options: &StoreOptions,
    ) -> Result<Self> {
        let found = Redo::decode(data.client())?;
        let tail_bytes = (options.memory_bytes / MEMORY_PER_TAIL).clamp(LEAST_TAIL_BYTES, 32 << 20);
        // A checkpoint releases whole segments.
        let segment_bytes = options.checkpoint_log_bytes / SEGMENTS_PER_CHECKPOINT;
        let segment_bytes = segment_bytes.clamp(LEAST_TAIL_BYTES, 64 << 20) & !4095;
        let log_options = LogOptions { tail_bytes, segment_bytes, owner: Owner::Store };
        let maps = StoreMaps::new(data.cache().clone(), options.memory_bytes);
        maps.add(CATALOG);
        let has_pages = data.cache().pages.pids().next().is_some();
        if found.is_none() && has_pages {
            let what = "its pages were written without a log".to_owned();
            return Err(Error::Damaged { what });
        }
        if found.is_none()
            && let Ok(log_id) = log_id_of(log.as_ref())
        {
            // The log of a store that an earlier version has made is named by its pages.
            if owner_of(log.as_ref())? == Owner::Pool && !mutant!("store-takes-the-log-of-a-pool") {
                let what = "it is that of a pool, or of a new store whose creation was cut off, \
                            which can be removed";
                let what = what.to_owned();
                return Err(Error::OtherLog { path: log.path(), what });
            }
            // So that pages that are written during the replay are not taken for pages without a
            // log.
            data.checkpoint(&Redo { lsn: 0, log_id }.encode())?;
        }
        let from_lsn = found.map_or(0, |redo| redo.lsn);
        let recovery = Recovery { from_lsn, ..Recovery::default() };
        Ok(Self { data, maps, log, log_options, found, has_pages, recovery })
    }

    /// The number of the log, if there is one.
    pub fn named(&self) -> Result<Option<u128>> {
        match log_id_of(self.log.as_ref()) {
            Err(pando_log::Error::NotALog { .. }) => Ok(None),
            named => Ok(Some(named?)),
        }
    }

    /// Replays the log over the pages.
    fn replay(&mut self) -> Result<Recovered> {
        let mut replaying = Replaying { maps: &self.maps };
        let (recovered, replayed) =
            redo(self.log.as_ref(), self.recovery.from_lsn, &mut replaying)?;
        (self.recovery.end_lsn, self.recovery.commits) = (recovered.end_lsn(), replayed.commits);
        self.recovery.damaged_pages = self.data.cache().forget_not_replayed()?;
        Ok(recovered)
    }

    /// Opens the log, whose tail is in `pool`.
    pub fn with_tail(&mut self, pool: Arc<Pool<D>>) -> Result<Log<D>> {
        let was_closed = pool.was_clean();
        let opened = Log::open(pool, LOG_OFF, self.log.clone(), self.log_options)?;
        check_log(self.log.as_ref(), self.found, opened.log_id())?;
        opened.sync(u64::MAX, &FailUndecided)?;
        self.replay()?;
        self.recovery.was_clean = was_closed && self.recovery.commits == 0;
        Ok(opened)
    }

    /// Opens the log with the number `id`, whose tail is lost, or creates it. `pool` gets the tail.
    pub fn without_tail(&mut self, pool: Arc<Pool<D>>, id: u128) -> Result<Log<D>> {
        let log = self.log;
        if self.named()?.is_some() {
            check_log(log.as_ref(), self.found, id)?;
            self.recovery.was_lost = true;
            // The last block may be in the system's cache alone. No page may be ahead of it.
            let from_lsn = self.recovery.from_lsn;
            recover(log.as_ref(), from_lsn, &mut |_, _| Ok(()))?.secure(log.as_ref())?;
            let recovered = self.replay()?;
            let former = recovered.pool_id();
            Ok(Log::resume(pool, LOG_OFF, log.clone(), &recovered, former, self.log_options)?)
        } else {
            if self.found.is_some() || self.has_pages {
                let what = "it is missing".to_owned();
                return Err(Error::OtherLog { path: log.path(), what });
            }
            Ok(Log::create(pool, LOG_OFF, log.clone(), (id, 0), self.log_options)?)
        }
    }

    /// Opens the transaction component. It knows the catalog alone.
    pub fn finish(self, log: Log<D>) -> Result<Opened<D>> {
        let Self { data, maps, found, recovery, .. } = self;
        if !mutant!("store-no-room-to-undo") {
            let control = log.pool().clone();
            // The component's commits leave room to undo by guards of the pool that has the log's
            // tail.
            let access_of =
                move || control.pin().map_or(ReserveAccess::Without, |g| g.reserve_access());
            data.cache().tree.leave_room_to_undo(Box::new(access_of))?;
        }
        let component = Arc::new(TransactionComponent::open(log, maps)?);
        let pictures: Weak<Component<D>> = Arc::downgrade(&component);
        data.cache().connect(pictures);
        let redo = match found {
            Some(redo) => redo,
            // So that no other log is taken for that of these pages.
            None => checkpoint::make(&component, data.cache())?,
        };
        Ok(Opened { data, component, redo, recovery, dropped: Vec::new() })
    }
}

impl Control<'_> {
    /// The pool, as a kill or a close has left it; `None` if it is lost.
    fn open(self) -> Result<Option<Arc<Pool<Process>>>> {
        let is_missing = |path: &Path| path.symlink_metadata().is_err();
        let options = OpenPool::default();
        let opened = match self {
            Self::In(path) => Pool::open(path, &options),
            Self::CopyOf(path) => match copy_into_memory(path, CONTROL_BYTES) {
                Err(error) if error.is_not_found() && is_missing(path) => return Ok(None),
                copied => Pool::open_file(path, copied?, &options),
            },
        };
        match (opened, self) {
            (Err(pando_pmem::Error::NotTrusted { .. }), _) => Ok(None),
            (Err(pando_pmem::Error::Io { source, .. }), Self::In(path))
                if source.kind() == NotFound && is_missing(path) =>
            {
                Ok(None)
            }
            (opened, _) => Ok(Some(opened?)),
        }
    }
}

/// Refuses a log that is not the one of the pages.
fn check_log(log: &dyn Directory, found: Option<Redo>, log_id: u128) -> Result<()> {
    match found.filter(|redo| redo.log_id != log_id) {
        None => Ok(()),
        Some(redo) => {
            let what = format!("its number is {log_id:x}, and the pages name {:x}", redo.log_id);
            Err(Error::OtherLog { path: log.path(), what })
        }
    }
}

/// Fails what a kill has left undecided.
struct FailUndecided;

impl<D: Domain> Settle<D> for FailUndecided {
    fn settle(&self, _: &Guard<'_, D>, record: Record<'_, D>) -> pando_log::Result<Status> {
        Ok(record.decide(Status::Failed))
    }

    fn push_redo(&self, payload: &[u8], bytes: &mut Vec<u8>) {
        push_redo(payload, bytes);
    }
}

/// The maps, while the log is replayed.
struct Replaying<'maps, D: Domain> {
    maps: &'maps StoreMaps<D>,
}

impl<D: Domain> Rebuild for Replaying<'_, D> {
    fn relist(&mut self, _: &MapList) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Err("the log is that of a pool, and not of a store".into())
    }

    fn index(&self, number: u64) -> Option<Arc<dyn RangeIndex>> {
        let index = || Arc::new(Skipping::new(self.maps.cache.clone(), number)) as Arc<_>;
        (number > 0).then(index)
    }
}

const NO_MAP: &str = "a key belongs to no map";

/// Records as of the durable LSN.
struct AsOfDurable<'log, D: Domain> {
    versions: DurableVersions<'log, D>,
    replaced: &'log Replaced,
}

impl<D: Domain> Picture for AsOfDurable<'_, D> {
    fn begin(&mut self) {
        self.versions.renew();
        self.replaced.forget(self.versions.lsn());
    }

    fn of(&mut self, key: &[u8], value: &[u8]) -> pando_index::Result<Pictured> {
        let (map, key) = split(key).ok_or(pando_index::Error::Damaged { off: 0, what: NO_MAP })?;
        let version = self.versions.of(map, key, value).map_err(pando_index::Error::storage)?;
        Ok(match version {
            Durable::Newest => Pictured::AsItIs,
            Durable::Absent => Pictured::Absent,
            Durable::Earlier(bytes) => Pictured::With(bytes),
            Durable::Unread(_) if mutant!("store-blind-ahead-of-the-log") => Pictured::AsItIs,
            Durable::Unread(lsn) => match self.replaced.of(lsn) {
                None => Pictured::AsStored,
                Some(None) => Pictured::Absent,
                Some(Some(bytes)) => Pictured::With(bytes),
            },
        })
    }
}

impl<D: Domain> Pictures for Component<D> {
    fn with(&self, write: &mut dyn FnMut(&mut dyn Picture)) -> Result<()> {
        let versions = DurableVersions::now(self.log())?;
        write(&mut AsOfDurable { versions, replaced: &self.maps().replaced });
        Ok(())
    }

    fn durable_lsn_if_behind(&self) -> Option<u64> {
        // The durable one first: it is never above the newest.
        let durable_lsn = self.log().durable_lsn();
        self.newest_lsn().is_ok_and(|newest| newest > durable_lsn).then_some(durable_lsn)
    }

    fn loaded(&self, key: &[u8], value: &[u8], stored: Option<&[u8]>) -> Result<()> {
        let (map, key) = split(key).ok_or(pando_index::Error::Damaged { off: 0, what: NO_MAP })?;
        let versions = DurableVersions::now(self.log())?;
        if let Durable::Unread(lsn) = versions.of(map, key, value)? {
            self.maps().replaced.note(lsn, stored);
        }
        Ok(())
    }

    fn wanted(&self) {
        if let Ok(newest) = self.newest_lsn() {
            self.log().wake_writer(newest);
        }
    }
}
