//! Settling: taking commits to their end that their own threads have not.
//!
//! A commit is *settled* when it is decided and no failed version of it is left, and so are all
//! before it. The log's `sealed` says up to which LSN. A thread that finds the tail long settles
//! it; of a log with files, its writer does. A thread that meets a commit in flight takes that one
//! alone to its end.

use std::sync::atomic::Ordering;

use pando_log::{Log, Record, Settle, Status};
use pando_pmem::{Domain, Guard};

use crate::commit::InFlight;
use crate::component::{Maps, TransactionComponent, commit_of};
use crate::error::{Error, Result};
use crate::stamp::Stamp;

/// Records in the tail are settled when they have more bytes than this.
const SETTLE_BYTES: u64 = 64 << 10;

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// Opens the component over `log` and `maps`. Commits that a crash has left undecided fail, and
    /// are undone. No other thread or process uses the maps meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Log`], [`Error::Index`], [`Error::UnknownMap`], [`Error::Damaged`].
    pub fn open(log: Log<D>, maps: M) -> Result<Self> {
        let component = Self::new(log, maps);
        while component.unsettled_bytes()? > 0 {
            component.log().write_block(&AtOpening(&component))?;
        }
        Ok(component)
    }

    /// Waits until the commits up to `lsn` survive a power cut, if the log has files.
    ///
    /// # Errors
    ///
    /// [`Error::Log`]: whether they survive is open.
    pub fn sync(&self, lsn: u64) -> Result<()> {
        Ok(self.log().sync(lsn, self)?)
    }

    /// Completes a commit that was found in flight.
    pub(crate) fn help(&self, guard: &Guard<'_, D>, record: Record<'_, D>) -> Result<()> {
        Ok(self.complete(guard, record).map(drop)?)
    }

    /// Bytes of the tail that are not settled.
    fn unsettled_bytes(&self) -> Result<u64> {
        let guard = self.pin()?;
        let settled = self.log().sealed_lsn(&guard).min(self.log().durable_lsn());
        Ok(self.log().newest_lsn(&guard).saturating_sub(settled))
    }

    /// Settles the tail, if it is long. If the log has files, its writer does that.
    pub(crate) fn settle_if_long(&self) -> Result<()> {
        if self.log().has_files() {
            return Ok(());
        }
        let bytes = self.unsettled_bytes()?;
        // A thread that stopped while it settles holds nothing up for long.
        let is_very_long = bytes > 8 * SETTLE_BYTES;
        if bytes > SETTLE_BYTES
            // Relaxed: only a hint.
            && (!self.is_settling.swap(true, Ordering::Relaxed) || is_very_long)
        {
            let settled = self.log().write_block(self);
            self.is_settling.store(false, Ordering::Relaxed);
            settled?;
        }
        Ok(())
    }

    fn complete(&self, guard: &Guard<'_, D>, record: Record<'_, D>) -> pando_log::Result<Status> {
        let unsettled = |error: Error| pando_log::Error::Unsettled(Box::new(error));
        let Some(commit) = commit_of(record) else {
            return Err(pando_log::Error::Unsettled("its commit is unreadable".into()));
        };
        let stamp = Stamp::new(record.lsn(), record.off());
        let in_flight = InFlight { component: self, guard, record, stamp, commit: &commit };
        in_flight.complete().map(|completed| completed.status).map_err(unsettled)
    }
}

impl<D: Domain, M: Maps> Settle<D> for TransactionComponent<D, M> {
    fn settle(&self, guard: &Guard<'_, D>, record: Record<'_, D>) -> pando_log::Result<Status> {
        self.complete(guard, record)
    }
}

/// Settles what a crash has left: no one waits for a commit that is undecided.
struct AtOpening<'component, D: Domain, M>(&'component TransactionComponent<D, M>);

impl<D: Domain, M: Maps> Settle<D> for AtOpening<'_, D, M> {
    fn settle(&self, guard: &Guard<'_, D>, record: Record<'_, D>) -> pando_log::Result<Status> {
        record.decide(Status::Failed);
        self.0.complete(guard, record)
    }
}
