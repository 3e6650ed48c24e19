//! A store, as its users see it.

use std::path::Path;
use std::sync::Arc;

use pando_bwtree::{BwTree, Options, Stored, StoredBwTrees, check_images};
use pando_device::{Directory, DirectoryLock, Disk};
use pando_index::RangeIndex;
use pando_lss::{Found, PageStore, PageStoreOptions, Stat};
use pando_pmem::{CreateOptions, Pool, Process};
use pando_tree::maps::Catalog;

use crate::cache::{Cache, CacheStat, Source, image};
use crate::error::{Error, Result};

/// The least memory of a cache, in bytes.
const MIN_MEMORY_BYTES: u64 = 4 << 20;
/// The shortest segment: the pages of one change of structure must fit a quarter of it.
const MIN_SEGMENT_BYTES: u64 = 4 << 20;

/// Options of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Bytes of the cache: 4 MiB or more, and 32 bytes or more for each number of a page up to the
    /// highest. Beside them: 8 bytes for each number in the table of the page store, the bytes of
    /// groups that are written, of pages that are loaded, and 256 KiB.
    pub memory_bytes: u64,
    /// Those of the page store; its segments have 4 MiB or more, 16 MiB unless it is set.
    pub pages: PageStoreOptions,
    /// The shape of the tree. It may be another one at each opening. `delta_bytes` is 1 or more,
    /// and `inline_bytes` has no effect: values have at most 16 KiB and are in their pages.
    pub tree: Options,
}

impl Default for StoreOptions {
    fn default() -> Self {
        let tree = Options {
            leaf_bytes: 8 << 10,
            inner_bytes: 8 << 10,
            merge_bytes: 2 << 10,
            ..Options::default()
        };
        Self { memory_bytes: 256 << 20, pages: PageStoreOptions::default(), tree }
    }
}

/// Numbers of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStat {
    /// The cache.
    pub cache: CacheStat,
    /// The page store.
    pub pages: Stat,
}

/// A store. Any number of threads may use it at once. See [the crate](crate) for what survives.
#[derive(Debug)]
pub struct Store {
    cache: Arc<Cache>,
    /// Held as long as the store is open.
    _lock: Option<DirectoryLock>,
}

fn check(option: &'static str, found: u64, least: u64) -> Result<()> {
    match found >= least {
        true => Ok(()),
        false => Err(Error::Option { option, found, allowed: format!("{least} or more") }),
    }
}

fn check_options(options: &StoreOptions) -> Result<()> {
    check("memory_bytes", options.memory_bytes, MIN_MEMORY_BYTES)?;
    check("delta_bytes", options.tree.delta_bytes.into(), 1)
}

impl Store {
    /// Opens the store in the directory `path`, and creates it if there is none. The directory is
    /// created too; its parent must be there.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`], [`Error::Option`], or what the page store or the device answers.
    pub fn open(path: &Path, options: &StoreOptions) -> Result<Self> {
        check_options(options)?;
        let disk = Disk::open_or_create(path)?;
        let in_use = || Error::InUse { path: path.display().to_string() };
        let lock = disk.lock()?.ok_or_else(in_use)?;
        let store = Self::open_in(Arc::new(disk), options)?;
        Ok(Self { _lock: Some(lock), ..store })
    }

    /// The same in any directory, which no other store may use at the same time.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), without [`Error::InUse`].
    pub fn open_in(directory: Arc<dyn Directory>, options: &StoreOptions) -> Result<Self> {
        check_options(options)?;
        let pages = match PageStore::open(directory.clone(), options.pages) {
            Err(pando_lss::Error::NotAStore { .. }) => {
                check("segment_bytes", options.pages.segment_bytes, MIN_SEGMENT_BYTES)?;
                let id = pando_pmem::draw_id(Path::new(&directory.path()))?;
                PageStore::create(directory, id, options.pages)?
            }
            opened => opened.map(|(pages, _): (_, Found)| pages)?,
        };
        // Half a segment has a group. An existing store has segments of its own length.
        check("segment_bytes", 2 * pages.most_group_bytes() as u64, MIN_SEGMENT_BYTES)?;
        // The mapping table takes a quarter of the memory at most.
        let table_bytes = pages.pids().last().map_or(0, |last| 8 * (u64::from(last) + 1));
        check("memory_bytes", options.memory_bytes, 4 * table_bytes)?;
        let create = CreateOptions { max_bytes: options.memory_bytes, initial_bytes: 0 };
        let pool = Pool::<Process>::anonymous(&create)?;
        let catalog = Catalog::open(pool).map_err(pando_index::Error::storage)?;
        let tree = Arc::new(catalog).find_or_create_index::<StoredBwTrees>("records", options.tree);
        let tree: BwTree<Process, Stored> = tree.map_err(pando_index::Error::storage)?;
        let cache = Arc::new(Cache::new(tree, pages, options.memory_bytes));
        cache.tree.connect(Box::new(Source(Arc::downgrade(&cache))))?;
        cache.tree.restore(cache.pages.pids())?;
        Ok(Self { cache, _lock: None })
    }

    /// The records. Operations are durable after a [`sync`](Self::sync).
    pub fn records(&self) -> &dyn RangeIndex {
        &self.cache.tree
    }

    /// Makes all writes durable that returned before the call.
    ///
    /// # Errors
    ///
    /// What the page store answers. After a failure of the device, writes that were not durable
    /// before may be lost.
    pub fn sync(&self) -> Result<()> {
        self.cache.write_all()?;
        Ok(self.cache.pages.sync()?)
    }

    /// The same; and the next opening begins there.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn checkpoint(&self) -> Result<()> {
        self.cache.write_all()?;
        Ok(self.cache.pages.checkpoint(&[])?)
    }

    /// Writes all pages that have changed, and evicts all: the next operations read the device.
    ///
    /// # Errors
    ///
    /// What the page store answers.
    pub fn empty_cache(&self) -> Result<()> {
        self.cache.write_all()?;
        self.cache.evict_all()
    }

    /// Checks all pages as the device has them, after all changed ones are written: each is
    /// readable, and together they are a tree. Returns what is wrong. No other thread may write
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn check(&self) -> Result<Vec<String>> {
        self.cache.write_all()?;
        let mut read = |page| match image(&self.cache.pages, page) {
            Ok(Some(image)) => Ok(image),
            Ok(None) => Err("it does not exist".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        Ok(check_images(self.cache.pages.pids(), &mut read))
    }

    /// Numbers of the store. Reads the table of pages.
    ///
    /// # Errors
    ///
    /// What the page store answers.
    pub fn stat(&self) -> Result<StoreStat> {
        Ok(StoreStat { cache: self.cache.stat()?, pages: self.cache.pages.stat()? })
    }
}
