//! The maps of a pool: opened by name, listed, renamed and dropped.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::report::MapInfo;
use crate::shared::MapShared;
use crate::{Error, Map, MapOptions, Pool};

impl Pool {
    /// The map `name`, with any options. If it does not exist, it is created with the defaults.
    ///
    /// # Errors
    ///
    /// [`Error::MapName`], [`Error::UnknownIndex`]; [`Error::Damaged`] if the name is not found and
    /// some map is damaged, since that map may have the name; [`Error::TooManyMaps`],
    /// [`Error::PoolFull`], [`Error::FileSystemFull`] or [`Error::FileTooLarge`] if the map is
    /// created; [`Error::TooManyThreads`], as any call.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// let trees = pool.map("trees")?;
    /// trees.insert(b"aspen", b"Populus tremuloides")?;
    /// assert_eq!(pool.map("trees")?.len()?, 1);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn map(&self, name: &str) -> Result<Map, Error> {
        self.map_with(name, &MapOptions::new())
    }

    /// The map `name`. If it does not exist, it is created with `options`.
    ///
    /// # Errors
    ///
    /// [`Error::MapIndexDiffers`] or [`Error::MapOptionDiffers`] if the map was created with
    /// another index or another option than `options` sets; [`Error::Option`] for an index or an
    /// option that does not exist, or a value that is not allowed; in a pool with a log
    /// [`Error::LogStopped`] and, if the map is created and its log could not note it,
    /// [`Error::AppliedNotDurable`]: ask for the map again; otherwise as [`map`](Self::map).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// use pando::{Error, MapOptions};
    ///
    /// pool.map_with("wide", &MapOptions::new().set("leaf_bytes", 8192))?;
    /// let differs = pool.map_with("wide", &MapOptions::new().set("leaf_bytes", 4096));
    /// assert!(matches!(differs, Err(Error::MapOptionDiffers { .. })));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn map_with(&self, name: &str, options: &MapOptions) -> Result<Map, Error> {
        self.check_not_salvaged()?;
        self.check_map_name(name)?;
        let mut open_maps = self.shared().open_maps();
        let (map, is_new) = loop {
            let created = self.shared().engine.created(name)?;
            match &created {
                Some(created) => options.agrees_with(name, created)?,
                None => {
                    self.shared().engine.create_map(name, options)?;
                    // Another process may have created it meanwhile, with other options.
                    if self.is_shared()
                        && let Some(created) = self.shared().engine.created(name)?
                    {
                        options.agrees_with(name, &created)?;
                    }
                }
            }
            match self.open_known_map(&mut open_maps, name) {
                // Another process has dropped it meanwhile.
                Err(Error::MapNotFound { .. }) if self.is_shared() => {}
                opened => break (opened?, created.is_none()),
            }
        };
        drop(open_maps);
        if is_new {
            self.acknowledge()?;
        }
        Ok(map)
    }

    /// The map `name`, which must exist.
    ///
    /// # Errors
    ///
    /// [`Error::MapNotFound`], with the names of the existing maps; [`Error::UnknownIndex`];
    /// [`Error::Damaged`] if the name is not found and some map is damaged, since that map may have
    /// the name.
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
        let mut open_maps = self.shared().open_maps();
        match self.shared().engine.created(name)? {
            Some(_) => match self.open_known_map(&mut open_maps, name) {
                // Another process has dropped it meanwhile.
                Err(Error::MapNotFound { .. }) => Err(self.map_not_found(name)?),
                opened => opened,
            },
            None => Err(self.map_not_found(name)?),
        }
    }

    /// The maps, ordered by name. A damaged map, whose name is not known, is listed with its slot
    /// and [`MapInfo::damage`].
    ///
    /// # Errors
    ///
    /// [`Error::TooManyThreads`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// pool.map("trees")?;
    /// let maps = pool.maps()?;
    /// assert_eq!((maps[0].name.as_str(), maps[0].index.as_str()), ("trees", "bztree"));
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        let mut maps = self.shared().engine.maps()?;
        maps.sort_by(|left, right| (&left.name, left.slot).cmp(&(&right.name, right.slot)));
        Ok(maps)
    }

    /// Gives the map `from` the name `to`. Its records, its index and its options stay.
    ///
    /// Atomic: after a crash the map has one of the two names, and on return it has the new one, as
    /// durably as any write to it. A transactional map in a pool with a log is renamed in the log
    /// too. [`maps`](Self::maps) in another thread may see the new name a moment before.
    ///
    /// # Errors
    ///
    /// [`Error::MapNotFound`]; [`Error::MapExists`] if there is a map `to`; [`Error::MapName`];
    /// [`Error::MapInUse`] while a handle of the map is held; [`Error::NotShareable`] in a pool
    /// that processes share; [`Error::Damaged`] if some map is damaged, since it may have the name;
    /// in a pool with a log [`Error::LogStopped`] and, if the map has its name and the log could
    /// not note it, [`Error::AppliedNotDurable`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// pool.map("trees")?.put(b"oak", b"Quercus")?;
    /// pool.rename_map("trees", "plants")?;
    /// assert_eq!(pool.open_map("plants")?.get(b"oak")?.as_deref(), Some(&b"Quercus"[..]));
    /// assert!(pool.open_map("trees").is_err());
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn rename_map(&self, from: &str, to: &str) -> Result<(), Error> {
        self.check_not_salvaged()?;
        self.check_map_name(to)?;
        let mut open_maps = self.shared().open_maps();
        if self.shared().engine.created(from)?.is_none() {
            return Err(self.map_not_found(from)?);
        }
        if self.shared().engine.created(to)?.is_some() {
            return Err(Error::MapExists { name: to.to_owned() });
        }
        forget_unused(&mut open_maps, from)?;
        self.shared().engine.rename_map(from, to)?;
        drop(open_maps);
        self.acknowledge()
    }

    /// Removes the map `name` with all its records, and gives their space back to the pool.
    ///
    /// One step takes the map out of the catalog, durably. It needs no room, so it succeeds in a
    /// full pool, and from then on the name is free. Then this call frees the map's blocks, in time
    /// that grows with the map. Freed space is usable at once, and no other call waits. (In a
    /// [`Store`](crate::Store) a thread does this part, and the call does not wait for it;
    /// [`clear_dropped`](Self::clear_dropped) does.) After a crash the map is unchanged, or it is
    /// removed and its blocks are freed when the pool is opened again, by a thread that ends when
    /// it is done or the pool is closed.
    ///
    /// # Errors
    ///
    /// [`Error::MapInUse`] while a handle of the map is held, [`Error::MapOpenElsewhere`] while one
    /// is held by another process that shares the pool, [`Error::MapNotFound`] if there is
    /// no such map, [`Error::UnknownIndex`]; of a transactional map [`Error::ThreadInside`] if a
    /// thread stays inside a call on the pool for more than a second; in a pool with a log
    /// [`Error::LogStopped`] and, if the map is dropped and the log could not note it,
    /// [`Error::AppliedNotDurable`].
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// use pando::Error;
    ///
    /// let trees = pool.map("trees")?;
    /// assert!(matches!(pool.drop_map("trees"), Err(Error::MapInUse { .. })));
    /// drop(trees);
    /// pool.drop_map("trees")?;
    /// assert!(pool.maps()?.is_empty());
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn drop_map(&self, name: &str) -> Result<(), Error> {
        self.check_not_salvaged()?;
        let mut open_maps = self.shared().open_maps();
        if self.shared().engine.created(name)?.is_none() {
            return Err(self.map_not_found(name)?);
        }
        forget_unused(&mut open_maps, name)?;
        match self.shared().engine.unlist_map(name) {
            // Another process has dropped it meanwhile.
            Err(Error::MapNotFound { .. }) => return Err(self.map_not_found(name)?),
            unlisted => unlisted?,
        }
        drop(open_maps);
        self.free_dropped();
        self.acknowledge()
    }

    /// Returns when the room of all maps that were dropped before the call is free. In a pool
    /// [`drop_map`](Self::drop_map) frees it itself, and only after a crash there may be more to
    /// free. In a [`Store`](crate::Store) a thread does it in the background, and
    /// [`StoreStat::dropped_maps`](crate::StoreStat::dropped_maps) has the number of those that are
    /// left.
    ///
    /// # Errors
    ///
    /// Of a store, if a page of such a map is damaged or the disk refuses; the other maps are
    /// freed. A map that a thread inside a call may still use is left for later, without an error.
    /// Of a pool, [`Error::Damaged`] and others as [`open_map`](Self::open_map).
    ///
    /// ```
    /// use pando::{Error, Store};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = Store::open(folder.path().join("grove"), 16 << 20)?;
    /// store.map("trees")?.insert(b"ash", b"1")?;
    /// store.drop_map("trees")?;
    /// store.clear_dropped()?;
    /// let stat = store.stat()?.store.ok_or(Error::NoLog)?;
    /// assert_eq!(stat.dropped_maps, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear_dropped(&self) -> Result<(), Error> {
        self.check_not_salvaged()?;
        self.shared().engine.clear_dropped()
    }

    /// Removes the map in the catalog's slot `slot`, as [`drop_map`](Self::drop_map) does by name.
    /// This is for a damaged map, whose name is not known ([`MapInfo::damage`]). If the index of
    /// the map is not known either, `options` must name it, and set its options again. If the slot
    /// points to no map, the slot is emptied. The blocks of its former map then stay allocated, and
    /// [`check`](Self::check) reports them.
    ///
    /// # Errors
    ///
    /// [`Error::SlotEmpty`]; [`Error::Damaged`] if `options` must name the index;
    /// [`Error::Option`] for an index or an option that does not exist; otherwise as
    /// [`drop_map`](Self::drop_map).
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// pool.map("trees")?;
    /// let slot = pool.maps()?[0].slot;
    /// pool.drop_slot(slot, &pando::MapOptions::new())?;
    /// assert!(pool.maps()?.is_empty());
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn drop_slot(&self, slot: u64, options: &MapOptions) -> Result<(), Error> {
        self.check_not_salvaged()?;
        let mut open_maps = self.shared().open_maps();
        if let Some(name) = self.shared().engine.name_in_slot(slot)? {
            forget_unused(&mut open_maps, &name)?;
        }
        self.shared().engine.unlist_slot(slot, options)?;
        drop(open_maps);
        self.free_dropped();
        self.acknowledge()
    }

    /// Frees the blocks of dropped maps. After an error the maps stay dropped, and a later call or
    /// opening frees the other blocks.
    fn free_dropped(&self) {
        let _ = self.shared().engine.free_dropped();
    }

    /// Opens a map that exists.
    pub(crate) fn open_known_map(
        &self,
        open_maps: &mut HashMap<String, Weak<MapShared>>,
        name: &str,
    ) -> Result<Map, Error> {
        if let Some(shared) = open_maps.get(name).and_then(Weak::upgrade) {
            return Ok(Map::from_shared(shared));
        }
        let opened = self.shared().engine.open_map(name)?;
        let shared = Arc::new(MapShared::new(name, opened, Arc::clone(self.shared())));
        open_maps.insert(name.to_owned(), Arc::downgrade(&shared));
        Ok(Map::from_shared(shared))
    }

    pub(crate) fn map_not_found(&self, name: &str) -> Result<Error, Error> {
        let named = |map: &MapInfo| map.damage.is_none();
        let present = self.maps()?.into_iter().filter(named).map(|map| map.name).collect();
        Ok(Error::MapNotFound { name: name.to_owned(), present })
    }

    fn check_map_name(&self, name: &str) -> Result<(), Error> {
        let max_bytes = self.shared().engine.max_map_name_bytes();
        if name.is_empty() || name.len() > max_bytes {
            return Err(Error::MapName { name: name.to_owned(), max_bytes });
        }
        Ok(())
    }
}

/// Takes a map out of those with open handles, if none of its handles is held.
fn forget_unused(
    open_maps: &mut HashMap<String, Weak<MapShared>>,
    name: &str,
) -> Result<(), Error> {
    let handles = open_maps.get(name).map_or(0, Weak::strong_count);
    if handles > 0 {
        return Err(Error::MapInUse { name: name.to_owned(), handles });
    }
    open_maps.remove(name);
    Ok(())
}
