//! Rebuilds a pool from the newest image and the log behind it.
//!
//! | step | a crash leaves |
//! | --- | --- |
//! | make the maps of the image's list, and put its versions into them | a pool without a name |
//! | replay the log from the image's LSN on, in order | the same |
//!
//! Nothing in the log's directory is changed, so all of it may be repeated.
//!
//! # Why this is right
//!
//! A record is replayed without a look at the version that is there. All records behind the image's
//! LSN are replayed in their order. So the last one of a key decides; and a key without one has its
//! last version in the image, since that was installed before the image began.
//!
//! A version keeps its LSN in its stamp. It is settled, since the new generation of the log begins
//! behind it. A removed key leaves no tombstone: no thread has begun an earlier commit here.
//!
//! A list of maps in the log makes the pool's maps those of the list: a map that is not there is
//! created, one that is not in the list is dropped. If the image is younger than such a list, a map
//! may be dropped that a later list has. All that was ever written to that one is behind the later
//! list, in the log, so it is made again from there. A write to a map that no list so far has is
//! left out: a later list would drop the map, or it was dropped before the image began.

use std::error::Error as StdError;

use pando_device::Directory;
use pando_index::RangeIndex;
use pando_log::{Recovered, log_id_of, recover};
use pando_pmem::mutant;

use crate::error::{Error, Result};
use crate::image_file::{Entry, Image, copy_image, images, name_of};
use crate::map_list::MapList;
use crate::record::Commit;
use crate::stamp::{Stamp, put};

/// A pool that is being rebuilt.
pub trait Rebuild {
    /// Makes the maps of the pool those of the list, by number and by name. New ones are empty.
    ///
    /// # Errors
    ///
    /// If a map cannot be created or dropped.
    fn relist(&mut self, list: &MapList) -> Result<(), Box<dyn StdError + Send + Sync>>;

    /// The index of the transactional map with this number; `None` if there is none.
    fn index(&self, number: u64) -> Option<&dyn RangeIndex>;

    /// Is called now and then with how much was done.
    fn progress(&mut self, so_far: &Replayed) {
        let _ = so_far;
    }
}

/// The figures of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Records of the image.
    pub image_records: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Commits of the log.
    pub commits: u64,
    /// The LSN at which the replay has begun.
    pub from_lsn: u64,
}

/// Progress is reported after so many records.
const REPORT_EVERY: u64 = 1 << 14;

/// Rebuilds the pool from the image and the log in `directory`. Returns the end of the log.
///
/// # Errors
///
/// [`Error::Log`] if the image or the log cannot be read: bytes are missing or damaged, or there is
/// no log; [`Error::Index`] if the new pool refuses.
pub fn replay(directory: &dyn Directory, pool: &mut dyn Rebuild) -> Result<(Recovered, Replayed)> {
    let mut replayed = Replayed::default();
    let (mut version, mut until) = (Vec::new(), 0);
    if let Some(from) = images(directory)?.pop() {
        let image = Image::open(directory, log_id_of(directory)?, from)?;
        (replayed.from_lsn, replayed.image_bytes) = (from, image.size_bytes);
        until = image.until()?;
        relist(pool, &image.list)?;
        image.read(&mut |Entry { map, lsn, key, value }| {
            if let Some(index) = pool.index(map) {
                version.clear();
                put(Stamp::new(lsn, 0), Some(value), &mut version);
                index.upsert(key, &version)?;
            }
            replayed.image_records += 1;
            if replayed.image_records.is_multiple_of(REPORT_EVERY) {
                pool.progress(&replayed);
            }
            Ok(())
        })?;
    }
    let recovered = recover(directory, replayed.from_lsn, &mut |lsn, payload| {
        let applied = apply(pool, lsn, payload, &mut version);
        let is_commit = applied.map_err(|error| pando_log::Error::Unsettled(Box::new(error)))?;
        replayed.commits += u64::from(is_commit);
        if is_commit && replayed.commits.is_multiple_of(REPORT_EVERY) {
            pool.progress(&replayed);
        }
        Ok(())
    })?;
    check_until(directory, until, recovered.end_lsn())?;
    pool.progress(&replayed);
    Ok((recovered, replayed))
}

/// Reads the image and the log in `directory` as [`replay`] does, without a pool.
///
/// # Errors
///
/// As [`replay`].
pub fn verify(directory: &dyn Directory) -> Result<(Recovered, Replayed)> {
    replay(directory, &mut Nothing)
}

/// No pool.
struct Nothing;

impl Rebuild for Nothing {
    fn relist(&mut self, _: &MapList) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(())
    }

    fn index(&self, _: u64) -> Option<&dyn RangeIndex> {
        None
    }
}

/// Copies the newest image and the log behind it from `from` to `to`, durably; the LSN of the last
/// commit in the copy. The log may be in use meanwhile.
///
/// # Errors
///
/// As [`replay`], also if `to` has a log or an image, or if the image was replaced meanwhile.
pub fn copy(from: &dyn Directory, to: &dyn Directory) -> Result<u64> {
    if let Some(image) = images(to)?.pop() {
        let (path, name) = (to.path(), name_of(image));
        return Err(pando_log::Error::NotEmpty { path, name }.into());
    }
    let newest = images(from)?.pop();
    let mut until = 0;
    if let Some(newest) = newest {
        copy_image(from, newest, to)?;
        until = Image::open(to, log_id_of(from)?, newest)?.until()?;
    }
    let is_enough = |end| check_until(from, until, end).is_ok();
    Ok(pando_log::copy(from, newest.unwrap_or_default(), to, &is_enough)?)
}

/// Refuses a log that ends before the LSN that its image needs.
fn check_until(directory: &dyn Directory, until: u64, end: u64) -> pando_log::Result<()> {
    if end >= until {
        return Ok(());
    }
    let what = format!("it ends at LSN {end}, and its image needs it up to {until}");
    Err(pando_log::Error::Missing { path: directory.path(), from: end, what })
}

/// Whether there is an image in `directory`, of any log.
///
/// # Errors
///
/// [`Error::Log`].
pub fn has_image(directory: &dyn Directory) -> Result<bool> {
    Ok(!images(directory)?.is_empty())
}

fn relist(pool: &mut dyn Rebuild, list: &MapList) -> Result<()> {
    pool.relist(list).map_err(|error| Error::Index(pando_index::Error::Storage(error)))
}

/// Replays one record; whether it is a commit. `version` is memory to be used again.
fn apply(pool: &mut dyn Rebuild, lsn: u64, payload: &[u8], version: &mut Vec<u8>) -> Result<bool> {
    let damaged = || Error::Damaged { map: 0, key: Vec::new(), what: "a record is unreadable" };
    if MapList::is_one(payload) {
        relist(pool, &MapList::decode(payload).ok_or_else(damaged)?)?;
        return Ok(false);
    }
    let mut is_first = true;
    let mut write = |map: u64, key: &[u8], new: Option<&[u8]>| -> Result<()> {
        let is_left_out = !std::mem::take(&mut is_first) && mutant!("tc-replays-half");
        let Some(index) = pool.index(map).filter(|_| !is_left_out) else { return Ok(()) };
        match new {
            Some(value) => {
                version.clear();
                put(Stamp::new(lsn, 0), Some(value), version);
                index.upsert(key, version)?;
            }
            None => drop(index.remove(key)?),
        }
        Ok(())
    };
    match Commit::visit_writes(payload, &mut write)? {
        true => Ok(true),
        false => Err(damaged()),
    }
}
