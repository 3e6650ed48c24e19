//! Opening a store without a change of its files, for reports: also on a file system that cannot be
//! written, such as a mounted backup.
//!
//! An opening replays the log, and so it writes pages, the log and the file `control`. Here the
//! directories of the pages and of the log are overlays ([`Overlay`]), whose changes are in process
//! memory, and the opening uses a copy of `control` in memory. So nothing is left by a kill.
//!
//! If the files `lock` and `log/lock` are there, a process that has the store open for writing is
//! found by them, and finds this one. On a file system that cannot be written there are none.

use std::path::Path;
use std::sync::Arc;

use pando_device::{Directory, Disk, Overlay};
use pando_lss::PageStore;

use crate::data_component::{StoreOptions, check, check_options};
use crate::error::{Error, Result};
use crate::opening::Control;
use crate::store::{MIN_MEMORY_BYTES, Store};

impl Store {
    /// Opens the store in the directory `path` for reading alone. Its files stay as they are: the
    /// changes of this opening are in process memory, and end with this store. The replay of a long
    /// log takes memory for the pages that it changes, beyond that of the cache.
    ///
    /// Commits that write, changes of the list of maps, checkpoints and the clearing of dropped
    /// maps are refused with [`pando_tc::Error::ReadOnly`].
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); and [`pando_lss::Error::NotAStore`] if there is none.
    pub fn open_unchanged(path: &Path, options: &StoreOptions) -> Result<Self> {
        check("memory_bytes", options.memory_bytes, MIN_MEMORY_BYTES)?;
        Ok(Self::open_over(path, options)?.0)
    }

    /// The same, with the overlays of its pages and of its log.
    fn open_over(path: &Path, options: &StoreOptions) -> Result<(Self, [Arc<Overlay>; 2])> {
        check_options(options)?;
        let in_use = || Error::InUse { path: path.display().to_string() };
        let lock = Disk::open(path)?.lock_read_only()?.ok_or_else(in_use)?;
        let below = |name| Ok::<_, Error>(Disk::open(&path.join(name))?);
        let (pages, log) = (below("pages")?, below("log")?);
        if !PageStore::is_in(&pages)? {
            return Err(pando_lss::Error::NotAStore { path: pages.path() }.into());
        }
        let log_lock = log.lock_read_only()?.ok_or_else(in_use)?;
        let overlays = [pages, log].map(|disk| Arc::new(Overlay::new(Arc::new(disk))));
        let [pages, log] = overlays.clone().map(|overlay| overlay as Arc<dyn Directory>);
        let control = path.join("control");
        // Pages that were only read take no memory of the overlay.
        let options = StoreOptions { joins_read_parts: false, ..options.clone() };
        let store = Self::open_with(pages, &log, Control::CopyOf(&control), &options)?;
        store.component().refuse_writes();
        store.hold([log_lock, lock]);
        Ok((store, overlays))
    }
}

#[cfg(test)]
mod tests {
    use pando_index::RangeIndex;
    use pando_lss::PageStoreOptions;

    use super::*;

    const KEYS: u64 = 150_000;
    /// Beside pages: the superblock, a checkpoint and the beginning of the log.
    const FEW_BLOCKS: usize = 100;

    fn options() -> StoreOptions {
        let pages = PageStoreOptions { segment_bytes: 4 << 20, ..PageStoreOptions::default() };
        StoreOptions { memory_bytes: 4 << 20, pages, ..StoreOptions::default() }
    }

    /// A store of four times its memory or more, most of whose pages have two parts.
    fn filled(path: &Path) -> Store {
        let store = Store::open(path, &StoreOptions { memory_bytes: 64 << 20, ..options() });
        let store = store.expect("opens");
        store.create_map("map").expect("created");
        let map = store.map("map").expect("a map");
        (0..KEYS).for_each(|key| map.put(&key.to_be_bytes(), &[1; 110]).expect("written"));
        store.sync().expect("durable");
        store.empty_cache().expect("written");
        for key in (0..KEYS).step_by(30) {
            map.put(&key.to_be_bytes(), &[2; 110]).expect("written");
        }
        store.checkpoint().expect("written");
        let pages = store.stat().expect("reads").data.pages;
        assert!(pages.live_bytes > 4 * options().memory_bytes, "{pages:?}");
        assert!(pages.pages_by_parts[1] > pages.pages / 2, "{pages:?}");
        drop(map);
        store
    }

    /// Reads all of the store; the blocks that its overlays have then.
    fn blocks_after_check(path: &Path) -> usize {
        let (store, overlays) = Store::open_over(path, &options()).expect("opens");
        assert_eq!(store.check().expect("reads"), [""; 0]);
        assert_eq!(store.map("map").expect("a map").len().expect("reads"), KEYS);
        let cache = store.stat().expect("reads").data.cache;
        assert!(cache.evictions > 1000, "{cache:?}");
        overlays.iter().map(|overlay| overlay.blocks()).sum()
    }

    #[test]
    fn pages_that_are_only_read_take_no_memory_of_the_overlay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        filled(&path).close().expect("closed");
        let blocks = blocks_after_check(&path);
        assert!(blocks < FEW_BLOCKS, "{blocks} blocks");
    }
}
