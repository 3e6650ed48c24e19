//! Writing sealed blocks, and waiting for them. `leadership.rs` says which thread writes.
//!
//! | step | what is written | a crash, or a thread that stops, leaves |
//! | --- | --- | --- |
//! | announce the segment, plus one, in a word of the control block, by CAS | `announced` | a segment that never becomes a spare |
//! | look whether the block's seal still is the newest, and not durable | | the same |
//! | take the handle of the segment, or open it; make it, if the block is its first | names | a file to be removed, or a segment without a block |
//! | write the block | the segment | any sectors of it |
//! | sync | | the block |
//! | raise `durable`, by CAS | `durable` | the block, which the next writer writes again |
//! | withdraw the announcement | `announced` | |
//! | free the arenas that are not needed | the table of arenas | arenas that the next writer frees, or a thread that finds no empty place |
//!
//! A failed write or sync sets `failed` before the announcement is withdrawn, and nothing is tried
//! again, even if another writer of the same block succeeds: what its sync says of this one's bytes
//! is not known. A segment that cannot be made for lack of room sets nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pando_pmem::{Domain, mutant};

use crate::control::{Seal, WRITERS};
use crate::error::{Error, Result};
use crate::log::{Log, Settle};
use crate::seal::Sealed;
use crate::segments::Segments;

/// The time after which a commit stops to wait for a disk that does not answer.
const STALL: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// A tail is long if more than one part of this many of its room waits to be written.
const LONG_TAIL_PART: u64 = 8;

impl<D: Domain> Log<D> {
    /// Writes one block, and syncs it: the one that is sealed, or else one with records of the
    /// tail. Returns the LSN up to which the log is durable.
    ///
    /// Any thread may call it at any time, beside others that write too; [`sync`](Self::sync) lets
    /// one thread write for all.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`]; [`Error::Device`] if a segment cannot be made, which may be tried again;
    /// [`Error::Stalled`], [`Error::Unsettled`], [`Error::Pool`], [`Error::Damaged`].
    pub fn write_block(&self, settle: &dyn Settle<D>) -> Result<u64> {
        let guard = self.pool().pin()?;
        let control = self.control(guard.pool());
        self.check_running(control)?;
        let Some(sealed) = self.next_block(&guard, settle)? else { return Ok(self.durable_lsn()) };
        let Some(segments) = self.segments() else {
            // A log without files: what is sealed is as durable as it gets.
            self.raise_durable(sealed.seal.last_lsn);
            self.free_arenas(&guard);
            return Ok(self.durable_lsn());
        };
        let segment = sealed.seal.place / self.options().segment_bytes;
        let announcement = (0..WRITERS)
            .map(|writer| control.announced(writer))
            .find(|word| word.compare_exchange(0, segment + 1).is_ok())
            .ok_or_else(|| Error::Stalled { path: self.path(), writers: WRITERS })?;
        // Sequentially consistent, as the CAS before: either a truncation sees the announcement, or
        // this thread sees that the block is no longer the newest.
        let is_newest = control.sealed().load(Ordering::SeqCst) == sealed.off;
        let is_needed = is_newest && self.durable_lsn() < sealed.seal.last_lsn;
        // No epoch is held back while the device is at work.
        drop(guard);
        let written = match is_needed || mutant!("log-late-writer") {
            true => self.write_sealed(segments, &sealed),
            false => Ok(()),
        };
        if matches!(written, Err(Error::Failed { .. })) && !mutant!("log-failed-sync-retried") {
            control.failed().store(1, Ordering::Release);
            control.failed().flush();
            D::fence();
        }
        announcement.store(0, Ordering::Release);
        written?;
        if is_needed {
            self.raise_durable(sealed.seal.last_lsn);
            // Else the next log writer frees them.
            if let Ok(guard) = self.pool().pin() {
                self.free_arenas(&guard);
            }
        }
        Ok(self.durable_lsn())
    }

    /// Writes and syncs the block, unless another thread has done so.
    fn write_sealed(&self, segments: &Segments, sealed: &Sealed) -> Result<()> {
        let Seal { place, last_lsn, .. } = sealed.seal;
        let is_needed = || self.durable_lsn() < last_lsn;
        let Some(segment) = segments.segment_for(place, &is_needed)? else { return Ok(()) };
        segment
            .write(&sealed.bytes, place % self.options().segment_bytes)
            .map_err(|_| Error::Failed { path: self.path() })?;
        segments.give_back(segment);
        Ok(())
    }

    fn raise_durable(&self, lsn: u64) {
        let word = self.control(self.pool()).durable();
        let mut found = word.load(Ordering::Acquire);
        while found < lsn {
            match word.compare_exchange(found, lsn) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
        word.flush();
        D::fence();
    }

    /// Returns when all records up to `lsn` that were appended are durable, and writes them if no
    /// other thread does. The caller holds no guard, or it would hold the epoch back meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the log has stopped: whether the records survive a power cut is then
    /// open. Otherwise as [`write_block`](Self::write_block).
    pub fn sync(&self, lsn: u64, settle: &dyn Settle<D>) -> Result<()> {
        let lsn = lsn.min(self.newest_lsn(&self.pool().pin()?));
        let leadership = self.leadership();
        while self.durable_lsn() < lsn {
            self.check_running(self.control(self.pool()))?;
            // Read before the leader, so that the end of its write is not missed.
            let writes = leadership.writes();
            let leader = leadership.leader();
            if leader != 0 && leadership.wait::<D>(writes) {
                continue;
            }
            if let Some(term) = leadership.take(leader) {
                if mutant!("log-sync-delayed") {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let written = self.write_block(settle);
                leadership.end(term);
                written?;
            }
        }
        Ok(())
    }

    /// Waits until more of the tail is durable, for a commit that finds no room in it. It writes
    /// the tail if no other thread does. A thread that writes to a disk that does not answer cannot
    /// be called back. So this one takes over from a leader that makes no progress only if no other
    /// thread has done so; otherwise it waits for at most ten seconds. The caller holds no guard.
    ///
    /// # Errors
    ///
    /// [`Error::Stalled`] after that time; otherwise as [`write_block`](Self::write_block).
    pub fn shorten_tail(&self, settle: &dyn Settle<D>) -> Result<()> {
        let (leadership, durable) = (self.leadership(), self.durable_lsn());
        // All of it may have become durable since the caller looked. Else a block raises `durable`.
        if self.newest_lsn(&self.pool().pin()?) <= durable {
            return Ok(());
        }
        let begun = Instant::now();
        while self.durable_lsn() == durable {
            self.check_running(self.control(self.pool()))?;
            // Read before the leader, so that the end of its write is not missed.
            let writes = leadership.writes();
            let leader = leadership.leader();
            if leader != 0 {
                let has_written = leadership.wait::<D>(writes);
                if has_written {
                    continue;
                }
                if leadership.was_taken_over() {
                    if begun.elapsed() < STALL {
                        continue;
                    }
                    return Err(Error::Stalled { path: self.path(), writers: self.writers() });
                }
            }
            if let Some(term) = leadership.take(leader) {
                let written = self.write_block(settle);
                leadership.end(term);
                written?;
            }
        }
        Ok(())
    }

    /// The number of threads that are writing.
    fn writers(&self) -> u64 {
        let control = self.control(self.pool());
        let is_announced = |&writer: &u64| control.announced(writer).load(Ordering::Relaxed) != 0;
        (0..WRITERS).filter(is_announced).count() as u64
    }

    /// Writes the tail again and again, until `is_enough` is set. One thread of the process at a
    /// time calls it. After an error it tries again later: a disk that is full may have room then.
    /// To end it, set `is_enough` and unpark the thread.
    pub fn write_until(&self, settle: &dyn Settle<D>, is_enough: &AtomicBool) {
        let background = self.background();
        background.begin();
        let mut pause = Duration::ZERO;
        while !is_enough.load(Ordering::Relaxed) {
            match self.gather_and_write(settle, is_enough) {
                Ok(()) => pause = Duration::ZERO,
                // Threads that wait for the log get the error themselves.
                Err(_) => pause = background.pause(pause),
            }
        }
    }

    /// Makes the records durable that are there soon; sleeps for a time if there are none.
    fn gather_and_write(&self, settle: &dyn Settle<D>, is_enough: &AtomicBool) -> Result<()> {
        let newest = || -> Result<u64> { Ok(self.newest_lsn(&self.pool().pin()?)) };
        let found = newest()?;
        if self.durable_lsn() >= found {
            self.background().nap();
            return Ok(());
        }
        if !self.is_long(found) {
            self.background().gather();
        }
        // What is there now: what comes meanwhile is gathered for the next block.
        match is_enough.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.sync(newest()?, settle),
        }
    }

    /// Whether the part of the tail up to `lsn` is to be written without delay.
    fn is_long(&self, lsn: u64) -> bool {
        lsn.saturating_sub(self.durable_lsn()) > self.options().tail_bytes / LONG_TAIL_PART
    }

    /// Tells the thread in [`write_until`](Self::write_until) that there is something to write, up
    /// to `lsn`.
    pub fn wake_writer(&self, lsn: u64) {
        self.background().wake(self.is_long(lsn));
    }

    /// Whether [`truncate`](Self::truncate) would release a segment.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn can_truncate(&self, from: u64) -> Result<bool> {
        let Some(segments) = self.segments() else { return Ok(false) };
        Ok(!segments.not_needed(from, self.durable_lsn())?.is_empty())
    }

    /// Releases the segments that are not needed to read the log from the LSN `from` on.
    ///
    /// The caller has made durable whatever takes their place, names of files included.
    ///
    /// # Errors
    ///
    /// [`Error::Device`]: some segments were not released; the next truncation does it.
    pub fn truncate(&self, from: u64) -> Result<()> {
        let Some(segments) = self.segments() else { return Ok(()) };
        let control = self.control(self.pool());
        let is_announced = |segment: u64| {
            // Sequentially consistent: see `write_block`.
            (0..WRITERS)
                .any(|writer| control.announced(writer).load(Ordering::SeqCst) == segment + 1)
                && !mutant!("log-announcement-ignored")
        };
        segments.truncate(from, self.durable_lsn(), &is_announced)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc;
    use std::thread;

    use pando_device::Operation;
    use pando_device::simulated::Simulated;
    use pando_pmem::{CreateOptions, Guard, Pool, Process, layout};

    use super::*;
    use crate::{LogOptions, Owner, Record, Status, record};

    struct Commits;

    impl Settle<Process> for Commits {
        fn settle(&self, _: &Guard<'_, Process>, record: Record<'_, Process>) -> Result<Status> {
            Ok(record.decide(Status::Committed))
        }

        fn push_redo(&self, payload: &[u8], bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(payload);
        }
    }

    const OPTIONS: LogOptions =
        LogOptions { segment_bytes: 64 << 10, tail_bytes: 1 << 20, owner: Owner::Pool };

    fn log_in(directory: &Simulated) -> Log<Process> {
        let create = CreateOptions { max_bytes: 64 << 20, ..CreateOptions::default() };
        let pool = Pool::<Process>::anonymous(&create).expect("memory");
        let log = Log::create(pool, layout::LOG_OFF, Arc::new(directory.clone()), (1, 0), OPTIONS);
        log.expect("a log")
    }

    /// Keeps the first byte of each record.
    struct KeepsFirst;

    impl Settle<Process> for KeepsFirst {
        fn settle(
            &self,
            guard: &Guard<'_, Process>,
            record: Record<'_, Process>,
        ) -> Result<Status> {
            Commits.settle(guard, record)
        }

        fn push_redo(&self, payload: &[u8], bytes: &mut Vec<u8>) {
            bytes.push(payload[0]);
        }
    }

    /// What goes to the disk is the same, whoever writes a sealed block; also if a process of an
    /// earlier version has sealed it.
    #[test]
    fn a_sealed_block_is_written_as_it_was_sealed() {
        for is_sealed_whole in [false, true] {
            let directory = Simulated::new();
            let log = log_in(&directory);
            let guard = log.pool().pin().expect("a slot");
            log.append(&guard, &[b"a record"]).expect("appended");
            let settle: &dyn Settle<Process> = if is_sealed_whole { &Commits } else { &KeepsFirst };
            let sealed = log.next_block(&guard, settle).expect("sealed").expect("a block");
            log.append(&guard, &[b"behind"]).expect("appended");
            drop(guard);
            // Another thread writes it.
            assert_eq!(log.write_block(&KeepsFirst).expect("written"), sealed.seal.last_lsn);
            log.sync(u64::MAX, &KeepsFirst).expect("written");
            drop(log);

            let mut found = Vec::new();
            let visit = &mut |_, payload: &[u8]| {
                found.push(payload.to_vec());
                Ok(())
            };
            crate::recover(&directory, 0, visit).expect("read");
            let first = if is_sealed_whole { &b"a record"[..] } else { b"a" };
            assert_eq!(found, [first, b"b"]);
        }
    }

    /// A walk over a long tail is not repeated for each of its blocks.
    #[test]
    fn what_a_block_has_no_room_for_is_remembered() {
        let log = log_in(&Simulated::new());
        let append = |records: usize| -> Vec<u64> {
            let guard = log.pool().pin().expect("a slot");
            let append = |_| log.append(&guard, &[&[7; 1000]]).expect("appended").lsn;
            (0..records).map(append).collect()
        };
        let mut lsns = append(200);
        for _ in 0..3 {
            let durable = log.write_block(&Commits).expect("written");
            lsns.retain(|&lsn| lsn > durable);
            let seen = log.walked().take(durable);
            assert!(!lsns.is_empty() && seen.records.iter().map(|&(lsn, _)| lsn).eq(lsns.clone()));
            log.walked().give_back(seen);
            lsns.extend(append(10));
        }
        let last = lsns[lsns.len() - 1];
        log.sync(last, &Commits).expect("written");
        assert_eq!(log.durable_lsn(), last);
    }

    /// Damage of a record that comes after a walk has seen it is an error, and nothing is sealed.
    #[test]
    fn a_remembered_record_that_was_damaged_since_is_reported() {
        // The words of a record, and its place among those that the next block would have.
        let words = [(record::LSN_AT, 8), (record::LSN_AT, u64::MAX), (record::PAYLOAD_AT, 8)];
        for (at, change) in words {
            for place in [0, 1, 20] {
                let directory = Simulated::new();
                let log = log_in(&directory);
                let guard = log.pool().pin().expect("a slot");
                for _ in 0..200 {
                    log.append(&guard, &[&[7; 1000]]).expect("appended");
                }
                let durable = log.write_block(&Commits).expect("written");
                let seen = log.walked().take(durable);
                let (_, off) = seen.records[place];
                log.walked().give_back(seen);
                let word = Record::at(log.pool(), off).word(at);
                let found = word.load(Ordering::SeqCst);
                word.store(found.wrapping_add(change), Ordering::SeqCst);
                let refused = log.write_block(&Commits).expect_err("damaged");
                assert!(matches!(refused, Error::Damaged { .. }), "{at}, {place}: {refused}");
                assert_eq!(log.newest_seal(&guard).1.last_lsn, durable);

                // A walk finds it too, and the list that it has made is not used.
                word.store(found, Ordering::SeqCst);
                drop(guard);
                log.sync(u64::MAX, &Commits).expect("written");
            }
        }
    }

    /// The first thread is the leader. One of the others takes over, and waits in the device, too.
    #[test]
    fn of_commits_that_wait_for_a_stalled_disk_one_takes_over_and_the_others_stop_to_wait() {
        const COMMITS: usize = 3;
        let directory = Simulated::new();
        let log = log_in(&directory);
        let guard = log.pool().pin().expect("a slot");
        let lsn = log.append(&guard, &[b"a record"]).expect("appended").lsn;
        drop(guard);

        let (waiting, answers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, has_answered) = (waiting.clone(), answers.clone());
        directory.on_operation(move |operation, _| {
            if operation == Operation::Write {
                counted.fetch_add(1, Ordering::SeqCst);
                while !has_answered.load(Ordering::SeqCst) {
                    thread::park_timeout(Duration::from_millis(1));
                }
            }
            Ok(())
        });
        thread::scope(|scope| {
            let (log, (told, ended)) = (&log, mpsc::channel());
            let leader = scope.spawn(|| {
                let term = log.leadership().take(0).expect("it is free");
                log.write_block(&Commits).expect("the disk has answered");
                log.leadership().end(term);
            });
            while waiting.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for _ in 0..COMMITS {
                let told = told.clone();
                scope.spawn(move || told.send(log.shorten_tail(&Commits)).expect("it is heard"));
            }
            for _ in 1..COMMITS {
                let ended = ended.recv().expect("a thread tells");
                assert!(matches!(ended, Err(Error::Stalled { writers: 2, .. })), "{ended:?}");
            }
            assert_eq!(waiting.load(Ordering::SeqCst), 2);
            answers.store(true, Ordering::SeqCst);
            ended.recv().expect("a thread tells").expect("the disk has answered");
            leader.join().expect("joins");
        });
        assert_eq!(log.durable_lsn(), lsn);
        // Nothing is left to write, or to wait for.
        log.shorten_tail(&Commits).expect("it is short");
    }
}
