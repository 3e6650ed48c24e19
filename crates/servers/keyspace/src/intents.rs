//! Intents: several writes become durable as one, in a pool without a log (`commits.rs`).
//!
//! # Protocol
//!
//! The writes of a transaction are first written as an *intent*, a record with all of them. The
//! intent is the commit point. Then the writes are executed one after the other, and the intent is
//! removed. After a crash, opening the store executes the writes of existing intents. No other
//! transaction can have written their keys since, because the transaction held them exclusively.
//! Executing the writes twice changes nothing.
//!
//! | a crash after | what opening finds | what opening does |
//! | --- | --- | --- |
//! | nothing, or the reserve of a large intent | no intent | nothing: the transaction has not happened |
//! | the intent, or any of its writes | the intent | executes all writes |
//! | the removal of the intent | all writes | nothing |
//!
//! # Reserve
//!
//! Committed writes must be executed, even if the pool or its file system is full by then. So room
//! is reserved before: records of zeros, the *intent reserve*, whose removal frees room. Small
//! intents share the *standing* pieces of the reserve. Each intent of more than [`SMALL_BYTES`] has
//! a reserve record of its own for its lifetime.
//!
//! A standing piece takes one chunk of the pool, and so does the longest value of a small intent.
//! So a piece can be restored wherever one chunk is free, and the room of one piece is enough for
//! one value. (One long record would need adjacent chunks, which a pool that was full once may
//! never have again.)
//!
//! If a write of an intent is refused, the transaction has happened all the same, and its writes
//! are *pending*. Until they are executed, no command gets the lock of a key. (Commands without
//! locks, such as SCAN, may see a part of them.) The next command locks all stripes exclusively,
//! removes reserve as needed, and executes the writes ([`Store::finish_intents`]). While fewer
//! standing pieces exist than are enough, writes that need memory are refused, or evict keys
//! (`memory.rs`). The sweep restores pieces one by one, as chunks become free, up to a quarter more
//! than enough.
//!
//! | standing pieces | writes that need memory | the sweep |
//! | --- | --- | --- |
//! | all | are executed | does nothing |
//! | enough | are executed | restores pieces |
//! | fewer | are refused | restores pieces; when there are enough, writes are executed again |

use std::sync::atomic::Ordering;
use std::time::Duration;

use pando::KeyRange;

use crate::commits::LentWrite;
use crate::failure::{Failure, Result};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::Access;
use crate::writes::Writes;

/// The largest intent, in bytes, that relies on the standing reserve.
const SMALL_BYTES: usize = PIECE_BYTES;
/// The size of a standing piece: one chunk of the pool, with the header of its block.
const PIECE_BYTES: usize = 63 << 10;
/// The smallest and the largest size of a standing reserve that is enough.
const ENOUGH_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 20;
/// Pieces that are removed at once.
const REMOVED_AT_ONCE: usize = 8;
/// The first number of standing pieces.
const STANDING: u64 = u64::MAX - 0xFFFF;
/// Removed pieces become free room only when no reader is left in them: tries, and the time between
/// two tries.
const TRIES: u32 = 100;
const WAIT: Duration = Duration::from_millis(1);

impl Store {
    /// Executes one write durably.
    #[inline]
    pub(crate) fn write(&self, key: &[u8], write: Option<&[u8]>) -> Result<()> {
        #[cfg(test)]
        self.refusals.step()?;
        self.memory.note_write(key.len(), write.map(<[u8]>::len));
        match write {
            // Without an answer: in a record store `upsert` reads the page first.
            Some(value) => self.map.put(key, value)?,
            None => self.remove(key).map(|_| ())?,
        }
        Ok(())
    }

    /// Removes a record; returns whether it existed.
    #[inline]
    pub(crate) fn remove(&self, key: &[u8]) -> Result<bool> {
        if !self.memory.is_tight() {
            return Ok(self.map.remove(key)?);
        }
        let value_bytes = self.map.read(key, <[u8]>::len)?;
        let is_there = self.map.remove(key)?;
        if let Some(value_bytes) = value_bytes {
            self.memory.note_removal(key.len(), value_bytes);
        }
        Ok(is_there)
    }

    /// Executes several writes durably as one. The caller holds their keys exclusively. After an
    /// error none has happened.
    pub(crate) fn commit_many(&self, writes: &Writes) -> Result<()> {
        // Relaxed: the number must only be unique.
        let number = self.next_intent.fetch_add(1, Ordering::Relaxed);
        let (intent, value) = (own_keys::intent(number), encode(writes));
        let reserve = (value.len() > SMALL_BYTES).then(|| own_keys::intent_reserve(number));
        let reserved = match &reserve {
            Some(reserve) => self.map.upsert(reserve, vec![0; value.len()]).map(|_| ()),
            None => Ok(()),
        };
        if let Err(error) = reserved.and_then(|()| self.map.upsert(&intent, &value)) {
            self.remove_reserve(reserve.as_deref());
            return Err(error.into());
        }
        let made = writes.iter().try_for_each(|(key, write)| self.write(key, write.as_deref()));
        let removed = made.and_then(|()| Ok(self.map.remove(&intent).map(|_| ())?));
        if let Err(error) = removed {
            // The transaction is committed. No command may see a part of it.
            tracing::warn!(%error, "some writes of a committed transaction failed; they are made before the next command");
            self.has_pending_writes.store(true, Ordering::Release);
            return Ok(());
        }
        self.remove_reserve(reserve.as_deref());
        Ok(())
    }

    /// Removes the reserve of an intent that has ended.
    fn remove_reserve(&self, reserve: Option<&[u8]>) {
        if let Some(Err(error)) = reserve.map(|reserve| self.map.remove(reserve)) {
            tracing::warn!(%error, "the reserve of an intent is not removed; the next start removes it");
        }
    }

    /// Whether there are pending writes. Then no command may read keys before
    /// [`finish_intents`](Self::finish_intents) succeeds.
    #[inline]
    pub(crate) fn has_pending_writes(&self) -> bool {
        // Acquire: with the store in `commit_many`. A reader holds locks, as the writer did.
        self.has_pending_writes.load(Ordering::Acquire)
    }

    /// Executes pending writes, with room of the reserve if necessary. No other thread may write
    /// during that.
    pub(crate) fn finish_intents(&self) -> Result<()> {
        let mut finished = 0;
        self.apply_with_reserve(|| self.try_finish(&mut finished))?;
        self.drop_reserves_of_intents()?;
        if finished > 0 {
            tracing::info!(intents = finished, "finished the writes of interrupted transactions");
        }
        self.has_pending_writes.store(false, Ordering::Release);
        Ok(())
    }

    /// Executes writes that must not fail, with room of the reserve if necessary. No other thread
    /// may write during that.
    pub(crate) fn apply_with_reserve(&self, mut make: impl FnMut() -> Result<()>) -> Result<()> {
        let Err(error) = make() else { return Ok(()) };
        if self.log.is_some() {
            return Err(error);
        }
        // Until the remaining pieces are counted, other writes get no room.
        self.memory.note_intent_reserve(u64::MAX - 1, 0);
        tracing::warn!(%error, "pending writes failed; they are tried again with the room of the reserve");
        self.drop_reserves_of_intents()?;
        for _ in 1..TRIES {
            self.remove_some(own_keys::RESERVES, REMOVED_AT_ONCE)?;
            if make().is_ok() {
                return Ok(());
            }
            std::thread::sleep(WAIT);
        }
        make()
    }

    fn try_finish(&self, finished: &mut u32) -> Result<()> {
        loop {
            let mut scan = self.map.prefix(own_keys::INTENTS);
            let Some((intent, value)) = scan.next_record()? else { return Ok(()) };
            let (intent, value) = (intent.to_vec(), value.to_vec());
            drop(scan);
            for (key, write) in decode(&value).ok_or(Failure::Damaged)? {
                self.write(key, write)?;
            }
            self.map.remove(&intent)?;
            *finished += 1;
        }
    }

    fn remove_some(&self, prefix: &[u8], most: usize) -> Result<()> {
        for _ in 0..most {
            let mut scan = self.map.prefix(prefix);
            let Some((key, _)) = scan.next_record()? else { return Ok(()) };
            let key = key.to_vec();
            drop(scan);
            self.map.remove(&key)?;
        }
        Ok(())
    }

    /// Removes the reserves of intents; all of these have ended.
    fn drop_reserves_of_intents(&self) -> Result<()> {
        let range =
            KeyRange::between(&own_keys::intent_reserve(0), &own_keys::intent_reserve(STANDING));
        let mut left = Vec::new();
        let mut scan = self.map.range(range);
        while let Some((key, _)) = scan.next_record()? {
            left.push(key.to_vec());
        }
        drop(scan);
        for key in left {
            self.map.remove(&key)?;
        }
        Ok(())
    }

    /// Restores missing standing pieces, as far as there is room.
    pub fn keep_intent_reserve(&self) {
        if self.log.is_some() {
            // There are no intents.
            return self.memory.note_intent_reserve(0, 0);
        }
        if self.memory.missing_pieces() == 0 {
            return;
        }
        // Threads that remove pieces hold all stripes exclusively.
        let _held = self.stripes.lock([0].into_iter().collect(), Access::Shared);
        match self.count_missing_pieces() {
            Ok(missing) => self.put_pieces(missing),
            Err(error) => tracing::debug!(%error, "cannot read the reserve for intents"),
        }
    }

    /// The numbers of missing standing pieces.
    fn count_missing_pieces(&self) -> Result<Vec<u64>> {
        let mut missing = Vec::new();
        for piece in 0..self.pieces() {
            if self.map.read(own_keys::intent_reserve(STANDING + piece), |_| ())?.is_none() {
                missing.push(piece);
            }
        }
        Ok(missing)
    }

    fn put_pieces(&self, mut missing: Vec<u64>) {
        let pieces = self.pieces();
        // Pieces must not fill the pool again at once.
        let room_bytes = self.pool.max_bytes().saturating_sub(self.pool.used_bytes());
        if room_bytes >= 2 * self.enough_pieces() * PIECE_BYTES as u64 {
            while let Some(&piece) = missing.last() {
                let key = own_keys::intent_reserve(STANDING + piece);
                if let Err(error) = self.map.upsert(&key, [0; PIECE_BYTES]) {
                    tracing::debug!(%error, missing = missing.len(), "the reserve for intents is not complete");
                    break;
                }
                missing.pop();
            }
        }
        self.memory.note_intent_reserve(missing.len() as u64, pieces - self.enough_pieces());
    }

    /// The full number of standing pieces.
    fn pieces(&self) -> u64 {
        let enough = self.enough_pieces();
        enough + enough.div_ceil(4)
    }

    /// The number of standing pieces below which other writes get no room.
    fn enough_pieces(&self) -> u64 {
        let bytes = (self.pool.max_bytes() / 64).clamp(*ENOUGH_BYTES.start(), *ENOUGH_BYTES.end());
        bytes.div_ceil(PIECE_BYTES as u64)
    }
}

/// Encodes an intent: for each write the key's length (4), the key, the value's length (4; all ones
/// for a removal), the value.
pub(crate) fn encode(writes: &Writes) -> Vec<u8> {
    let mut intent = Vec::new();
    for (key, write) in writes.iter() {
        intent.extend_from_slice(&(key.len() as u32).to_le_bytes());
        intent.extend_from_slice(key);
        let value_bytes = write.as_ref().map_or(u32::MAX, |value| value.len() as u32);
        intent.extend_from_slice(&value_bytes.to_le_bytes());
        intent.extend_from_slice(write.as_deref().unwrap_or_default());
    }
    intent
}

/// Decodes an intent; `None` if it is damaged.
fn decode(mut intent: &[u8]) -> Option<Vec<LentWrite<'_>>> {
    let mut writes = Vec::new();
    while !intent.is_empty() {
        let key_bytes = take(&mut intent, 4)?;
        let key = take(&mut intent, u32::from_le_bytes(key_bytes.try_into().ok()?) as usize)?;
        let value_bytes = take(&mut intent, 4)?;
        let write = match u32::from_le_bytes(value_bytes.try_into().ok()?) {
            u32::MAX => None,
            bytes => Some(take(&mut intent, bytes as usize)?),
        };
        writes.push((key, write));
    }
    Some(writes)
}

fn take<'bytes>(from: &mut &'bytes [u8], bytes: usize) -> Option<&'bytes [u8]> {
    let (taken, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_intent() {
        let mut writes = Writes::default();
        writes.insert(b"k".to_vec(), Some(b"value".to_vec()));
        writes.insert(b"gone".to_vec(), None);
        let intent = encode(&writes);
        assert_eq!(intent, b"\x04\0\0\0gone\xFF\xFF\xFF\xFF\x01\0\0\0k\x05\0\0\0value");
        let expected = vec![(&b"gone"[..], None), (&b"k"[..], Some(&b"value"[..]))];
        assert_eq!(decode(&intent), Some(expected));
        for cut in 1..intent.len() {
            let is_whole = cut == 12;
            assert_eq!(decode(&intent[..cut]).is_some(), is_whole, "{cut}");
        }
    }
}
