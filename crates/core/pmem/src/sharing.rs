//! The locks of the processes that have a pool open. `processes.rs` has the protocol.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::{Error, Result, io_error};
use crate::layout::{CATALOG_SLOTS, MAX_PROCESSES};
use crate::sys::{self, Access, LockedFile};

/// The first byte of the locks, far behind any content.
pub(crate) const LOCK_OFF: u64 = 1 << 62;
pub(crate) const GATE_OFF: u64 = LOCK_OFF;
const SHARING_OFF: u64 = LOCK_OFF + 1;
pub(crate) const NUMBERS_OFF: u64 = LOCK_OFF + 2;
/// The lock of the process that takes a census.
pub(crate) const CENSUS_LOCK_OFF: u64 = NUMBERS_OFF + MAX_PROCESSES as u64;
/// The locks of the maps that processes have open, one for each slot of the catalog.
pub(crate) const MAPS_OFF: u64 = CENSUS_LOCK_OFF + 1;
/// Bytes of all locks.
pub(crate) const LOCK_BYTES: u64 = 3 + MAX_PROCESSES as u64 + CATALOG_SLOTS as u64;

/// How long a process waits for the gate.
const GATE_WAIT: Duration = Duration::from_secs(5);
/// The pause between two attempts at the gate.
const GATE_PAUSE: Duration = Duration::from_micros(200);

/// The censuses that a process takes.
#[derive(Debug, Default)]
pub(crate) struct Censuses {
    /// The census that it takes now.
    pub taken: Option<Census>,
    /// How many of these deaths have found nothing, one after the other.
    pub fruitless: u32,
    /// The number of deaths at the beginning of the last one.
    pub deaths: u32,
}

/// A census that a process takes (`alloc/census.rs`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Census {
    /// Its number.
    pub number: u32,
    /// The epoch at its beginning.
    pub from_epoch: u64,
    /// The number of deaths at its beginning.
    pub deaths: u32,
    /// Whether all later changes are stamped.
    pub is_stamped: bool,
}

/// How this process uses a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapUse {
    /// So many of its handles are open.
    Open(usize),
    /// A thread takes it out of the catalog.
    Claimed,
}

/// How a process shares a pool.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub number: usize,
    /// Whether this process has opened the pool as the first.
    pub is_first: bool,
    /// The description that locks the numbers of dead processes.
    pub reaper: LockedFile,
    /// Held by the thread of this process that recovers dead ones.
    pub recovers: Mutex<()>,
    /// The censuses of this process.
    pub census: Mutex<Censuses>,
    /// How this process uses maps, by their slots of the catalog.
    pub maps: Mutex<HashMap<u64, MapUse>>,
}

/// Locks the file of a pool that this process has alone. A forked child, which does not have the
/// mapping, does not keep the lock: after a kill of this process another one may open the pool at
/// once.
pub(crate) fn lock_alone(path: &Path, file: File) -> Result<LockedFile> {
    let mut file = LockedFile::lock(file, LOCK_OFF, LOCK_BYTES)
        .map_err(io_error(path, "lock the file"))?
        .ok_or_else(|| Error::AlreadyOpen(path.to_path_buf()))?;
    file.give_up_in_children();
    Ok(file)
}

/// The offset of the lock of a number.
pub(crate) fn number_off(number: usize) -> u64 {
    NUMBERS_OFF + number as u64
}

/// Locks the gate, or says why not.
pub(crate) fn lock_gate(path: &Path, file: &File) -> Result<()> {
    let begin = Instant::now();
    let lock = || sys::try_lock(file, Access::Exclusive, GATE_OFF, 1);
    while !lock().map_err(io_error(path, "lock the file"))? {
        // A process that has the pool alone holds the gate for as long as it has it.
        let has_it_alone = sys::try_lock(file, Access::Shared, SHARING_OFF, 1)
            .map(|is_locked| !is_locked)
            .map_err(io_error(path, "lock the file"))?;
        if has_it_alone {
            return Err(Error::AlreadyOpen(path.to_path_buf()));
        }
        let waited = begin.elapsed();
        if waited >= GATE_WAIT {
            let waited_ms = waited.as_millis() as u64;
            return Err(Error::Entering { path: path.to_path_buf(), waited_ms });
        }
        std::thread::sleep(GATE_PAUSE);
    }
    Ok(())
}

/// Enters the file of a pool that this process shares: its locks, with the gate, which
/// `Pool::admit_others` unlocks.
pub(crate) fn enter(path: &Path, file: File) -> Result<(LockedFile, Sharing)> {
    let refused = || io_error(path, "lock the file");
    let mut file = LockedFile::over(file, LOCK_OFF, LOCK_BYTES);
    file.give_up_in_children();
    lock_gate(path, &file)?;
    if !sys::try_lock(&file, Access::Shared, SHARING_OFF, 1).map_err(refused())? {
        return Err(Error::AlreadyOpen(path.to_path_buf()));
    }
    let is_first =
        !sys::is_locked_elsewhere(&file, NUMBERS_OFF, MAX_PROCESSES as u64).map_err(refused())?;
    let again = sys::open_again(&file).map_err(io_error(path, "open the file again"))?;
    let mut reaper = LockedFile::over(again, LOCK_OFF, LOCK_BYTES);
    reaper.give_up_in_children();
    Ok((
        file,
        Sharing {
            number: 0,
            is_first,
            reaper,
            recovers: Mutex::new(()),
            census: Mutex::default(),
            maps: Mutex::default(),
        },
    ))
}
