//! Copies of files in memory, for a reader that may not write next to them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use rustix::io::Errno;

use crate::{Error, Operation, Result};

/// Copies the file `path` into a file that has no name and is in memory: it ends with its last
/// handle, and so with the process. Its permissions are not those of `path`.
///
/// # Errors
///
/// [`Error::is_not_found`] if there is no such file. It is an error if it is no regular file, or
/// has more than `max_bytes`; else what the system answers. All name `path`.
pub fn copy_into_memory(path: &Path, max_bytes: u64) -> Result<File> {
    let error = |operation, path, source| Error { operation, path, source };
    let failed = |operation| move |source| error(operation, path.display().to_string(), source);
    // The opening of a pipe would wait for its writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let from = opened.map_err(failed(Operation::Open))?;
    if !from.metadata().map_err(failed(Operation::Read))?.is_file() {
        let refused = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
        return Err(failed(Operation::Open)(refused));
    }
    let mut copy = in_memory().map_err(|source| {
        error(Operation::Create, format!("a copy in memory of {}", path.display()), source)
    })?;
    // One more, so that a longer file is noticed. It may grow meanwhile.
    let copied = io::copy(&mut from.take(max_bytes.saturating_add(1)), &mut copy);
    match copied.map_err(failed(Operation::Read))? {
        bytes if bytes > max_bytes => {
            let text = format!("it has more than {max_bytes} bytes, which is the most allowed");
            Err(failed(Operation::Read)(io::Error::new(io::ErrorKind::InvalidData, text)))
        }
        _ => Ok(copy),
    }
}

fn in_memory() -> io::Result<File> {
    let create = |flags| memfd_create("pando-copy", MemfdFlags::CLOEXEC | flags);
    let created: OwnedFd = match create(MemfdFlags::NOEXEC_SEAL) {
        // Kernels before 6.3 do not know the flag, and later ones may demand it.
        Err(Errno::INVAL) => create(MemfdFlags::empty())?,
        created => created?,
    };
    Ok(created.into())
}
