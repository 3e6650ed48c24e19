//! BzTree, as sides in each domain, as the counted index and as the one that comes back.
//!
//! The one place of this crate that knows how a pool with a BzTree in it is made.

use std::path::Path;

use pando_index::RangeIndex;

use super::{BuildError, BuildOptions};

const NOT_YET: &str = "BzTree is not wired into the benchmarks yet";

/// An index in the counting domain, on anonymous memory.
pub fn counting(_options: &BuildOptions) -> Result<Box<dyn RangeIndex>, BuildError> {
    Err(NOT_YET.into())
}

/// A new pool at `path` with an empty index in it, in the `Process` domain.
pub fn create(_path: &Path, _options: &BuildOptions) -> Result<Box<dyn RangeIndex>, BuildError> {
    Err(NOT_YET.into())
}

/// The index in the pool at `path`, which is recovered if need be.
pub fn open(_path: &Path) -> Result<Box<dyn RangeIndex>, BuildError> {
    Err(NOT_YET.into())
}
