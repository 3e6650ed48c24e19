//! BzTrees with options of their own, in any domain.

use std::sync::Arc;

use pando_bztree::{BzTree, Options};
use pando_pmem::catalog::MapHeader;
use pando_pmem::{CreateOptions, Domain, Pool};
use pando_pmwcas::Pmwcas;
use tempfile::TempDir;

use crate::sides::{BuildError, BuildOptions};

/// An empty tree on anonymous memory.
pub fn anonymous<D: Domain>(
    build: &BuildOptions,
    options: Options,
) -> Result<BzTree<D>, BuildError> {
    tree(Pool::anonymous(&create_options(build))?, options)
}

/// An empty tree in a new pool file, and the folder that is to be removed with it.
pub fn in_file<D: Domain>(
    build: &BuildOptions,
    options: Options,
) -> Result<(BzTree<D>, TempDir), BuildError> {
    let folder = tempfile::tempdir_in(&build.pool_dir)?;
    let pool = Pool::create(&folder.path().join("paper.pando"), &create_options(build))?;
    Ok((tree(pool, options)?, folder))
}

fn create_options(build: &BuildOptions) -> CreateOptions {
    CreateOptions {
        max_bytes: build.max_pool_bytes,
        huge_pages: build.huge_pages,
        ..CreateOptions::default()
    }
}

fn tree<D: Domain>(pool: Arc<Pool<D>>, options: Options) -> Result<BzTree<D>, BuildError> {
    let options = options.check()?;
    let pmwcas = Arc::new(Pmwcas::open(pool, &[])?);
    let root_off = {
        let guard = pmwcas.pool().pin()?;
        let header = MapHeader { name: "paper".to_owned(), kind: 1, options: options.encode() };
        let first = || BzTree::first_leaf(&pmwcas, &guard, &options);
        pmwcas.find_or_create_map(&guard, &header, &first)?.root_off()
    };
    Ok(BzTree::open(pmwcas, root_off, options))
}
