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
//! LSN are replayed, those of one key in their order (`loaders.rs`). So the last one of a key
//! decides; and a key without one has its last version in the image, since that was installed
//! before the image began.
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
use std::sync::Arc;
use std::time::Instant;

use pando_device::Directory;
use pando_index::RangeIndex;
use pando_log::{Recovered, log_id_of, recover};
use pando_pmem::mutant;

use crate::error::{Error, Result};
use crate::image_file::{Entry, Image, copy_image, images, name_of};
use crate::loaders::Loaders;
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

    /// The index of the transactional map with this number; `None` if there is none. Several
    /// threads write to it, until the next call of [`relist`](Self::relist).
    fn index(&self, number: u64) -> Option<Arc<dyn RangeIndex>>;

    /// Writes of so many bytes are sorted by their keys before they are applied. While they are
    /// applied, as many are read: twice the memory is used.
    ///
    /// Zero: one thread writes all, in the order of the log. Other orders may need more room at
    /// some moment than the pool ever has.
    fn sort_bytes(&self) -> usize {
        SORT_BYTES
    }

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
    /// Nanoseconds in which the image was loaded.
    pub image_ns: u64,
    /// Nanoseconds in which the log was replayed.
    pub log_ns: u64,
}

/// Writes that are sorted together, unless [`Rebuild::sort_bytes`] says otherwise.
const SORT_BYTES: usize = 4 << 20;

/// Progress is reported after so many records.
const REPORT_EVERY: u64 = 1 << 14;

/// Rebuilds the pool from the image and the log in `directory`. Returns the end of the log.
///
/// # Errors
///
/// [`Error::Log`] if the image or the log cannot be read: bytes are missing or damaged, or there is
/// no log; [`Error::Index`] if the new pool refuses.
pub fn replay(directory: &dyn Directory, pool: &mut dyn Rebuild) -> Result<(Recovered, Replayed)> {
    in_scope(pool, |mut replay| {
        let until = replay.load_image(directory)?;
        replay.read_log(directory, until)
    })
}

/// Replays the log in `directory` from the LSN `from` on, over maps that have all commits up to it,
/// and perhaps some later ones. It may be repeated. Returns the end of the log.
///
/// # Errors
///
/// As [`replay`].
pub fn redo(
    directory: &dyn Directory,
    from: u64,
    maps: &mut dyn Rebuild,
) -> Result<(Recovered, Replayed)> {
    in_scope(maps, |mut replay| {
        replay.replayed.from_lsn = from;
        replay.read_log(directory, from)
    })
}

/// Calls `run` with a replay into `pool` that has done nothing.
fn in_scope<R>(
    pool: &mut dyn Rebuild,
    run: impl FnOnce(Replay<'_, '_, '_>) -> Result<R>,
) -> Result<R> {
    std::thread::scope(|scope| {
        let loaders = Loaders::new(scope, pool.sort_bytes());
        let replayed = Replayed::default();
        let (version, known) = Default::default();
        run(Replay { pool, loaders, replayed, version, known })
    })
}

fn nanoseconds_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A replay in progress.
struct Replay<'run, 'scope, 'env> {
    pool: &'run mut dyn Rebuild,
    loaders: Loaders<'scope, 'env>,
    replayed: Replayed,
    /// Memory to be used again.
    version: Vec<u8>,
    /// The map of the last write, with its index.
    known: Option<(u64, Option<Arc<dyn RangeIndex>>)>,
}

impl Replay<'_, '_, '_> {
    /// Loads the newest image, if there is one. Returns the LSN up to which it needs the log.
    fn load_image(&mut self, directory: &dyn Directory) -> Result<u64> {
        let begin = Instant::now();
        let Some(from) = images(directory)?.pop() else { return Ok(0) };
        let image = Image::open(directory, log_id_of(directory)?, from)?;
        (self.replayed.from_lsn, self.replayed.image_bytes) = (from, image.size_bytes);
        let until = image.until()?;
        self.relist(&image.list)?;
        image.read(&mut |entry| self.load(&entry))?;
        self.loaders.wait()?;
        self.replayed.image_ns = nanoseconds_since(begin);
        Ok(until)
    }

    fn read_log(mut self, directory: &dyn Directory, until: u64) -> Result<(Recovered, Replayed)> {
        let (begin, from) = (Instant::now(), self.replayed.from_lsn);
        let recovered = recover(directory, from, &mut |lsn, payload| {
            let applied = self.apply(lsn, payload);
            applied.map_err(|error| pando_log::Error::Unsettled(Box::new(error)))
        })?;
        self.loaders.wait()?;
        check_until(directory, until, recovered.end_lsn())?;
        self.replayed.log_ns = nanoseconds_since(begin);
        self.pool.progress(&self.replayed);
        Ok((recovered, self.replayed))
    }

    fn relist(&mut self, list: &MapList) -> Result<()> {
        self.loaders.wait()?;
        self.known = None;
        let relisted = self.pool.relist(list);
        relisted.map_err(|error| Error::Index(pando_index::Error::Storage(error)))
    }

    /// Puts a record of the image into its map.
    fn load(&mut self, entry: &Entry<'_>) -> Result<()> {
        let Self { pool, loaders, replayed, version, known } = self;
        if let Some(index) = index_of(&**pool, known, entry.map) {
            version.clear();
            put(Stamp::new(entry.lsn, 0), Some(entry.value), version);
            loaders.add(index, entry.key, version)?;
        }
        replayed.image_records += 1;
        if replayed.image_records.is_multiple_of(REPORT_EVERY) {
            pool.progress(replayed);
        }
        Ok(())
    }

    /// Replays a record of the log.
    fn apply(&mut self, lsn: u64, payload: &[u8]) -> Result<()> {
        let damaged = || Error::Damaged { map: 0, key: Vec::new(), what: "a record is unreadable" };
        if MapList::is_one(payload) {
            return self.relist(&MapList::decode(payload).ok_or_else(damaged)?);
        }
        let Self { pool, loaders, replayed, version, known } = self;
        let mut is_first = true;
        let mut write = |map: u64, key: &[u8], new: Option<&[u8]>| -> Result<()> {
            let is_left_out = !std::mem::take(&mut is_first) && mutant!("tc-replays-half");
            let index = index_of(&**pool, known, map).filter(|_| !is_left_out);
            let Some(index) = index else { return Ok(()) };
            version.clear();
            if new.is_some() {
                put(Stamp::new(lsn, 0), new, version);
            }
            loaders.write(index, key, new.is_some().then_some(&**version))
        };
        if !Commit::visit_writes(payload, &mut write)? {
            return Err(damaged());
        }
        replayed.commits += 1;
        if replayed.commits.is_multiple_of(REPORT_EVERY) {
            pool.progress(replayed);
        }
        Ok(())
    }
}

/// The index of a map. `known` is that of the map of the call before.
fn index_of<'known>(
    pool: &dyn Rebuild,
    known: &'known mut Option<(u64, Option<Arc<dyn RangeIndex>>)>,
    map: u64,
) -> Option<&'known Arc<dyn RangeIndex>> {
    if known.as_ref().is_none_or(|(number, _)| *number != map) {
        *known = Some((map, pool.index(map)));
    }
    known.as_ref().and_then(|(_, index)| index.as_ref())
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

    fn index(&self, _: u64) -> Option<Arc<dyn RangeIndex>> {
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
