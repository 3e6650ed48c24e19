//! Creates pools: in files, on anonymous memory, and in the arenas of tests.
//!
//! The whole file is built under a temporary name. It gets its own name only when it is complete,
//! and its first state is *in use* (`open.rs` has the states).
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | draw the number of the pool, which is also part of the temporary name | nothing |
//! | create the file under the temporary name, and lock it | an unfinished file |
//! | make room, write the superblock; sync both if the medium outlives the machine | an unfinished file |
//! | publish: give the file its name, as a second one (`link`) or in the place of another (`rename`) | the pool, and perhaps the temporary name too; after a power cut perhaps only that, or nothing |
//! | sync the folder, if the medium outlives the machine | the pool, and perhaps the temporary name too |
//!
//! The temporary name is removed when the [`Unpublished`] is dropped. [`remove_unfinished`] removes
//! those that crashes have left.

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::open::{MAP_THE_FILE, check_domain_is_shareable};
use super::{Pool, room};
#[cfg(feature = "testing")]
use crate::arena::Arena;
use crate::domain::Domain;
use crate::error::{Error, Result, io_error};
use crate::layout::{
    CHUNK_BYTES, CHUNK_TABLE_OFF, EPOCH_OFF, Geometry, MAX_POOL_BYTES, MIN_POOL_BYTES,
};
use crate::log_name::LogName;
use crate::medium::{self, Guarantee, Medium};
use crate::sharing::{enter, lock_alone};
use crate::superblock::{self, BootId, Superblock};
use crate::sys::{self, Mapping};

/// Bytes of data on small pages, in a pool on anonymous memory.
const SMALL_BYTES: u64 = 4 << 20;

/// How a pool is created.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// The limit of the pool's size, in bytes, rounded down to whole chunks of 64 KiB. The file
    /// takes only the room that is used.
    pub max_bytes: u64,
    /// Room that is made at creation, in bytes.
    pub initial_bytes: u64,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { max_bytes: 64 << 30, initial_bytes: 1 << 20 }
    }
}

/// A new pool whose file has only a temporary name. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct Unpublished<D: Domain> {
    pool: Arc<Pool<D>>,
    unfinished: Unfinished,
    is_published: bool,
}

/// The temporary name of a file, which is removed when this is dropped.
#[derive(Debug)]
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // If it cannot be removed, a pool that was published is complete all the same.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What follows the name of a pool in that of its unfinished file; a number follows.
const UNFINISHED: &str = ".new-";

/// Removes the files that creations of the pool at `path` have left when they were interrupted. A
/// process that is creating one has locked it, and keeps it. (Before it has, its creation fails
/// with an error.) What cannot be removed stays.
pub fn remove_unfinished(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let begin = [name.as_bytes(), UNFINISHED.as_bytes()].concat();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.as_bytes().strip_prefix(begin.as_slice());
        if !number
            .is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
        {
            continue;
        }
        let file = OpenOptions::new().read(true).write(true).open(entry.path());
        if let Ok(_locked) =
            file.map_err(io_error(path, "open the file")).and_then(|file| lock_alone(path, file))
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl<D: Domain> Unpublished<D> {
    /// The pool.
    pub fn pool(&self) -> &Arc<Pool<D>> {
        &self.pool
    }

    /// Gives the file its name, durably. A file of that name is replaced if `replaces` says so;
    /// else it is an error.
    pub fn publish(mut self, replaces: bool) -> Result<Arc<Pool<D>>> {
        let path = &self.pool.path;
        let named = match replaces {
            true => std::fs::rename(&self.unfinished.0, path),
            false => std::fs::hard_link(&self.unfinished.0, path),
        };
        named.map_err(|source| match source.kind() {
            std::io::ErrorKind::AlreadyExists => Error::Exists(path.clone()),
            _ => io_error(path, "name the file")(source),
        })?;
        if self.pool.medium.outlives_machine() {
            sys::sync_folder_of(path).map_err(|source| {
                // No other process has used the file yet, unless it is shared. A failed call
                // leaves no file.
                if !self.pool.is_shared() {
                    let _ = std::fs::remove_file(path);
                }
                io_error(path, "sync the folder")(source)
            })?;
        }
        self.is_published = true;
        Ok(self.pool.clone())
    }
}

impl<D: Domain> Drop for Unpublished<D> {
    fn drop(&mut self) {
        if !self.is_published {
            self.pool.keeps_state.store(true, Ordering::Release);
        }
    }
}

fn checked_sizes(options: &CreateOptions) -> Result<(Geometry, u64)> {
    if !(MIN_POOL_BYTES..=MAX_POOL_BYTES).contains(&options.max_bytes) {
        return Err(Error::BadOption {
            option: "max_bytes",
            found: options.max_bytes,
            allowed: format!("{MIN_POOL_BYTES} to {MAX_POOL_BYTES}"),
        });
    }
    let max_bytes = options.max_bytes / CHUNK_BYTES * CHUNK_BYTES;
    if options.initial_bytes > max_bytes {
        return Err(Error::BadOption {
            option: "initial_bytes",
            found: options.initial_bytes,
            allowed: format!("0 to max_bytes, {max_bytes}"),
        });
    }
    let geometry = Geometry::new(max_bytes);
    let initial_chunks = (options.initial_bytes / CHUNK_BYTES).clamp(1, geometry.max_chunks);
    Ok((geometry, geometry.chunk_off(initial_chunks)))
}

impl<D: Domain> Pool<D> {
    /// Creates the file `path` and a pool in it. The file must not exist.
    pub fn create(path: &Path, options: &CreateOptions) -> Result<Arc<Self>> {
        if path.symlink_metadata().is_ok() {
            return Err(Error::Exists(path.to_path_buf()));
        }
        Self::prepare(path, options, None)?.publish(false)
    }

    /// Creates a pool whose file gets the name `path` only when it is published. `log` is its log,
    /// if it is to have one.
    pub fn prepare(
        path: &Path,
        options: &CreateOptions,
        log: Option<LogName>,
    ) -> Result<Unpublished<D>> {
        Self::prepare_in(path, options, log, false)
    }

    /// The same for a pool without a log, which is shared ([`OpenPool::shared`]) as soon as it is
    /// published.
    pub fn prepare_shared(path: &Path, options: &CreateOptions) -> Result<Unpublished<D>> {
        check_domain_is_shareable::<D>(path)?;
        Self::prepare_in(path, options, None, true)
    }

    fn prepare_in(
        path: &Path,
        options: &CreateOptions,
        log: Option<LogName>,
        shared: bool,
    ) -> Result<Unpublished<D>> {
        let (geometry, size_bytes) = checked_sizes(options)?;
        log.as_ref().map_or(Ok(()), LogName::check)?;
        let pool_id = draw_id(path)?;
        let unfinished = Unfinished(PathBuf::from({
            let mut name = path.as_os_str().to_owned();
            name.push(format!("{UNFINISHED}{:016x}", pool_id as u64));
            name
        }));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&unfinished.0)
            .map_err(io_error(path, "create the file"))?;
        let created: Result<_> = (|| {
            let medium = medium::find(&file).map_err(io_error(path, "find the file system"))?;
            let (file, sharing) = match shared {
                false => (lock_alone(path, file)?, None),
                true => enter(path, file).map(|(file, sharing)| (file, Some(sharing)))?,
            };
            let block = Superblock {
                pool_id,
                max_bytes: geometry.max_bytes,
                log,
                generation: 1,
                clean: false,
                survives_power: medium.guarantee(D::needs_write_back()) == Guarantee::PowerLoss,
                size_bytes,
                boot_id: medium::boot_id(),
            };
            let mapping = Mapping::shared(&file, geometry.max_bytes, medium.is_dax())
                .map_err(io_error(path, MAP_THE_FILE))?;
            let chunks = geometry.chunks_off..size_bytes;
            room::take_huge_pages(&mapping, &file, medium, &geometry, chunks);
            room::extend(path, &file, &geometry, geometry.chunks_off, size_bytes)?;
            sys::allocate(&file, 0, CHUNK_TABLE_OFF)
                .map_err(|source| room::not_allocated(path, 0, size_bytes, source))?;
            let written = file.write_all_at(&block.encode(), 0);
            written.map_err(io_error(path, "write the superblock"))?;
            if medium.outlives_machine() {
                file.sync_all().map_err(io_error(path, "sync the file"))?;
            }
            let mut pool =
                Self::assembled(mapping, Some(file), path, geometry, medium, &block, true)?;
            pool.sharing = sharing;
            pool.bound();
            pool.take_number()?;
            pool.use_huge_pages(0, size_bytes);
            pool.word(EPOCH_OFF).store(1, Ordering::Release);
            Ok(Arc::new(pool))
        })();
        Ok(Unpublished { pool: created?, unfinished, is_published: false })
    }

    /// Creates a pool on anonymous memory; it ends with its last handle.
    pub fn anonymous(options: &CreateOptions) -> Result<Arc<Self>> {
        let (geometry, size_bytes) = checked_sizes(options)?;
        let path = Path::new("(anonymous memory)");
        let mapping =
            Mapping::anonymous(geometry.max_bytes).map_err(io_error(path, "reserve memory"))?;
        // A small pool stays small: its first data is not on pages of two mebibytes.
        let small_bytes = geometry.chunk_off(0) + SMALL_BYTES;
        mapping.advise_huge_pages(small_bytes as usize);
        let block = Superblock {
            pool_id: 0,
            max_bytes: geometry.max_bytes,
            log: None,
            generation: 1,
            clean: false,
            survives_power: false,
            size_bytes,
            boot_id: BootId::default(),
        };
        let medium = Medium::Anonymous;
        let pool = Self::assembled(mapping, None, path, geometry, medium, &block, true)?;
        pool.word(superblock::SIZE_OFF).store(superblock::size_word(size_bytes), Ordering::Release);
        pool.bound();
        pool.word(EPOCH_OFF).store(1, Ordering::Release);
        Ok(Arc::new(pool))
    }

    /// Creates a pool that fills `arena`, where nothing is in use.
    #[cfg(feature = "testing")]
    pub fn create_in(arena: &Arena) -> Result<Arc<Self>> {
        let geometry = Geometry::new(arena.bytes());
        let block = Superblock {
            pool_id: 1,
            max_bytes: geometry.max_bytes,
            log: None,
            generation: 1,
            clean: false,
            survives_power: false,
            size_bytes: geometry.chunk_off(1),
            boot_id: medium::boot_id(),
        };
        arena.write(0, &block.encode());
        let (path, medium) = (Path::new("(arena)"), Medium::Anonymous);
        let mapping = arena.mapping();
        let pool = Self::assembled(mapping, None, path, geometry, medium, &block, true)?;
        pool.bound();
        pool.word(EPOCH_OFF).store(1, Ordering::Release);
        Ok(Arc::new(pool))
    }
}

/// Draws a number that no pool and no log has; for the pool at `path`.
pub fn draw_id(path: &Path) -> Result<u128> {
    use std::io::Read;
    let mut id = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut id))
        .map_err(io_error(path, "draw a random number"))?;
    Ok(u128::from_le_bytes(id))
}
