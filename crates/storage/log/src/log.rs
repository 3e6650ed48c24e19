//! A log: its pool, its directory, and what a process keeps of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_device::Directory;
use pando_pmem::{Domain, Guard, PerSlot, Pool};

use crate::background::Background;
use crate::block::{BLOCK_ALIGN, HEADER_BYTES, WANTED_BYTES, padded};
use crate::control::{ARENAS, Control, Seal, Start, WRITERS};
use crate::error::{Error, Result};
use crate::leadership::Leadership;
use crate::manifest::{FIRST_GENERATION, Manifest, Owner, SEGMENT_BYTES};
use crate::record::{MAX_RECORD_BYTES, Record, Status};
use crate::recovery::Recovered;
use crate::segments::Segments;
use crate::walked::Walked;

/// Settles records that are not committed when they are to be sealed. Any thread may call it,
/// several at once for the same record.
pub trait Settle<D: Domain>: Send + Sync {
    /// Completes or fails what `record` stands for, decides it ([`Record::decide`]), undoes what a
    /// failed one has left, and returns its status.
    ///
    /// # Errors
    ///
    /// [`Error::Unsettled`] if it cannot be decided now; it stays in the tail, and so do the
    /// records behind it.
    fn settle(&self, guard: &Guard<'_, D>, record: Record<'_, D>) -> Result<Status>;

    /// Appends to `bytes` what goes to the disk of the payload of a committed record: the part that
    /// a replay needs. It depends on nothing else, also not on the version of the program: what one
    /// thread has sealed, a thread of another process may write, and it must make the same bytes.
    fn push_redo(&self, payload: &[u8], bytes: &mut Vec<u8>);
}

/// How a log is created and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment: a multiple of 4,096 from 64 KiB to 1 GiB; 64 MiB by default. A log
    /// keeps what it was created with.
    pub segment_bytes: u64,
    /// Bytes of records that may wait in the pool for the disk: 64 KiB to 32 MiB; 32 MiB by
    /// default.
    pub tail_bytes: u64,
    /// Whose log it is; a pool's by default. A pool refuses the log of a store. A store looks by
    /// [`owner_of`](crate::owner_of), and each new manifest of its log says that it is a store's.
    pub owner: Owner,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, tail_bytes: 32 << 20, owner: Owner::Pool }
    }
}

impl LogOptions {
    pub(crate) fn check(self) -> Result<Self> {
        const TAIL_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=32 << 20;
        if !SEGMENT_BYTES.contains(&self.segment_bytes)
            || !self.segment_bytes.is_multiple_of(BLOCK_ALIGN)
        {
            return Err(Error::Option {
                option: "segment_bytes",
                found: self.segment_bytes,
                allowed: "65536 to 1073741824, a multiple of 4096".to_owned(),
            });
        }
        if !TAIL_BYTES.contains(&self.tail_bytes) {
            return Err(Error::Option {
                option: "tail_bytes",
                found: self.tail_bytes,
                allowed: "65536 to 33554432".to_owned(),
            });
        }
        Ok(self)
    }
}

/// Hints in process memory about the tail.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Places of the table that were used: those beyond are empty.
    pub used_places: AtomicU64,
}

/// A write-ahead log. Any number of threads may use it at once; see [the crate](crate).
#[derive(Debug)]
pub struct Log<D: Domain> {
    pool: Arc<Pool<D>>,
    control_off: u64,
    log_id: u128,
    generation: u64,
    options: LogOptions,
    /// None of a log without files.
    segments: Option<Segments>,
    /// The LSN of the newest record when the log was opened.
    opened_lsn: u64,
    hints: Hints,
    /// One more than the index of the arena from which the thread in a slot appended last.
    arena_hints: PerSlot<AtomicU64>,
    leadership: Leadership,
    background: Background,
    walked: Walked,
}

impl<D: Domain> Log<D> {
    /// Creates a log in `directory` for `pool`, named by the word at `name_off`, which holds zero.
    /// Its first record is the first one behind the LSN `after_lsn`. Durable on return. After a
    /// crash in between, the same call may be made again.
    ///
    /// # Errors
    ///
    /// [`Error::NotEmpty`] if the directory has files of another log, [`Error::Option`];
    /// [`Error::Device`] and [`Error::Pool`] if the disk or the pool refuses.
    pub fn create(
        pool: Arc<Pool<D>>,
        name_off: u64,
        directory: Arc<dyn Directory>,
        (log_id, after_lsn): (u128, u64),
        options: LogOptions,
    ) -> Result<Self> {
        let LogOptions { segment_bytes, owner, .. } = options.check()?;
        Manifest::of_new(pool.pool_id(), (log_id, after_lsn), (owner, segment_bytes))
            .create(directory.as_ref())?;
        let start = Start { lsn: after_lsn, ..Start::default() };
        Self::begin(&pool, name_off, (log_id, FIRST_GENERATION), start, 0)?;
        Self::open(pool, name_off, directory, options)
    }

    /// Creates what the log needs in the new `pool`, after [`recover`](crate::recover) has read it:
    /// a new generation that begins where the old one ended. The log belongs to `pool` from then
    /// on; and to the pool with the number `former_pool_id`, in whose place `pool` will be, until
    /// [`forget_former_pool`](Self::forget_former_pool).
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create). After an error the log can be recovered again.
    pub fn resume(
        pool: Arc<Pool<D>>,
        name_off: u64,
        directory: Arc<dyn Directory>,
        recovered: &Recovered,
        former_pool_id: u128,
        options: LogOptions,
    ) -> Result<Self> {
        let LogOptions { owner, .. } = options.check()?;
        let manifest = recovered.next_manifest(pool.pool_id(), former_pool_id);
        manifest.check_owner(owner, directory.as_ref())?;
        recovered.secure(directory.as_ref())?;
        let manifest = Manifest { owner, ..manifest };
        manifest.store(directory.as_ref())?;
        let name = (manifest.log_id, manifest.generation);
        Self::begin(&pool, name_off, name, recovered.start(), 0)?;
        Self::open_named(pool, name_off, directory, options, false)
    }

    /// Notes that the log's pool has its name now, in the place of a lost one. Durable on return.
    ///
    /// # Errors
    ///
    /// [`Error::Device`], [`Error::Failed`]; the next opening does the same.
    pub fn forget_former_pool(&self) -> Result<()> {
        let Some(directory) = self.directory() else { return Ok(()) };
        let manifest = Manifest::load(directory.as_ref())?;
        manifest.without_former_pool(directory.as_ref()).map(drop)
    }

    /// Opens the log without files of `pool` that the word at `name_off` names, and creates it if
    /// the word holds zero. It numbers records and settles them, and writes them nowhere.
    ///
    /// # Errors
    ///
    /// [`Error::Option`], [`Error::Damaged`], [`Error::Pool`].
    pub fn without_files(pool: Arc<Pool<D>>, name_off: u64, options: LogOptions) -> Result<Self> {
        options.check()?;
        if pool.word(name_off).load(Ordering::Acquire) == 0 {
            Self::begin(&pool, name_off, (0, 0), Start::default(), 0)?;
        }
        let control_off = Self::checked_control(&pool, name_off)?;
        Self::start(pool, control_off, None, (0, 0), options)
    }

    /// Names a new control block by the word at `name_off`, in the place of the one at `former`, or
    /// of none if that is zero.
    pub(crate) fn begin(
        pool: &Pool<D>,
        name_off: u64,
        name: (u128, u64),
        start: Start,
        former: u64,
    ) -> Result<()> {
        let guard = pool.pin()?;
        // The blocks of a former log are freed next, and have more room.
        let build = || Control::build(&guard, name, start, former);
        let block = if former == 0 { build() } else { guard.with_reserve(build) }?;
        let exchange = guard.begin_exchange(name_off, u64::MAX, 0, Some((block, 0)));
        match pool.word(name_off).compare_exchange(former, exchange.new_name()) {
            Ok(_) => {
                pool.word(name_off).flush();
                exchange.succeeded();
                Ok(())
            }
            Err(found) => {
                exchange.failed();
                let what = format!("the pool has a log already, at {found:#x}");
                Err(Error::Damaged { path: pool.path().display().to_string(), what })
            }
        }
    }

    /// Opens the log of `pool` that the word at `name_off` names, as a kill or an orderly close has
    /// left it. `options.segment_bytes` is ignored. If the log had stopped after a failed write or
    /// sync, it begins a new generation, in which all that was not durable is written anew.
    ///
    /// # Errors
    ///
    /// [`Error::NotALog`], [`Error::Proposed`], [`Error::Foreign`], [`Error::OlderPool`],
    /// [`Error::Damaged`]; [`Error::Device`] and [`Error::Pool`] if the disk or the pool refuses.
    pub fn open(
        pool: Arc<Pool<D>>,
        name_off: u64,
        directory: Arc<dyn Directory>,
        options: LogOptions,
    ) -> Result<Self> {
        Self::open_named(pool, name_off, directory, options, true)
    }

    /// The same, of a pool that may not have its name yet.
    fn open_named(
        pool: Arc<Pool<D>>,
        name_off: u64,
        directory: Arc<dyn Directory>,
        options: LogOptions,
        has_name: bool,
    ) -> Result<Self> {
        let control_off = Self::checked_control(&pool, name_off)?;
        let control = Control::new(&pool, control_off);
        let mut manifest = Manifest::load(directory.as_ref())?;
        manifest.check_owner(options.owner, directory.as_ref())?;
        let pairs = [
            ("the pool", manifest.pool_id, pool.pool_id()),
            ("the log", manifest.log_id, control.log_id()),
        ];
        for (field, found, expected) in pairs {
            if found != expected {
                return Err(Error::Foreign { path: directory.path(), field, found, expected });
            }
        }
        let has_failed = control.failed().load(Ordering::Acquire) != 0;
        // A generation that the manifest has, and the pool has not, was begun by an opening after
        // a failure that a crash has cut short.
        let (found, expected) = (manifest.generation, control.generation());
        if found < expected || (found > expected && !has_failed) {
            return Err(Error::Foreign {
                path: directory.path(),
                field: "the generation",
                found: u128::from(found),
                expected: u128::from(expected),
            });
        }
        if has_name {
            manifest = manifest.without_former_pool(directory.as_ref())?;
        }
        if has_failed {
            // A killed thread may not have written it back; without it, the next opening would take
            // the manifest for that of another log.
            control.failed().flush();
            D::fence();
            manifest.generation += 1;
            manifest.owner = options.owner;
            manifest.store(directory.as_ref())?;
        }
        let Manifest { log_id, generation, segment_bytes, .. } = manifest;
        let options = LogOptions { segment_bytes, ..options }.check()?;
        let segments = Segments::open(directory, log_id, segment_bytes)?;
        Self::start(pool, control_off, Some(segments), (log_id, generation), options)
    }

    /// The control block that the word at `name_off` names.
    pub(crate) fn checked_control(pool: &Pool<D>, name_off: u64) -> Result<u64> {
        let control_off = pool.word(name_off).load(Ordering::Acquire);
        if Control::new(pool, control_off).is_one() {
            return Ok(control_off);
        }
        let what = format!("the log's control block at {control_off:#x} is none");
        Err(Error::Damaged { path: pool.path().display().to_string(), what })
    }

    pub(crate) fn start(
        pool: Arc<Pool<D>>,
        control_off: u64,
        segments: Option<Segments>,
        (log_id, generation): (u128, u64),
        options: LogOptions,
    ) -> Result<Self> {
        let control = Control::new(&pool, control_off);
        let is_used = |&index: &u64| control.arena(index).load(Ordering::Acquire) != 0;
        let used_places = (0..ARENAS).rev().find(is_used).map_or(0, |last| last + 1);
        let mut log = Self {
            control_off,
            log_id,
            generation,
            options,
            segments,
            opened_lsn: 0,
            // What an earlier process has used is looked at too.
            hints: Hints { used_places: AtomicU64::new(used_places) },
            arena_hints: pool.per_slot(),
            leadership: Leadership::default(),
            background: Background::default(),
            walked: Walked::default(),
            pool,
        };
        let guard = log.pool.pin()?;
        log.prepare(&guard)?;
        log.check(&guard)?;
        let opened_lsn = log.newest_lsn(&guard);
        drop(guard);
        log.opened_lsn = opened_lsn;
        Ok(log)
    }

    /// Completes a creation or a replacement, and begins the generation after a failure. Only while
    /// no other thread uses the log. A crash in between leaves what the next opening does again:
    /// `failed` goes last.
    fn prepare(&self, guard: &Guard<'_, D>) -> Result<()> {
        let control = self.control(guard.pool());
        // Log writers of earlier processes are dead, and write nothing late.
        (0..WRITERS).for_each(|writer| control.announced(writer).store(0, Ordering::Release));
        if control.sealed().load(Ordering::Acquire) == 0 {
            self.publish_seal(guard, 0, &Seal::of_start(control.start()))?;
        }
        self.free_former(guard);
        let Some(segments) = &self.segments else { return Ok(()) };
        if control.failed().load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let (off, seal) = self.newest_seal(guard);
        let is_durable = self.durable_lsn() >= seal.last_lsn;
        let (lsn, crc) = match is_durable {
            true => (seal.last_lsn, seal.crc),
            // Whether its block is on the disk is not known. Its records go into a new one.
            false => (seal.after_lsn, seal.crc_before),
        };
        let place = segments.next_unused()? * self.options.segment_bytes;
        self.publish_seal(guard, off, &Seal::of_start(Start { place, lsn, crc }))?;
        control.set_generation(self.generation);
        control.failed().store(0, Ordering::Release);
        control.failed().flush();
        D::fence();
        Ok(())
    }

    /// Refuses a log whose words contradict each other, or its files.
    fn check(&self, guard: &Guard<'_, D>) -> Result<()> {
        let damaged =
            |path: String, what: &str| Err(Error::Damaged { path, what: what.to_owned() });
        let start = self.control(guard.pool()).start();
        let (_, seal) = self.newest_seal(guard);
        let lsns = [start.lsn, self.durable_lsn(), seal.last_lsn, self.newest_lsn(guard)];
        let is_placed = seal.place < 1 << 62 && seal.bytes <= 1 << 30;
        if !lsns.is_sorted()
            || seal.after_lsn > seal.last_lsn
            || self.newest_lsn(guard) > 1 << 62
            || !is_placed
            || guard.damage().is_some()
        {
            let pool = self.pool.path().display().to_string();
            return damaged(pool, "the numbers in the log's control block contradict each other");
        }
        let Some(segments) = &self.segments else { return Ok(()) };
        let is_on_disk = seal.bytes > 0 && self.durable_lsn() >= seal.last_lsn;
        if is_on_disk && !segments.has_block(seal.place, seal.crc)? {
            let what = "its last block is missing; was the directory restored from an older copy?";
            return damaged(self.path(), what);
        }
        // The newest seal is in the pool before its block is in a file.
        let segment_bytes = self.options.segment_bytes;
        let next_segment = (seal.place / segment_bytes + 1) * segment_bytes;
        let behind = seal.place + padded(seal.bytes as usize);
        for place in [behind, next_segment].into_iter().filter(|&place| place <= next_segment) {
            if segments.is_followed(place, seal.last_lsn)? {
                return Err(Error::OlderPool { path: self.path(), lsn: seal.last_lsn });
            }
        }
        Ok(())
    }

    /// The pool that has the tail.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    /// The record at `off` of the tail: the caller has found `off` in a record or beside one since
    /// `guard` was taken, and its LSN is above [`sealed_lsn`](Self::sealed_lsn).
    pub fn record<'pool>(&self, guard: &Guard<'pool, D>, off: u64) -> Record<'pool, D> {
        Record::at(guard.pool(), off)
    }

    /// The LSN up to which all records are settled: a block has been sealed with them.
    pub fn sealed_lsn(&self, guard: &Guard<'_, D>) -> u64 {
        // Acquire: with the CAS that published the seal.
        let off = self.control(guard.pool()).sealed().load(Ordering::Acquire);
        Seal::load_last_lsn(guard.pool(), off)
    }

    /// How the log is used.
    pub fn options(&self) -> &LogOptions {
        &self.options
    }

    /// The LSN up to which all records are durable.
    pub fn durable_lsn(&self) -> u64 {
        // Acquire: with the CAS that raised it, after the sync.
        self.control(&self.pool).durable().load(Ordering::Acquire)
    }

    /// The blocks of the pool that the log uses, while no other thread appends or writes.
    pub fn blocks(&self, guard: &Guard<'_, D>) -> Vec<u64> {
        let control = self.control(guard.pool());
        let arenas = (0..ARENAS).map(|index| control.arena(index).load(Ordering::Acquire));
        let sealed = control.sealed().load(Ordering::Acquire);
        arenas.chain([sealed, self.control_off]).filter(|&off| off != 0).collect()
    }

    /// Whether the log has files: else it only numbers and settles records.
    pub fn has_files(&self) -> bool {
        self.segments.is_some()
    }

    /// The directory of the log's files, if it has any.
    pub fn directory(&self) -> Option<&Arc<dyn Directory>> {
        self.segments.as_ref().map(Segments::directory)
    }

    /// Where the log's files are, for messages.
    pub fn path(&self) -> String {
        self.segments.as_ref().map_or_else(String::new, |segments| segments.directory().path())
    }

    /// Most bytes of a record's payload.
    pub fn max_record_bytes(&self) -> usize {
        let most = self.options.segment_bytes.min(self.options.tail_bytes) / 2;
        (most as usize - 2 * HEADER_BYTES).min(MAX_RECORD_BYTES)
    }

    /// A block covers no more bytes of records than this, unless it has one record.
    pub(crate) fn wanted_block_bytes(&self) -> u64 {
        (self.options.segment_bytes / 2).min(WANTED_BYTES as u64)
    }

    pub(crate) fn control<'pool>(&self, pool: &'pool Pool<D>) -> Control<'pool, D> {
        Control::new(pool, self.control_off)
    }

    /// The number of the log; zero if it has no files.
    pub fn log_id(&self) -> u128 {
        self.log_id
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn segments(&self) -> Option<&Segments> {
        self.segments.as_ref()
    }

    pub(crate) fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    pub(crate) fn walked(&self) -> &Walked {
        &self.walked
    }

    pub(crate) fn opened_lsn(&self) -> u64 {
        self.opened_lsn
    }

    pub(crate) fn hints(&self) -> &Hints {
        &self.hints
    }

    pub(crate) fn arena_hint(&self, slot: usize) -> &AtomicU64 {
        self.arena_hints.get(slot)
    }

    /// Whether a write or sync has failed: nothing more becomes durable.
    pub fn has_stopped(&self) -> bool {
        self.control(&self.pool).failed().load(Ordering::Relaxed) != 0
    }

    /// Refuses, if a write or sync has failed.
    pub(crate) fn check_running(&self, control: Control<'_, D>) -> Result<()> {
        // Relaxed: it orders nothing. A thread that misses it is refused when it waits.
        match control.failed().load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Error::Failed { path: self.path() }),
        }
    }
}
