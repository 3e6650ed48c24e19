//! Pools of the harness's own, with one of our indexes in each, on anonymous memory or in a file.
//!
//! The one place of this crate that makes pools.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use pando::CompiledDomain;
use pando_index::RangeIndex;
use pando_pmem::layout::{CHUNK_BYTES, CHUNK_TABLE_OFF};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool};
use pando_tree::maps::{Catalog, IndexKind, IndexOptions, OptionValues};
use tempfile::TempDir;

use super::entry::{BuildError, BuildOptions};
use super::index::Footprint;

/// The one map of each pool.
const MAP: &str = "bench";
/// Bytes of a word of the chunk table.
const CHUNK_WORD_BYTES: u64 = 8;

/// Makes the index of a new pool, with these options or with its defaults.
pub type Make<D, I> = fn(&Arc<Catalog<D>>, Option<&OptionValues>) -> Result<I, BuildError>;

/// The index of kind `K` that the crate `pando` has compiled: what a user of byte strings gets.
pub fn compiled<K: IndexKind, D: CompiledDomain>(
    catalog: &Arc<Catalog<D>>,
    options: Option<&OptionValues>,
) -> Result<Arc<dyn RangeIndex>, BuildError> {
    Ok(D::find_or_create(catalog, MAP, K::NAME, options)?)
}

/// The index of kind `K`, compiled where this is called.
pub fn of_kind<K: IndexKind, D: Domain>(
    catalog: &Arc<Catalog<D>>,
    options: Option<&OptionValues>,
) -> Result<K::Index<D>, BuildError> {
    let own = options.filter(|options| options.are_of(K::Options::SPECS));
    Ok(catalog.find_or_create_index::<K>(MAP, own.map(K::Options::of).unwrap_or_default())?)
}

/// As [`of_kind`], with its type forgotten.
pub fn erased<K: IndexKind, D: Domain>(
    catalog: &Arc<Catalog<D>>,
    options: Option<&OptionValues>,
) -> Result<Arc<dyn RangeIndex>, BuildError> {
    Ok(Arc::new(of_kind::<K, D>(catalog, options)?))
}

/// An index, its pool of domain `D`, and the folder that this lies in, if it has one.
pub struct Stored<I, D: Domain> {
    // Dropped first: the pool is closed before its folder is removed.
    /// The index.
    pub index: I,
    /// The PMwCAS of its pool.
    pub catalog: Arc<Catalog<D>>,
    folder: Option<TempDir>,
}

impl<I, D: Domain> Stored<I, D> {
    /// An empty index on anonymous memory.
    pub fn anonymous(options: &BuildOptions, make: Make<D, I>) -> Result<Self, BuildError> {
        Self::create_in(Pool::anonymous(&create_options(options))?, options, make)
    }

    /// An empty index in a new file, in a folder of its own that is removed with it.
    pub fn in_file(options: &BuildOptions, make: Make<D, I>) -> Result<Self, BuildError> {
        #[cfg(feature = "papers")]
        pando_pmem::emulated::set_delays(options.delays)?;
        let folder = tempfile::tempdir_in(&options.pool_dir)?;
        let path = folder.path().join("bench.pando");
        Ok(Self { folder: Some(folder), ..Self::create(&path, options, make)? })
    }

    /// An empty index in a new pool at `path`.
    pub fn create(
        path: &Path,
        options: &BuildOptions,
        make: Make<D, I>,
    ) -> Result<Self, BuildError> {
        Self::create_in(Pool::create(path, &create_options(options))?, options, make)
    }

    fn create_in(
        pool: Arc<Pool<D>>,
        options: &BuildOptions,
        make: Make<D, I>,
    ) -> Result<Self, BuildError> {
        let catalog = Arc::new(Catalog::open(pool)?);
        let index = make(&catalog, options.settings.as_ref())?;
        Ok(Self { index, catalog, folder: None })
    }
}

impl<D: CompiledDomain> Stored<Arc<dyn RangeIndex>, D> {
    /// The index in the pool at `path`, which is recovered if need be.
    pub fn open(path: &Path) -> Result<Self, BuildError> {
        let pool = Pool::open(path, &OpenPool::default())?;
        let catalog = Arc::new(Catalog::open(pool)?);
        let index = D::find(&catalog, MAP)?;
        Ok(Self { index, catalog, folder: None })
    }
}

fn create_options(options: &BuildOptions) -> CreateOptions {
    CreateOptions { max_bytes: options.max_pool_bytes, ..CreateOptions::default() }
}

impl<I: Send + Sync, D: Domain> Footprint for Stored<I, D> {
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
        let make = compiled::<BzTrees, Process>;
        let created = Stored::<_, Process>::create(&path, &options, make).unwrap();
        created.index.insert(b"key", b"value").unwrap();
        drop(created);
        let opened = Stored::<_, Process>::open(&path).unwrap();
        assert_eq!(opened.index.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        assert!(opened.catalog.pool().was_clean());
    }

    #[test]
    fn space_is_known_on_a_file_and_without() {
        let options = BuildOptions::default();
        let make = compiled::<BzTrees, Process>;
        let anonymous = Stored::anonymous(&options, make).unwrap();
        let in_file = Stored::in_file(&options, make).unwrap();
        assert!(anonymous.footprint_bytes() > Some(CHUNK_TABLE_OFF));
        assert_eq!(anonymous.footprint_bytes(), in_file.footprint_bytes());
        assert!(in_file.file_bytes() >= in_file.footprint_bytes());
        assert_eq!(anonymous.file_bytes(), None);
    }
}
