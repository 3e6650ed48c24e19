//! The system calls that a pool needs, each in a safe function.

use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::layout::PAGE_BYTES;
#[cfg(feature = "testing")]
use crate::testing::refusal;

/// A mapping of a file, or of anonymous memory, unmapped when its last clone is dropped.
///
/// The whole range up to the limit of the pool's size is reserved once. Of a file, only the part
/// that [`allocate`] has allocated is used, so no access faults. Offsets come from words that the
/// pool's own code has written. A damaged offset may lie beyond the allocated part, where an access
/// faults.
#[derive(Clone, Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Keeps the range mapped.
    _region: Arc<Region>,
}

// SAFETY: the mapping is plain memory; every access to it goes through atomics or through blocks
// that one thread owns.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

/// A mapped range.
#[derive(Debug)]
struct Region {
    base: *mut u8,
    bytes: usize,
    /// The only process that has the range, if a forked child does not inherit it.
    process: Option<Process>,
}

// SAFETY: any thread may unmap the range, and no memory is accessed through this object.
unsafe impl Send for Region {}
// SAFETY: as for Send.
unsafe impl Sync for Region {}

/// Bytes of a huge page. Where they are larger, requests for them fail, which is no error.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

impl Mapping {
    /// Reserves `bytes` of zeroed anonymous memory.
    pub fn anonymous(bytes: u64) -> io::Result<Self> {
        // Miri does not know the flag, and allocates the range at once: there, pools must be small.
        let reserves_none = if cfg!(miri) { 0 } else { libc::MAP_NORESERVE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | reserves_none;
        let region = Region::map(ptr::null_mut(), usize_of(bytes)?, READ_WRITE, flags, None, None)?;
        Ok(Self { base: region.first_byte()?, bytes: region.bytes, _region: Arc::new(region) })
    }

    /// Maps `file`, shared; with `sync`, write-backs through the mapping are durable (DAX).
    ///
    /// A forked child does not inherit the mapping: the child must not continue the work of its
    /// parent's thread in its parent's pool.
    pub fn shared(file: &File, bytes: u64, sync: bool) -> io::Result<Self> {
        let flags =
            if sync { libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC } else { libc::MAP_SHARED };
        let flags = flags | libc::MAP_NORESERVE;
        let bytes = usize_of(bytes)?;
        let (near, process) = (free_range_of_huge_pages(bytes)?, Some(Process::this()));
        let region = Region::map(near, bytes, READ_WRITE, flags, Some(file), process)?;
        // SAFETY: advice on a new mapping. It changes what a fork copies, and no content.
        check(unsafe { libc::madvise(region.base.cast(), bytes, libc::MADV_DONTFORK) })?;
        Ok(Self { base: region.first_byte()?, bytes, _region: Arc::new(region) })
    }

    /// The first byte.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length of the reserved range.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Moves the part from `from` to `to` of a file in memory to huge pages, except for the rest at
    /// each end that fills none. The system copies the content. A thread that uses the part
    /// meanwhile waits for the system, as at a page fault. Each huge page begins with a page that
    /// has room in the file, and lies within the file's length; the rest of it gets room.
    ///
    /// This needs no option of the mount (Linux 6.1 and later). A refusal leaves small pages, which
    /// is no error.
    pub fn collapse_into_huge_pages(&self, from: u64, to: u64) {
        let first = from.next_multiple_of(HUGE_PAGE_BYTES);
        let end = to.min(self.bytes()) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if first < end {
            let (first, bytes) = (first as usize, (end - first) as usize);
            // SAFETY: the request is for a part of this object's mapping, and changes no content.
            unsafe { libc::madvise(self.base().add(first).cast(), bytes, libc::MADV_COLLAPSE) };
        }
    }

    /// Requests huge pages for the range from byte `from` on, a multiple of pages, where the system
    /// allows them.
    pub fn advise_huge_pages(&self, from: usize) {
        if cfg!(miri) {
            return;
        }
        let from = from.min(self.bytes);
        // SAFETY: the advice is on a part of this object's mapping, and changes no content. A
        // refusal leaves small pages, which is no error.
        unsafe {
            libc::madvise(self.base().add(from).cast(), self.bytes - from, libc::MADV_HUGEPAGE);
        }
    }

    /// Returns the memory of `bytes` bytes from `from` to the system, in a mapping of anonymous
    /// memory; they read as zero. Both are multiples of pages. False if the range does not lie in
    /// the mapping.
    pub fn discard(&self, from: u64, bytes: u64) -> io::Result<bool> {
        if from > self.bytes() || bytes > self.bytes() - from {
            return Ok(false);
        }
        // SAFETY: the range lies in the mapping. Its content becomes zero, as by stores to words:
        // the caller holds the chunks there, and no other thread reads them.
        check(unsafe {
            libc::madvise(
                self.base().add(from as usize).cast(),
                bytes as usize,
                libc::MADV_DONTNEED,
            )
        })?;
        Ok(true)
    }
}

/// The time of the host's monotonic clock, in milliseconds. All processes of the host have the same
/// clock.
pub fn monotonic_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to a value of this thread. The clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Region {
    /// Maps `file`, or new memory: at `near` if that range is free, else where the kernel chooses.
    fn map(
        near: *mut u8,
        bytes: usize,
        access: i32,
        flags: i32,
        file: Option<&File>,
        process: Option<Process>,
    ) -> io::Result<Self> {
        let file = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a new mapping touches no existing memory: no caller sets `MAP_FIXED`.
        let base = unsafe { libc::mmap(near.cast(), bytes, access, flags, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), bytes, process })
    }

    fn first_byte(&self) -> io::Result<NonNull<u8>> {
        NonNull::new(self.base).ok_or_else(|| io::Error::other("mapped at address zero"))
    }
}

/// A range that is free now and begins at a multiple of huge pages: elsewhere, the system uses none
/// for a file that is mapped there.
///
/// The range is not kept and then replaced (`MAP_FIXED`). A kernel that refuses to do that may have
/// unmapped the range already, and another thread may have got it: nobody could give it back.
fn free_range_of_huge_pages(bytes: usize) -> io::Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let room = bytes.saturating_add(HUGE_PAGE_BYTES as usize);
    let region = Region::map(ptr::null_mut(), room, libc::PROT_NONE, flags, None, None)?;
    Ok(region.base.wrapping_add(region.base.align_offset(HUGE_PAGE_BYTES as usize)))
}

impl Drop for Region {
    fn drop(&mut self) {
        // Another process may have another mapping at this address.
        if !self.process.is_none_or(Process::is_this) {
            return;
        }
        // SAFETY: the range was mapped by `map`, and every reference into it borrows from an
        // object that holds a clone of the mapping.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// A process, which differs from its forked children.
///
/// It is known by its id and by a count of forks: process ids repeat in other namespaces, and the
/// count does not rise in a child that was not made by the C library's `fork`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    id: u32,
    forks: u32,
}

/// The number of forks between this process and the first one that called [`Process::this`].
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Whether the count is hooked into `fork`.
static COUNTS_FORKS: AtomicBool = AtomicBool::new(false);

/// The work of [`call_in_forked_children`].
static IN_CHILD: OnceLock<fn()> = OnceLock::new();

extern "C" fn count_fork() {
    // Relaxed: the child has one thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
    children::give_all_up();
    if let Some(work) = IN_CHILD.get() {
        work();
    }
}

/// Calls `work` in each child that is forked after [`Process::this`] was called. Only the first
/// call counts. The child has one thread, so `work` may only set atomics and variables of that
/// thread.
pub fn call_in_forked_children(work: fn()) {
    let _ = IN_CHILD.set(work);
}

impl Process {
    /// The calling process.
    pub fn this() -> Self {
        // Relaxed: if two threads hook it at once, each fork counts twice, which does no harm.
        if !COUNTS_FORKS.load(Ordering::Relaxed) {
            // SAFETY: the function may run in a child with one thread: it adds to an atomic and
            // sets a cell of the thread. If the call fails, for lack of memory, only the process id
            // is left.
            unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
            COUNTS_FORKS.store(true, Ordering::Relaxed);
        }
        Self { id: std::process::id(), forks: FORKS.load(Ordering::Relaxed) }
    }

    /// Whether the calling process was forked from it by the C library's `fork`.
    pub fn has_forked(self) -> bool {
        // Relaxed: as in `is_this`.
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// Whether it is the calling process.
    pub fn is_this(self) -> bool {
        // Relaxed: a child writes it before it does anything else.
        self.forks == FORKS.load(Ordering::Relaxed) && self.id == std::process::id()
    }
}

/// Atomic integers.
///
/// # Safety
/// All-zero bytes are a value of the type.
pub unsafe trait Atomic {}
// SAFETY: an integer.
unsafe impl Atomic for AtomicU8 {}
// SAFETY: an integer.
unsafe impl Atomic for AtomicU32 {}

/// Zeroed atomics whose pages cost nothing until they are used: the cost of opening a pool must not
/// depend on its size. (An allocator may write the zeros of zeroed memory.)
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
        // SAFETY: the mapping has `count` values of `T`, is aligned to pages, zeroed, lives as long
        // as this object, and is reached only through this slice of atomics.
        unsafe { std::slice::from_raw_parts(self.mapping.base().cast(), self.count) }
    }
}

fn usize_of(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes changes of names in the folder of `path` durable.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Allocates the bytes of `file` from `from` to `to`, extending it; they read as zero.
pub fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    #[cfg(feature = "testing")]
    if from < to && refusal::is_refused(refusal::Resource::FileRoom) {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    allocate_unrefused(file, from, to)
}

/// Allocates the first page of each huge page of `file` that lies between `from` and `to`, and the
/// last page, so that the file ends at `to`. An error leaves some of them allocated.
pub fn allocate_first_pages(file: &File, from: u64, to: u64) -> io::Result<()> {
    allocate_unrefused(file, to.saturating_sub(PAGE_BYTES).max(from), to)?;
    let first = from.next_multiple_of(HUGE_PAGE_BYTES);
    (first..to)
        .step_by(HUGE_PAGE_BYTES as usize)
        .take_while(|at| at + HUGE_PAGE_BYTES <= to)
        .try_for_each(|at| allocate_unrefused(file, at, at + PAGE_BYTES))
}

/// [`allocate`], which no test refuses.
pub fn allocate_unrefused(file: &File, from: u64, to: u64) -> io::Result<()> {
    let (Ok(from), Ok(bytes)) = (i64::try_from(from), i64::try_from(to.saturating_sub(from)))
    else {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    };
    if bytes == 0 {
        return Ok(());
    }
    // The system would send SIGXFSZ, which kills the process.
    if to > file_size_limit() && to > file.metadata()?.len() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    loop {
        // SAFETY: the call takes a descriptor that `file` keeps open, and plain integers.
        match check(unsafe { libc::fallocate(file.as_raw_fd(), 0, from, bytes) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => return result,
        }
    }
}

/// Returns the room of `bytes` bytes of `file` from `from` to the file system; they read as zero,
/// and the file keeps its length. False if the file system has no holes.
pub fn punch(file: &File, from: u64, bytes: u64) -> io::Result<bool> {
    let (Ok(from), Ok(bytes)) = (i64::try_from(from), i64::try_from(bytes)) else {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: the call takes a descriptor that `file` keeps open, and plain integers.
        match check(unsafe { libc::fallocate(file.as_raw_fd(), mode, from, bytes) }) {
            Ok(()) => return Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// How far this process may extend a file, in bytes.
fn file_size_limit() -> u64 {
    let mut limit = std::mem::MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the call fills the struct that the pointer names, or fails.
    match check(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, limit.as_mut_ptr()) }) {
        // SAFETY: the call succeeded, so the struct is filled.
        Ok(()) => unsafe { limit.assume_init() }.rlim_cur,
        // The extension itself reports the error.
        Err(_) => u64::MAX,
    }
}

/// A file, and the open-file-description locks on part of it.
///
/// The drop of this object releases the locks explicitly. Closing the file is not enough while a
/// forked child of this process still has its descriptors. When the process dies, the kernel drops
/// the locks with the last such descriptor. So the file of a killed process stays locked while a
/// forked child of it lives, unless the child gives the descriptors up ([`give_up_in_children`]).
///
/// [`give_up_in_children`]: Self::give_up_in_children
#[derive(Debug)]
pub struct LockedFile {
    file: File,
    from: u64,
    bytes: u64,
    process: Process,
    is_given_up_in_children: bool,
}

impl LockedFile {
    /// Locks `bytes` bytes of `file` from `from`; none if another process holds part of them.
    pub fn lock(file: File, from: u64, bytes: u64) -> io::Result<Option<Self>> {
        let is_locked = try_lock(&file, Access::Exclusive, from, bytes)?;
        Ok(is_locked.then(|| Self::over(file, from, bytes)))
    }

    /// The file with the locks that are taken on it, all within `bytes` bytes from `from`.
    pub fn over(file: File, from: u64, bytes: u64) -> Self {
        let process = Process::this();
        Self { file, from, bytes, process, is_given_up_in_children: false }
    }

    /// From now on, a forked child gives its descriptor of the file up at once. So the locks end
    /// with this process.
    pub fn give_up_in_children(&mut self) {
        children::give_up(self.file.as_raw_fd());
        self.is_given_up_in_children = true;
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // The locks do not belong to a forked child.
        if self.process.is_this() {
            if self.is_given_up_in_children {
                children::keep(self.file.as_raw_fd());
            }
            // If this fails, closing the file releases the locks.
            let _ = unlock(&self.file, self.from, self.bytes);
        }
    }
}

impl std::ops::Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Other descriptions may hold it as [`Shared`](Self::Shared) too.
    Shared,
    /// No other description may hold it.
    Exclusive,
}

/// Locks `bytes` bytes of `file` from `from`; false if another open file description holds part of
/// them. A lock that this description holds there is replaced.
pub fn try_lock(file: &File, access: Access, from: u64, bytes: u64) -> io::Result<bool> {
    let kind = match access {
        Access::Shared => libc::F_RDLCK,
        Access::Exclusive => libc::F_WRLCK,
    };
    match lock_request(file, libc::F_OFD_SETLK, kind, from, bytes) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Releases what this open file description holds of these bytes.
pub fn unlock(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    lock_request(file, libc::F_OFD_SETLK, libc::F_UNLCK, from, bytes).map(drop)
}

/// Whether another open file description holds a lock on part of these bytes.
pub fn is_locked_elsewhere(file: &File, from: u64, bytes: u64) -> io::Result<bool> {
    let found = lock_request(file, libc::F_OFD_GETLK, libc::F_WRLCK, from, bytes)?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

fn lock_request(
    file: &File,
    command: i32,
    kind: i32,
    from: u64,
    bytes: u64,
) -> io::Result<libc::flock> {
    // SAFETY: all-zero bytes are a value of this plain C struct.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = from as i64;
    request.l_len = bytes as i64;
    // SAFETY: the descriptor is open, and the struct, which the call may fill, outlives the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, &mut request) })?;
    Ok(request)
}

/// Opens the file again: the new description has locks of its own.
pub fn open_again(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(true).open(path)
}

/// Descriptors that a forked child gives up.
mod children {
    use std::fs::File;
    use std::os::fd::{AsRawFd, RawFd};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI32, Ordering};

    /// The descriptors, in any places; -1 for none. More than there are places are not given up.
    static DESCRIPTORS: [AtomicI32; 256] = [const { AtomicI32::new(-1) }; 256];
    /// Takes the place of a descriptor that is given up.
    static NOTHING: OnceLock<Option<File>> = OnceLock::new();

    /// From now on, each forked child gives `descriptor` up.
    pub fn give_up(descriptor: RawFd) {
        NOTHING.get_or_init(|| File::open("/dev/null").ok());
        // Relaxed, here and below: a child has what its parent's thread had before the fork.
        let order = Ordering::Relaxed;
        let _ = DESCRIPTORS
            .iter()
            .any(|place| place.compare_exchange(-1, descriptor, order, order).is_ok());
    }

    /// From now on, children keep `descriptor` again.
    pub fn keep(descriptor: RawFd) {
        let order = Ordering::Relaxed;
        let _ = DESCRIPTORS
            .iter()
            .any(|place| place.compare_exchange(descriptor, -1, order, order).is_ok());
    }

    /// Called in the child, which has one thread.
    pub fn give_all_up() {
        let Some(Some(nothing)) = NOTHING.get() else { return };
        for place in &DESCRIPTORS {
            let descriptor = place.load(Ordering::Relaxed);
            if descriptor >= 0 {
                // SAFETY: allowed in a forked child. The number stays in use, so that the object
                // that owns the descriptor closes this one and no other. If the call fails, the
                // child keeps the parent's locks.
                unsafe { libc::dup3(nothing.as_raw_fd(), descriptor, libc::O_CLOEXEC) };
                // A child of the child may use the number for another file.
                place.store(-1, Ordering::Relaxed);
            }
        }
    }
}

/// The type of the file system that holds `file`, as statfs names it.
pub fn file_system_type(file: &File) -> io::Result<i64> {
    #[expect(clippy::unnecessary_cast, reason = "the field's type differs between targets")]
    statfs(file).map(|found| found.f_type as i64)
}

/// Bytes that the file system of `file` has free; `u64::MAX` if it has no limit.
pub fn free_bytes(file: &File) -> io::Result<u64> {
    let found = statfs(file)?;
    let block_bytes = u64::try_from(found.f_bsize).unwrap_or_default();
    // A tmpfs without a limit names no blocks at all.
    Ok(if found.f_blocks == 0 { u64::MAX } else { found.f_bavail.saturating_mul(block_bytes) })
}

fn statfs(file: &File) -> io::Result<libc::statfs> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the call fills the struct that the pointer names, or fails.
    check(unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the struct is filled.
    Ok(unsafe { found.assume_init() })
}
