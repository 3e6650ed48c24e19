//! Our indexes, of any kind and in any domain, as systems: in a pool of their own, on anonymous
//! memory or in a file.
//!
//! The one place of this crate that knows how a pool with an index in it is made. Keys and values
//! are handed on as they are: what a user of byte strings gets. The harness is compiled against the
//! index of each kind and domain, and calls its own
//! [`read_with`](pando_tree::maps::Tree::read_with); only a scan goes through the cursor of
//! the common contract.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use pando_index::RangeIndex;
use pando_pmem::layout::{CHUNK_BYTES, CHUNK_TABLE_OFF};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool};
use pando_tree::maps::{Catalog, IndexKind, IndexOptions, Tree};
use tempfile::TempDir;

use super::entry::{BuildError, BuildOptions};
use super::index::{is_new, range_from, visit_from};
use crate::system::{Refusal, Scan, System};

/// The one map of each pool.
const MAP: &str = "bench";
/// Bytes of a word of the chunk table.
const CHUNK_WORD_BYTES: u64 = 8;

/// An index of kind `K` under domain `D`, its pool, and the folder that this lies in, if it has
/// one.
pub struct Stored<K: IndexKind, D: Domain> {
    // Dropped first: the pool is closed before its folder is removed.
    /// The index.
    pub index: K::Index<D>,
    /// The PMwCAS of its pool.
    pub catalog: Arc<Catalog<D>>,
    folder: Option<TempDir>,
}

impl<K: IndexKind, D: Domain> Stored<K, D> {
    /// An empty index on anonymous memory.
    pub fn anonymous(options: &BuildOptions) -> Result<Self, BuildError> {
        Self::create_in(Pool::anonymous(&create_options(options))?, options)
    }

    /// An empty index in a new file, in a folder of its own that is removed with it.
    pub fn in_file(options: &BuildOptions) -> Result<Self, BuildError> {
        #[cfg(feature = "papers")]
        pando_pmem::emulated::set_delays(options.delays)?;
        let folder = tempfile::tempdir_in(&options.pool_dir)?;
        let path = folder.path().join("bench.pando");
        Ok(Self { folder: Some(folder), ..Self::create(&path, options)? })
    }

    /// An empty index in a new pool at `path`.
    pub fn create(path: &Path, options: &BuildOptions) -> Result<Self, BuildError> {
        Self::create_in(Pool::create(path, &create_options(options))?, options)
    }

    /// The index in the pool at `path`, which is recovered if need be.
    pub fn open(path: &Path) -> Result<Self, BuildError> {
        let pool = Pool::open(path, &OpenPool::default())?;
        let catalog = Arc::new(Catalog::open(pool)?);
        let index = catalog.find_index::<K>(MAP)?.ok_or("the pool has lost its map")?;
        Ok(Self { index, catalog, folder: None })
    }

    fn create_in(pool: Arc<Pool<D>>, options: &BuildOptions) -> Result<Self, BuildError> {
        let catalog = Arc::new(Catalog::open(pool)?);
        let own = options.settings.as_ref().filter(|values| values.are_of(K::Options::SPECS));
        let settings = own.map(K::Options::of).unwrap_or_default();
        let index = catalog.find_or_create_index::<K>(MAP, settings)?;
        Ok(Self { index, catalog, folder: None })
    }
}

fn create_options(options: &BuildOptions) -> CreateOptions {
    CreateOptions {
        max_bytes: options.max_pool_bytes,
        huge_pages: options.huge_pages,
        ..CreateOptions::default()
    }
}

impl<K: IndexKind, D: Domain> System for Stored<K, D> {
    #[inline]
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        is_new(self.index.insert(key, value))
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.index.upsert(key, value)?;
        Ok(())
    }

    #[inline]
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        Ok(self.index.read_with(key, visit)?.is_some())
    }

    #[inline]
    fn get_many(&self, keys: &[&[u8]], mut visit: impl FnMut(usize, &[u8])) -> Result<(), Refusal> {
        self.index.read_many(keys, &mut |index, value| {
            if let Some(value) = value {
                visit(index, value);
            }
        })?;
        Ok(())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.index.remove(key)?)
    }

    #[inline]
    fn scan(&self, scan: Scan<'_>, visit: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        let Scan { from, limit, order } = scan;
        visit_from(self.index.scan(range_from(from, order), order)?, limit, visit)
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.index.len()?)
    }

    /// The chunks ever used, free ones included, their part of the table, and the fixed part.
    fn footprint_bytes(&self) -> Option<u64> {
        let chunks = self.catalog.pool().usage().ok()?.chunks;
        Some(CHUNK_TABLE_OFF + chunks * (CHUNK_WORD_BYTES + CHUNK_BYTES))
    }

    /// What the file system has given to the file, room for growth included.
    fn file_bytes(&self) -> Option<u64> {
        self.folder.as_ref()?;
        // `blocks` counts by 512 bytes on every file system.
        std::fs::metadata(self.catalog.pool().path()).ok().map(|file| file.blocks() * 512)
    }
}

#[cfg(test)]
mod tests {
    use pando_bztree::BzTrees;
    use pando_pmem::Process;

    use super::*;

    #[test]
    fn an_index_comes_back_from_its_pool() {
        let options = BuildOptions::default();
        let folder = tempfile::tempdir_in(&options.pool_dir).unwrap();
        let path = folder.path().join("back.pando");
        let created = Stored::<BzTrees, Process>::create(&path, &options).unwrap();
        created.index.insert(b"key", b"value").unwrap();
        drop(created);
        let opened = Stored::<BzTrees, Process>::open(&path).unwrap();
        assert_eq!(opened.index.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        assert!(opened.catalog.pool().was_clean());
    }

    #[test]
    fn space_is_known_on_a_file_and_without() {
        let options = BuildOptions::default();
        let anonymous = Stored::<BzTrees, Process>::anonymous(&options).unwrap();
        let in_file = Stored::<BzTrees, Process>::in_file(&options).unwrap();
        assert!(System::footprint_bytes(&anonymous) > Some(CHUNK_TABLE_OFF));
        assert_eq!(System::footprint_bytes(&anonymous), System::footprint_bytes(&in_file));
        assert!(System::file_bytes(&in_file) >= System::footprint_bytes(&in_file));
        assert_eq!(System::file_bytes(&anonymous), None);
    }
}
