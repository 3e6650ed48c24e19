//! BzTree, as sides in each domain, as the counted index and as the one that comes back.
//!
//! The one place of this crate that knows how a pool with a BzTree in it is made. Keys and values
//! are handed on as they are: what a user of byte strings gets. The harness is compiled against the tree of each domain,
//! and calls its own `read_with`; only a scan goes through the cursor of the common contract.
//!
//! `bztree:volatile-file` lies on the same kind of pages as the durable sides, and pays nothing
//! for durability: what `bztree:process` costs more than it, durability costs.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use pando_bztree::{BzTree, Options};
use pando_index::RangeIndex;
use pando_pmem::catalog::MapHeader;
use pando_pmem::counting::Counting;
use pando_pmem::layout::{CHUNK_BYTES, CHUNK_TABLE_OFF};
use pando_pmem::{CreateOptions, Domain, OpenPool, Pool, Process};
use pando_pmwcas::Pmwcas;
use tempfile::TempDir;

use super::index::{is_new, range_from, visit_from};
use super::{BuildError, BuildOptions};
use crate::side::{Order, Refusal, Side, Subject};

/// The one map of each pool.
const MAP: &str = "bench";
/// Bytes of a word of the chunk table.
const CHUNK_WORD_BYTES: u64 = 8;

/// A tree under domain `D`, and the folder that its pool lies in, if it has one.
pub struct Tree<D: Domain> {
    // Dropped first: the pool is closed before its folder is removed.
    tree: BzTree<D>,
    folder: Option<TempDir>,
}

impl<D: Domain> Tree<D> {
    /// An empty tree on anonymous memory.
    pub fn anonymous(options: &BuildOptions) -> Result<Self, BuildError> {
        let tree = first_tree(Pool::anonymous(&create_options(options))?, options.tree)?;
        Ok(Self { tree, folder: None })
    }

    /// An empty tree in a new file, in a folder of its own that is removed with it.
    pub fn in_file(options: &BuildOptions) -> Result<Self, BuildError> {
        let folder = tempfile::tempdir_in(&options.pool_dir)?;
        let path = folder.path().join("bench.pando");
        let tree = first_tree(Pool::create(&path, &create_options(options))?, options.tree)?;
        Ok(Self { tree, folder: Some(folder) })
    }

    /// The side with its type forgotten.
    pub fn boxed(self) -> Box<dyn Subject> {
        Box::new(self)
    }
}

fn create_options(options: &BuildOptions) -> CreateOptions {
    CreateOptions {
        max_bytes: options.max_pool_bytes,
        huge_pages: options.huge_pages,
        ..CreateOptions::default()
    }
}

/// An empty tree in `pool`, which must be new.
fn first_tree<D: Domain>(
    pool: Arc<Pool<D>>,
    tree_options: Options,
) -> Result<BzTree<D>, BuildError> {
    let tree_options = tree_options.check()?;
    let pmwcas = Arc::new(Pmwcas::open(pool, &[])?);
    let root_off = {
        let guard = pmwcas.pool().pin()?;
        let header = MapHeader { name: MAP.to_owned(), kind: 1, options: tree_options.encode() };
        let first = || BzTree::first_leaf(&pmwcas, &guard, &tree_options);
        pmwcas.find_or_create_map(&guard, &header, &first)?.root_off()
    };
    Ok(BzTree::open(pmwcas, root_off, tree_options))
}

/// An empty tree in the counting domain, on anonymous memory.
pub fn counting(options: &BuildOptions) -> Result<BzTree<Counting>, BuildError> {
    first_tree(Pool::anonymous(&create_options(options))?, options.tree)
}

/// A new pool at `path` with an empty tree in it, in the `Process` domain.
pub fn create(path: &Path, options: &BuildOptions) -> Result<BzTree<Process>, BuildError> {
    first_tree(Pool::create(path, &create_options(options))?, options.tree)
}

/// The tree in the pool at `path`, which is recovered if need be.
pub fn open(path: &Path) -> Result<BzTree<Process>, BuildError> {
    let pool = Pool::open(path, &OpenPool::default())?;
    let pmwcas = Arc::new(Pmwcas::open(pool, &[])?);
    let guard = pmwcas.pool().pin()?;
    let entry = pmwcas.find_map(&guard, MAP).ok_or("the pool has lost its map")?;
    drop(guard);
    let header = entry.header.as_ref().ok_or("the header of the map is damaged")?;
    let tree_options = Options::decode(header.options)?;
    Ok(BzTree::open(pmwcas, entry.root_off(), tree_options))
}

impl<D: Domain> Side for Tree<D> {
    #[inline]
    fn insert_new(&self, key: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        is_new(self.tree.insert(key, value))
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        self.tree.upsert(key, value)?;
        Ok(())
    }

    #[inline]
    fn get(&self, key: &[u8], visit: impl FnOnce(&[u8])) -> Result<bool, Refusal> {
        Ok(self.tree.read_with(key, visit)?.is_some())
    }

    #[inline]
    fn get_many(&self, keys: &[&[u8]], mut visit: impl FnMut(usize, &[u8])) -> Result<(), Refusal> {
        self.tree.read_many(keys, &mut |index, value| {
            if let Some(value) = value {
                visit(index, value);
            }
        })?;
        Ok(())
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.tree.remove(key)?)
    }

    #[inline]
    fn scan(
        &self,
        from: &[u8],
        limit: u64,
        order: Order,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Refusal> {
        visit_from(self.tree.scan(range_from(from, order), order)?, limit, visit)
    }

    fn count(&self) -> Result<u64, Refusal> {
        Ok(self.tree.len()?)
    }

    /// The chunks ever used, free ones included, their part of the table, and the fixed part.
    fn footprint_bytes(&self) -> Option<u64> {
        let chunks = self.tree.pmwcas().pool().usage().chunks;
        Some(CHUNK_TABLE_OFF + chunks * (CHUNK_WORD_BYTES + CHUNK_BYTES))
    }

    /// What the file system has given to the file, room for growth included.
    fn file_bytes(&self) -> Option<u64> {
        self.folder.as_ref()?;
        // `blocks` counts by 512 bytes on every file system.
        std::fs::metadata(self.tree.pmwcas().pool().path()).ok().map(|file| file.blocks() * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_comes_back_from_its_pool() {
        let options = BuildOptions::default();
        let folder = tempfile::tempdir_in(&options.pool_dir).unwrap();
        let path = folder.path().join("back.pando");
        let created = create(&path, &options).unwrap();
        created.insert(b"key", b"value").unwrap();
        drop(created);
        let opened = open(&path).unwrap();
        assert_eq!(opened.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        assert!(opened.pmwcas().pool().was_clean());
    }

    #[test]
    fn space_is_known_on_a_file_and_without() {
        let options = BuildOptions::default();
        let anonymous = Tree::<Process>::anonymous(&options).unwrap();
        let in_file = Tree::<Process>::in_file(&options).unwrap();
        assert!(Side::footprint_bytes(&anonymous) > Some(CHUNK_TABLE_OFF));
        assert_eq!(Side::footprint_bytes(&anonymous), Side::footprint_bytes(&in_file));
        assert!(Side::file_bytes(&in_file) >= Side::footprint_bytes(&in_file));
        assert_eq!(Side::file_bytes(&anonymous), None);
    }
}
