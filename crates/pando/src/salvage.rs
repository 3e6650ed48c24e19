//! Salvage: the readable records of maps that cannot be opened.

use crate::report::CheckReport;
use crate::{Error, MapOptions, Pool};

impl Pool {
    /// Lends each readable record of the map `name` to `visit`, key and value, and reports the
    /// damage. No record of a damaged node is lent, and nothing below a damaged inner node is
    /// reached. Keys ascend as far as the map is undamaged. Records carry no checksum: if only the
    /// bytes of a value are damaged, the value is lent as it is.
    ///
    /// This is for pools opened with [`PoolOptions::salvage`](crate::PoolOptions::salvage), whose
    /// maps cannot be opened otherwise. No other thread may write during the call.
    ///
    /// # Errors
    ///
    /// [`Error::MapNotFound`], with the names of the existing maps. Damage is part of the report,
    /// and not an error.
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
    /// assert!(report.is_consistent());
    /// assert_eq!(copied, [(b"key".to_vec(), b"value".to_vec())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn salvage(
        &self,
        name: &str,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error> {
        match self.shared().engine.created(name)? {
            Some(_) => self.shared().engine.salvage(name, &mut visit),
            None => Err(self.map_not_found(name)?),
        }
    }

    /// As [`salvage`](Self::salvage), for the map in the catalog's slot `slot`. This is for a map
    /// whose header, with its name, is damaged ([`MapInfo::damage`](crate::MapInfo::damage)). If
    /// the index of the map is not known either, `options` must name it, and set its options again.
    /// If the slot itself is damaged, the time grows with the pool. In a store it takes the number
    /// of any map, and `options` have no effect.
    ///
    /// # Errors
    ///
    /// [`Error::SlotEmpty`]; [`Error::Damaged`] if `options` must name the index, or if no part of
    /// the map is found; [`Error::Option`] for an index or an option that does not exist.
    ///
    /// ```
    /// # let pool = pando::Pool::volatile(&pando::PoolOptions::new())?;
    /// pool.map("trees")?.insert(b"aspen", b"1")?;
    /// let slot = pool.maps()?[0].slot;
    /// let mut copied = Vec::new();
    /// pool.salvage_slot(slot, &pando::MapOptions::new(), |key, _| copied.push(key.to_vec()))?;
    /// assert_eq!(copied, [b"aspen"]);
    /// # Ok::<(), pando::Error>(())
    /// ```
    pub fn salvage_slot(
        &self,
        slot: u64,
        options: &MapOptions,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<CheckReport, Error> {
        self.shared().engine.salvage_slot(slot, options, &mut visit)
    }
}
