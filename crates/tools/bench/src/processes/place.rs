//! The map that the processes use: of Pando, or of the peer that processes can share.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use pando::{Map, Pool, PoolOptions};
use tempfile::TempDir;

use crate::keys::{key_of, value_of};
use crate::measure::Plan;
use crate::record::{Buffers, Shape};
use crate::system::AnySystem;
use crate::systems::entry::BuildError;

/// The map of the records.
pub(super) const MAP: &str = "bench";

/// The systems that processes can share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A BzTree in a shared pool.
    Pando,
    /// LMDB without syncs.
    Lmdb,
}

impl Kept {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pando => "pando",
            Self::Lmdb => "lmdb",
        }
    }
}

impl FromStr for Kept {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Pando, Self::Lmdb];
        let found = all.into_iter().find(|kept| kept.name() == name);
        found.ok_or_else(|| format!("expected pando or lmdb, found {name:?}"))
    }
}

/// LMDB in the folder `path`, with room for so many records of `shape`.
#[cfg(feature = "lmdb")]
pub(super) fn lmdb(
    path: &Path,
    records: u64,
    shape: Shape,
) -> Result<Box<dyn AnySystem>, BuildError> {
    use crate::systems::entry::BuildOptions;
    use crate::systems::lmdb::Table;

    let options = BuildOptions::default().for_records(records, shape);
    Ok(Box::new(Table::open(path, &options, false)?))
}

/// LMDB, which is not in this build.
#[cfg(not(feature = "lmdb"))]
pub(super) fn lmdb(_: &Path, _: u64, _: Shape) -> Result<Box<dyn AnySystem>, BuildError> {
    Err(crate::systems::entry::missing("lmdb", "lmdb"))
}

/// A map with the records of a plan. Dropping it removes its files.
pub(super) struct Place {
    pub kept: Kept,
    pub path: PathBuf,
    /// The pool, which this process shares too.
    pub pool: Option<Pool>,
    _folder: TempDir,
}

impl Place {
    /// Creates the map, and fills it.
    pub fn new(kept: Kept, plan: &Plan) -> Result<Self, BuildError> {
        let folder = tempfile::tempdir_in(&plan.build.pool_dir)?;
        match kept {
            Kept::Pando => {
                let path = folder.path().join("bench.pando");
                let options = PoolOptions::new().max_bytes(plan.build.max_pool_bytes).shared(true);
                let pool = Pool::create(&path, &options)?;
                let map: Map = pool.map(MAP)?;
                fill(plan, |key, value| Ok(map.upsert(key, value).map(drop)?))?;
                Ok(Self { kept, path, pool: Some(pool), _folder: folder })
            }
            Kept::Lmdb => {
                let path = folder.path().to_owned();
                // Closed before the processes open it.
                let table = lmdb(&path, plan.records, plan.shape)?;
                fill(plan, |key, value| table.insert_new(key, value).map(drop))?;
                Ok(Self { kept, path, pool: None, _folder: folder })
            }
        }
    }
}

fn fill(
    plan: &Plan,
    mut insert: impl FnMut(&[u8], &[u8]) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let mut buffers = Buffers::new(plan.shape);
    for key in (0..plan.records).map(key_of) {
        let (key_bytes, value) = buffers.record::<false>(key, value_of(key, 0));
        insert(key_bytes, value)?;
    }
    Ok(())
}
