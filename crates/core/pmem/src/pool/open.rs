//! How a pool comes to be, is opened, trusted and closed.
//!
//! # Opening
//!
//! States of a pool's file: *absent*, *closed* (clean flag set), *in use* (clean flag off).
//!
//! * **Create** builds the whole file under a temporary name and links it to its own only when it
//!   is complete, so a crash leaves *absent*, at worst with a stray temporary file.
//! * **Open** checks everything before it writes anything; then the boot id, then one 8-byte store
//!   of the state (generation raised, clean flag off, and what a write survives from now on). A
//!   crash before that store leaves what was there, after it *in use*.
//! * **Close** (the drop of the last handle) sets the clean flag.
//!
//! # What is trusted
//!
//! An unclean pool under another boot id is refused, unless what was written in its last
//! generation survives power loss: the page cache wrote back in any order, and so did the
//! processor's caches, if nobody wrote back their lines, whatever the medium. What is found now
//! does not count: a domain can be chosen, and a file system mounted in another way. So
//!
//! * where a write does not survive power loss, the state is synced when the one before would be
//!   trusted, so that no later write can reach the medium before it; and the data is synced before
//!   the clean flag, and the flag after it;
//! * where it does, what a generation whose writes do not has left in caches is synced before the
//!   state says so.
//!
//! A pool that is opened for salvage keeps its boot id, and is never closed in order: it is no more
//! to be trusted than before.

use std::fs::{File, OpenOptions};
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Pool, io_error, room};
use crate::alloc::Cache;
#[cfg(feature = "testing")]
use crate::arena::Arena;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::layout::{
    CHUNK_BYTES, CHUNK_TABLE_OFF, EPOCH_OFF, Geometry, MAX_POOL_BYTES, MIN_POOL_BYTES,
};
use crate::limbo::Limbo;
use crate::medium::{self, Guarantee, Medium};
use crate::slots::Slots;
use crate::superblock::{self, SUPERBLOCK_BYTES, Superblock};
use crate::sys::{self, LockedFile, Mapping};

/// First byte of the range of locks, far behind any data: one byte a process.
const LOCK_OFF: u64 = 1 << 62;
/// Processes that a pool will be shared by; today one process takes them all.
const LOCK_BYTES: u64 = 64;
/// What fails where addresses are limited, and what helps then.
const MAP_THE_FILE: &str = "map the file, which takes as many addresses as its max_bytes (where they are limited, see `ulimit -v`)";

/// Tells the pools that one process opens from each other, for the caches of its threads.
static NEXT_UID: AtomicU64 = AtomicU64::new(1);

/// Bytes of data that a pool on anonymous memory has on small pages.
const SMALL_BYTES: u64 = 4 << 20;

/// How a pool is created.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// How far the pool may grow, in bytes; rounded down to whole chunks of 64 KiB. The file
    /// takes what is used, not this.
    pub max_bytes: u64,
    /// Room to be made at once, in bytes.
    pub initial_bytes: u64,
    /// Ask for huge pages behind the whole pool. On anonymous memory they are asked for anyway,
    /// behind all but the first 4 MiB of its data.
    pub huge_pages: bool,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { max_bytes: 64 << 30, initial_bytes: 1 << 20, huge_pages: false }
    }
}

/// What [`Pool::compact`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes that the file took on its file system before.
    pub before_bytes: u64,
    /// Bytes that it takes now.
    pub after_bytes: u64,
    /// The file's length now, in bytes; less is taken where there are holes.
    pub size_bytes: u64,
}

/// How an existing pool is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenPool {
    /// Open a pool that is not trusted after the machine went down, to rescue what is there. It is
    /// not trusted afterwards either.
    pub salvage: bool,
    /// How far the pool has to be able to grow, in bytes, rounded down to whole chunks; `None` for
    /// any size.
    pub max_bytes: Option<u64>,
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
        let (geometry, size_bytes) = checked_sizes(options)?;
        if path.symlink_metadata().is_ok() {
            return Err(Error::Exists(path.to_path_buf()));
        }
        let pool_id = new_pool_id(path)?;
        let unfinished = PathBuf::from({
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".new-{:016x}", pool_id as u64));
            name
        });
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&unfinished)
            .map_err(io_error(path, "create the file"))?;
        let created = (|| {
            let medium = medium::find(&file).map_err(io_error(path, "find the file system"))?;
            let file = locked(path, file)?;
            let boot_id = medium::boot_id();
            let block = Superblock {
                pool_id,
                max_bytes: geometry.max_bytes,
                generation: 1,
                clean: false,
                survives_power: medium.guarantee(D::KIND) == Guarantee::PowerLoss,
                size_bytes,
                boot_id,
            };
            room::extend(path, &file, &geometry, geometry.chunks_off, size_bytes)?;
            sys::allocate(&file, 0, CHUNK_TABLE_OFF)
                .map_err(|source| room::not_allocated(path, 0, size_bytes, source))?;
            let written = file.write_all_at(&block.encode(), 0);
            written.map_err(io_error(path, "write the superblock"))?;
            let mapping = Mapping::shared(&file, geometry.max_bytes, medium.is_dax())
                .map_err(io_error(path, MAP_THE_FILE))?;
            if !matches!(medium, Medium::MemoryFile(_)) {
                file.sync_all().map_err(io_error(path, "sync the file"))?;
            }
            std::fs::hard_link(&unfinished, path).map_err(|source| {
                if source.kind() == std::io::ErrorKind::AlreadyExists {
                    Error::Exists(path.to_path_buf())
                } else {
                    io_error(path, "name the file")(source)
                }
            })?;
            if !matches!(medium, Medium::MemoryFile(_)) {
                sys::sync_folder_of(path).map_err(|source| {
                    // Nobody has seen it yet; what is reported as failed is not left behind.
                    let _ = std::fs::remove_file(path);
                    io_error(path, "sync the folder")(source)
                })?;
            }
            Ok((medium, mapping, file))
        })();
        // Whatever happened, the temporary name has done its work; failing to remove it is no
        // reason to refuse a pool that is complete.
        let _ = std::fs::remove_file(&unfinished);
        let (medium, mapping, file) = created?;
        if options.huge_pages {
            mapping.advise_huge_pages(0);
        }
        let pool = Self::assembled(mapping, Some(file), path, geometry, medium, pool_id, 1, true)?;
        pool.bound();
        pool.word(EPOCH_OFF).store(1, Ordering::Release);
        Ok(Arc::new(pool))
    }

    /// Opens the pool in the file `path`.
    ///
    /// What is recovered here is the allocator's own. If operations of `pando-pmwcas` may be in it,
    /// they are recovered next, before anything is allocated: until then, blocks that they have
    /// begun to give away count as free.
    pub fn open(path: &Path, options: &OpenPool) -> Result<Arc<Self>> {
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(|source| match source
                .kind()
            {
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    Error::ReadOnly(path.to_path_buf())
                }
                _ => io_error(path, "open the file")(source),
            })?;
        // Before it is read: reading a pipe or a terminal would wait for ever.
        if !file.metadata().map_err(io_error(path, "look at the file"))?.is_file() {
            return Err(Error::NotAFile(path.to_path_buf()));
        }
        let file = locked(path, file)?;
        let mut first = vec![0; SUPERBLOCK_BYTES];
        let read_bytes = read_up_to(&file, &mut first).map_err(io_error(path, "read the file"))?;
        let block = Superblock::decode(path, &first[..read_bytes])?;
        if let Some(asked) = options.max_bytes
            && asked / CHUNK_BYTES * CHUNK_BYTES != block.max_bytes
        {
            return Err(Error::SizeDiffers {
                path: path.to_path_buf(),
                found: block.max_bytes,
                expected: asked / CHUNK_BYTES * CHUNK_BYTES,
            });
        }
        let metadata = file.metadata().map_err(io_error(path, "measure the file"))?;
        let geometry = Geometry::new(block.max_bytes);
        if block.size_bytes < geometry.chunks_off || block.size_bytes > block.max_bytes {
            return Err(Error::BadField {
                path: path.to_path_buf(),
                field: "the size",
                found: block.size_bytes,
                allowed: format!("{} to {}", geometry.chunks_off, block.max_bytes),
            });
        }
        if metadata.len() < block.size_bytes {
            return Err(Error::Truncated {
                path: path.to_path_buf(),
                found_bytes: metadata.len(),
                expected_bytes: block.size_bytes,
            });
        }
        let medium = medium::find(&file).map_err(io_error(path, "find the file system"))?;
        let boot_id = medium::boot_id();
        let is_trusted = block.clean || block.survives_power || block.boot_id.is_same(boot_id);
        if !is_trusted && !options.salvage {
            return Err(Error::NotTrusted { path: path.to_path_buf(), medium: medium.to_string() });
        }
        // A copy may have holes where there were zeros. Room is made for all that is written to, so
        // that no store finds the file system full.
        let expected_bytes = room::expected_bytes(path, &file, &geometry, block.size_bytes)?;
        if metadata.blocks() * room::BLOCK_BYTES < expected_bytes {
            sys::allocate(&file, 0, CHUNK_TABLE_OFF)
                .map_err(|source| room::not_allocated(path, 0, CHUNK_TABLE_OFF, source))?;
            room::restore(path, &file, &geometry, block.size_bytes)?;
        }
        let mapping = Mapping::shared(&file, geometry.max_bytes, medium.is_dax())
            .map_err(io_error(path, MAP_THE_FILE))?;
        Self::open_mapped(mapping, Some(file), path, medium, &block, is_trusted)
    }

    /// Opens the pool that lies in `mapping` and that `block`, its superblock, describes.
    fn open_mapped(
        mapping: Mapping,
        file: Option<LockedFile>,
        path: &Path,
        medium: Medium,
        block: &Superblock,
        is_trusted: bool,
    ) -> Result<Arc<Self>> {
        let geometry = Geometry::new(block.max_bytes);
        let Some(generation) = block.generation.checked_add(1) else {
            return Err(Error::BadField {
                path: path.to_path_buf(),
                field: "the generation",
                found: u64::from(block.generation),
                allowed: format!("0 to {}", u32::MAX - 1),
            });
        };
        let (id, clean) = (block.pool_id, block.clean);
        let mut pool =
            Self::assembled(mapping, file, path, geometry, medium, id, generation, clean)?;
        if !is_trusted {
            pool.salvaged = true;
            pool.survives_power = false;
        }
        // If that fails, the pool is left as it was found, not closed.
        pool.left = AtomicBool::new(true);
        pool.enter_use(block)?;
        pool.left = AtomicBool::new(false);
        pool.bound();
        pool.word(EPOCH_OFF).store(1, Ordering::Release);
        pool.recover_frontier();
        pool.recover_segments();
        pool.recover_exchanges();
        Ok(Arc::new(pool))
    }

    /// Creates a pool on anonymous memory; it ends with its last handle.
    pub fn anonymous(options: &CreateOptions) -> Result<Arc<Self>> {
        let (geometry, size_bytes) = checked_sizes(options)?;
        let path = Path::new("(anonymous memory)");
        let mapping =
            Mapping::anonymous(geometry.max_bytes).map_err(io_error(path, "reserve memory"))?;
        // A small pool stays small: nobody asks for two mebibytes behind its first ones.
        let small_bytes = geometry.chunk_off(0) + SMALL_BYTES;
        mapping.advise_huge_pages(if options.huge_pages { 0 } else { small_bytes as usize });
        let pool = Self::assembled(mapping, None, path, geometry, Medium::Anonymous, 0, 1, true)?;
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
            generation: 1,
            clean: false,
            survives_power: false,
            size_bytes: geometry.chunk_off(1),
            boot_id: medium::boot_id(),
        };
        arena.write(0, &block.encode());
        let (path, medium) = (Path::new("(arena)"), Medium::Anonymous);
        let pool = Self::assembled(arena.mapping(), None, path, geometry, medium, 1, 1, true)?;
        pool.bound();
        pool.word(EPOCH_OFF).store(1, Ordering::Release);
        Ok(Arc::new(pool))
    }

    /// Opens the pool in `arena` as if the process that used it had died: nobody may use it now.
    #[cfg(feature = "testing")]
    pub fn open_in(arena: &Arena) -> Result<Arc<Self>> {
        let path = Path::new("(arena)");
        let block = Superblock::decode(path, &arena.read(0, SUPERBLOCK_BYTES))?;
        Self::open_mapped(arena.mapping(), None, path, Medium::Anonymous, &block, true)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one private constructor of all three entry points"
    )]
    fn assembled(
        mapping: Mapping,
        file: Option<LockedFile>,
        path: &Path,
        geometry: Geometry,
        medium: Medium,
        pool_id: u128,
        generation: u32,
        was_clean: bool,
    ) -> Result<Self> {
        let cache = Cache::new(&geometry).map_err(io_error(path, "reserve memory"))?;
        #[cfg(not(feature = "testing"))]
        let first_slots = crate::layout::FIRST_PARTICIPANTS;
        #[cfg(feature = "testing")]
        let first_slots = crate::testing::first_slots();
        let slots = Arc::new(Slots::new(mapping.clone(), first_slots, file.is_some()));
        Ok(Self {
            mapping,
            file,
            path: path.to_path_buf(),
            geometry,
            medium,
            pool_id,
            generation,
            was_clean,
            survives_power: medium.guarantee(D::KIND) == Guarantee::PowerLoss,
            salvaged: false,
            left: AtomicBool::new(false),
            // Relaxed: only the number's being new matters.
            uid: NEXT_UID.fetch_add(1, Ordering::Relaxed),
            slots,
            segments: Default::default(),
            #[cfg(feature = "testing")]
            first_slots,
            cache,
            limbo: Limbo::default(),
            had_optimistic_reads: AtomicBool::new(false),
            #[cfg(feature = "testing")]
            emulates_room: path == Path::new("(arena)"),
            // All that is mapped, until `bound`.
            end_words: AtomicU64::new(geometry.max_bytes / 8),
            nowhere: AtomicU64::new(0),
            recovery_begun: AtomicBool::new(false),
            deferred_work: OnceLock::new(),
            domain: PhantomData,
        })
    }

    /// Marks the pool, which `found` describes, as in use under this boot: after this, a crash is
    /// told from a clean close.
    fn enter_use(&self, found: &Superblock) -> Result<()> {
        if self.survives_power && !found.survives_power {
            self.sync_data()?;
        }
        let boot_id = medium::boot_id();
        if boot_id != found.boot_id && !self.salvaged {
            for (index, word) in superblock::boot_words(boot_id).into_iter().enumerate() {
                self.word(superblock::BOOT_OFF + index as u64 * 8).store(word, Ordering::Release);
            }
            self.word(superblock::BOOT_OFF).flush();
            D::fence();
        }
        self.store_state(false);
        if (found.clean || found.survives_power) && !self.survives_power {
            self.sync_data()?;
        }
        Ok(())
    }

    fn store_state(&self, clean: bool) {
        let word = superblock::state_word(self.generation, clean, self.survives_power);
        let state = self.word(superblock::STATE_OFF);
        state.store(word, Ordering::Release);
        state.flush();
        D::fence();
    }

    /// From now on what lies behind the pool's size counts as not there.
    fn bound(&self) {
        // Relaxed: nobody else has the pool yet.
        self.end_words.store(self.size_bytes() / 8, Ordering::Relaxed);
    }

    /// Closes the pool, synced, and marked as closed in order, if this is its last handle;
    /// otherwise it is an error, and the last handle closes it. The drop of the last handle does
    /// the same, but cannot say what went wrong.
    pub fn close(self: Arc<Self>) -> Result<()> {
        let path = self.path.clone();
        let pool = Arc::into_inner(self).ok_or(Error::HandleHeld(path))?;
        let closed = pool.mark_closed();
        pool.left.store(true, Ordering::Release);
        closed
    }

    /// Returns all room that is not used to the system, cuts the file behind the last block, and
    /// closes the pool, if this is its last handle; what the file took before and after, in bytes.
    /// No block moves, so what is free between blocks stays in the file's length, as holes of whole
    /// chunks. A crash leaves the pool whole, and its file longer, or with more room, than it would
    /// be.
    pub fn compact(self: Arc<Self>) -> Result<Compacted> {
        let path = self.path.clone();
        let pool = Arc::into_inner(self).ok_or(Error::HandleHeld(path))?;
        let before_bytes = pool.occupied_bytes()?;
        while pool.release_unused(u64::MAX)? > 0 {}
        pool.cut()?;
        let closed = pool.mark_closed();
        pool.left.store(true, Ordering::Release);
        closed?;
        Ok(Compacted {
            before_bytes,
            after_bytes: pool.occupied_bytes()?,
            size_bytes: pool.size_bytes(),
        })
    }

    fn mark_closed(&self) -> Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        // A forked child has the pool in its memory, but not open.
        if !self.slots.is_ours() {
            return Err(Error::Forked(self.path.clone()));
        }
        if self.salvaged {
            return Ok(());
        }
        // The flag must not reach the medium before the data; if a sync fails the pool stays marked
        // as in use, which is true.
        let sync = || if self.survives_power { Ok(()) } else { self.sync_data() };
        sync()?;
        // The participants stay on record: a thread's last operation may have its references in
        // place, and recovery finds it in the descriptors of one of them.
        self.store_state(true);
        sync()
    }

    /// Drops the handle as a crash would: the pool stays marked as in use.
    #[cfg(feature = "testing")]
    pub fn abandon(self: Arc<Self>) {
        self.left.store(true, Ordering::Release);
    }
}

impl<D: Domain> Drop for Pool<D> {
    fn drop(&mut self) {
        if !self.left.load(Ordering::Acquire) {
            // A drop cannot report; a pool that could not be synced stays marked as in use, and so
            // does one that is a forked child's parent's.
            let _ = self.mark_closed();
        }
    }
}

fn read_up_to(file: &File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn locked(path: &Path, file: File) -> Result<LockedFile> {
    LockedFile::lock(file, LOCK_OFF, LOCK_BYTES)
        .map_err(io_error(path, "lock the file"))?
        .ok_or_else(|| Error::AlreadyOpen(path.to_path_buf()))
}

fn new_pool_id(path: &Path) -> Result<u128> {
    use std::io::Read;
    let mut id = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut id))
        .map_err(io_error(path, "draw a pool id"))?;
    Ok(u128::from_le_bytes(id))
}
