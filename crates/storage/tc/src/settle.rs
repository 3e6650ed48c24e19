//! Commits, and settling: taking commits to their end that their own threads have not.
//!
//! A commit is *settled* when it is decided and no failed version of it is left, and so are all
//! before it. The log's `sealed` says up to which LSN. A thread that finds the tail long settles
//! it; of a log with files, its writer does. A thread that meets a commit in flight takes that one
//! alone to its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_log::{Appended, Log, Record, Settle, Status};
use pando_pmem::{Domain, Guard, mutant};
use pando_tree::room::Refusal;

use crate::commit::{Completed, InFlight};
use crate::component::{Found, Maps, TransactionComponent};
use crate::error::{Error, Result};
use crate::map_list::MapList;
use crate::record::{Cause, Commit, Write, push_redo};
use crate::snapshots::Entry;
use crate::stamp::Stamp;
use crate::tombstones::Tombstone;

/// Records in the tail are settled when they have more bytes than this.
const SETTLE_BYTES: u64 = 64 << 10;
/// Versions, and tombstones, of revoked snapshots that one commit frees.
const FREED_AT_ONCE: usize = 64;
/// How often one commit, or one call that settles, reclaims room in a full pool.
const TRIES: u32 = 16;
/// How often tombstones are removed at most, while others may add to them.
const MOST_ROUNDS: u32 = 1 << 10;

/// How often a commit still makes room for its record before it gives up.
pub(crate) struct Room {
    in_tail: u32,
    in_pool: u32,
}

impl Default for Room {
    fn default() -> Self {
        Self { in_tail: 1 << 10, in_pool: TRIES }
    }
}

impl Room {
    /// Each further attempt appends a record: it may make room in the pool so many times.
    pub fn limit_in_pool(&mut self, most: u32) {
        self.in_pool = self.in_pool.min(most);
    }
}

impl<D: Domain, M: Maps> TransactionComponent<D, M> {
    /// Opens the component over `log` and `maps`. Commits that a crash has left undecided fail, and
    /// are undone; bare ones whose version is there are committed. In a full pool that may come
    /// later, and so it may where one of them has written to a map that cannot be opened: further
    /// commits are refused until the map is there, or is gone. No other thread or process uses the
    /// maps meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Log`], [`Error::Index`], [`Error::Damaged`].
    pub fn open(log: Log<D>, maps: M) -> Result<Self> {
        let component = Self::new(log, maps);
        if !mutant!("tc-opening-decides-nothing") {
            component.decide_unowned()?;
        }
        match component.settle() {
            // Reads see the versions from before; the rest is undone when it can be.
            Err(error) if error.is_full() || matches!(error, Error::UnknownMap { .. }) => {
                component.is_undo_due.store(true, Ordering::Relaxed);
            }
            settled => settled?,
        }
        Ok(component)
    }

    /// Takes each commit to its end that has begun before the call. Waits for no thread.
    ///
    /// # Errors
    ///
    /// [`Error::Log`], [`Error::Index`], [`Error::UnknownMap`], [`Error::Damaged`]. The commits
    /// that are not settled keep their records.
    pub fn settle(&self) -> Result<()> {
        let newest = self.log().newest_lsn(&self.pin()?);
        let mut tries = TRIES;
        while self.settled_and_durable_lsn()? < newest {
            match self.log().write_block(self).map_err(Error::from) {
                // An undo replaces values: their room can be had when no guard is held.
                Err(error) if error.is_full() && tries > 0 => {
                    tries -= 1;
                    self.log().pool().reclaim().map_err(pando_log::Error::from)?;
                }
                written => drop(written?),
            }
        }
        Ok(())
    }

    /// Takes each commit up to `lsn` to its end, and makes the decisions durable. Seals nothing, so
    /// it waits for no device. The caller holds no guard.
    pub(crate) fn settle_up_to(&self, lsn: u64) -> Result<()> {
        let mut tries = TRIES;
        loop {
            let settled = self.settle_within(&self.pin()?, lsn);
            match settled {
                // As above.
                Err(error) if error.is_full() && tries > 0 => {
                    tries -= 1;
                    self.log().pool().reclaim().map_err(pando_log::Error::from)?;
                }
                settled => return settled,
            }
        }
    }

    /// The same, in a call that holds a guard.
    pub(crate) fn settle_within(&self, guard: &Guard<'_, D>, lsn: u64) -> Result<()> {
        let from = self.ended_lsn();
        if from >= lsn {
            return Ok(());
        }
        let records = self.log().records_behind(guard, from)?;
        for record in records.into_iter().take_while(|record| record.lsn() <= lsn) {
            if record.durable_status() != Status::Committed {
                // In a full pool the commit has failed then, and needs only be undone.
                self.complete(guard, record).or_else(|_| self.complete(guard, record))?;
            }
        }
        // Release: a thread that finds this LSN finds the commits up to it ended.
        self.ended_lsn.fetch_max(lsn, Ordering::Release);
        Ok(())
    }

    /// An LSN up to which each commit has ended.
    pub(crate) fn ended_lsn(&self) -> u64 {
        // Acquire: with the release in `settle_within` (model `snapshot::failed_commit`).
        self.ended_lsn.load(Ordering::Acquire)
    }

    /// How many commits are not decided, nearly.
    ///
    /// # Errors
    ///
    /// [`Error::Log`].
    pub fn undecided(&self) -> Result<u64> {
        let guard = self.pin()?;
        let records = self.log().records_behind(&guard, 0)?;
        let undecided = records.iter().filter(|record| record.status() == Status::Undecided);
        Ok(undecided.count() as u64)
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
        match self.complete(guard, record) {
            // It has failed, so its versions can be replaced, also if the pool has no room to undo
            // them. The error is that of another key.
            Err(error) if record.status() == Status::Failed => {
                if error.is_full() {
                    // Relaxed: only a hint.
                    self.is_undo_due.store(true, Ordering::Relaxed);
                }
                Ok(())
            }
            completed => completed.map(drop),
        }
    }

    fn settled_and_durable_lsn(&self) -> Result<u64> {
        Ok(self.log().sealed_lsn(&self.pin()?).min(self.log().durable_lsn()))
    }

    /// After the commit `lsn`: settles the tail, if it is long, and removes some tombstones. The
    /// caller holds no guard. What fails here is tried again.
    pub(crate) fn clean_up_after(&self, lsn: u64) {
        self.settle_if_long(lsn);
        let _ = self.remove_tombstones();
        if !self.snapshots.seems_empty() {
            self.snapshots.keep_to_limits();
            self.free_revoked(FREED_AT_ONCE);
        }
    }

    /// Frees versions and tombstones of snapshots that were revoked or released: of each kind
    /// `least`, or a part of all. A failure is no error: the next commit tries again.
    fn free_revoked(&self, least: usize) {
        for entry in self.snapshots.revoked() {
            let Ok(guard) = self.pin() else { return };
            let are_freed = entry.versions.free(least) < least;
            let most = least.max(entry.tombstones() / 8);
            if self.take_back_tombstones(&guard, &entry, most) < most && are_freed {
                D::observe_process_memory();
                self.snapshots.take_out(&entry);
                D::observe_process_memory();
                // Those that another thread has added meanwhile.
                self.take_back_tombstones(&guard, &entry, usize::MAX);
            }
        }
    }

    /// Releases a snapshot. If it holds tombstones, the commits that follow note them again: this
    /// thread may never write.
    pub(crate) fn release(&self, entry: &Arc<Entry>) {
        D::observe_process_memory();
        entry.close();
        D::observe_process_memory();
        entry.versions.free(usize::MAX);
        if entry.tombstones() == 0 {
            self.free_revoked(1);
        }
    }

    /// Notes tombstones again that a snapshot has held, `most` at most; how many.
    fn take_back_tombstones(&self, guard: &Guard<'_, D>, entry: &Entry, most: usize) -> usize {
        let held = std::iter::from_fn(|| entry.take_tombstone()).take(most);
        held.map(|tombstone| self.tombstones.share(guard, tombstone)).count()
    }

    /// Removes some tombstones from their indexes. Returns how many have left the list for good.
    fn remove_tombstones(&self) -> Result<usize> {
        if self.tombstones.is_empty() {
            return Ok(0);
        }
        let guard = self.pin()?;
        let mut done = 0;
        let last_lsn = match self.log().has_files() {
            true => self.log().durable_lsn(),
            false => u64::MAX,
        };
        let ripe = self.tombstones.take_ripe(&guard, last_lsn);
        if ripe.is_empty() {
            return Ok(0);
        }
        let snapshots = self.snapshots.all(self.log(), &guard);
        for tombstone in ripe {
            if !snapshots.is_empty() && self.is_held(&guard, &snapshots, &tombstone) {
                done += 1;
                continue;
            }
            let remove = |index: M::Lent<'_>| {
                index.compare_remove(&tombstone.key, &tombstone.stamp.encode())
            };
            match self.index(tombstone.map).map(remove) {
                Ok(Err(error)) if error.is_full() => self.tombstones.share(&guard, tombstone),
                // Removed; or replaced since; or the map is dropped; or damage, which the next call
                // on the key reports.
                _ => done += 1,
            }
        }
        Ok(done)
    }

    /// Hands a tombstone to a snapshot that needs it, if there is one.
    fn is_held(
        &self,
        guard: &Guard<'_, D>,
        snapshots: &[Arc<Entry>],
        tombstone: &Tombstone,
    ) -> bool {
        let (place, lsn) = (tombstone.place(), tombstone.stamp.lsn());
        let needs = |entry: &&Arc<Entry>| entry.needs_tombstone(lsn, place);
        D::observe_process_memory();
        let Some(entry) = snapshots.iter().find(needs) else { return false };
        D::observe_process_memory();
        entry.hold(tombstone);
        D::observe_process_memory();
        // It may have left the list meanwhile. (If another thread sees that late, the tombstone
        // stays until a scan notes it.)
        if !self.snapshots.has(entry) {
            self.take_back_tombstones(guard, entry, usize::MAX);
        }
        true
    }

    /// Settles the tail, if it is long. If the log has files, its writer does that. What fails here
    /// fails again when the tail is full.
    fn settle_if_long(&self, lsn: u64) {
        if self.log().has_files() {
            self.log().wake_writer(lsn);
            return;
        }
        let bytes = lsn.saturating_sub(self.log().durable_lsn());
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
    /// ended on return. The caller holds no guard: in a full pool room is reclaimed.
    pub(crate) fn commit(&self, commit: &Commit) -> Result<u64> {
        let bytes_of = |write: &Write| {
            let values = [&write.new, &write.old.value];
            write.key.len()
                + values.map(|value| value.as_ref().map_or(0, Vec::len)).iter().sum::<usize>()
        };
        let bytes = commit.writes.iter().map(bytes_of).sum();
        self.maps().check_size(commit.writes.len(), bytes)?;
        let (guard, appended) = self.append(&commit.encode(), commit.gives_room())?;
        self.complete_own(guard, appended, commit)
    }

    /// Completes a commit that this thread has appended under `guard`.
    pub(crate) fn complete_own(
        &self,
        guard: Guard<'_, D>,
        Appended { lsn, off }: Appended,
        commit: &Commit,
    ) -> Result<u64> {
        let record = self.log().record(&guard, off);
        let stamp = Stamp::new(lsn, off);
        let in_flight = InFlight { component: self, guard: &guard, record, stamp, commit };
        match in_flight.complete() {
            Ok(Completed { status: Status::Committed, .. }) => {
                for write in commit.writes.iter().filter(|write| write.new.is_none()) {
                    let tombstone = Tombstone::new((write.map, &write.key), stamp);
                    self.tombstones.note(&guard, tombstone);
                }
                Ok(lsn)
            }
            Ok(Completed { met, .. }) => Err(self.conflict(&guard, commit, in_flight.cause(), met)),
            Err(error) => {
                drop(guard);
                if error.is_full() {
                    // Relaxed: only a hint.
                    self.is_undo_due.store(true, Ordering::Relaxed);
                    self.make_room();
                    // No write fails for a snapshot: it runs again without the oldest one.
                    if self.snapshots.revoke_oldest() {
                        self.make_room();
                        let (map, key) = commit.place_of(None);
                        return Err(Error::Conflict { map, key });
                    }
                }
                Err(error)
            }
        }
    }

    /// Notes in the log that these are the maps of the pool from now on; its LSN. In a log without
    /// files it does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Log`].
    pub fn log_maps(&self, list: &MapList) -> Result<u64> {
        if !self.log().has_files() {
            return Ok(0);
        }
        let (guard, Appended { lsn, off }) = self.append(&list.encode(), true)?;
        self.log().record(&guard, off).decide(Status::Committed);
        drop(guard);
        self.log().wake_writer(lsn);
        Ok(lsn)
    }

    /// Appends a record; makes room for it, if the tail or the pool is full. Returns with the guard
    /// under which the record stays. `gives_room`: its commit takes no room of the pool.
    fn append(&self, payload: &[u8], gives_room: bool) -> Result<(Guard<'_, D>, Appended)> {
        self.before_commit(gives_room)?;
        let mut room = Room::default();
        loop {
            let guard = self.pin()?;
            match self.append_once(&guard, &[payload], gives_room) {
                Ok(appended) => return Ok((guard, appended)),
                Err(error) => {
                    drop(guard);
                    self.make_room_for_record(error, &mut room)?;
                }
            }
        }
    }

    /// The same, without an attempt to make room.
    pub(crate) fn append_once(
        &self,
        guard: &Guard<'_, D>,
        payload: &[&[u8]],
        gives_room: bool,
    ) -> Result<Appended> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let append = || self.log().append(guard, payload);
        let appended = match gives_room {
            true => guard.with_reserve(append),
            false => guard.leaving_room_to_undo(append),
        };
        Ok(appended?)
    }

    /// Before a commit. Makes the tail durable, if it is longer than the maps have room for. If the
    /// commit takes room: undoes what a full pool has left. What is undone takes some room too, so
    /// one goes after the other. The caller holds no guard.
    pub(crate) fn before_commit(&self, gives_room: bool) -> Result<()> {
        let most = self.maps().most_tail_bytes();
        if most < u64::MAX {
            // The durable LSN first: it is never above the newest one.
            let durable = self.log().durable_lsn();
            let waiting = self.newest_lsn()?.saturating_sub(durable);
            if waiting > most {
                let full = pando_log::Error::Full { used_bytes: waiting, max_bytes: most };
                self.shorten_full_tail(full.into())?;
            }
        }
        if !gives_room && self.is_undo_due.load(Ordering::Relaxed) {
            self.settle()?;
            self.is_undo_due.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes room for a record that was refused with this error. The caller holds no guard.
    ///
    /// # Errors
    ///
    /// The same error, if there is no more that can be done; those of the log.
    pub(crate) fn make_room_for_record(&self, error: Error, room: &mut Room) -> Result<()> {
        match error {
            Error::Log(pando_log::Error::Full { .. }) if room.in_tail > 0 => {
                room.in_tail -= 1;
                self.shorten_full_tail(error)
            }
            error if error.is_full() && room.in_pool > 0 => {
                room.in_pool -= 1;
                if room.in_pool < TRIES / 2 {
                    self.snapshots.revoke_oldest();
                }
                self.make_room();
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Makes room in the log's tail. The error is `full`, if the disk has no room, or does not
    /// answer: the tail stays full then.
    fn shorten_full_tail(&self, full: Error) -> Result<()> {
        match self.shorten_tail() {
            Err(Error::Log(pando_log::Error::Stalled { .. })) => Err(full),
            Err(Error::Log(pando_log::Error::Device(refused))) if refused.is_full() => Err(full),
            shortened => shortened,
        }
    }

    /// Makes room in the log's tail. If the log has files, that waits for the disk, together with
    /// all other threads that do; for ten seconds, if the disk does not answer.
    fn shorten_tail(&self) -> Result<()> {
        match self.log().has_files() {
            true => self.log().shorten_tail(self)?,
            false => drop(self.log().write_block(self)?),
        }
        Ok(())
    }

    /// In a full pool: settles some of the tail, reclaims the room of replaced versions, and
    /// removes tombstones. An error is reported when the commit is refused again.
    fn make_room(&self) {
        let _ = self.log().write_block(self);
        self.free_revoked(usize::MAX);
        let _ = self.log().pool().reclaim();
        for _ in 0..MOST_ROUNDS {
            if !self.remove_tombstones().is_ok_and(|done| done > 0) {
                break;
            }
        }
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

    fn complete(&self, guard: &Guard<'_, D>, record: Record<'_, D>) -> Result<Status> {
        let payload = record.payload();
        if MapList::is_one(&payload) {
            return Ok(record.decide(Status::Committed));
        }
        let Some(commit) = Commit::decode(&payload) else {
            return Err(pando_log::Error::Unsettled("its commit is unreadable".into()).into());
        };
        let stamp = Stamp::new(record.lsn(), record.off());
        let in_flight = InFlight { component: self, guard, record, stamp, commit: &commit };
        in_flight.complete().map(|completed| completed.status)
    }

    fn settle_record(
        &self,
        guard: &Guard<'_, D>,
        record: Record<'_, D>,
    ) -> pando_log::Result<Status> {
        let was_undecided = record.status() == Status::Undecided;
        // If an index refused it, the commit has failed now, and needs only be undone.
        let settled = match self.complete(guard, record) {
            Err(_) if was_undecided && record.status() == Status::Failed => {
                self.complete(guard, record)
            }
            settled => settled,
        };
        settled.map_err(refused)
    }
}

/// An error of the component, as one of the log that asks it to settle.
fn refused(error: Error) -> pando_log::Error {
    match error {
        Error::Log(error) => error,
        error => pando_log::Error::Unsettled(Box::new(error)),
    }
}

impl<D: Domain, M: Maps> Settle<D> for TransactionComponent<D, M> {
    fn settle(&self, guard: &Guard<'_, D>, record: Record<'_, D>) -> pando_log::Result<Status> {
        self.settle_record(guard, record)
    }

    fn push_redo(&self, payload: &[u8], bytes: &mut Vec<u8>) {
        push_redo(payload, bytes);
    }
}

#[cfg(test)]
mod tests;
