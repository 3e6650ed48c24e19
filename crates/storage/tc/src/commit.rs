//! Completing a commit: the same steps for its own thread and for any helper. Bare commits have
//! other steps (`bare.rs`).
//!
//! | step | deciding word | a thread that stops or dies leaves |
//! | --- | --- | --- |
//! | keep what it will replace, for snapshots (`snapshot.rs`) | | a kept version, which is right in any case |
//! | install each write, in order: from the replaced version to its own | the key's value | some keys with versions in flight |
//! | validate each read and range | | the same |
//! | decide | the record's status | a decided record |
//! | if it failed: undo each write | the key's value | some keys with versions in flight, of a failed commit |
//!
//! * A write that finds another version than the one that it replaces can never succeed, because no
//!   stamp comes twice; then the record fails. The thread that decided so notes where: no thread
//!   has written the keys from there on, and an undo leaves them alone.
//! * A thread decides *committed* only after it has seen each write installed, and then each read
//!   valid. Another commit may replace a read version afterwards; it comes later in the order of
//!   the commits, since its own installs, and so its validation, come after these.
//! * A validation that finds a version in flight does not help. Of two undecided records the one
//!   with the higher LSN fails. So of two commits that each read what the other writes, one is
//!   left. A transaction without writes has no record; it fails, and takes the other to its end.
//! * An undo writes the old value under the stamp *undone*. It also replaces a version that the
//!   commit has not reached yet: a helper that comes late finds no version to replace.
//! * Another commit may replace a failed version before it is undone; its record has the committed
//!   value. So a key can be removed even if a full pool has no room to undo what failed.
//!
//! # Records that are in a store alone
//!
//! A record may be in a page that is on a disk, and not in memory ([`Maps::MAY_BE_STORED`]). The
//! page may have become unreadable since the transaction has read it. An undo does not read such a
//! page, so the commit fails and the log goes on:
//!
//! | step | deciding word | a thread that stops or dies leaves |
//! | --- | --- | --- |
//! | the record is decided: failed | its status | a failed record |
//! | the undo finds that the key is in the store alone | the page's word | the same: nothing is to be undone there |
//!
//! * A page that leaves memory has only versions of durable commits, which are settled. So a page
//!   that is not in memory has no version of a failed commit that is not settled.
//! * A helper that comes late has checked the status before it waited for the page. So it checks
//!   the status again after it has found the version that it replaces. If its install succeeds,
//!   the page's word has not changed since: the page has been in memory from before that check. If
//!   an undo has seen the page outside of memory before that, the check sees the decision.

use std::sync::atomic::{Ordering, fence};

use pando_index::Error::{KeyExists, KeyNotFound, ValueMismatch};
use pando_log::{Record, Status};
use pando_pmem::{Domain, Guard, Word, mutant};

use crate::component::{Found, Maps, TransactionComponent, Unsettled};
use crate::error::{Error, Result};
use crate::record::{Cause, Commit, RangeRead, Read};
use crate::stamp::{Stamp, Version, bytes_of, put};
use crate::tombstones::Tombstone;

/// A commit whose record is in the log's tail.
pub(crate) struct InFlight<'op, 'pool, D: Domain, M> {
    pub component: &'op TransactionComponent<D, M>,
    pub guard: &'op Guard<'pool, D>,
    pub record: Record<'op, D>,
    /// The stamp of what it writes.
    pub stamp: Stamp,
    pub commit: &'op Commit,
}

/// How a commit ended.
pub(crate) struct Completed {
    pub status: Status,
    /// A key where another commit in flight was met: its map, and the key.
    pub met: Option<(u64, Vec<u8>)>,
}

/// The result of the attempt to install a write.
enum Installed {
    Yes,
    /// The key has another version.
    Conflict,
    /// The commit was decided meanwhile.
    Decided,
}

/// Whether a commit is undecided, after its thread has found a version in a map: see "Records that
/// are in a store alone".
pub(crate) fn is_undecided_behind<D: Domain>(record: Record<'_, D>) -> bool {
    // Of the word that led to the version, and the status: with the fence of an undo.
    fence(Ordering::SeqCst);
    record.status() == Status::Undecided
}

impl<D: Domain, M: Maps> InFlight<'_, '_, D, M> {
    /// Takes the commit to its end.
    ///
    /// # Errors
    ///
    /// Those of the index and of damage. The commit has failed, unless another thread has decided
    /// otherwise; it may not be undone yet.
    pub fn complete(&self) -> Result<Completed> {
        if self.commit.is_bare() {
            return self.complete_bare();
        }
        let mut met = None;
        // Else the thread that decided it, or has installed what the decision was about, has kept
        // them.
        if self.record.status() == Status::Undecided {
            self.component.keep_versions(self.guard, self.stamp, self.commit);
        }
        let attempted = match self.commit.gives_room() {
            true => self.guard.with_reserve(|| self.attempt(&mut met)),
            false => self.guard.leaving_room_to_undo(|| self.attempt(&mut met)),
        };
        if attempted.is_err() {
            self.record.decide(Status::Failed);
        }
        // Another thread may have decided it.
        let status = self.record.durable_status();
        if status == Status::Failed {
            self.undo()?;
            attempted?;
        }
        Ok(Completed { status, met })
    }

    /// Installs, validates and decides, unless it is decided.
    fn attempt(&self, met: &mut Option<(u64, Vec<u8>)>) -> Result<()> {
        let is_early = mutant!("tc-decided-before-installed");
        if is_early {
            self.record.decide(Status::Committed);
        }
        for index in 0..self.commit.writes.len() {
            if self.record.status() != Status::Undecided && !is_early {
                return Ok(());
            }
            match self.install(index)? {
                Installed::Yes => {}
                Installed::Decided => return Ok(()),
                Installed::Conflict => {
                    let write = &self.commit.writes[index];
                    *met = Some((write.map, write.key.clone()));
                    self.fail(Cause::Write(index));
                    return Ok(());
                }
            }
        }
        let own = Some((self.stamp, self.record));
        match validate(self.component, self.guard, self.commit, own, met)? {
            Some(cause) => self.fail(cause),
            None => drop(self.record.decide(Status::Committed)),
        }
        Ok(())
    }

    fn install(&self, index: usize) -> Result<Installed> {
        let write = &self.commit.writes[index];
        let map = self.component.index(write.map)?;
        // Usually the replaced version is there. (A failed version is there with another value.)
        if !M::MAY_BE_STORED {
            let new = bytes_of(self.stamp, write.new.as_deref());
            let exchanged = match write.old.stamp {
                Stamp::ABSENT => map.insert(&write.key, &new),
                stamp => {
                    let old = bytes_of(stamp, write.old.value.as_deref());
                    map.compare_exchange(&write.key, &old, &new)
                }
            };
            match exchanged {
                Ok(()) => return Ok(Installed::Yes),
                Err(KeyExists | KeyNotFound | ValueMismatch) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut installed = Ok(Installed::Conflict);
        map.modify(&write.key, &mut |found, new| {
            let Some(stamp) = Stamp::of_value(found) else {
                installed = Err(self.without_stamp(index));
                return false;
            };
            let is_due = stamp == write.old.stamp;
            let is_there = stamp.is_installed_by(self.stamp);
            installed = Ok(if is_due || is_there { Installed::Yes } else { Installed::Conflict });
            if is_due && M::MAY_BE_STORED && !self.may_install() {
                installed = Ok(Installed::Decided);
                return false;
            }
            if is_due {
                put(self.stamp, write.new.as_deref(), new);
            }
            is_due
        })?;
        installed
    }

    /// Whether the commit is still undecided, after its key's version was found: see "Records that
    /// are in a store alone".
    fn may_install(&self) -> bool {
        is_undecided_behind(self.record) || mutant!("tc-installed-after-failure")
    }

    /// Gives back the versions that the commit has replaced, and takes from helpers those that it
    /// has not.
    fn undo(&self) -> Result<()> {
        if M::MAY_BE_STORED {
            // Of the decision, and the looks where records are: with `is_undecided_behind`.
            fence(Ordering::SeqCst);
        }
        let reached = match self.cause() {
            Some(Cause::Write(index)) => index.min(self.commit.writes.len()),
            _ => self.commit.writes.len(),
        };
        for (index, write) in self.commit.writes[..reached].iter().enumerate() {
            let map = match self.component.index(write.map) {
                Err(Error::UnknownMap { .. })
                    if self.component.maps().is_gone(write.map)
                        && !mutant!("tc-undo-needs-dropped-maps") =>
                {
                    continue;
                }
                map => map?,
            };
            let mut undone = Ok(());
            let mut undo = |found: Option<&[u8]>, new: &mut Vec<u8>| {
                let Some(stamp) = Stamp::of_value(found) else {
                    undone = Err(self.without_stamp(index));
                    return false;
                };
                undone = Ok(());
                let is_open = stamp == write.old.stamp && !mutant!("tc-undo-leaves-unreached");
                let is_due = is_open
                    || stamp.is_installed_by(self.stamp)
                    || mutant!("tc-undo-overwrites-others");
                if is_due {
                    let stamp = match mutant!("tc-undo-restores-stamp") {
                        true => write.old.stamp,
                        false => self.stamp.undone(),
                    };
                    put(stamp, write.old.value.as_deref(), new);
                }
                is_due
            };
            if map.is_only_stored(&write.key)? {
                continue;
            }
            let changed = match self.guard.undoing(|| map.modify(&write.key, &mut undo)) {
                // It was evicted meanwhile, and cannot be read.
                Err(_) if map.is_only_stored(&write.key)? => continue,
                changed => changed?,
            };
            undone?;
            if changed.is_some() && write.old.value.is_none() {
                let place = (write.map, write.key.as_slice());
                let tombstone = Tombstone::new(place, self.stamp.undone());
                self.component.tombstones.share(self.guard, tombstone);
            }
        }
        Ok(())
    }

    /// Lets the commit fail for this cause, unless it is decided.
    fn fail(&self, cause: Cause) {
        fail(self.guard, self.record, cause);
    }

    /// Why the commit has failed, if the record says so.
    pub fn cause(&self) -> Option<Cause> {
        Cause::of(conflict(self.guard, self.record).load(Ordering::Acquire))
    }

    fn without_stamp(&self, index: usize) -> Error {
        let write = &self.commit.writes[index];
        Error::Damaged { map: write.map, key: write.key.clone(), what: "its value has no stamp" }
    }
}

fn conflict<'op, D: Domain>(guard: &'op Guard<'_, D>, record: Record<'_, D>) -> Word<'op, D> {
    guard.pool().word(record.payload_off())
}

/// Lets a commit fail, unless it is decided; its status. The thread that decides notes the cause. A
/// thread that comes later must not: it may find a version that has replaced an undone one.
fn fail<D: Domain>(guard: &Guard<'_, D>, record: Record<'_, D>, cause: Cause) -> Status {
    let decided = record.try_decide(Status::Failed);
    if decided.is_ok() || mutant!("tc-late-cause") {
        // Need not be durable: without it each write is undone. Release: with the acquire load of
        // an undo.
        conflict(guard, record).store(cause.word(), Ordering::Release);
    }
    decided.err().unwrap_or(Status::Failed)
}

/// Validates reads and ranges; the first that is not valid. `own` is the commit's stamp and record,
/// if it has any. `met` is set to a key where another commit in flight is in the way.
pub(crate) fn validate<D: Domain, M: Maps>(
    component: &TransactionComponent<D, M>,
    guard: &Guard<'_, D>,
    commit: &Commit,
    own: Option<(Stamp, Record<'_, D>)>,
    met: &mut Option<(u64, Vec<u8>)>,
) -> Result<Option<Cause>> {
    if commit.reads.is_empty() && commit.ranges.is_empty() {
        return Ok(None);
    }
    // Sequentially consistent, with the same fence of each other commit: of two commits that each
    // install what the other reads, one sees the other's version.
    fence(Ordering::SeqCst);
    let validation = Validation { component, guard, commit, own };
    if !mutant!("tc-reads-not-validated") {
        for (index, Read { map, key, stamp }) in commit.reads.iter().enumerate() {
            let seen = validation.seen(*map, key)?;
            let is_unnoticed =
                |seen: &Version| seen.stamp.is_removed() && mutant!("tc-removal-not-noticed");
            if seen.as_ref().is_none_or(|seen| seen.stamp != *stamp && !is_unnoticed(seen)) {
                if seen.is_none() {
                    *met = Some((*map, key.clone()));
                }
                return Ok(Some(Cause::Read(index)));
            }
        }
    }
    if !mutant!("tc-ranges-not-validated") {
        for (index, range) in commit.ranges.iter().enumerate() {
            if !validation.is_range_valid(range, met)? {
                return Ok(Some(Cause::Range(index)));
            }
        }
    }
    Ok(None)
}

struct Validation<'op, 'pool, D: Domain, M> {
    component: &'op TransactionComponent<D, M>,
    guard: &'op Guard<'pool, D>,
    commit: &'op Commit,
    own: Option<(Stamp, Record<'op, D>)>,
}

impl<D: Domain, M: Maps> Validation<'_, '_, D, M> {
    /// The version of the key before this commit; `None` if another commit in flight writes it and
    /// comes first.
    fn seen(&self, map: u64, key: &[u8]) -> Result<Option<Version>> {
        let found = self.component.find(self.guard, map, key)?;
        let unsettled = match found {
            // Decided since, with this version.
            Found::Settled(version) if self.is_own(version.stamp) => {
                let write = self.commit.write_of(map, key);
                return Ok(write.map(|index| self.commit.writes[index].old.clone()));
            }
            Found::Settled(version) => return Ok(Some(version)),
            Found::InFlight(unsettled) => unsettled,
        };
        let Unsettled { record, stamp, index, replaced, .. } = unsettled;
        let Some((own, _)) = self.own else {
            if unsettled.status == Status::Failed || mutant!("tc-reader-passes-in-flight") {
                return Ok(Some(replaced));
            }
            // It may have validated a key that a third commit has replaced since, whose new version
            // this transaction has read. Then it comes before the third, and so before this one.
            return Ok(None);
        };
        if self.is_own(stamp) {
            return Ok(Some(replaced));
        }
        if unsettled.status == Status::Failed || mutant!("tc-both-commit") {
            return Ok(Some(replaced));
        }
        if stamp.lsn() < own.lsn() {
            return Ok(None);
        }
        if fail(self.guard, record, Cause::ReadByOther(index)) == Status::Committed {
            // It is found as a committed version now.
            return self.seen(map, key);
        }
        Ok(Some(replaced))
    }

    fn is_own(&self, stamp: Stamp) -> bool {
        self.own.is_some_and(|(own, _)| stamp.is_installed_by(own))
    }

    fn is_range_valid(&self, read: &RangeRead, met: &mut Option<(u64, Vec<u8>)>) -> Result<bool> {
        let mut expected = read.stamps.iter();
        // Before the scan: what was settled by now has no failed version any more.
        let settled = self.component.log().sealed_lsn(self.guard);
        let index = self.component.index(read.map)?;
        let mut cursor = index.scan(read.range.clone(), read.order)?;
        while let Some((key, value)) = cursor.next()? {
            let what = "its value has no stamp";
            let damaged = || Error::Damaged { map: read.map, key: key.to_vec(), what };
            let (stamp, _) = Stamp::split(value).ok_or_else(damaged)?;
            let (stamp, is_present) = match stamp.lsn() <= settled {
                true => (stamp, !stamp.is_removed()),
                false => match self.seen(read.map, key)? {
                    Some(version) => (version.stamp, version.value.is_some()),
                    None => {
                        *met = Some((read.map, key.to_vec()));
                        return Ok(false);
                    }
                },
            };
            if is_present && expected.next() != Some(&stamp) {
                return Ok(false);
            }
        }
        Ok(expected.next().is_none())
    }
}
