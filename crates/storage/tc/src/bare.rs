//! Bare commits: commits of one key whose record does not have the version that they replace.
//! Their install decides, so the record need not have it.
//!
//! | step | deciding word | a thread that stops or dies leaves |
//! | --- | --- | --- |
//! | append the record; it says that the replaced version is not recorded | `newest` of the log | an undecided commit |
//! | install, inside the same call of the index | the key's value | the same, with its version |
//! | decide | the status of the record | a decided record |
//!
//! * No helper installs.
//! * A thread that finds the commit's version decides that the commit is committed: the version is
//!   there, and nothing else is to be validated. Whatever replaces the version has found it, so the
//!   commit is decided before.
//! * A helper that finds the record without the version must first make sure that the owner cannot
//!   install it any more. Then the commit fails, unless it is decided.
//! * A failed commit has never been installed. There is nothing to undo.
//! * At an opening after a kill no owner lives. So the key says how the commit has ended, and
//!   nothing is written to it. All records are decided before one is settled.
//!
//! # Maps in memory
//!
//! The owner has found the version that it replaces before it appends the record, and installs
//! only over that one. It is committed, and its LSN is below the record's.
//!
//! * A commit is bare if it puts a value, if there is no snapshot, and if the version belongs to no
//!   commit in flight. The owner installs only if no snapshot that was registered since needs the
//!   version. (A removal is not bare: in a full pool a helper has room to complete it, and may have
//!   none to write the old value once more.)
//! * If it has not installed, it decides that the commit has failed, and begins again with a record
//!   that has the version. Any helper can complete that one.
//!
//! How a helper keeps the owner from installing:
//!
//! | the helper reads the key, and finds | the owner |
//! | --- | --- |
//! | the commit's version | has installed: the commit is committed |
//! | a version with the same LSN, undone, or a higher one | cannot install: its version is gone |
//! | another commit in flight, or one that has failed | the same: what the owner has found was committed |
//! | any other version, or none | may install: the helper takes it back |
//!
//! To take back: the helper keeps the version for snapshots that do not see the commit, as any
//! commit does before an install. Then it replaces the version by one with the same value under the
//! commit's stamp, *undone*. It does so from the very stamp that it has read, so only one of helper
//! and owner succeeds. If the key has another stamp by then, the helper looks again.
//!
//! # Blind writes of a store
//!
//! In a store only a write that has not read the version is bare: its version is on the disk. So
//! it is durable, and its commit is settled.
//!
//! * The owner's call of the index installs only if the page has not changed since the record was
//!   appended, and only once.
//! * A helper reads the key. If the key's page has no version of it, that loads the page, and so
//!   changes its word; if it has one, its word has changed since. So the owner installs no more.
//! * A page that is written before the commit is durable keeps the store's version of the key
//!   (`durable.rs`). When the page is loaded below the new version, its owner keeps the store's
//!   version in memory, until the commit is durable.

use pando_index::RangeIndex;
use pando_log::{Record, Status};
use pando_pmem::{Domain, mutant};

use crate::commit::{Completed, InFlight};
use crate::component::{Found, Maps, TransactionComponent};
use crate::error::{Error, Result};
use crate::record::{Commit, Write, is_bare};
use crate::stamp::{Stamp, Version, put};
use crate::tombstones::Tombstone;

/// How often a helper looks again, because of other commits at the key, before it gives up.
const LOOKS: u32 = 1 << 10;

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// Whether a commit may be bare now.
    pub(crate) fn may_be_bare(&self) -> bool {
        self.snapshots.seems_empty()
    }

    /// Decides the commits that a crash has left undecided; no thread waits for them, or may
    /// install them. They fail; a bare one is what its key says. Of that, a store has lost what was
    /// not durable. A bare one whose map cannot be opened stays undecided.
    ///
    /// # Errors
    ///
    /// [`Error::Log`], [`Error::Index`].
    pub(crate) fn decide_unowned(&self) -> Result<()> {
        let guard = self.pin()?;
        for record in self.log().records_behind(&guard, 0)? {
            if record.status() != Status::Undecided {
                continue;
            }
            let status = match self.is_bare_and_installed(record) {
                _ if mutant!("tc-bare-fails-at-opening") => Status::Failed,
                Ok(true) => Status::Committed,
                Ok(false) => Status::Failed,
                Err(Error::UnknownMap { .. }) => continue,
                Err(error) => return Err(error),
            };
            record.decide(status);
        }
        Ok(())
    }

    fn is_bare_and_installed(&self, record: Record<'_, D>) -> Result<bool> {
        if M::MAY_BE_STORED || !is_bare(record) {
            return Ok(false);
        }
        let commit = Commit::decode(&record.payload());
        let Some([write]) = commit.as_ref().map(|commit| commit.writes.as_slice()) else {
            return Ok(false);
        };
        let own = Stamp::new(record.lsn(), record.off());
        match self.index(write.map) {
            Ok(map) => self.is_installed(&*map, &write.key, own),
            // Nobody will see it.
            Err(Error::UnknownMap { .. }) if self.maps().is_gone(write.map) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the key has the version of the commit with this stamp.
    pub(crate) fn is_installed(
        &self,
        index: &dyn RangeIndex,
        key: &[u8],
        commit: Stamp,
    ) -> Result<bool> {
        let mut is_installed = false;
        index.read(key, &mut |value| {
            let split = Stamp::split(value);
            is_installed = split.is_some_and(|(stamp, _)| stamp.is_installed_by(commit));
        })?;
        Ok(is_installed)
    }
}

impl<D: Domain, M: Maps> InFlight<'_, '_, D, M> {
    /// Takes a bare commit to its end, as a helper.
    ///
    /// # Errors
    ///
    /// Those of the index. The commit is as it was.
    pub fn complete_bare(&self) -> Result<Completed> {
        let ended = |status| Ok(Completed { status, met: None });
        let status = self.record.durable_status();
        if status != Status::Undecided {
            return ended(status);
        }
        let write = &self.commit.writes[0];
        let is_there = match self.component.index(write.map) {
            Ok(_) if mutant!("tc-blind-helper-does-not-read") => Ok(false),
            Ok(map) if M::MAY_BE_STORED => {
                let read = || self.component.is_installed(&*map, &write.key, self.stamp);
                self.guard.undoing(read)
            }
            Ok(map) => self.is_there_for_good(&*map, write),
            // Nobody will see it.
            Err(Error::UnknownMap { .. }) if self.component.maps().is_gone(write.map) => Ok(false),
            Err(error) => return Err(error),
        };
        let status = match is_there {
            Ok(true) => Status::Committed,
            Ok(false) => Status::Failed,
            // Its own thread may have decided it meanwhile.
            Err(error) => match self.record.durable_status() {
                Status::Undecided => return Err(error),
                status => return ended(status),
            },
        };
        ended(self.record.decide(status))
    }

    /// Whether the commit is installed. If it is not, its owner cannot install it any more.
    fn is_there_for_good(&self, map: &dyn RangeIndex, write: &Write) -> Result<bool> {
        for _ in 0..LOOKS {
            let found = self.component.find(self.guard, write.map, &write.key)?;
            let Found::Settled(version) = found else { return Ok(false) };
            if version.stamp.is_installed_by(self.stamp) {
                return Ok(true);
            }
            if version.stamp.lsn() >= self.stamp.lsn() || mutant!("tc-bare-helper-only-reads") {
                if version.stamp == self.stamp.undone().removed_if(true) {
                    // Whoever has taken it back may have died before it noted that.
                    self.note_tombstone(write);
                }
                return Ok(false);
            }
            if self.takes_back(map, write, &version)? {
                return Ok(false);
            }
        }
        Err(Error::Conflict { map: write.map, key: write.key.clone() })
    }

    /// Replaces this version of the key by one with the same value under the commit's stamp,
    /// *undone*; false if the key has another version.
    fn takes_back(&self, map: &dyn RangeIndex, write: &Write, version: &Version) -> Result<bool> {
        if !mutant!("tc-bare-taken-back-unkept") {
            let replacing = Write { old: version.clone(), ..write.clone() };
            let commit = Commit { writes: vec![replacing], ..Commit::default() };
            self.component.keep_versions(self.guard, self.stamp, &commit);
        }
        let undone = self.stamp.undone();
        let mut take_back = |found: Option<&[u8]>, new: &mut Vec<u8>| {
            let is_due = Stamp::of_value(found) == Some(version.stamp);
            if is_due {
                put(undone, version.value.as_deref(), new);
            }
            is_due
        };
        let is_changed = self.guard.undoing(|| map.modify(&write.key, &mut take_back))?.is_some();
        if is_changed && version.value.is_none() {
            self.note_tombstone(write);
        }
        Ok(is_changed)
    }

    /// Notes that the commit was taken back where the key had no value.
    fn note_tombstone(&self, write: &Write) {
        let tombstone = Tombstone::new((write.map, &write.key), self.stamp.undone());
        self.component.tombstones.share(self.guard, tombstone);
    }
}
