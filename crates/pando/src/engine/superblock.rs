//! The superblock of a pool that is not opened.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use pando_pmem::superblock::{SUPERBLOCK_BYTES, Superblock};

use crate::Error;

/// Reads the superblock of the pool at `path`. The pool may be open.
pub(crate) fn read_superblock(path: &Path) -> Result<Superblock, Error> {
    let failed = |cause: std::io::Error| match cause.kind() {
        ErrorKind::NotFound => Error::PoolNotFound { path: path.to_owned() },
        _ => Error::Io { action: "read the pool", path: path.to_owned(), cause },
    };
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Error::NotAFile(path.to_owned()));
    }
    let mut first = Vec::new();
    file.take(SUPERBLOCK_BYTES as u64).read_to_end(&mut first).map_err(failed)?;
    Superblock::decode(path, &first).map_err(Error::of_pool)
}
