//! The first image of a new log, for a pool whose log is replaced (`pando-log`, `replace.rs`).
//!
//! The new log has no record of what the pool has, so its first image has all of it. It is written
//! before the log is in use, while no thread commits: all its versions are of one moment, and the
//! log is replayed over it from there on.
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | if the directory has a proposal of this pool, remove the images | names | the proposal, with an image or without |
//! | propose the log | the file `proposal` | the former proposal or the new one |
//! | write the image under a temporary name, and sync it | a file `new-..` | the proposal, and this file, which the next proposal removes |
//! | give it its name; sync the directory | the name | the proposal, with the image or without |
//!
//! So a directory with an image has a proposal or a manifest. A former image may come back at a
//! power cut, until the new proposal is durable. It begins before that proposal or belongs to
//! another log, and a recovery refuses both.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pando_device::Directory;
use pando_log::{Log, LogOptions, create_files, log_id_of};
use pando_pmem::Domain;

use crate::component::{Maps, TransactionComponent};
use crate::error::Result;
use crate::image_file::{Writer, images, name_of};
use crate::map_list::MapList;

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// The component over the tail of a log ([`Log::open_tail`]) and `maps`. Commits that a crash
    /// has left undecided are decided as by [`open`](Self::open), and all are taken to their end;
    /// none is sealed. The caller begins
    /// no commit. No other thread or process uses the maps meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Log`](crate::Error::Log), [`Error::Index`](crate::Error::Index),
    /// [`Error::UnknownMap`](crate::Error::UnknownMap) and
    /// [`Error::Damaged`](crate::Error::Damaged), also if a full pool has no room for an undo.
    pub fn over_tail(log: Log<D>, maps: M) -> Result<Self> {
        let component = Self::new(log, maps);
        component.decide_unowned()?;
        component.settle_up_to(component.newest_lsn()?)?;
        Ok(component)
    }

    /// Proposes `directory` as the new log `log_id` of the pool, with an image of all that the maps
    /// of `list` have. It begins behind the newest commit. Durable on return. A proposal that an
    /// earlier call for this pool has left is replaced, also one of another log: the caller has
    /// looked that the superblock does not name it.
    ///
    /// # Errors
    ///
    /// [`NotEmpty`](pando_log::Error::NotEmpty) if the directory has files of a log, or a proposal
    /// of another pool; otherwise as [`write_image`](Self::write_image).
    pub fn write_new_log(
        &self,
        directory: &Arc<dyn Directory>,
        log_id: u128,
        list: &MapList,
    ) -> Result<()> {
        let directory = directory.as_ref();
        let device = pando_log::Error::from;
        let own_id = self.log().pool().pool_id();
        let is_begun = matches!(
            log_id_of(directory),
            Err(pando_log::Error::Proposed { pool_id, .. }) if pool_id == own_id
        );
        let mut former = images(directory)?.into_iter();
        if !is_begun && let Some(image) = former.next() {
            let (path, name) = (directory.path(), name_of(image));
            return Err(pando_log::Error::NotEmpty { path, name }.into());
        }
        for image in former {
            directory.remove(&name_of(image)).map_err(device)?;
        }
        let lsn = self.newest_lsn()?;
        create_files(directory, own_id, (log_id, lsn), LogOptions::default())?;
        let mut writer = Writer::begin(directory, log_id, lsn, list)?;
        let name = writer.name().to_owned();
        let written = self
            .scan_all(list, &mut writer, &AtomicBool::new(false))
            .and_then(|_| writer.end(lsn))
            .and_then(|_| Ok(directory.replace(&name, &name_of(lsn)).map_err(device)?));
        if written.is_err() {
            // Else the next opening removes it.
            let _ = directory.remove(&name);
        }
        written?;
        Ok(directory.sync().map_err(device)?)
    }
}
