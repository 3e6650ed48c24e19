//! Replacing the log of a pool by a new one, if the files of the former log are lost or not wanted.
//!
//! The owner of the log takes these steps while no other thread or process uses the log:
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | open the tail without the files ([`Log::open_tail`]); settle each record, but seal none | statuses of records | the former log, as any opening may find it |
//! | propose the new log ([`create_files`]), which begins behind the newest record; the owner stores there what the records stand for | a directory with the file `proposal` | the former log; and a proposal that the superblock does not name |
//! | the owner names the new log in the superblock, durably, **which decides** | the superblock | before: the same; after: the new log, whose directory has a proposal |
//! | make the proposal the manifest ([`adopt`]) | its name; the directory is synced | the new log, whose directory has a proposal or a manifest |
//! | put a control block of the new log in the place of the former one ([`Log::replace`]) | the word that names it, by CAS | the former control block or the new one, which names the former one |
//! | free the former seal, arenas and control block | words of the former control block; last `former` of the new one | blocks that the next opening frees |
//!
//! # The proposal
//!
//! The file `proposal` has the bytes of the manifest. It becomes the manifest when the superblock
//! names the log durably, and before the log has any record. So a directory with a manifest is that
//! of a log which a superblock has named. In a directory with a proposal nothing was acknowledged,
//! and it is no log for a reader that has no superblock:
//!
//! | the directory has | the superblock names | an opening of the pool, or its rebuild | a reset into the directory | without the pool's file |
//! | --- | --- | --- | --- | --- |
//! | a proposal | another log | uses the other log; refuses this directory by [`Error::Proposed`] | replaces a proposal of the same pool, else [`Error::NotEmpty`] | [`Error::Proposed`] |
//! | a proposal | this log | makes it the manifest, and puts the log in place | does the same | [`Error::Proposed`] |
//! | a manifest | this log | puts the log in place, if it is not | does the same, else [`Error::NotEmpty`] | a log |
//! | a manifest | another log | refuses this directory by [`Error::Foreign`] | [`Error::NotEmpty`] | a log |
//!
//! If a directory has both files, its manifest counts: a sync has failed, and a power cut has kept
//! both names.
//!
//! Nothing is sealed without the files: if the former log is found again after a crash, it goes on
//! with the same tail. The new log has a number of its own, so no block of the former one is taken
//! for one of the new log. LSNs go on, since stamps in the pool have them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_device::Directory;
use pando_pmem::{Domain, Guard, Pool};

use crate::control::{ARENAS, Control, Start};
use crate::error::{Error, Result};
use crate::log::{Log, LogOptions};
use crate::manifest::Manifest;
use crate::recovery::log_id_of;

/// Proposes `directory` as the new log `log_id` of the pool `pool_id`. Its first record is the
/// first one behind the LSN `after_lsn`. Durable on return. A proposal of the same pool is
/// replaced: the caller has looked that the superblock does not name it.
///
/// # Errors
///
/// [`Error::NotEmpty`] if the directory has files of a log, or a proposal of another pool;
/// [`Error::Option`], [`Error::Device`].
pub fn create_files(
    directory: &dyn Directory,
    pool_id: u128,
    (log_id, after_lsn): (u128, u64),
    options: LogOptions,
) -> Result<()> {
    let LogOptions { segment_bytes, owner, .. } = options.check()?;
    Manifest::of_new(pool_id, (log_id, after_lsn), (owner, segment_bytes)).propose(directory)
}

/// Makes the proposal in `directory` a log, if there is one of the log `log_id` of the pool
/// `pool_id`; else changes nothing. Durable on return. The superblock of the pool names this log,
/// durably.
///
/// # Errors
///
/// [`Error::Device`], [`Error::Failed`].
pub fn adopt(directory: &dyn Directory, log_id: u128, pool_id: u128) -> Result<()> {
    match log_id_of(directory) {
        Err(Error::Proposed { log_id: log, pool_id: pool, .. })
            if (log, pool) == (log_id, pool_id) =>
        {
            Manifest::take_proposal(directory)
        }
        _ => Ok(()),
    }
}

impl<D: Domain> Log<D> {
    /// Opens the tail of the log that the word at `name_off` names, without the files of the log,
    /// so that its records can be settled. The caller appends nothing and seals nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Option`], [`Error::Damaged`], [`Error::Pool`].
    pub fn open_tail(pool: Arc<Pool<D>>, name_off: u64, options: LogOptions) -> Result<Self> {
        let options = options.check()?;
        let control_off = Self::checked_control(&pool, name_off)?;
        let control = Control::new(&pool, control_off);
        let (log_id, generation) = (control.log_id(), control.generation());
        Self::start(pool, control_off, None, (log_id, generation), options)
    }

    /// Whether the log that the word at `name_off` names has the number `log_id`.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn has_id(pool: &Pool<D>, name_off: u64, log_id: u128) -> Result<bool> {
        let control_off = Self::checked_control(pool, name_off)?;
        Ok(Control::new(pool, control_off).log_id() == log_id)
    }

    /// Puts the new log `log_id`, whose files are in `directory`, in the place of the log that the
    /// word at `name_off` names, unless it is that log. The superblock names the new log, durably.
    /// Durable on return. After a crash in between the same call is made again.
    ///
    /// # Errors
    ///
    /// [`Error::NotALog`], [`Error::Foreign`] and [`Error::Proposed`] if the directory has another
    /// log or a proposal of another one, [`Error::Damaged`]; [`Error::Device`], [`Error::Failed`]
    /// and [`Error::Pool`] if the disk or the pool refuses.
    pub fn replace(
        pool: &Pool<D>,
        name_off: u64,
        directory: &dyn Directory,
        log_id: u128,
    ) -> Result<()> {
        if Self::has_id(pool, name_off, log_id)? {
            return Ok(());
        }
        let former = Self::checked_control(pool, name_off)?;
        adopt(directory, log_id, pool.pool_id())?;
        let manifest = Manifest::load(directory)?;
        if manifest.log_id != log_id {
            return Err(Error::Foreign {
                path: directory.path(),
                field: "the log",
                found: manifest.log_id,
                expected: log_id,
            });
        }
        // Stored again: a process that was killed here, or whose sync failed, has not made its name
        // durable.
        manifest.store(directory)?;
        let start = Start { lsn: manifest.after_lsn, ..Start::default() };
        Self::begin(pool, name_off, (log_id, manifest.generation), start, former)
    }

    /// Frees the blocks of the log that this one replaces, if there are any left. Only while no
    /// other thread uses the log.
    pub(crate) fn free_former(&self, guard: &Guard<'_, D>) {
        let pool = guard.pool();
        let control = self.control(pool);
        let former_off = control.former().load(Ordering::Acquire);
        if former_off == 0 {
            return;
        }
        let former = Control::new(pool, former_off);
        let arenas = (0..ARENAS).map(|index| former.arena_off(index));
        for word_off in arenas.chain([former.sealed_off(), control.former_off()]) {
            let word = pool.word(word_off);
            let block = word.load(Ordering::Acquire);
            if block == 0 {
                continue;
            }
            let exchange = guard.begin_exchange(word_off, u64::MAX, block, None);
            word.store(0, Ordering::Release);
            word.flush();
            exchange.succeeded();
        }
    }
}
