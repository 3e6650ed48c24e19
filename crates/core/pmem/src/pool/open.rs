//! Opens, checks and closes pools (`create.rs` creates them).
//!
//! # Opening
//!
//! A pool's file is *absent*, *closed* (clean flag set), or *in use* (clean flag off).
//!
//! * **Open** checks everything before it writes anything. Then it writes the boot id, and then the
//!   state by one 8-byte store (generation raised, clean flag off, and whether writes survive power
//!   loss from now on). A crash before that store leaves the former state; after it, *in use*.
//! * **Close** (the drop of the last handle) sets the clean flag.
//!
//! # Trust
//!
//! A pool that was not closed cleanly, and was in use in another boot, is refused, unless the
//! writes of its last generation survive power loss. Otherwise the page cache wrote back in any
//! order. So did the processor's caches if no thread wrote back their lines, on any medium. The
//! state on the medium decides, not the current domain and medium: the domain is chosen at each
//! opening, and a file system can be mounted in another way. So
//!
//! * if writes do not survive power loss, the state is synced where the former state would be
//!   trusted, so that no later write reaches the medium before it. At closing, the data is synced
//!   before the clean flag is set, and the flag after it;
//! * if writes do survive power loss, and those of the former generation did not, the former writes
//!   are synced before the state says so.
//!
//! A pool that is opened for salvage keeps its boot id, and is never marked as closed cleanly: it
//! stays untrusted.

use std::fs::{File, OpenOptions};
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Pool, room};
use crate::alloc::Cache;
#[cfg(feature = "testing")]
use crate::arena::Arena;
use crate::domain::Domain;
use crate::error::{Error, Result, io_error};
use crate::layout::{CHUNK_BYTES, CHUNK_TABLE_OFF, EPOCH_OFF, Geometry};
use crate::limbo::Limbo;
use crate::medium::{self, Guarantee, Medium};
use crate::sharing::{Sharing, enter, lock_alone};
use crate::slots::Slots;
use crate::superblock::{self, SUPERBLOCK_BYTES, Superblock};
use crate::sys::{self, LockedFile, Mapping};

/// The action that fails where addresses are limited, and the remedy.
pub(super) const MAP_THE_FILE: &str = "map the file, which takes as many addresses as its max_bytes (where they are limited, see `ulimit -v`)";

/// A number for each pool that this process opens, for the caches of its threads.
static NEXT_UID: AtomicU64 = AtomicU64::new(1);

/// The result of [`Pool::compact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes that the file took on its file system before the call.
    pub before_bytes: u64,
    /// Bytes that it takes now.
    pub after_bytes: u64,
    /// The file's length now, in bytes; the file takes less if it has holes.
    pub size_bytes: u64,
}

/// How an existing pool is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenPool {
    /// Open a pool that is not trusted after the machine went down, to rescue its data. It stays
    /// untrusted.
    pub salvage: bool,
    /// The limit that the pool must have, in bytes, rounded down to whole chunks; `None` for any
    /// limit.
    pub max_bytes: Option<u64>,
    /// Share the pool with other processes that open it so, up to 256. Not for salvage, and only in
    /// a domain without write-backs.
    pub shared: bool,
}

impl<D: Domain> Pool<D> {
    /// Opens the pool in the file `path`.
    ///
    /// This recovers the allocator. If the pool may have operations of `pando-pmwcas`, the caller
    /// recovers them next, before anything is allocated: until then, blocks of interrupted
    /// operations may count as free.
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
        Self::open_file(path, file, options)
    }

    /// Opens the pool in `file`, which is open for reading and writing, and need not have a name.
    /// Messages call it `path`.
    pub fn open_file(path: &Path, file: File, options: &OpenPool) -> Result<Arc<Self>> {
        // Before the file is read: a read of a pipe or a terminal may wait forever.
        if !file.metadata().map_err(io_error(path, "look at the file"))?.is_file() {
            return Err(Error::NotAFile(path.to_path_buf()));
        }
        let (file, sharing) = match options.shared {
            false => (lock_alone(path, file)?, None),
            true if options.salvage => {
                return Err(not_shareable(path, "it is opened for salvage"));
            }
            true => {
                check_domain_is_shareable::<D>(path)?;
                enter(path, file).map(|(file, sharing)| (file, Some(sharing)))?
            }
        };
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
        // Before the size: the file of such a pool may have lost its end.
        let medium = medium::find(&file).map_err(io_error(path, "find the file system"))?;
        let boot_id = medium::boot_id();
        // Other processes have the pool open, so it is trusted, and its file has all its room.
        let joins = sharing.as_ref().is_some_and(|sharing| !sharing.is_first);
        if joins && !block.boot_id.is_same(boot_id) {
            // Locks reach the server of some file systems; mappings do not.
            return Err(not_shareable(path, "another machine has it open"));
        }
        let is_trusted =
            joins || block.clean || block.survives_power || block.boot_id.is_same(boot_id);
        if !is_trusted && !options.salvage {
            return Err(Error::NotTrusted {
                path: path.to_path_buf(),
                medium: medium.to_string(),
                log: block.log.map(Box::new),
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
        // A copy may have holes in the place of zeros. Room is made for all parts that are written
        // to, so that no store finds the file system full.
        let expected_bytes = room::expected_bytes(path, &file, &geometry, block.size_bytes)?;
        if !joins && metadata.blocks() * room::BLOCK_BYTES < expected_bytes {
            sys::allocate(&file, 0, CHUNK_TABLE_OFF)
                .map_err(|source| room::not_allocated(path, 0, CHUNK_TABLE_OFF, source))?;
            room::restore(path, &file, &geometry, block.size_bytes)?;
        }
        let mapping = Mapping::shared(&file, geometry.max_bytes, medium.is_dax())
            .map_err(io_error(path, MAP_THE_FILE))?;
        let file = Some(file);
        match sharing {
            Some(sharing) if joins => Self::join(mapping, file, sharing, path, medium, &block),
            sharing => Self::open_mapped(mapping, file, sharing, path, medium, &block, is_trusted),
        }
    }

    /// Joins the processes that have the pool in `mapping` open.
    fn join(
        mapping: Mapping,
        file: Option<LockedFile>,
        sharing: Sharing,
        path: &Path,
        medium: Medium,
        block: &Superblock,
    ) -> Result<Arc<Self>> {
        let geometry = Geometry::new(block.max_bytes);
        let mut pool = Self::assembled(mapping, file, path, geometry, medium, block, false)?;
        pool.sharing = Some(sharing);
        pool.keeps_state = AtomicBool::new(true);
        pool.bound();
        pool.take_number()?;
        pool.keeps_state = AtomicBool::new(false);
        Ok(Arc::new(pool))
    }

    /// Opens the pool in `mapping`, whose superblock is `block`.
    fn open_mapped(
        mapping: Mapping,
        file: Option<LockedFile>,
        sharing: Option<Sharing>,
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
        let opened = Superblock { generation, ..block.clone() };
        let mut pool =
            Self::assembled(mapping, file, path, geometry, medium, &opened, block.clean)?;
        pool.sharing = sharing;
        if !is_trusted {
            pool.salvaged = true;
            pool.survives_power = false;
        }
        // If this fails, the pool keeps its state, and is not marked as closed.
        pool.keeps_state = AtomicBool::new(true);
        pool.enter_use(block)?;
        pool.take_number()?;
        pool.keeps_state = AtomicBool::new(false);
        pool.bound();
        pool.word(EPOCH_OFF).store(1, Ordering::Release);
        pool.recover_frontier();
        pool.recover_segments();
        pool.recover_exchanges();
        Ok(Arc::new(pool))
    }

    /// Opens the pool in `arena` as if the process that used it had died. No thread may use it now.
    #[cfg(feature = "testing")]
    pub fn open_in(arena: &Arena) -> Result<Arc<Self>> {
        let path = Path::new("(arena)");
        let block = Superblock::decode(path, &arena.read(0, SUPERBLOCK_BYTES))?;
        Self::open_mapped(arena.mapping(), None, None, path, Medium::Anonymous, &block, true)
    }

    pub(super) fn assembled(
        mapping: Mapping,
        file: Option<LockedFile>,
        path: &Path,
        geometry: Geometry,
        medium: Medium,
        block: &Superblock,
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
            sharing: None,
            path: path.to_path_buf(),
            geometry,
            medium,
            pool_id: block.pool_id,
            generation: block.generation,
            was_clean,
            survives_power: medium.guarantee(D::needs_write_back()) == Guarantee::PowerLoss,
            salvaged: false,
            keeps_state: AtomicBool::new(false),
            // Relaxed: the number must only be new.
            uid: NEXT_UID.fetch_add(1, Ordering::Relaxed),
            slots,
            segments: Default::default(),
            #[cfg(feature = "testing")]
            first_slots,
            cache,
            limbo: Limbo::default(),
            had_optimistic_reads: AtomicBool::new(false),
            kept_bytes_left: AtomicU64::new(0),
            #[cfg(feature = "testing")]
            emulates_room: path == Path::new("(arena)"),
            // The whole mapping, until `bound`.
            end_words: AtomicU64::new(geometry.max_bytes / 8),
            nowhere: AtomicU64::new(0),
            recovery_begun: AtomicBool::new(false),
            deferred_work: OnceLock::new(),
            domain: PhantomData,
        })
    }

    /// Marks the pool with the superblock `found` as in use in this boot. After this, a crash
    /// differs from a clean close.
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

    /// Limits accesses to the pool's size from now on.
    pub(super) fn bound(&self) {
        // Relaxed: no other thread has the pool yet.
        self.end_words.store(self.size_bytes() / 8, Ordering::Relaxed);
    }

    /// Closes the pool if this is its last handle: syncs it, and marks it as closed cleanly. With
    /// another handle it is an error, and the last handle closes the pool. The drop of the last
    /// handle does the same, but cannot report errors.
    pub fn close(self: Arc<Self>) -> Result<()> {
        let path = self.path.clone();
        let pool = Arc::into_inner(self).ok_or(Error::HandleHeld(path))?;
        let closed = pool.mark_closed();
        pool.keeps_state.store(true, Ordering::Release);
        closed
    }

    /// Returns all unused room to the system, truncates the file after the last block, and closes
    /// the pool, if this is its last handle. No block moves, so free chunks between blocks stay in
    /// the file, as holes. A crash leaves a consistent pool, whose file may be longer or take more
    /// room.
    pub fn compact(self: Arc<Self>) -> Result<Compacted> {
        let path = self.path.clone();
        if self.is_shared() {
            return Err(not_shareable(&path, "it is to be compacted"));
        }
        let pool = Arc::into_inner(self).ok_or(Error::HandleHeld(path))?;
        let before_bytes = pool.occupied_bytes()?;
        while pool.release_unused(u64::MAX)? > 0 {}
        pool.cut()?;
        let closed = pool.mark_closed();
        pool.keeps_state.store(true, Ordering::Release);
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
        // A forked child has the handle in its memory, but the pool is not open there.
        if !self.slots.is_ours() {
            return Err(Error::Forked(self.path.clone()));
        }
        if self.salvaged || !self.leaves_as_last()? {
            return Ok(());
        }
        // The flag must not reach the medium before the data. If a sync fails, the pool stays
        // marked as in use, which is correct.
        let sync = || if self.survives_power { Ok(()) } else { self.sync_data() };
        sync()?;
        // The count of participants stays: the references of a thread's last operation may still be
        // in place, and recovery finds the operation in the descriptors of a participant.
        self.store_state(true);
        sync()
    }

    /// Drops the handle like a crash: the pool stays marked as in use.
    #[cfg(feature = "testing")]
    pub fn abandon(self: Arc<Self>) {
        self.keeps_state.store(true, Ordering::Release);
    }
}

impl<D: Domain> Drop for Pool<D> {
    fn drop(&mut self) {
        if !self.keeps_state.load(Ordering::Acquire) {
            // A drop cannot report errors. A pool that cannot be synced stays marked as in use, and
            // so does the pool of a forked child's parent.
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

pub(super) fn check_domain_is_shareable<D: Domain>(path: &Path) -> Result<()> {
    if !D::needs_write_back() {
        return Ok(());
    }
    let why =
        "its domain writes lines back, and a process cannot make durable what another has written";
    Err(not_shareable(path, why))
}

fn not_shareable(path: &Path, why: &'static str) -> Error {
    Error::NotShareable { path: path.to_path_buf(), why }
}
