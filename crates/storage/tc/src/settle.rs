//! Commits, and settling: taking commits to their end that their own threads have not.
//!
//! A commit is *settled* when it is decided and no failed version of it is left, and so are all
//! before it. The log's `sealed` says up to which LSN. A thread that finds the tail long settles
//! it; of a log with files, its writer does. A thread that meets a commit in flight takes that one
//! alone to its end.

use std::sync::atomic::Ordering;

use pando_log::{Appended, Log, Record, Settle, Status};
use pando_pmem::{Domain, Guard};

use crate::commit::{Completed, InFlight};
use crate::component::{Found, Maps, TransactionComponent, commit_of};
use crate::error::{Error, Result};
use crate::record::{Cause, Commit};
use crate::stamp::Stamp;

/// Records in the tail are settled when they have more bytes than this.
const SETTLE_BYTES: u64 = 64 << 10;
/// How often a commit makes room in the log's tail before it gives up.
const STEPS: u32 = 1 << 10;

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

    /// Settles the tail, if it is long. If the log has files, its writer does that. What fails here
    /// fails again when the tail is full.
    pub(crate) fn settle_if_long(&self) {
        if self.log().has_files() {
            return;
        }
        let bytes = self.unsettled_bytes().unwrap_or_default();
        // A thread that stopped while it settles holds nothing up for long.
        let is_very_long = bytes > 8 * SETTLE_BYTES;
        if bytes > SETTLE_BYTES
            // Relaxed: only a hint.
            && (!self.is_settling.swap(true, Ordering::Relaxed) || is_very_long)
        {
            let _ = self.log().write_block(self);
            self.is_settling.store(false, Ordering::Relaxed);
        }
    }

    /// Commits what `commit` says; its LSN. If it conflicts, the commit that is in the way has
    /// ended on return.
    pub(crate) fn commit(&self, guard: &Guard<'_, D>, commit: &Commit) -> Result<u64> {
        let Appended { lsn, off } = self.append(guard, &commit.encode())?;
        let record = self.log().record(guard, off);
        let stamp = Stamp::new(lsn, off);
        let in_flight = InFlight { component: self, guard, record, stamp, commit };
        let Completed { status, met } = in_flight.complete()?;
        match status {
            Status::Committed => Ok(lsn),
            _ => Err(self.conflict(guard, commit, in_flight.cause(), met)),
        }
    }

    /// Appends a record; makes room for it in the tail, if it is full.
    fn append(&self, guard: &Guard<'_, D>, payload: &[u8]) -> Result<Appended> {
        for _ in 0..STEPS {
            match self.log().append(guard, payload) {
                Err(pando_log::Error::Full { .. }) => drop(self.log().write_block(self)?),
                appended => return Ok(appended?),
            }
        }
        Ok(self.log().append(guard, payload)?)
    }

    /// The error of a commit that failed for this cause. Takes the commit that was met at the key
    /// `met` to its end: its thread may have stopped.
    pub(crate) fn conflict(
        &self,
        guard: &Guard<'_, D>,
        commit: &Commit,
        cause: Option<Cause>,
        met: Option<(u64, Vec<u8>)>,
    ) -> Error {
        if let Some((map, key)) = met {
            let helped = self.find(guard, map, &key).and_then(|found| match found {
                Found::InFlight(unsettled) => self.help(guard, unsettled.record),
                Found::Settled(_) => Ok(()),
            });
            if let Err(error) = helped {
                return error;
            }
        }
        let (map, key) = commit.place_of(cause);
        Error::Conflict { map, key }
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
