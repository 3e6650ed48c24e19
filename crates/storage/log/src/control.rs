//! What a log keeps in its pool, beside the records.
//!
//! The control block, named by a word of the pool's owner:
//!
//! ```text
//! byte      0        8        16       24       32       40       48       56
//! 0         magic    log id            generat. place    lsn      crc      former
//! 64        newest   zero ...
//! 128       sealed   durable  failed   zero ...
//! 192       announced: the segments, plus one, that log writers write now; 8 words
//! 256       arenas: the offsets of the arenas, zero for none; 2,048 words
//! ```
//!
//! * `place`, `lsn` and `crc` say where the log began in this pool: the place of its first block,
//!   the LSN before it and the checksum of the block before. The first line changes only while no
//!   other thread uses the log.
//! * `former` is the offset of the control block of the log that this one replaces, until its
//!   blocks are freed (`replace.rs`); else zero.
//! * `newest` is the offset of the record that was appended last; zero if none was.
//! * `sealed` is the offset of the seal of the newest block; zero only while the log is created.
//! * `durable` is the LSN up to which all records are durable.
//! * `failed` is 1 after a failed write or sync.
//!
//! A seal says which bytes a block has, and never changes:
//!
//! ```text
//! byte      0        8        16       24       32       40       48       56
//! 0         place    bytes    after    last     record   crc      before   zero
//! ```
//!
//! * `place` and `bytes` are the block's place in the log and its length without padding. It covers
//!   the LSNs above `after`, up to `last`. `record` is the offset of its last record. `crc` is the
//!   block's checksum, `before` that of the block before.
//! * A seal of zero bytes stands for the end of the log before the first block of a generation:
//!   `after` equals `last`, and `place` is that of the next block. A log without files has only
//!   such seals.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Guard, Pool, Reservation, Word};

use crate::block::padded;

/// The first eight bytes of a control block.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"PANDOlc1");
/// Log writers that may write at the same time. One writes; the others took its place when it
/// seemed to have stopped.
pub(crate) const WRITERS: u64 = 8;
/// Arenas that the tail may have.
pub(crate) const ARENAS: u64 = 2048;

const LOG_ID_AT: u64 = 8;
const GENERATION_AT: u64 = 24;
const PLACE_AT: u64 = 32;
const LSN_AT: u64 = 40;
const CRC_AT: u64 = 48;
const FORMER_AT: u64 = 56;
const NEWEST_AT: u64 = 64;
const SEALED_AT: u64 = 128;
const DURABLE_AT: u64 = 136;
const FAILED_AT: u64 = 144;
const ANNOUNCED_AT: u64 = 192;
const ARENAS_AT: u64 = 256;

/// Bytes of a control block.
pub const CONTROL_BYTES: u64 = ARENAS_AT + ARENAS * 8;
/// Byte of a seal at which its last LSN is.
const LAST_LSN_AT: u64 = 24;
/// Bytes of a seal.
pub(crate) const SEAL_BYTES: u64 = 64;

const _: () = {
    assert!(ANNOUNCED_AT + WRITERS * 8 <= ARENAS_AT);
    assert!(CONTROL_BYTES == 16_640);
};

/// Where a generation of the log begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    pub place: u64,
    pub lsn: u64,
    pub crc: u32,
}

/// The control block of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control<'pool, D: Domain> {
    pool: &'pool Pool<D>,
    off: u64,
}

impl<'pool, D: Domain> Control<'pool, D> {
    pub fn new(pool: &'pool Pool<D>, off: u64) -> Self {
        Self { pool, off }
    }

    /// A control block that begins at `start`, in the place of the one at `former`, if that is not
    /// zero; to be named by its owner.
    pub fn build<'guard>(
        guard: &'guard Guard<'pool, D>,
        (log_id, generation): (u128, u64),
        start: Start,
        former: u64,
    ) -> pando_pmem::Result<Reservation<'guard, 'pool, D>> {
        let mut block = guard.reserve(CONTROL_BYTES)?;
        block.zero(0, CONTROL_BYTES);
        block.write_u64(0, MAGIC);
        block.write(LOG_ID_AT, &log_id.to_le_bytes());
        block.write_u64(GENERATION_AT, generation);
        block.write_u64(PLACE_AT, start.place);
        block.write_u64(LSN_AT, start.lsn);
        block.write_u64(CRC_AT, u64::from(start.crc));
        block.write_u64(FORMER_AT, former);
        block.write_u64(DURABLE_AT, start.lsn);
        block.flush(0, CONTROL_BYTES);
        Ok(block)
    }

    fn word(self, at: u64) -> Word<'pool, D> {
        self.pool.word(self.off + at)
    }

    /// A word of the first line. Acquire: with the word that names the control block.
    fn fixed(self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    pub fn is_one(self) -> bool {
        self.fixed(0) == MAGIC
    }

    pub fn log_id(self) -> u128 {
        u128::from(self.fixed(LOG_ID_AT + 8)) << 64 | u128::from(self.fixed(LOG_ID_AT))
    }

    pub fn generation(self) -> u64 {
        self.fixed(GENERATION_AT)
    }

    /// Begins another generation; durable on return.
    pub fn set_generation(self, generation: u64) {
        self.word(GENERATION_AT).store(generation, Ordering::Release);
        self.word(GENERATION_AT).flush();
        D::fence();
    }

    pub fn start(self) -> Start {
        let [place, lsn, crc] = [PLACE_AT, LSN_AT, CRC_AT].map(|at| self.fixed(at));
        Start { place, lsn, crc: crc as u32 }
    }

    /// The word that names the control block which this one replaces.
    pub fn former(self) -> Word<'pool, D> {
        self.word(FORMER_AT)
    }

    /// Offset of that word.
    pub fn former_off(self) -> u64 {
        self.off + FORMER_AT
    }

    pub fn newest(self) -> Word<'pool, D> {
        self.word(NEWEST_AT)
    }

    pub fn sealed(self) -> Word<'pool, D> {
        self.word(SEALED_AT)
    }

    /// Offset of the word that names the newest seal.
    pub fn sealed_off(self) -> u64 {
        self.off + SEALED_AT
    }

    pub fn durable(self) -> Word<'pool, D> {
        self.word(DURABLE_AT)
    }

    pub fn failed(self) -> Word<'pool, D> {
        self.word(FAILED_AT)
    }

    /// The segment, plus one, that log writer `writer` writes now.
    pub fn announced(self, writer: u64) -> Word<'pool, D> {
        self.word(ANNOUNCED_AT + writer * 8)
    }

    /// Offset of the word that names arena `index`.
    pub fn arena_off(self, index: u64) -> u64 {
        self.off + ARENAS_AT + index * 8
    }

    /// The word that names arena `index`.
    pub fn arena(self, index: u64) -> Word<'pool, D> {
        self.pool.word(self.arena_off(index))
    }
}

/// What a seal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub place: u64,
    pub bytes: u64,
    pub after_lsn: u64,
    pub last_lsn: u64,
    pub record_off: u64,
    pub crc: u32,
    pub crc_before: u32,
}

impl Seal {
    /// The end of the log before the first block of a generation.
    pub fn of_start(start: Start) -> Self {
        Self {
            place: start.place,
            bytes: 0,
            after_lsn: start.lsn,
            last_lsn: start.lsn,
            record_off: 0,
            crc: start.crc,
            crc_before: start.crc,
        }
    }

    /// Where a block of `bytes` bytes goes that follows this one.
    pub fn next_place(&self, bytes: usize, segment_bytes: u64) -> u64 {
        let end = self.place.saturating_add(padded(self.bytes as usize));
        let left = (segment_bytes - end % segment_bytes) % segment_bytes;
        if padded(bytes) <= left || left == 0 { end } else { end.saturating_add(left) }
    }

    pub fn build<'guard, 'pool, D: Domain>(
        &self,
        guard: &'guard Guard<'pool, D>,
    ) -> pando_pmem::Result<Reservation<'guard, 'pool, D>> {
        // A block that was written lets arenas go, so a seal may use the room that is kept for
        // operations that make room.
        let mut block = guard.with_reserve(|| guard.reserve(SEAL_BYTES))?;
        let words = [
            self.place,
            self.bytes,
            self.after_lsn,
            self.last_lsn,
            self.record_off,
            u64::from(self.crc),
            u64::from(self.crc_before),
            0,
        ];
        for (at, word) in (0..).step_by(8).zip(words) {
            block.write_u64(at, word);
        }
        block.flush(0, SEAL_BYTES);
        Ok(block)
    }

    /// `last_lsn` of the seal at `off`, which a guard keeps.
    pub fn load_last_lsn<D: Domain>(pool: &Pool<D>, off: u64) -> u64 {
        // Acquire: as in `load`.
        pool.word(off.wrapping_add(LAST_LSN_AT)).load(Ordering::Acquire)
    }

    /// The seal at `off`, which a guard keeps.
    pub fn load<D: Domain>(pool: &Pool<D>, off: u64) -> Self {
        // Acquire: with the CAS of `sealed` that published the seal.
        let word = |at| pool.word(off.wrapping_add(at)).load(Ordering::Acquire);
        Self {
            place: word(0),
            bytes: word(8),
            after_lsn: word(16),
            last_lsn: word(LAST_LSN_AT),
            record_off: word(32),
            crc: word(40) as u32,
            crc_before: word(48) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_pmem::{CreateOptions, Process};

    use super::*;

    fn bytes_of(block: &Reservation<'_, '_, Process>, pool: &Pool<Process>, bytes: u64) -> u32 {
        crc32fast::hash(&pool.load_bytes(block.off(), bytes))
    }

    /// Fails on any change of the layout: then the magic number must change with it.
    #[test]
    fn golden_control_block_and_seal() {
        let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
        let guard = pool.pin().expect("a slot");
        let start = Start { place: 3 << 20, lsn: 77, crc: 0xABCD };
        let block = Control::build(&guard, (5 << 64 | 3, 2), start, 0).expect("room");
        assert_eq!(bytes_of(&block, &pool, CONTROL_BYTES), GOLDEN[0], "the control block changed");
        let control = Control::new(&pool, block.off());
        assert!(control.is_one());
        assert_eq!((control.log_id(), control.generation()), (5 << 64 | 3, 2));
        assert_eq!(control.start(), start);
        let seal = Seal {
            place: 1,
            bytes: 2,
            after_lsn: 3,
            last_lsn: 4,
            record_off: 5,
            crc: 6,
            crc_before: 7,
        };
        let block = seal.build(&guard).expect("room");
        assert_eq!(bytes_of(&block, &pool, SEAL_BYTES), GOLDEN[1], "the seal changed");
        assert_eq!(Seal::load(&pool, block.off()), seal);
    }
    const GOLDEN: [u32; 2] = [1_745_073_996, 2_589_305_363];

    #[test]
    fn a_block_that_does_not_fit_its_segment_begins_the_next() {
        let segment_bytes = 64 << 10;
        let mut seal = Seal::of_start(Start { place: 2 * segment_bytes, lsn: 0, crc: 0 });
        assert_eq!(seal.next_place(60 << 10, segment_bytes), 2 * segment_bytes);
        seal.bytes = 4097;
        assert_eq!(seal.next_place(56 << 10, segment_bytes), 2 * segment_bytes + 8192);
        assert_eq!(seal.next_place((56 << 10) + 1, segment_bytes), 3 * segment_bytes);
        seal.bytes = 64 << 10;
        assert_eq!(seal.next_place(1, segment_bytes), 3 * segment_bytes);
    }
}
