//! The tail: records in the pool that are not yet durable on the disk.
//!
//! A record lies in an *arena*, a block of the pool that holds the records of one thread after the
//! other:
//!
//! ```text
//! arena     0        8        16       24 ..
//!           state    last     bytes    zero         then records from byte 64 on
//!
//! record    0        8        16       24       32 ..
//!           before   LSN      payload  status   payload, padded to a multiple of 8
//! ```
//!
//! * `state`: bits 0..31 the bytes in use, bit 32 *busy*, bit 33 *closed*, bits 34..63 the lower
//!   bits of the pool's generation. `last` is the LSN of the newest record in the arena.
//! * `before` is the offset of the record that was appended before, wherever it lies.
//!
//! # Appending
//!
//! | step | what is written | a crash, or a thread that stops, leaves |
//! | --- | --- | --- |
//! | claim | `state` of an arena with room: *busy*, by CAS | an arena that is not used again until the pool is opened |
//! | build | the record behind the bytes in use | the same |
//! | append | `newest`: from the record before to this one, by CAS | a whole record, undecided |
//! | release | `last`, then `state`: more bytes in use, not busy | an arena as above, with a record |
//!
//! The CAS of `newest` decides. `before` and the LSN follow from the record that it replaces, and
//! are written anew at each attempt. The thread is pinned, so the arena of the record before is
//! not freed and its offset not used again: the CAS cannot succeed by an ABA.
//!
//! # Freeing arenas
//!
//! A thread that needs an arena takes an empty place of the table for it. A log writer that has
//! made a block durable frees the arenas that are no longer needed, and so does a thread that finds
//! the pool full, or no empty place. An arena is no longer needed when
//!
//! 1. it is closed: by CAS of its state, which is not busy, so no record is added any more; and
//! 2. its last record is durable. An arena of an earlier generation of the pool has records up to
//!    the LSN that was the newest when the log was opened; and
//! 3. it does not hold the newest record, from which the next one takes its LSN.
//!
//! Point 3 is checked after point 1: `newest` cannot move into a closed arena. An exchange of the
//! allocator empties the place and frees the block, which then waits for its epoch like any other:
//! a pinned thread may go on reading its records.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_pmem::{Domain, Guard, Pool, mutant};

use crate::control::{ARENAS, Control};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::record::{
    Appended, BEFORE_AT, LSN_AT, PAYLOAD_AT, Record, STATUS_AT, Status, record_bytes,
};

/// Bytes of an arena, unless its first record wants more: two fit a chunk of the pool.
pub(crate) const ARENA_BYTES: u64 = 32_512;
/// Bytes of an arena in a full pool.
const SMALL_ARENA_BYTES: u64 = 4096;
/// Bytes of an arena before its records.
const ARENA_HEADER_BYTES: u64 = 64;

const LAST_AT: u64 = 8;
const BYTES_AT: u64 = 16;

const USED_MASK: u64 = (1 << 32) - 1;
const BUSY: u64 = 1 << 32;
const CLOSED: u64 = 1 << 33;
const GENERATION_SHIFT: u32 = 34;
const GENERATION_MASK: u64 = (1 << (64 - GENERATION_SHIFT)) - 1;

/// An arena that this thread has claimed.
#[derive(Clone, Copy, Debug)]
struct Claimed {
    arena: u64,
    used: u64,
}

impl<D: Domain> Log<D> {
    /// Appends a record with this payload, in pieces, undecided. On return it survives the death of
    /// any process. The caller decides it ([`Record::decide`]); if it stops before that, the next
    /// log writer does ([`Settle`](crate::Settle)).
    ///
    /// The guard says whether the arena may come from the pool's reserve
    /// ([`Guard::with_reserve`]): for records of operations that give room back.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if too much of the tail is not durable yet, [`Error::RecordTooLong`],
    /// [`Error::Failed`]; [`Error::Pool`] if the pool has no room for an arena. Nothing was
    /// appended.
    pub fn append(&self, guard: &Guard<'_, D>, payload: &[&[u8]]) -> Result<Appended> {
        let control = self.control(guard.pool());
        self.check_running(control)?;
        let max_bytes = self.max_record_bytes();
        let payload_bytes = payload.iter().map(|piece| piece.len()).sum();
        if payload_bytes > max_bytes {
            return Err(Error::RecordTooLong { found_bytes: payload_bytes, max_bytes });
        }
        let bytes = record_bytes(payload_bytes as u64);
        self.check_room(guard, bytes)?;
        let claimed = self.claim(guard, bytes)?;
        let pool = guard.pool();
        let record = Record::at(pool, claimed.arena + claimed.used);
        record.word(PAYLOAD_AT).store(payload_bytes as u64, Ordering::Relaxed);
        record.word(STATUS_AT).store(Status::Undecided.word(), Ordering::Relaxed);
        store_pieces(pool, record.payload_off(), payload);
        let appended = self.publish(guard, control, record, bytes);
        if let Ok(lsn) = appended {
            pool.word(claimed.arena + LAST_AT).store(lsn, Ordering::Relaxed);
        }
        let state = pool.word(claimed.arena);
        // Release: a thread that finds the arena not busy sees `last`.
        state.store(self.open_state(claimed.used + bytes), Ordering::Release);
        appended.map(|lsn| Appended { lsn, off: record.off() })
    }

    /// Makes `record` the newest; its LSN.
    fn publish(
        &self,
        guard: &Guard<'_, D>,
        control: Control<'_, D>,
        record: Record<'_, D>,
        bytes: u64,
    ) -> Result<u64> {
        let newest = control.newest();
        let mut before = newest.load(Ordering::Acquire);
        loop {
            let lsn = self.lsn_of(guard.pool(), before).wrapping_add(bytes);
            record.word(BEFORE_AT).store(before, Ordering::Relaxed);
            record.word(LSN_AT).store(lsn, Ordering::Relaxed);
            guard.pool().flush(record.off(), bytes);
            D::fence();
            if guard.damage().is_some() {
                return Err(self.damaged_tail(before));
            }
            // Release: publishes the record. Acquire: the next attempt reads the LSN of the other.
            match newest.compare_exchange(before, record.off()) {
                Ok(_) => {
                    newest.flush();
                    D::fence();
                    return Ok(lsn);
                }
                Err(other) => before = other,
            }
        }
    }

    /// Refuses a record of `bytes` bytes if the tail has no room for it.
    fn check_room(&self, guard: &Guard<'_, D>, bytes: u64) -> Result<()> {
        // The durable LSN first: it is never above the newest one.
        let durable = self.durable_lsn();
        let used_bytes = self.newest_lsn(guard).saturating_sub(durable);
        let max_bytes = self.options().tail_bytes;
        if used_bytes + bytes > max_bytes {
            return Err(Error::Full { used_bytes, max_bytes });
        }
        Ok(())
    }

    /// The error of a tail that is damaged at `off`.
    pub(crate) fn damaged_tail(&self, off: u64) -> Error {
        let what = format!("the record at {off:#x} of the log's tail is damaged");
        Error::Damaged { path: self.pool().path().display().to_string(), what }
    }

    /// The LSN of the newest record.
    pub fn newest_lsn(&self, guard: &Guard<'_, D>) -> u64 {
        let newest = self.control(guard.pool()).newest().load(Ordering::Acquire);
        self.lsn_of(guard.pool(), newest)
    }

    /// The LSN of the record at `off`; where this generation begins, if there is none.
    pub(crate) fn lsn_of(&self, pool: &Pool<D>, off: u64) -> u64 {
        if off == 0 { self.control(pool).start().lsn } else { Record::at(pool, off).lsn() }
    }

    /// The state of an arena of this generation that is open, with so many bytes in use.
    fn open_state(&self, used: u64) -> u64 {
        self.pool_generation() << GENERATION_SHIFT | used
    }

    /// The lower bits of the pool's generation.
    fn pool_generation(&self) -> u64 {
        u64::from(self.pool().generation()) & GENERATION_MASK
    }

    /// Claims `bytes` bytes of an arena.
    fn claim(&self, guard: &Guard<'_, D>, bytes: u64) -> Result<Claimed> {
        let hint = self.arena_hint(guard.slot());
        // Relaxed: only the thread that is pinned in the slot uses the hint.
        let arena = match hint.load(Ordering::Relaxed) {
            0 => 0,
            index => self.control(guard.pool()).arena(index - 1).load(Ordering::Acquire),
        };
        if arena != 0
            && let Some(claimed) = self.claim_in(guard.pool(), arena, bytes)
        {
            return Ok(claimed);
        }
        self.claim_new(guard, hint, bytes)
    }

    #[inline]
    fn claim_in(&self, pool: &Pool<D>, arena: u64, bytes: u64) -> Option<Claimed> {
        let word = pool.word(arena);
        let state = word.load(Ordering::Acquire);
        let used = state & USED_MASK;
        let arena_bytes = pool.word(arena.wrapping_add(BYTES_AT)).load(Ordering::Relaxed);
        let has_room = used + bytes <= arena_bytes;
        // Neither busy, nor closed, nor of an earlier generation.
        if state != self.open_state(used) || !has_room {
            return None;
        }
        word.compare_exchange(state, state | BUSY).ok()?;
        Some(Claimed { arena, used })
    }

    /// Takes a new arena for the thread, and claims `bytes` bytes of it.
    #[cold]
    fn claim_new(&self, guard: &Guard<'_, D>, hint: &AtomicU64, bytes: u64) -> Result<Claimed> {
        if let Some(claimed) = self.claim_in_empty_place(guard, hint, bytes)? {
            return Ok(claimed);
        }
        // A log writer that has made a block durable may have stopped before it freed arenas.
        self.free_arenas(guard);
        let used_bytes = self.newest_lsn(guard).saturating_sub(self.durable_lsn());
        let full = Error::Full { used_bytes, max_bytes: self.options().tail_bytes };
        self.claim_in_empty_place(guard, hint, bytes)?.ok_or(full)
    }

    /// The same; `None` if no place of the table is empty.
    fn claim_in_empty_place(
        &self,
        guard: &Guard<'_, D>,
        hint: &AtomicU64,
        bytes: u64,
    ) -> Result<Option<Claimed>> {
        let wanted = ARENA_HEADER_BYTES + bytes;
        let reserved = [ARENA_BYTES, SMALL_ARENA_BYTES].map(|least| wanted.max(least));
        for index in 0..ARENAS {
            let place = self.control(guard.pool()).arena(index);
            if place.load(Ordering::Acquire) != 0 {
                continue;
            }
            // A large arena only where there is plenty of room.
            let large = guard.leaving_room_to_undo(|| guard.reserve(reserved[0]));
            let block = large.or_else(|_| guard.reserve(reserved[1]));
            let mut block = block.inspect_err(|_| self.free_arenas(guard))?;
            let arena = block.off();
            block.zero(0, ARENA_HEADER_BYTES);
            block.write_u64(0, self.open_state(ARENA_HEADER_BYTES) | BUSY);
            block.write_u64(BYTES_AT, block.bytes());
            block.flush(0, ARENA_HEADER_BYTES);
            // Relaxed: a thread that frees arenas and misses the place leaves it to the next one.
            self.hints().used_places.fetch_max(index + 1, Ordering::Relaxed);
            let place_off = self.control(guard.pool()).arena_off(index);
            let exchange = guard.begin_exchange(place_off, u64::MAX, 0, Some((block, 0)));
            // Release: publishes the arena's header.
            if place.compare_exchange(0, exchange.new_name()).is_ok() {
                place.flush();
                exchange.succeeded();
                hint.store(index + 1, Ordering::Relaxed);
                return Ok(Some(Claimed { arena, used: ARENA_HEADER_BYTES }));
            }
            exchange.failed();
        }
        Ok(None)
    }

    /// Frees the arenas that are no longer needed.
    pub(crate) fn free_arenas(&self, guard: &Guard<'_, D>) {
        let control = self.control(guard.pool());
        // What is freed must not be needed after a power cut.
        control.durable().flush();
        D::fence();
        for index in 0..self.hints().used_places.load(Ordering::Relaxed) {
            let place = control.arena(index);
            let arena = place.load(Ordering::Acquire);
            if arena == 0 || !self.is_not_needed(guard, arena) {
                continue;
            }
            let exchange = guard.begin_exchange(control.arena_off(index), u64::MAX, arena, None);
            if place.compare_exchange(arena, 0).is_ok() {
                place.flush();
                exchange.succeeded();
            } else {
                exchange.failed();
            }
        }
    }

    /// Whether the arena is no longer needed; closes it, if that is all that is missing.
    fn is_not_needed(&self, guard: &Guard<'_, D>, arena: u64) -> bool {
        let pool = guard.pool();
        let bytes = pool.active_block(arena).filter(|&bytes| bytes >= ARENA_HEADER_BYTES);
        // Only damage leads to no block.
        let Some(bytes) = bytes else { return false };
        let word = pool.word(arena);
        let state = word.load(Ordering::Acquire);
        let is_of_now = state >> GENERATION_SHIFT == self.pool_generation();
        let last_lsn = if is_of_now {
            // After the state, which is released when this is written.
            pool.word(arena + LAST_AT).load(Ordering::Acquire)
        } else {
            self.opened_lsn()
        };
        let is_busy = is_of_now && state & BUSY != 0;
        if is_busy || (last_lsn > self.durable_lsn() && !mutant!("log-arena-freed-early")) {
            return false;
        }
        // An arena of an earlier generation takes no records.
        if is_of_now && state & CLOSED == 0 && word.compare_exchange(state, state | CLOSED).is_err()
        {
            return false;
        }
        let newest = self.control(pool).newest().load(Ordering::Acquire);
        mutant!("log-newest-freed") || newest.wrapping_sub(arena) >= bytes
    }
}
/// Stores pieces one behind the other at `off`, as [`Pool::store_bytes`] does. Each of whole words
/// but the last one, they are not copied together first.
fn store_pieces<D: Domain>(pool: &Pool<D>, off: u64, pieces: &[&[u8]]) {
    let before_last = pieces.split_last().map_or(pieces, |(_, before)| before);
    if !before_last.iter().all(|piece| piece.len().is_multiple_of(8)) {
        return pool.store_bytes(off, &pieces.concat());
    }
    let mut at = off;
    for piece in pieces {
        pool.store_bytes(at, piece);
        at += piece.len() as u64;
    }
}
