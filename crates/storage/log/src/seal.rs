//! Sealing: the decision which records the next block has, and where it goes.
//!
//! | step | what is written | a crash leaves |
//! | --- | --- | --- |
//! | check that the block of the newest seal is durable | | |
//! | walk from `newest` back to the newest seal's last record, or to one that was seen (`walked.rs`) | | |
//! | write back `newest` | | the records in the tail, durable |
//! | settle each record, the oldest first, until the block is large enough; write back its status | statuses | the same |
//! | build the block's bytes in process memory, and so its checksum | | |
//! | build the new seal, in a block of the pool | a reserved block | nothing |
//! | publish: `sealed` from the old seal to the new one, by CAS | one exchange of the allocator | the old seal or the new one |
//!
//! The CAS of `sealed` decides. Of two threads that seal at the same time one fails, and goes on
//! with the other's seal. A seal holds only LSNs, offsets and checksums. All bytes of the block
//! follow from the records between its LSNs, which do not change once they are decided, and whose
//! arenas stay until the block is durable. So any thread can make the bytes again
//! ([`Log::block_of`]); the checksum says that they are the same.
//!
//! The thread is pinned throughout. So the walk reads whole records even if another thread seals
//! them meanwhile and their arenas are freed.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, mutant};

use crate::block::{Builder, Header};
use crate::control::Seal;
use crate::error::{Error, Result};
use crate::log::{Log, Settle};
use crate::record::{Record, Status};
use crate::walked::Seen;

/// A sealed block.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// Offset of its seal.
    pub off: u64,
    pub seal: Seal,
    /// Its padded bytes.
    pub bytes: Vec<u8>,
}

impl<D: Domain> Log<D> {
    /// The newest seal, and its offset.
    pub(crate) fn newest_seal(&self, guard: &Guard<'_, D>) -> (u64, Seal) {
        let pool = guard.pool();
        // Acquire: with the CAS that published the seal.
        let off = self.control(pool).sealed().load(Ordering::Acquire);
        (off, Seal::load(pool, off))
    }

    /// The block that is to be written next: the newest that is sealed, if it is not durable; else
    /// a new one; `None` if the tail is empty, or its oldest record stays undecided.
    pub(crate) fn next_block(
        &self,
        guard: &Guard<'_, D>,
        settle: &dyn Settle<D>,
    ) -> Result<Option<Sealed>> {
        let (off, seal) = self.newest_seal(guard);
        if self.durable_lsn() < seal.last_lsn {
            // The thread that has sealed it may have stopped before: the device must have no block
            // that the medium does not know.
            self.control(guard.pool()).sealed().flush();
            D::fence();
            let bytes = match self.segments() {
                Some(_) => self.block_of(guard, &seal, settle)?,
                None => Vec::new(),
            };
            return Ok(Some(Sealed { off, seal, bytes }));
        }
        self.seal(guard, off, &seal, settle)
    }

    fn seal(
        &self,
        guard: &Guard<'_, D>,
        old_off: u64,
        old: &Seal,
        settle: &dyn Settle<D>,
    ) -> Result<Option<Sealed>> {
        let seen = self.seen_behind(guard, old.last_lsn)?;
        let mut builder = Builder::new(old.last_lsn);
        let mut last: Option<Record<'_, D>> = None;
        let mut before = old.last_lsn;
        for &(lsn, off) in &seen.records {
            let record = Record::at(guard.pool(), off);
            // As in a walk; damage may have come since.
            if record.lsn() != lsn || record.lsn_before() != before {
                return Err(self.damaged_tail(off));
            }
            before = lsn;
            // By LSNs, which count the records that failed too: their differences are bounded.
            let is_enough = record.lsn() - old.last_lsn > self.wanted_block_bytes();
            if last.is_some() && is_enough {
                break;
            }
            // A record that failed may have left something to undo.
            if record.status() != Status::Committed && !mutant!("log-seals-undecided") {
                let undecided = || Error::Unsettled("it was left undecided".into());
                match settle.settle(guard, record) {
                    Ok(_) if record.status() != Status::Undecided => {}
                    // What is settled so far need not wait for it.
                    _ if last.is_some() => break,
                    settled => return Err(settled.err().unwrap_or_else(undecided)),
                }
            }
            // The exchange of the seals fences before it.
            record.flush_status();
            if self.segments().is_some() {
                push(&mut builder, record, Some(settle));
            }
            last = Some(record);
        }
        let Some(last) = last else { return Ok(None) };
        D::observe_process_memory();
        self.walked().give_back(seen);
        if self.segments().is_none() {
            let seal = Seal { last_lsn: last.lsn(), after_lsn: old.last_lsn, ..*old };
            let off = self.publish_seal(guard, old_off, &seal)?;
            return Ok(off.map(|off| Sealed { off, seal, bytes: Vec::new() }));
        }
        let place = old.next_place(builder.bytes(), self.options().segment_bytes);
        let seal = Seal {
            place,
            bytes: builder.bytes() as u64,
            after_lsn: old.last_lsn,
            last_lsn: last.lsn(),
            record_off: last.off(),
            crc: 0,
            crc_before: old.crc,
        };
        let (bytes, crc) = builder.finish(&self.header(&seal));
        let seal = Seal { crc, ..seal };
        let off = self.publish_seal(guard, old_off, &seal)?;
        // Else another thread has sealed these records, perhaps with fewer or more of them: the
        // caller looks again.
        Ok(off.map(|off| Sealed { off, seal, bytes }))
    }

    /// Puts `seal` in the place of the seal at `old_off`; its offset, or `None` if that is no
    /// longer the newest.
    pub(crate) fn publish_seal(
        &self,
        guard: &Guard<'_, D>,
        old_off: u64,
        seal: &Seal,
    ) -> Result<Option<u64>> {
        let control = self.control(guard.pool());
        let block = seal.build(guard)?;
        let exchange =
            guard.begin_exchange(control.sealed_off(), u64::MAX, old_off, Some((block, 0)));
        let off = exchange.new_name();
        // Release: publishes the seal.
        match control.sealed().compare_exchange(old_off, off) {
            Ok(_) => {
                control.sealed().flush();
                exchange.succeeded();
                Ok(Some(off))
            }
            Err(_) => {
                exchange.failed();
                Ok(None)
            }
        }
    }

    /// The bytes of a block that was sealed and is not durable.
    fn block_of(
        &self,
        guard: &Guard<'_, D>,
        seal: &Seal,
        settle: &dyn Settle<D>,
    ) -> Result<Vec<u8>> {
        let records = self.records_between(guard, seal.after_lsn, seal.record_off)?;
        // A process of an earlier version, which may have sealed it, put whole payloads there.
        for redo in [Some(settle), None] {
            if redo.is_none() && mutant!("log-older-seal-refused") {
                break;
            }
            let mut builder = Builder::new(seal.after_lsn);
            records.iter().for_each(|&record| push(&mut builder, record, redo));
            let (bytes, crc) = builder.finish(&self.header(seal));
            if crc == seal.crc {
                return Ok(bytes);
            }
        }
        let what = format!(
            "the records up to LSN {} in the pool are not those that were sealed",
            seal.last_lsn
        );
        Err(Error::Damaged { path: self.pool().path().display().to_string(), what })
    }

    fn header(&self, seal: &Seal) -> Header {
        Header {
            log_id: self.log_id(),
            generation: self.generation(),
            place: seal.place,
            after_lsn: seal.after_lsn,
            last_lsn: seal.last_lsn,
            crc_before: seal.crc_before,
        }
    }

    /// The records above the LSN `from`, which is that of a record, if they are not sealed; the
    /// oldest first. The guard keeps them.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn records_behind<'pool>(
        &self,
        guard: &Guard<'pool, D>,
        from: u64,
    ) -> Result<Vec<Record<'pool, D>>> {
        // The seal first: it is never above the newest record.
        let (_, seal) = self.newest_seal(guard);
        self.tail_behind(guard, from.max(seal.last_lsn))
    }

    /// The records above the LSN `first`, which is that of a record; the oldest first. The medium
    /// has them: the thread that appended the newest one may have stopped before that was durable.
    /// A power cut must not take back a record that a seal covers, or whose changes are durable.
    fn tail_behind<'pool>(
        &self,
        guard: &Guard<'pool, D>,
        first: u64,
    ) -> Result<Vec<Record<'pool, D>>> {
        let newest = self.control(guard.pool()).newest();
        let records = self.records_between(guard, first, newest.load(Ordering::Acquire))?;
        if !records.is_empty() && !mutant!("log-seals-undurable") {
            newest.flush();
            D::fence();
        }
        Ok(records)
    }

    /// The same, for the thread that seals: it walks no farther than another one has.
    fn seen_behind(&self, guard: &Guard<'_, D>, first: u64) -> Result<Seen> {
        D::observe_process_memory();
        let mut seen = self.walked().take(first);
        let behind = self.tail_behind(guard, seen.last_lsn())?;
        seen.records.extend(behind.into_iter().map(|record| (record.lsn(), record.off())));
        Ok(seen)
    }

    /// The records above the LSN `first`, up to the one at `newest`; the oldest first.
    fn records_between<'pool>(
        &self,
        guard: &Guard<'pool, D>,
        first: u64,
        newest: u64,
    ) -> Result<Vec<Record<'pool, D>>> {
        let pool = guard.pool();
        let mut records = Vec::new();
        let mut record = Record::at(pool, newest);
        let mut lsn = self.lsn_of(pool, newest);
        // The record up to the LSN `first` is not looked at: it may have been freed.
        while lsn > first {
            let before = record.lsn_before();
            if record.lsn() != lsn || !(first..lsn).contains(&before) || guard.damage().is_some() {
                return Err(self.damaged_tail(record.off()));
            }
            records.push(record);
            (record, lsn) = (Record::at(pool, record.before()), before);
        }
        records.reverse();
        Ok(records)
    }
}

/// Adds a record that is decided: what `settle` keeps of it, or else its whole payload.
fn push<D: Domain>(builder: &mut Builder, record: Record<'_, D>, settle: Option<&dyn Settle<D>>) {
    if record.status() == Status::Committed || mutant!("log-keeps-failed") {
        let payload = record.payload();
        builder.push(record.lsn(), |bytes| match settle {
            Some(settle) => settle.push_redo(&payload, bytes),
            None => bytes.extend_from_slice(&payload),
        });
    }
}
