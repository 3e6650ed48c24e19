//! A pool and the maps in it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::engine::{self, Engine};
use crate::map::MapShared;
use crate::report::{CheckReport, MapInfo, PoolStat};
use crate::{Error, Map, MapOptions, PoolOptions};

/// A file, or anonymous memory, that holds named maps.
///
/// A `Pool` is a handle: clones share the pool, and so do the maps opened from it. It is closed
/// cleanly when the last of them is dropped; [`Pool::close`] does so on the spot and reports what
/// went wrong.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<PoolShared>,
}

/// What the handles of one pool share.
pub(crate) struct PoolShared {
    engine: Box<dyn Engine>,
    /// Whether it was opened to be copied out and no more.
    is_salvaged: bool,
    /// The maps of which a handle is held, so that all handles of a map share one index.
    open_maps: Mutex<HashMap<String, Weak<MapShared>>>,
}

impl PoolShared {
    fn open_maps(&self) -> MutexGuard<'_, HashMap<String, Weak<MapShared>>> {
        // The table is a cache of weak handles: whoever panicked left it usable.
        self.open_maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Creates a pool in a new file.
    ///
    /// # Errors
    ///
    /// [`Error::PoolExists`] if there is a file at `path`, which stays as it is.
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
        options.checked()?;
        Ok(Self::from_engine(engine::create(path.as_ref(), options)?, false))
    }

    /// Opens the pool at `path`; what was in flight at a crash is settled before it returns.
    ///
    /// # Errors
    ///
    /// [`Error::PoolNotFound`] if there is no file, [`Error::PoolBusy`] if the pool is open
    /// elsewhere, [`Error::Storage`] with its reason if the file is not a pool that this version
    /// can open. The file stays as it is.
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
        options.checked()?;
        Ok(Self::from_engine(engine::open(path.as_ref(), options)?, options.salvage))
    }

    /// Opens the pool at `path`, or creates it if there is no file.
    pub fn open_or_create(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self, Error> {
        let path = path.as_ref();
        match Self::open(path, options) {
            Err(Error::PoolNotFound { .. }) => match Self::create(path, options) {
                // Someone else created it in between.
                Err(Error::PoolExists { .. }) => Self::open(path, options),
                created => created,
            },
            opened => opened,
        }
    }

    /// A pool on anonymous memory, which ends with its last handle.
    ///
    /// ```
    /// use pando::{Pool, PoolOptions};
    ///
    /// let pool = Pool::volatile(&PoolOptions::new())?;
    /// pool.map("scratch")?.upsert(b"key", b"value")?;
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn volatile(options: &PoolOptions) -> Result<Self, Error> {
        options.checked()?;
        Ok(Self::from_engine(engine::volatile(options)?, false))
    }

    fn from_engine(engine: Box<dyn Engine>, is_salvaged: bool) -> Self {
        let open_maps = Mutex::new(HashMap::new());
        Self { shared: Arc::new(PoolShared { engine, is_salvaged, open_maps }) }
    }

    /// A pool that was opened for salvage may be torn: its maps are not used, only copied out.
    fn check_not_salvaged(&self) -> Result<(), Error> {
        if self.shared.is_salvaged { Err(Error::OpenForSalvage) } else { Ok(()) }
    }

    /// The map `name`, whatever its options; created with the default ones if it is not there.
    pub fn map(&self, name: &str) -> Result<Map, Error> {
        self.map_with(name, &MapOptions::new())
    }

    /// The map `name`; created with `options` if it is not there.
    ///
    /// # Errors
    ///
    /// [`Error::MapKindDiffers`] or [`Error::MapOptionDiffers`] if it is there and was created
    /// with something else than what `options` sets.
    pub fn map_with(&self, name: &str, options: &MapOptions) -> Result<Map, Error> {
        self.check_not_salvaged()?;
        let max_bytes = self.shared.engine.max_map_name_bytes();
        if name.is_empty() || name.len() > max_bytes {
            return Err(Error::MapName { name: name.to_owned(), max_bytes });
        }
        let mut open_maps = self.shared.open_maps();
        match self.shared.engine.map_settings(name)? {
            Some((kind, settings)) => options.agrees_with(name, kind, &settings)?,
            None => self.shared.engine.create_map(name, options)?,
        }
        self.open_known_map(&mut open_maps, name)
    }

    /// The map `name`, which has to be there.
    ///
    /// # Errors
    ///
    /// [`Error::MapNotFound`], with the names of the maps that are there.
    ///
    /// ```
    /// use pando::{Error, Pool, PoolOptions};
    ///
    /// let pool = Pool::volatile(&PoolOptions::new())?;
    /// pool.map("users")?;
    /// match pool.open_map("user") {
    ///     Err(Error::MapNotFound { present, .. }) => assert_eq!(present, ["users"]),
    ///     _ => unreachable!(),
    /// }
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn open_map(&self, name: &str) -> Result<Map, Error> {
        self.check_not_salvaged()?;
        let mut open_maps = self.shared.open_maps();
        match self.shared.engine.map_settings(name)? {
            Some(_) => self.open_known_map(&mut open_maps, name),
            None => Err(self.map_not_found(name)?),
        }
    }

    /// The maps, ordered by name.
    pub fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        let mut maps = self.shared.engine.maps()?;
        maps.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(maps)
    }

    /// Removes the map `name` with all its records, and gives their space back to the pool.
    ///
    /// # Errors
    ///
    /// [`Error::MapInUse`] while a handle of the map is held, [`Error::MapNotFound`] if there is
    /// no such map.
    pub fn drop_map(&self, name: &str) -> Result<(), Error> {
        self.check_not_salvaged()?;
        let mut open_maps = self.shared.open_maps();
        if self.shared.engine.map_settings(name)?.is_none() {
            return Err(self.map_not_found(name)?);
        }
        let handles = open_maps.get(name).map_or(0, Weak::strong_count);
        if handles > 0 {
            return Err(Error::MapInUse { name: name.to_owned(), handles });
        }
        open_maps.remove(name);
        self.shared.engine.drop_map(name)
    }

    /// Lends every record of the map `name` that can be read to `visit`, key and value, and reports
    /// what cannot: of a node in which something is wrong, no record is lent, and what lies beneath a
    /// damaged inner node is not reached. Keys ascend as far as the map is sound. Bytes of a record
    /// carry no checksum: a value that was torn where nothing else was is lent as it is.
    ///
    /// For pools opened with [`PoolOptions::salvage`], whose maps cannot be opened otherwise; to be
    /// called while nobody writes.
    ///
    /// # Errors
    ///
    /// [`Error::MapNotFound`], with the names of the maps that are there. What is damaged is in the
    /// report, and no error.
    ///
    /// ```
    /// use pando::{Pool, PoolOptions};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("torn.pool");
    /// let pool = Pool::create(&path, &PoolOptions::new())?;
    /// pool.map("main")?.insert(b"key", b"value")?;
    /// pool.close()?;
    ///
    /// let torn = Pool::open(&path, &PoolOptions::new().salvage(true))?;
    /// let mut copied = Vec::new();
    /// let report = torn.salvage("main", |key, value| copied.push((key.to_vec(), value.to_vec())))?;
    /// assert!(report.is_sound());
    /// assert_eq!(copied, [(b"key".to_vec(), b"value".to_vec())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn salvage(
        &self,
        name: &str,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error> {
        match self.shared.engine.map_settings(name)? {
            Some(_) => self.shared.engine.salvage(name, &mut visit),
            None => Err(self.map_not_found(name)?),
        }
    }

    /// The pool's figures. The cost is linear in the number of leaves of its maps.
    pub fn stat(&self) -> Result<PoolStat, Error> {
        self.shared.engine.stat()
    }

    /// Walks all maps and compares what they reach with what the allocator gave out. To be
    /// called while nobody writes: what is in flight would look like a problem.
    ///
    /// A pool with problems is a report with [`CheckReport::problems`], not an error.
    pub fn check(&self) -> Result<CheckReport, Error> {
        self.shared.engine.check()
    }

    /// Closes the pool and marks it as cleanly closed.
    ///
    /// # Errors
    ///
    /// [`Error::PoolInUse`] while other handles of the pool or of its maps are held: the pool
    /// then closes when the last of them is dropped.
    pub fn close(self) -> Result<(), Error> {
        match Arc::try_unwrap(self.shared) {
            Ok(shared) => shared.engine.close(),
            Err(shared) => {
                let maps = shared.open_maps().values().filter(|map| map.strong_count() > 0).count();
                let pools = Arc::strong_count(&shared).saturating_sub(maps + 1);
                Err(Error::PoolInUse { pools, maps })
            }
        }
    }

    /// Hands out the index of a map that is known to be there.
    fn open_known_map(
        &self,
        open_maps: &mut HashMap<String, Weak<MapShared>>,
        name: &str,
    ) -> Result<Map, Error> {
        if let Some(shared) = open_maps.get(name).and_then(Weak::upgrade) {
            return Ok(Map::from_shared(shared));
        }
        let index = self.shared.engine.open_map(name)?;
        let shared = Arc::new(MapShared::new(name, index, Arc::clone(&self.shared)));
        open_maps.insert(name.to_owned(), Arc::downgrade(&shared));
        Ok(Map::from_shared(shared))
    }

    fn map_not_found(&self, name: &str) -> Result<Error, Error> {
        let present = self.maps()?.into_iter().map(|map| map.name).collect();
        Ok(Error::MapNotFound { name: name.to_owned(), present })
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").finish_non_exhaustive()
    }
}
