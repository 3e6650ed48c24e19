//! The records of a store, without its log.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pando_bwtree::{BwTree, Options, Stored, StoredBwTrees, check_images};
use pando_device::Directory;
use pando_index::RangeIndex;
use pando_lss::{PageStore, PageStoreOptions, Space, Stat};
use pando_pmem::{CreateOptions, Domain, Pool, Process};
use pando_tree::maps::Catalog;

use crate::cache::{Cache, CacheStat, Limits, Source};
use crate::error::{Error, Result};

/// The least memory of a cache, in bytes.
const MIN_MEMORY_BYTES: u64 = 4 << 20;
/// The shortest segment: the pages of one change of structure must fit a quarter of it.
const MIN_SEGMENT_BYTES: u64 = 4 << 20;

/// The shortest log that a checkpoint is made for.
const MIN_CHECKPOINT_LOG_BYTES: u64 = 1 << 20;

/// Options of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Bytes of the cache: 16 MiB or more, and 32 bytes or more for each number of a page up to the
    /// highest. Beside them: 10 bytes for each number in the table of the page store, 50 for each
    /// page with deltas on disk, the bytes of groups that are written, of pages that are loaded,
    /// and 256 KiB.
    pub memory_bytes: u64,
    /// Those of the page store; its segments have 4 MiB or more, 16 MiB unless it is set.
    pub pages: PageStoreOptions,
    /// Bytes of commits after which a checkpoint is made: an opening replays about so many. 1 MiB
    /// or more; 128 MiB unless it is set.
    pub checkpoint_log_bytes: u64,
    /// How long an operation tries to make room in a full cache before it is refused, from its
    /// first attempt on; looked at before each attempt. It makes 1,000 attempts at most. And how
    /// long it goes on after 1,000 loads of pages, each of which another thread evicts before it
    /// comes to it. 10 seconds unless it is set.
    pub room_wait: Duration,
    /// A page that was only read, and has several parts on the disk, is written whole before it is
    /// evicted: its next load needs one read then. Set unless it is taken out, as for reports over
    /// files that stay as they are: their writes take memory.
    pub joins_read_parts: bool,
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
        Self {
            memory_bytes: 256 << 20,
            pages: PageStoreOptions::default(),
            checkpoint_log_bytes: 128 << 20,
            room_wait: Duration::from_secs(10),
            joins_read_parts: true,
            tree,
        }
    }
}

/// Numbers of the records of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataStat {
    /// The cache.
    pub cache: CacheStat,
    /// The page store.
    pub pages: Stat,
}

/// The records of a store, without its log: the data component of the Bw-tree paper. Any number of
/// threads may use it at once.
///
/// | failure | what it has after the next opening |
/// | --- | --- |
/// | the process is killed, or the power is cut | each write that returned before a [`sync`](Self::sync) or [`checkpoint`](Self::checkpoint) began that has returned; and of each later write all or nothing, one record independently of others |
/// | a write or a sync of the device fails | the same; until the next opening it takes no writes that need the device |
#[derive(Debug)]
pub struct DataComponent<D: Domain = Process> {
    cache: Arc<Cache<D>>,
    /// The caller's bytes of the last checkpoint.
    client: Vec<u8>,
}

pub(crate) fn check(option: &'static str, found: u64, least: u64) -> Result<()> {
    match found >= least {
        true => Ok(()),
        false => Err(Error::Option { option, found, allowed: format!("{least} or more") }),
    }
}

pub(crate) fn check_options(options: &StoreOptions) -> Result<()> {
    check("memory_bytes", options.memory_bytes, MIN_MEMORY_BYTES)?;
    check("checkpoint_log_bytes", options.checkpoint_log_bytes, MIN_CHECKPOINT_LOG_BYTES)?;
    check("delta_bytes", options.tree.delta_bytes.into(), 1)
}

impl DataComponent {
    /// Opens the records in `directory`, and creates them if there are none. Nothing else may use
    /// the directory at the same time, in any process.
    ///
    /// # Errors
    ///
    /// [`Error::Option`], or what the page store or the device answers.
    pub fn open(directory: Arc<dyn Directory>, options: &StoreOptions) -> Result<Self> {
        check_options(options)?;
        let create = CreateOptions { max_bytes: options.memory_bytes, initial_bytes: 0 };
        Self::open_in((Pool::anonymous(&create)?, "records"), directory, options)
    }
}

impl<D: Domain> DataComponent<D> {
    /// The same in a pool. `name` must be that of no map there.
    pub(crate) fn open_in(
        (pool, name): (Arc<Pool<D>>, &str),
        directory: Arc<dyn Directory>,
        options: &StoreOptions,
    ) -> Result<Self> {
        check_options(options)?;
        let mut client = Vec::new();
        let pages = match PageStore::open(directory.clone(), options.pages) {
            Err(pando_lss::Error::NotAStore { .. }) => {
                check("segment_bytes", options.pages.segment_bytes, MIN_SEGMENT_BYTES)?;
                let id = pando_pmem::draw_id(Path::new(&directory.path()))?;
                PageStore::create(directory, id, options.pages)?
            }
            opened => {
                let (pages, found) = opened?;
                client = found.client;
                pages
            }
        };
        // Half a segment has a group. An existing store has segments of its own length.
        check("segment_bytes", 2 * pages.most_group_bytes() as u64, MIN_SEGMENT_BYTES)?;
        // The mapping table takes a quarter of the memory at most.
        let table_bytes = pages.pids().last().map_or(0, |last| 8 * (u64::from(last) + 1));
        check("memory_bytes", options.memory_bytes, 4 * table_bytes)?;
        let catalog = Catalog::open(pool).map_err(pando_index::Error::storage)?;
        let tree = Arc::new(catalog).find_or_create_index::<StoredBwTrees>(name, options.tree);
        let tree: BwTree<D, Stored> = tree.map_err(pando_index::Error::storage)?;
        let StoreOptions { memory_bytes, room_wait, joins_read_parts, .. } = *options;
        let limits = Limits { memory_bytes, room_wait, joins_read_parts };
        let cache = Arc::new(Cache::new(tree, pages, limits));
        cache.tree.connect(Box::new(Source(Arc::downgrade(&cache))))?;
        cache.tree.restore(cache.pages.pids())?;
        Ok(Self { cache, client })
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

    /// The same; and the next opening begins there. `client` are bytes that it gets then, at most
    /// 64 KiB.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn checkpoint(&self, client: &[u8]) -> Result<()> {
        self.cache.write_all()?;
        Ok(self.cache.pages.checkpoint(client)?)
    }

    /// The caller's bytes of the checkpoint at which the opening began; empty if there was none.
    pub fn client(&self) -> &[u8] {
        &self.client
    }

    pub(crate) fn cache(&self) -> &Arc<Cache<D>> {
        &self.cache
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
    /// readable, and together they are a tree. Returns what is wrong, and which pages lack commits
    /// of a log. No other thread may write meanwhile.
    ///
    /// # Errors
    ///
    /// As [`sync`](Self::sync).
    pub fn check(&self) -> Result<Vec<String>> {
        self.cache.write_all()?;
        let mut read = |page| match self.cache.pages.read(page) {
            Ok(Some(parts)) => Ok(parts),
            Ok(None) => Err("it does not exist".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let mut problems = check_images(self.cache.pages.pids(), &mut read);
        problems.extend(self.cache.not_replayed());
        Ok(problems)
    }

    /// The room that its pages take on the disk; see [`PageStore::space`](pando_lss::PageStore).
    pub fn space(&self) -> Space {
        self.cache.pages.space()
    }

    /// Its numbers. Reads the table of pages.
    ///
    /// # Errors
    ///
    /// What the page store answers.
    pub fn stat(&self) -> Result<DataStat> {
        Ok(DataStat { cache: self.cache.stat()?, pages: self.cache.pages.stat()? })
    }
}

#[cfg(test)]
mod tests {
    use pando_device::simulated::Simulated;
    use pando_lss::{Group, MAX_PARTS};

    use super::*;

    /// A group that is not written yet uses up the parts of a page: the group behind it is refused,
    /// and the page is written whole.
    #[test]
    fn a_delta_that_the_store_refuses_is_written_as_a_page() {
        let options = StoreOptions { memory_bytes: 4 << 20, ..StoreOptions::default() };
        let store = DataComponent::open(Arc::new(Simulated::new()), &options).expect("opens");
        let (cache, records) = (store.cache(), store.records());
        // Two leaves below the root, which is never written as a delta.
        for number in 0..200_u64 {
            records.upsert(&number.to_be_bytes(), &[1; 100]).expect("writes");
        }
        cache.write_all().expect("writes");
        let page = cache.pages.pids().last().expect("pages");
        let parts = || cache.pages.extent(page).expect("a page").parts;
        // No record is new or gone.
        let empty = || Group::new().delta(page, [0; 16]);
        for _ in 2..MAX_PARTS {
            cache.pages.wait(&cache.pages.append(empty()).expect("open")).expect("room");
        }
        cache.pages.append(empty()).expect("open");
        assert_eq!(parts(), MAX_PARTS - 1, "the last one is not written yet");
        let last = 199_u64.to_be_bytes();
        records.upsert(&last, b"second").expect("writes");
        cache.write_all().expect("the group is written again");
        assert_eq!((parts(), cache.stat().expect("open").retries), (1, 1));
        store.empty_cache().expect("writes");
        assert_eq!(records.get(&last).expect("reads").as_deref(), Some(&b"second"[..]));
        assert_eq!(store.check().expect("reads"), Vec::<String>::new());
    }
}
