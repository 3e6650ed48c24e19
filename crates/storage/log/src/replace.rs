//! Replacing the log of a pool by a new one, if the files of the former log are lost or not wanted.
//!
//! The owner of the log takes these steps while no other thread or process uses the log:
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | open the tail without the files ([`Log::open_tail`]); settle each record, but seal none | statuses of records | the former log, as any opening may find it |
//! | create the files of the new log ([`create_files`]), which begins behind the newest record; the owner stores there what the records stand for | a directory | the same |
//! | the owner notes that the pool's log is the new one, which decides | | the former log, or the new one, which the next opening puts in place |
//! | put a control block of the new log in the place of the former one ([`Log::replace`]) | the word that names it, by CAS | the former control block or the new one, which names the former one |
//! | free the former seal, arenas and control block | words of the former control block; last `former` of the new one | blocks that the next opening frees |
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

/// Makes `directory` the new log `log_id` of the pool `pool_id`. Its first record is the first one
/// behind the LSN `after_lsn`. Durable on return. After a crash in between, and until the log is in
/// use, the same call may be made again, also with another LSN.
///
/// # Errors
///
/// [`Error::NotEmpty`] if the directory has files of another log, [`Error::Option`],
/// [`Error::Device`].
pub fn create_files(
    directory: &dyn Directory,
    pool_id: u128,
    (log_id, after_lsn): (u128, u64),
    options: LogOptions,
) -> Result<()> {
    let LogOptions { segment_bytes, .. } = options.check()?;
    Manifest::of_new(pool_id, (log_id, after_lsn), segment_bytes).create(directory)
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
    /// word at `name_off` names, unless it is that log. Durable on return. After a crash in between
    /// the same call is made again.
    ///
    /// # Errors
    ///
    /// [`Error::NotALog`], [`Error::Foreign`] if the directory has another log, [`Error::Damaged`];
    /// [`Error::Device`] and [`Error::Pool`] if the disk or the pool refuses.
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
        let manifest = Manifest::load(directory)?;
        if manifest.log_id != log_id {
            return Err(Error::Foreign {
                path: directory.path(),
                field: "the log",
                found: manifest.log_id,
                expected: log_id,
            });
        }
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
