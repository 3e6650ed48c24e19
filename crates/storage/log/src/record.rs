//! The records of the tail, as threads read and decide them. `tail.rs` draws their bytes.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Pool, Word};

/// The most bytes of a record's payload.
pub const MAX_RECORD_BYTES: usize = 16 << 20;
/// Bytes of a record before its payload.
pub(crate) const RECORD_HEADER_BYTES: u64 = 32;

pub(crate) const BEFORE_AT: u64 = 0;
pub(crate) const LSN_AT: u64 = 8;
pub(crate) const PAYLOAD_AT: u64 = 16;
pub(crate) const STATUS_AT: u64 = 24;

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Neither of the others yet.
    Undecided,
    /// It is part of the log.
    Committed,
    /// It never took place.
    Failed,
}

impl Status {
    fn of(word: u64) -> Self {
        match word {
            1 => Self::Committed,
            2 => Self::Failed,
            _ => Self::Undecided,
        }
    }

    pub(crate) fn word(self) -> u64 {
        match self {
            Self::Undecided => 0,
            Self::Committed => 1,
            Self::Failed => 2,
        }
    }
}

/// A record of the tail, which a guard keeps.
#[derive(Clone, Copy, Debug)]
pub struct Record<'pool, D: Domain> {
    pool: &'pool Pool<D>,
    off: u64,
}

impl<'pool, D: Domain> Record<'pool, D> {
    /// The record at `off`. The caller holds a guard since it found the record reachable.
    pub(crate) fn at(pool: &'pool Pool<D>, off: u64) -> Self {
        Self { pool, off }
    }

    pub(crate) fn word(self, at: u64) -> Word<'pool, D> {
        // Only damage leads beyond: there is no word then.
        self.pool.word(self.off.wrapping_add(at))
    }

    /// Offset of the record in the pool.
    pub fn off(self) -> u64 {
        self.off
    }

    /// Its log sequence number.
    pub fn lsn(self) -> u64 {
        // Acquire, here and below: with the CAS that published the record.
        self.word(LSN_AT).load(Ordering::Acquire)
    }

    /// Bytes of its payload.
    pub fn payload_bytes(self) -> u64 {
        self.word(PAYLOAD_AT).load(Ordering::Acquire)
    }

    /// Offset of its payload in the pool.
    pub fn payload_off(self) -> u64 {
        self.off.wrapping_add(RECORD_HEADER_BYTES)
    }

    /// Its payload, copied.
    pub fn payload(self) -> Vec<u8> {
        let bytes = self.payload_bytes().min(MAX_RECORD_BYTES as u64);
        self.pool.load_bytes(self.payload_off(), bytes)
    }

    /// So many bytes of its payload from `at` on, copied; `None` if it has fewer.
    pub fn payload_from(self, at: usize, bytes: usize) -> Option<Vec<u8>> {
        let end = at.checked_add(bytes)? as u64;
        let off = self.payload_off().wrapping_add(at as u64);
        (end <= self.payload_bytes()).then(|| self.pool.load_bytes(off, bytes as u64))
    }

    /// The LSN of the record before; that of damage is any number.
    pub(crate) fn lsn_before(self) -> u64 {
        let payload_bytes = self.payload_bytes().min(MAX_RECORD_BYTES as u64);
        self.lsn().wrapping_sub(record_bytes(payload_bytes))
    }

    /// Offset of the record before.
    pub(crate) fn before(self) -> u64 {
        self.word(BEFORE_AT).load(Ordering::Acquire)
    }

    /// Its status; a decision may not be durable yet.
    pub fn status(self) -> Status {
        Status::of(self.word(STATUS_AT).load(Ordering::Acquire))
    }

    /// Its status, made durable: the thread that decided it may not have written it back yet.
    pub fn durable_status(self) -> Status {
        let status = self.status();
        if D::needs_write_back() && status != Status::Undecided {
            self.flush_status();
            D::fence();
        }
        status
    }

    /// Writes the line of its status back; it is durable after the next fence.
    pub(crate) fn flush_status(self) {
        self.word(STATUS_AT).flush();
    }

    /// Decides the record, unless it is decided already; returns its status.
    pub fn decide(self, status: Status) -> Status {
        self.try_decide(status).map_or_else(|other| other, |()| status)
    }

    /// Decides the record; its status as an error if it was decided already.
    pub fn try_decide(self, status: Status) -> Result<(), Status> {
        let decided = self.word(STATUS_AT).compare_exchange(0, status.word());
        self.flush_status();
        D::fence();
        decided.map(drop).map_err(Status::of)
    }
}

/// Where a record is that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its log sequence number.
    pub lsn: u64,
    /// Its offset in the pool.
    pub off: u64,
}

/// Bytes that a record takes in an arena, and by which its LSN is above the one before.
pub(crate) fn record_bytes(payload_bytes: u64) -> u64 {
    RECORD_HEADER_BYTES + payload_bytes.next_multiple_of(8)
}
