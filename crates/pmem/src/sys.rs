//! The system calls that a pool needs, each behind a safe function.

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32};

#[cfg(feature = "testing")]
use crate::testing::refusal;

/// A mapping of a file, or of anonymous memory, unmapped on drop.
///
/// The whole range that the pool may grow to is reserved once. Of a file, only what was
/// allocated by [`allocate`] is ever touched, so no access faults.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    bytes: usize,
    /// Whose memory it is, if not this object's.
    owner: Option<Arc<Mapping>>,
}

// SAFETY: the mapping is plain memory; every access to it goes through atomics or through blocks
// that one thread owns.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn map(bytes: usize, flags: i32, descriptor: i32) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_NORESERVE,
                descriptor,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), bytes, owner: None })
    }

    /// Reserves `bytes` of zeroed anonymous memory.
    pub fn anonymous(bytes: u64) -> io::Result<Self> {
        Self::map(usize_of(bytes)?, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// Maps `file`, shared; `sync` asks for a mapping whose write-backs are durable (DAX).
    pub fn shared(file: &File, bytes: u64, sync: bool) -> io::Result<Self> {
        let flags =
            if sync { libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC } else { libc::MAP_SHARED };
        Self::map(usize_of(bytes)?, flags, file.as_raw_fd())
    }

    /// The same memory again, kept as long as either is.
    #[cfg(feature = "testing")]
    pub fn share(owner: &Arc<Self>) -> Self {
        Self { base: owner.base, bytes: owner.bytes, owner: Some(Arc::clone(owner)) }
    }

    /// The first byte.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Length of the reserved range.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Asks for huge pages behind the whole range, where the system allows it.
    pub fn advise_huge_pages(&self) {
        // SAFETY: advice on a mapping that this object owns changes no content. A refusal leaves
        // small pages, which is no error.
        unsafe { libc::madvise(self.base.cast(), self.bytes, libc::MADV_HUGEPAGE) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.owner.is_some() {
            return;
        }
        // SAFETY: the range was mapped by `map`, and every reference into it borrows from the
        // pool that owns this object.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Integers that may be all zero, atomically accessed.
///
/// # Safety
/// All-zero bytes are a value of the type.
pub unsafe trait Atomic {}
// SAFETY: an integer.
unsafe impl Atomic for AtomicU8 {}
// SAFETY: an integer.
unsafe impl Atomic for AtomicU32 {}

/// Zeroed atomics whose pages cost nothing until they are touched: opening a pool must not cost
/// what its size is. (An allocator may give zeroed memory by writing zeros.)
#[derive(Debug)]
pub struct Zeroed<T: Atomic> {
    mapping: Mapping,
    count: usize,
    of: PhantomData<T>,
}

impl<T: Atomic> Zeroed<T> {
    /// `count` zeros.
    pub fn new(count: u64) -> io::Result<Self> {
        let bytes = count.saturating_mul(size_of::<T>() as u64).max(1);
        let mapping = Mapping::anonymous(bytes)?;
        Ok(Self { mapping, count: usize_of(count)?, of: PhantomData })
    }
}

impl<T: Atomic> std::ops::Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has so many values of `T`, is aligned to pages, zeroed, lives as
        // long as this object, and is only reached through this slice of atomics.
        unsafe { std::slice::from_raw_parts(self.mapping.base().cast(), self.count) }
    }
}

fn usize_of(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes what was done to names in the folder of `path` durable.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Allocates the bytes of `file` from `from` to `to`, extending it; they read as zero.
pub fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    let (Ok(from), Ok(bytes)) = (i64::try_from(from), i64::try_from(to.saturating_sub(from)))
    else {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    };
    if bytes == 0 {
        return Ok(());
    }
    #[cfg(feature = "testing")]
    if refusal::is_refused(refusal::Resource::FileRoom) {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    loop {
        // SAFETY: the call takes a descriptor that `file` keeps open, and plain integers.
        match check(unsafe { libc::fallocate(file.as_raw_fd(), 0, from, bytes) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => return result,
        }
    }
}

/// A file, and an exclusive open-file-description lock on part of it. The kernel drops the lock
/// when the process dies; the drop of this object releases it by name, because closing the file
/// is not enough while a child forked by this process has its descriptors too, not yet replaced
/// by another program.
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    from: u64,
    bytes: u64,
    process: u32,
}

impl LockedFile {
    /// Locks `bytes` bytes of `file` from `from`; none if another holds part of them.
    pub fn lock(file: File, from: u64, bytes: u64) -> io::Result<Option<Self>> {
        match lock_request(&file, libc::F_WRLCK, from, bytes) {
            Ok(()) => Ok(Some(Self { file, from, bytes, process: std::process::id() })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether this process took the lock; a child that was forked from it did not.
    pub fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if self.is_ours() {
            // A refusal leaves the lock to the closing of the file.
            let _ = lock_request(&self.file, libc::F_UNLCK, self.from, self.bytes);
        }
    }
}

impl std::ops::Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

fn lock_request(file: &File, kind: i32, from: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: all-zero is a valid value of this plain C struct.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = from as i64;
    request.l_len = bytes as i64;
    // SAFETY: the descriptor is open and the struct outlives the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &request) })
}

/// The type of the file system that holds `file`, as statfs names it.
pub fn file_system_type(file: &File) -> io::Result<i64> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the call fills the struct that the pointer names, or fails.
    check(unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the struct is filled.
    #[expect(clippy::unnecessary_cast, reason = "the field's type differs between targets")]
    Ok(unsafe { found.assume_init() }.f_type as i64)
}
