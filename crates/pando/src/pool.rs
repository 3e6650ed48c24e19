//! A pool: created, opened and closed, its processes and its figures.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use pando_pmem::ProcessHere;

use crate::engine::{self, Engine};
use crate::report::{CheckReport, Compacted, PoolStat, ProcessStat, Promise};
use crate::shared::PoolShared;
use crate::{Acknowledge, Error, PoolOptions};

/// A file, or anonymous memory, that holds named maps.
///
/// A `Pool` is a handle. Its clones, and the maps opened from it, share the pool. The pool is
/// closed cleanly when the last handle is dropped. [`Pool::close`] closes it at once and reports
/// errors.
///
/// # Limits
///
/// | | |
/// | --- | --- |
/// | processes that have a pool open | 1 ([`Error::PoolBusy`]), or up to 256 that share it ([`PoolOptions::shared`], [`Error::TooManyProcesses`]) |
/// | threads that use it | any number; at most 8,192 inside calls at once ([`Error::TooManyThreads`]). The pool has room for 128. For more it allocates blocks (2,176 bytes per thread), which it keeps |
/// | maps | 1,024 ([`Error::TooManyMaps`]), with names of 1 to 255 bytes |
/// | keys | 32 KiB in a `bztree` ([`Map::limits`](crate::Map::limits)) |
/// | values | 1 GiB in a `bztree` |
/// | size | 1 MiB to 16 TiB ([`PoolOptions::max_bytes`]) |
///
/// # What a program must not do
///
/// * **Use a pool after `fork`.** The pool of the parent is not open in the child. The child may
///   only `exec`, or it must not touch the pool and its maps and must end by `_exit`. (If the pool
///   is shared, calls on records return an error there, and the child may open it again.) A daemon
///   opens its pools after it has forked.
/// * **Copy the file while a process has it open.** The copy may look consistent although it is
///   not. Copy the file after [`close`](Self::close), or copy the records out.
/// * **Truncate the file while it is open.** The system sends SIGBUS to a process that accesses the
///   part that was cut off.
///
/// # Words in its reports
///
/// * *Medium*: what the file lies on. *Domain*: see [`DomainChoice`](crate::DomainChoice).
/// * *Generation*: how often the pool has been opened. When the pool is opened, recovery settles
///   the operations of earlier generations that were not settled.
/// * *Participant*: a thread that is inside a call, with a slot of the pool's table. Between calls
///   another thread may take the slot.
/// * *Epoch*: a counter of the pool. A removed block is used again when each participant that was
///   inside a call has seen three later epochs. So a participant that stays inside a call for long
///   holds space back.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<PoolShared>,
}

impl Pool {
    /// Creates a pool in a new file. A crash during the call may leave a file of the same name
    /// followed by `.new-` and a number. That file may be removed.
    ///
    /// # Errors
    ///
    /// [`Error::PoolExists`] if there is a file at `path`, which stays as it is;
    /// [`Error::FolderNotFound`]; [`Error::FileSystemFull`]; [`Error::FileTooLarge`];
    /// [`Error::LogExists`], [`Error::LogNotEmpty`], [`Error::LogBusy`] and [`Error::Log`] for the
    /// directory of its log;
    /// [`Error::Option`] for a size that is not allowed; [`Error::Io`] if the system refuses for
    /// another reason, such as a folder that may not be written, or too few addresses for
    /// `max_bytes` ("map the file").
    ///
    /// ```
    /// use pando::{Error, Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("new.pool");
    /// let pool = Pool::create(&path, &PoolOptions::new())?;
    /// assert!(matches!(Pool::create(&path, &PoolOptions::new()), Err(Error::PoolExists { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self, Error> {
        let path = Self::checked(path.as_ref())?;
        Self::from_engine(
            engine::create(path, options)?,
            &PoolOptions { salvage: false, ..options.clone() },
        )
    }

    /// Opens the pool at `path`. Before the call returns, it completes or undoes the operations
    /// that a crash interrupted, and writes the tail of the log to the disk.
    ///
    /// A pool is *lost* if its file is missing, or is not trusted because the machine went down
    /// while the pool was open on an ordinary medium. A lost pool with a log ([`PoolOptions::log`])
    /// is rebuilt from the log, and replaces the untrusted file. The time grows with the data
    /// ([`PoolOptions::on_recovery`]). All [`Synced`](crate::Acknowledge::Synced) commits are
    /// there. The newest of the other commits may be missing. Maps that are not transactional are
    /// empty ([`RecoveryStat::emptied_maps`](crate::RecoveryStat::emptied_maps)). To copy their
    /// readable records, open the pool for salvage before.
    ///
    /// # Errors
    ///
    /// [`Error::PoolEntering`], [`Error::TooManyProcesses`] and [`Error::NotShareable`] if it is
    /// opened to be shared ([`PoolOptions::shared`]);
    /// [`Error::LogNotFound`], [`Error::LogBusy`], [`Error::LogOfOtherPool`],
    /// [`Error::LogForeign`], [`Error::LogDamaged`] or [`Error::Log`] if its log cannot be used;
    /// [`Error::NoLog`] if options name one that it does not have;
    /// [`Error::PoolNotFound`] if there is no file, [`Error::PoolBusy`] if the pool is open
    /// elsewhere, [`Error::PoolNotWritable`]; [`Error::NotAFile`], [`Error::NotAPool`],
    /// [`Error::NewerPool`], [`Error::OlderPool`], [`Error::Damaged`] or [`Error::NotTrusted`] if
    /// the file is not a pool that this version can open; [`Error::PoolSizeDiffers`] if `max_bytes`
    /// is set and the pool's is another; [`Error::Io`] as in [`create`](Self::create). The file
    /// stays as it is.
    ///
    /// ```
    /// use pando::{Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("kept.pool");
    /// let pool = Pool::create(&path, &PoolOptions::new())?;
    /// pool.map("main")?.insert(b"key", b"value")?;
    /// pool.close()?;
    ///
    /// let pool = Pool::open(&path, &PoolOptions::new())?;
    /// assert_eq!(pool.map("main")?.get(b"key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self, Error> {
        let path = Self::checked(path.as_ref())?;
        Self::from_engine(engine::open(path, options)?, options)
    }

    /// Opens the pool at `path`, or creates it if there is no file.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open) and [`create`](Self::create).
    ///
    /// ```
    /// use pando::{Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("grove.pool");
    /// for times in 1..=2u8 {
    ///     let pool = Pool::open_or_create(&path, &PoolOptions::new())?;
    ///     pool.map("main")?.insert(&[times], b"")?;
    ///     assert_eq!(pool.map("main")?.len()?, u64::from(times));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_or_create(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self, Error> {
        let path = path.as_ref();
        match Self::open(path, options) {
            Err(Error::PoolNotFound { .. }) => match Self::create(path, options) {
                // Another process created it in between.
                Err(Error::PoolExists { .. }) => Self::open(path, options),
                created => created,
            },
            opened => opened,
        }
    }

    /// A pool on anonymous memory. Its contents are lost when the last handle is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for a size that is not allowed; [`Error::Io`] if the system has no memory,
    /// or too few addresses for `max_bytes`.
    ///
    /// ```
    /// use pando::{Pool, PoolOptions};
    ///
    /// let pool = Pool::volatile(&PoolOptions::new())?;
    /// pool.map("scratch")?.upsert(b"key", b"value")?;
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn volatile(options: &PoolOptions) -> Result<Self, Error> {
        Self::from_engine(
            engine::volatile(options)?,
            &PoolOptions { salvage: false, ..options.clone() },
        )
    }

    pub(crate) fn from_engine(
        engine: Box<dyn Engine>,
        options: &PoolOptions,
    ) -> Result<Self, Error> {
        let PoolOptions { salvage: is_salvaged, acknowledge, snapshot_limits, .. } = *options;
        if acknowledge == Acknowledge::Synced && !is_salvaged {
            engine.log_progress()?.ok_or(Error::NoLog)?;
        }
        let open_maps = Mutex::new(HashMap::new());
        Ok(Self {
            shared: Arc::new(PoolShared {
                engine,
                is_salvaged,
                acknowledge,
                snapshot_limits,
                opened_by: ProcessHere::this(),
                open_maps,
            }),
        })
    }

    /// One more handle of an open pool.
    pub(crate) fn of_shared(shared: Arc<PoolShared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<PoolShared> {
        &self.shared
    }

    /// A pool that was opened for salvage may be damaged: its maps are only copied out.
    pub(crate) fn check_not_salvaged(&self) -> Result<(), Error> {
        if self.shared.is_salvaged { Err(Error::OpenForSalvage) } else { Ok(()) }
    }

    /// Whether this process was forked from the one that has opened the pool, by the C library's
    /// `fork`. Then the handles of the pool are of no use here, and should be forgotten
    /// ([`std::mem::forget`]) and not dropped: a drop may wait for threads that only the parent
    /// has. It costs a load.
    ///
    /// ```
    /// let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// assert!(!pool.has_forked());
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn has_forked(&self) -> bool {
        self.shared.opened_by.has_forked()
    }

    /// Whether other processes may have the pool open too ([`PoolOptions::shared`]).
    pub fn is_shared(&self) -> bool {
        self.shared.engine.is_shared()
    }

    /// The processes that share the pool, this one included; none if it is not shared. The cost is
    /// a system call for each process.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the system does not tell whether a process is alive.
    pub fn processes(&self) -> Result<Vec<ProcessStat>, Error> {
        self.shared.engine.processes()
    }

    /// Kills the process `pid`, which shares the pool, and recovers it: for a process that is
    /// stopped for good, and holds the space of removed blocks back
    /// ([`ProcessStat::holds_space_back_ms`]). It is as after any kill: what its calls have
    /// returned stays, and each call that it was in has taken place or not.
    ///
    /// The id is that of [`processes`](Self::processes). Before the process is killed, its open
    /// files are looked at: a process with this id that does not have the pool open is not killed.
    ///
    /// # Errors
    ///
    /// [`Error::ProcessNotFound`] for any other process, and for this one. [`Error::Io`] if the
    /// system does not allow this process to look at the files of that one, or to kill it, or if
    /// its end or its recovery takes more than five seconds.
    pub fn evict(&self, pid: u32) -> Result<(), Error> {
        self.shared.engine.evict(pid)
    }

    /// The pool's medium, and what a write that has returned survives there. The cost does not grow
    /// with the pool.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// assert!(pool.promise().guarantee.starts_with("what has returned survives nothing"));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn promise(&self) -> Promise {
        self.shared.engine.promise()
    }

    /// The pool's figures. The cost is linear in the number of leaves of its maps. A map that
    /// cannot be read, for example because this version does not know its index, is listed without
    /// figures.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// pool.map("trees")?.insert(b"aspen", b"")?;
    /// let stat = pool.stat()?;
    /// assert!(stat.guarantee.starts_with("what has returned survives nothing"));
    /// let figures = stat.maps[0].figures.as_ref().expect("of a known index");
    /// assert_eq!(figures.records, 1);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn stat(&self) -> Result<PoolStat, Error> {
        self.shared.engine.stat()
    }

    /// Bytes in allocated blocks: nearly the same as
    /// [`used_bytes`](crate::AllocatorStat::used_bytes) of [`stat`](Self::stat), and cheap enough
    /// to be called many times a second. A removed record counts until the index frees its block:
    /// at once for a value in a block of its own, with the next copy of the leaf for others.
    ///
    /// A call reads the state of up to 32 MiB of the pool that no call has read yet, and assumes
    /// that the rest is as full. These are 512 places, which take a fraction of a millisecond if
    /// they are in memory. After the calls have read the whole pool, a call costs a few loads at
    /// any size. The figure is then wrong by a few blocks at most: those that other threads
    /// allocated or freed during a call.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let trees = pool.map("trees")?;
    /// let before = pool.used_bytes();
    /// trees.insert(b"aspen", &[0; 20_000])?;
    /// assert!(pool.used_bytes() >= before + 20_000);
    /// assert_eq!(pool.used_bytes(), pool.stat()?.allocator.used_bytes);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn used_bytes(&self) -> u64 {
        self.shared.engine.used_bytes()
    }

    /// The pool's present size in bytes. It costs a load.
    pub fn size_bytes(&self) -> u64 {
        self.shared.engine.size_and_max_bytes().0
    }

    /// The size up to which the pool may grow, in bytes, as it was created. It costs a load.
    pub fn max_bytes(&self) -> u64 {
        self.shared.engine.size_and_max_bytes().1
    }

    /// Bytes that the pool's file takes on its file system. For a pool in anonymous memory it is
    /// the pool's size without the room that was returned. It costs a system call.
    ///
    /// It is less than [`size_bytes`](Self::size_bytes) by the holes that
    /// [`release_unused`](Self::release_unused) makes. It is more than
    /// [`used_bytes`](Self::used_bytes) by the room that is kept for later writes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be measured.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("main")?;
    /// map.insert(b"key", &vec![7; 10 << 20])?;
    /// map.remove(b"key")?;
    /// let before_bytes = pool.occupied_bytes()?;
    /// while pool.release_unused(1 << 20)? > 0 {}
    /// assert!(pool.occupied_bytes()? <= before_bytes - (10 << 20));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn occupied_bytes(&self) -> Result<u64, Error> {
        self.shared.engine.occupied_bytes()
    }

    /// Returns room that no record uses to the system: to the file system, or as memory. It returns
    /// at most `max_bytes`, but at least 64 KiB, and says how many bytes it returned. Zero means
    /// that nothing is left to return. Any thread may call it at any time, in steps of about a MiB.
    /// No other operation waits for it.
    ///
    /// The file keeps its length ([`size_bytes`](Self::size_bytes)), and the pool takes the room
    /// again when it needs it. If the file system has no room then, the write is refused
    /// ([`Error::FileSystemFull`]). Only whole chunks of 64 KiB are returned, and no free room
    /// beside records. After a crash the file may have some of the room again.
    ///
    /// A pool on tmpfs from which a `wbtree` has been read returns no room until it is opened
    /// again, because reads of that index may access a chunk that has become free.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`]; [`Error::Io`] if the file system refuses. On a file system
    /// without holes nothing is returned, and that is not an error.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let map = pool.map("main")?;
    /// map.insert(b"key", &vec![7; 10 << 20])?;
    /// map.remove(b"key")?;
    /// let mut returned = 0;
    /// loop {
    ///     match pool.release_unused(1 << 20)? {
    ///         0 => break,
    ///         bytes => returned += bytes,
    ///     }
    /// }
    /// assert!(returned >= 10 << 20);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn release_unused(&self, max_bytes: u64) -> Result<u64, Error> {
        self.shared.engine.release_unused(max_bytes)
    }

    /// Walks all maps and compares the blocks that it reaches with the allocator's records. No
    /// other thread may write during the call: an operation in flight would look like a problem.
    ///
    /// Problems are listed in [`CheckReport::problems`]. They are not an error.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// pool.map("trees")?.insert(b"aspen", b"")?;
    /// let report = pool.check()?;
    /// assert!(report.is_consistent(), "{:?}", report.problems);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn check(&self) -> Result<CheckReport, Error> {
        self.shared.engine.check()
    }

    /// Closes the pool and marks it as cleanly closed.
    ///
    /// # Errors
    ///
    /// [`Error::PoolInUse`] while other handles of the pool or of its maps are held. The pool then
    /// closes when the last of them is dropped. [`Error::Io`] if the file cannot be synced.
    /// [`Error::AppliedNotDurable`] if the log cannot be written: the pool is closed and has all
    /// commits, and the next opening writes them to the log.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let trees = pool.map("trees")?;
    /// trees.insert(b"aspen", b"")?;
    /// drop(trees);
    /// pool.close()?;
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn close(self) -> Result<(), Error> {
        self.into_engine()?.close()
    }

    /// Returns all room that no record uses to the file system, cuts the file after the last block
    /// in use, and closes the pool. No record moves: a chunk of 64 KiB that holds a record keeps
    /// its free room. To get that room too, copy the records into a new pool. A crash during the
    /// call damages nothing.
    ///
    /// # Errors
    ///
    /// [`Error::PoolInUse`] while other handles of the pool or of its maps are held;
    /// [`Error::OpenForSalvage`] if the pool was opened for salvage; [`Error::Io`] if the file
    /// system refuses.
    ///
    /// ```
    /// use pando::{Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("emptied.pool");
    /// let pool = Pool::create(&path, &PoolOptions::new())?;
    /// pool.map("main")?.insert(b"key", &vec![7; 10 << 20])?;
    /// pool.map("main")?.remove(b"key")?;
    /// let compacted = pool.compact()?;
    /// assert!(compacted.before_bytes - compacted.after_bytes >= 10 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compact(self) -> Result<Compacted, Error> {
        self.check_not_salvaged()?;
        self.into_engine()?.compact()
    }

    /// The engine, if this is the last handle and no handle of a map is held.
    fn into_engine(self) -> Result<Box<dyn Engine>, Error> {
        Arc::try_unwrap(self.shared).map(|shared| shared.engine).map_err(|shared| {
            let maps = shared.open_maps().values().filter(|map| map.strong_count() > 0).count();
            let pools = Arc::strong_count(&shared).saturating_sub(maps + 1);
            Error::PoolInUse { pools, maps }
        })
    }

    /// Refuses the empty path: the operating system would only say that it does not exist.
    pub(crate) fn checked(path: &Path) -> Result<&Path, Error> {
        if !path.as_os_str().is_empty() {
            return Ok(path);
        }
        Err(Error::Option {
            option: "the path of the pool".to_owned(),
            found: "empty".to_owned(),
            allowed: "the path of a file".to_owned(),
        })
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").finish_non_exhaustive()
    }
}
