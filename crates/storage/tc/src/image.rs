//! Writing images: the committed versions of all maps, with which recovery begins.
//!
//! An image is *fuzzy*: its versions are of different times, and it holds up no writer. The log is
//! replayed over it from `from` on, the settled LSN when the image began.
//!
//! | step | file | a crash leaves |
//! | --- | --- | --- |
//! | read `from`, then the list of maps | | nothing |
//! | scan each map; write its committed versions into a file without a name; sync it | `new-..` | a file that the next opening removes |
//! | wait until the log is durable up to the newest LSN at the end of the scan | | the same |
//! | name the file; sync the directory | `image-..` | the former image or this one; the log serves both |
//! | remove the former images; truncate the log up to `from` | | files that the next image removes |
//!
//! * A commit up to `from` was installed before the scan began. So the scan finds its version of a
//!   key, or a later one. Each later one is in the log behind `from`.
//! * The image may have versions that are not durable yet, and may lack a key for a removal that is
//!   not. The log that is replayed over the image must have all these commits, or one would be
//!   there by half. So the image gets its name only after the log is durable that far.
//! * The list of maps is read after `from`. A map that is created later is in a list behind `from`.
//!   One that is dropped later is dropped by a list behind `from`.
//! * A map is scanned in pieces. Each begins with a guard and looks the map up by its number. So
//!   the drop of a map, which waits for guards, does not wait for the image. If the map is not
//!   found, the image is given up: the drop may fail, or a power cut may undo it.
//! * The scan holds no guard while the device is at work.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_device::Directory;
use pando_index::{KeyRange, Order};
use pando_pmem::{Domain, mutant};

use crate::component::{Maps, TransactionComponent};
use crate::error::{Error, Result};
use crate::image_file::{Entry, Writer, images, name_of, size_bytes};
use crate::map_list::MapList;

/// The figures of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageStat {
    /// The LSN behind which the log is replayed over it.
    pub from_lsn: u64,
    /// The size of its file.
    pub bytes: u64,
}

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// The newest image; `None` if there is none, or the log has no files.
    ///
    /// # Errors
    ///
    /// [`Error::Log`].
    pub fn newest_image(&self) -> Result<Option<ImageStat>> {
        let Some(directory) = self.log().directory() else { return Ok(None) };
        let Some(from_lsn) = images(directory.as_ref())?.pop() else { return Ok(None) };
        let bytes = size_bytes(directory.as_ref(), from_lsn)?;
        Ok(Some(ImageStat { from_lsn, bytes }))
    }

    /// Writes an image, and releases the part of the log that is not needed any more. `list` gives
    /// the maps of the pool at the time when it is called. Returns the newest image, which is the
    /// former one if there was no commit since. One thread at a time calls it. `None` if the log
    /// has no files, or `is_enough` was set meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Log`], also if the disk is full; [`Error::UnknownMap`] if a map is being dropped,
    /// or could not be opened; [`Error::Index`], [`Error::Damaged`]. The former image stays.
    pub fn write_image<E: From<Error>>(
        &self,
        list: impl FnOnce() -> Result<MapList, E>,
        is_enough: &AtomicBool,
    ) -> Result<Option<ImageStat>, E> {
        let Some(directory) = self.log().directory() else { return Ok(None) };
        let from = self.settled_lsn()?;
        if let Some(newest) = self.newest_image()?.filter(|newest| newest.from_lsn == from) {
            return Ok(Some(newest));
        }
        let list = list()?;
        let mut writer = Writer::begin(directory.as_ref(), self.log().log_id(), from, &list)?;
        let name = writer.name().to_owned();
        let written = self.scan_all(&list, &mut writer, is_enough).and_then(|is_whole| {
            if !is_whole {
                return Ok(None);
            }
            let seen = self.newest_lsn()?;
            let bytes = writer.end(seen)?;
            if !mutant!("tc-image-before-its-log") {
                self.sync(seen)?;
            }
            self.put_in_place(directory.as_ref(), &name, from)?;
            Ok(Some(ImageStat { from_lsn: from, bytes }))
        });
        if !matches!(written, Ok(Some(_))) {
            // Else the next opening removes it.
            let _ = directory.remove(&name);
        }
        Ok(written?)
    }

    /// Names an image, and removes the former ones and the log before it.
    fn put_in_place(&self, directory: &dyn Directory, name: &str, from: u64) -> Result<()> {
        let device = pando_log::Error::from;
        directory.replace(name, &name_of(from)).map_err(device)?;
        self.release_before(directory, from)
    }

    /// Goes on with the removals behind the newest image, if a crash has interrupted them: else
    /// crashes that follow each other would fill the disk. One thread at a time calls this, or
    /// writes an image.
    ///
    /// # Errors
    ///
    /// [`Error::Log`].
    pub fn release_behind_image(&self) -> Result<()> {
        let Some(directory) = self.log().directory() else { return Ok(()) };
        let images = images(directory.as_ref())?;
        match images.last() {
            Some(&newest) if images.len() > 1 || self.log().can_truncate(newest)? => {
                self.release_before(directory.as_ref(), newest)
            }
            _ => Ok(()),
        }
    }

    /// Removes the images before that at `from`, and the log before it. This is synced, too: a
    /// power cut would bring them back.
    fn release_before(&self, directory: &dyn Directory, from: u64) -> Result<()> {
        let device = pando_log::Error::from;
        if !mutant!("tc-truncation-before-image") {
            directory.sync().map_err(device)?;
        }
        for former in images(directory)?.into_iter().filter(|&former| former < from) {
            directory.remove(&name_of(former)).map_err(device)?;
        }
        self.log().truncate(from)?;
        Ok(directory.sync().map_err(device)?)
    }

    /// Puts the committed versions of all maps into `writer`; false if `is_enough` was set.
    pub(crate) fn scan_all(
        &self,
        list: &MapList,
        writer: &mut Writer,
        is_enough: &AtomicBool,
    ) -> Result<bool> {
        for map in list.maps.iter().filter(|map| map.number != 0) {
            let mut rest = Some(Bound::Unbounded);
            while let Some(low) = rest {
                // Relaxed: it orders nothing.
                if is_enough.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                rest = self.scan_piece(map.number, low, writer)?;
                writer.write_full()?;
            }
        }
        Ok(true)
    }

    /// Puts some committed versions of a map into `writer`, from `low` on; where the next piece
    /// begins, or `None` at the end of the map.
    fn scan_piece(
        &self,
        map: u64,
        low: Bound<Vec<u8>>,
        writer: &mut Writer,
    ) -> Result<Option<Bound<Vec<u8>>>> {
        let guard = self.pin()?;
        let index = self.index(map)?;
        // Before the versions, as in a scan.
        let settled = self.log().sealed_lsn(&guard);
        let range = KeyRange { low, high: Bound::Unbounded };
        let mut cursor = index.scan(range, Order::Ascending)?;
        while let Some((key, value)) = cursor.next()? {
            let version = self.version_of_copy(map, (key, value), settled)?;
            if let Some(value) = &version.value {
                writer.push(Entry { map, lsn: version.stamp.lsn(), key, value });
            }
            if writer.is_full() {
                return Ok(Some(Bound::Excluded(key.to_vec())));
            }
        }
        Ok(None)
    }
}
