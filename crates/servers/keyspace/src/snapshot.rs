//! Snapshots: a file with all data as of one point in time, written while commands run.
//!
//! # Protocol
//!
//! * A snapshot begins while all stripes are held exclusively, only to increment a number. That is
//!   its point in time.
//! * Then the stripes are written one after the other, each under its shared lock: all keys with
//!   hashes of the stripe, of all databases.
//! * A command that locks a stripe exclusively writes that stripe to the snapshot first, if it is
//!   not written yet, before it changes anything. So every stripe is written as of the snapshot's
//!   point in time, without a copy in memory. A writing command may have to wait until one stripe,
//!   a 1,024th of the keys, is written.
//! * An error ends the snapshot. A command that finds it keeps it for the snapshot and goes on, and
//!   no later command writes a stripe. The snapshot also ends when the server does.
//! * The file (`snapshot_file.rs`) is written under a temporary name, synced, and then renamed, so
//!   under its own name it is complete. Before that the earlier snapshots get the names `PATH.1`,
//!   `PATH.2` and so on. A crash between two renames leaves a gap in the numbers; so the newest one
//!   is found by the times in the files (`all_at`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::failure::{Failure, Result, fail, fail_with};
use crate::layout::{
    Content, DATABASES, Element, Head, Kind, LongString, Section, section_prefix, split_head_key,
    split_piece_key,
};
use crate::pieces::{counted_bytes, pieces_of};
use crate::snapshot_file::{FIELD_TAG, ORDERED_TAG, PIECE_TAG, Writer, rotate};
use crate::snapshot_state::{Saving, SnapshotState};
use crate::store::Store;
use crate::stripes::{Access, Held, STRIPES, Stripe, StripeIndex, stripe_range};
use crate::transaction::has_expired;

impl Store {
    /// The state of snapshots.
    pub fn snapshot_state(&self) -> SnapshotState {
        self.snapshots.state.lock().last.clone()
    }

    /// Writes a snapshot to `path`, keeps `kept` snapshots in all (with 1 the new one replaces the
    /// old one), and returns the number of keys. The caller must hold no stripe.
    pub fn save(&self, path: &Path, kept: usize) -> Result<u64> {
        let mut saving = self.begin_saving()?;
        let saved = self.write_snapshot(path, kept);
        saving.is_saved = saved.is_ok();
        saved
    }

    /// Notes that a snapshot is being written, until the returned value is dropped.
    pub(crate) fn begin_saving(&self) -> Result<Saving<'_>> {
        let mut state = self.snapshots.state.lock();
        if state.last.is_writing {
            return Err(fail("ERR Background save already in progress"));
        }
        state.last.is_writing = true;
        Ok(Saving { snapshots: &self.snapshots, is_saved: false })
    }

    fn write_snapshot(&self, path: &Path, kept: usize) -> Result<u64> {
        let failed = |error: io::Error| {
            fail_with(format!("ERR the snapshot {} cannot be written: {error}", path.display()))
        };
        let unfinished = PathBuf::from({
            let mut name = path.as_os_str().to_owned();
            name.push(".new");
            name
        });
        self.begin_snapshot(Writer::begin(&unfinished).map_err(failed)?);
        let written = self.save_stripes();
        // From here on no command writes a stripe for this snapshot.
        self.snapshots.writing.store(0, Ordering::Release);
        let writer = self.snapshots.writer.lock().take();
        let finished = written.and_then(|()| match writer {
            Some(writer) => {
                let keys = writer.keys;
                let finished = writer.finish().and_then(|()| rotate(&unfinished, path, kept));
                finished.map(|()| keys).map_err(failed)
            }
            None => Ok(0),
        });
        if finished.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        finished
    }

    /// Begins a snapshot: its point in time.
    pub(crate) fn begin_snapshot(&self, writer: Writer) {
        let _all = self.stripes.lock_all(Access::Exclusive);
        // Until now a command of an earlier snapshot may have held a stripe, and looked for that
        // snapshot's writer, or found its error.
        *self.snapshots.writer.lock() = Some(writer);
        *self.snapshots.failure.lock() = None;
        let mut state = self.snapshots.state.lock();
        state.begun += 1;
        // Release: with the loads by holders of stripes. The locks order these anyway.
        self.snapshots.writing.store(state.begun, Ordering::Release);
    }

    /// Writes the stripes that no command has written.
    pub(crate) fn save_stripes(&self) -> Result<()> {
        for index in 0..STRIPES as StripeIndex {
            let held = self.stripes.lock([index].into_iter().collect(), Access::Shared);
            let Some(stripe) = held.stripe(index) else { continue };
            if !self.save_stripe(index, stripe)? {
                return Err(fail(
                    "ERR writes of a committed transaction are pending; no snapshot can be written",
                ));
            }
        }
        // The command that found it held a stripe, and all of them have been held since.
        self.snapshots.failure.lock().take().map_or(Ok(()), Err)
    }

    /// Writes the exclusively held stripes to the running snapshot, if they are not written yet.
    /// Returns false if writes of a committed transaction are pending, which come first. Any other
    /// error is that of the snapshot, which ends, and not of the command.
    pub(crate) fn save_before_writes(&self, held: &mut Held<'_>) -> bool {
        if self.snapshots.writing.load(Ordering::Acquire) == 0 {
            return true;
        }
        for (index, stripe) in held.exclusive() {
            match self.save_stripe(index, stripe) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(failure) => {
                    self.snapshots.failure.lock().get_or_insert(failure);
                    // Release: as in `begin_snapshot`.
                    self.snapshots.writing.store(0, Ordering::Release);
                    return true;
                }
            }
        }
        true
    }

    /// Writes a stripe to the running snapshot, if it is not written yet. Returns false, and writes
    /// nothing, if writes are pending.
    fn save_stripe(&self, index: StripeIndex, stripe: &Stripe) -> Result<bool> {
        let snapshot = self.snapshots.writing.load(Ordering::Acquire);
        // Two holders of a shared stripe cannot meet here: only one thread writes snapshots.
        if snapshot == 0 || stripe.saved_in.load(Ordering::Acquire) == snapshot {
            return Ok(true);
        }
        // A thread with pending writes has set the flag before it released the stripe.
        if self.has_pending_writes() {
            return Ok(false);
        }
        let mut writer = self.snapshots.writer.lock();
        let Some(writer) = writer.as_mut() else { return Ok(true) };
        let now_ms = self.clock.now_ms();
        for database in 0..DATABASES {
            let range = stripe_range(self.space(database), index);
            let mut scan = self.map.range(range);
            while let Some((full, value)) = scan.next_record()? {
                self.check_not_ending()?;
                let (_, _, key) = split_head_key(full).ok_or(Failure::Damaged)?;
                let head = Head::decode(value).ok_or(Failure::Damaged)?;
                if !has_expired(&head, now_ms) {
                    self.save_key(writer, database, key, &head)?;
                }
            }
        }
        stripe.saved_in.store(snapshot, Ordering::Release);
        Ok(true)
    }

    fn save_key(
        &self,
        writer: &mut Writer,
        database: u8,
        key: &[u8],
        head: &Head<'_>,
    ) -> Result<()> {
        let by_system = |at_ms: u64| self.clock.by_system(at_ms).max(0) as u64;
        let expires_at = head.expires_at.map(by_system);
        writer.entry(database, key, &Head { expires_at, ..*head }.encode());
        writer.keys += 1;
        let (kind, id) = match head.content {
            Content::String(_) => return Ok(()),
            Content::Long(long) => return self.save_pieces(writer, long),
            Content::Collection(kind, id, _) => (kind, id),
        };
        let (section, tag) = match kind {
            Kind::RangeIndex => (Section::Ordered, ORDERED_TAG),
            _ => (Section::Fields, FIELD_TAG),
        };
        let mut scan = self.map.prefix(section_prefix(id, section));
        while let Some((full, value)) = scan.next_record()? {
            self.check_not_ending()?;
            match crate::layout::split_element_key(full) {
                Some(Element::Field(field) | Element::Ordered(field)) => {
                    writer.entry(tag, field, value);
                }
                _ => return Err(Failure::Damaged),
            }
        }
        Ok(())
    }

    fn save_pieces(&self, writer: &mut Writer, long: LongString) -> Result<()> {
        let mut scan = self.map.range(pieces_of(long));
        while let Some((full, piece)) = scan.next_record()? {
            self.check_not_ending()?;
            let index = split_piece_key(full).ok_or(Failure::Damaged)?;
            let counted = piece.len().min(counted_bytes(long, index));
            writer.entry(PIECE_TAG, &index.to_be_bytes(), &piece[..counted]);
        }
        Ok(())
    }
}
