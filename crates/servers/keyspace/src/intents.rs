//! Several writes that become durable as one.
//!
//! # Protocol
//!
//! The writes of a transaction are first written down as an *intent*, a record that holds all of
//! them; that it is there decides. Then they are carried out one after the other, then the intent
//! is removed. After a crash whoever opens the store carries out the intents that stand. Each is of
//! keys that its transaction held alone, so nobody else has written them since; and to carry one
//! out twice changes nothing.
//!
//! | a crash behind | what opening finds | and does |
//! | --- | --- | --- |
//! | nothing, or the reserve of a large intent | no intent | nothing has happened |
//! | the intent, or any of its writes | the intent | carries all of them out, again or anew |
//! | the removal of the intent | all writes | nothing is owed |
//!
//! # Room
//!
//! What was decided must be made, also when the pool or its file system is full by then. So room is
//! taken beforehand by an *intent reserve*, records of zeros that are worth nothing but the room
//! that they give when they are removed: pieces that always stand, for small intents, and one of
//! its own for each intent of more than [`SMALL_BYTES`], as long as it stands.
//!
//! A standing piece takes one chunk of the pool, and so does the longest value of a small intent.
//! So a piece can be put back wherever one chunk is free, and what one piece gives is enough for
//! one value. (A single long record would need neighbouring chunks, of which a pool that was full
//! once may never have enough again.)
//!
//! If a write of an intent is refused, its transaction has happened all the same, and the writes
//! are owed: until they are made nobody gets the lock of any key (what takes none, as SCAN, may see
//! some of them and not others). Whoever comes next holds all stripes alone, removes all reserves,
//! and makes them ([`Store::finish_intents`]). As long as fewer standing pieces are there than are
//! enough, writes that need memory are refused or let other keys go (`memory.rs`). The sweep puts
//! pieces back one by one, as chunks become free, until there is a fourth more than enough.
//!
//! | standing pieces | writes that need memory | the sweep |
//! | --- | --- | --- |
//! | all | are made | has nothing to do |
//! | enough | are made | puts back what it can |
//! | fewer | are refused | puts back what it can, and lets writes go on when they are enough |

use std::sync::atomic::Ordering;
use std::time::Duration;

use pando::{KeyRange, Order};

use crate::failure::{Failure, Result};
use crate::own_keys;
use crate::store::Store;
use crate::stripes::Access;
use crate::writes::Writes;

/// Intents of no more bytes are made with the reserve that always stands.
const SMALL_BYTES: usize = PIECE_BYTES;
/// Bytes of a piece of the reserve that always stands: with its block's header, one chunk of the
/// pool.
const PIECE_BYTES: usize = 63 << 10;
/// Bytes of standing reserve that are enough, at least and at most.
const ENOUGH_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 20;
/// Pieces that are given up at once.
const GIVEN_UP: usize = 8;
/// The pieces' numbers begin here.
const STANDING: u64 = u64::MAX - 0xFFFF;
/// Room that was given up is there once nobody reads in it any more: tries, and how long one waits.
const TRIES: u32 = 100;
const WAIT: Duration = Duration::from_millis(1);

impl Store {
    /// Makes one write durable.
    #[inline]
    pub(crate) fn write(&self, key: &[u8], write: Option<&[u8]>) -> Result<()> {
        #[cfg(test)]
        self.refusals.step()?;
        self.memory.note_write(key.len(), write.map(<[u8]>::len));
        match write {
            Some(value) => self.map.upsert(key, value).map(|_| ())?,
            None => self.remove(key).map(|_| ())?,
        }
        Ok(())
    }

    /// Removes a record; whether it was there.
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

    /// Makes several writes durable as one, whose keys the caller holds alone; after an error none
    /// has been made.
    pub(crate) fn commit_many(&self, writes: &Writes) -> Result<()> {
        // Relaxed: only its being new matters.
        let number = self.next_intent.fetch_add(1, Ordering::Relaxed);
        let (intent, value) = (own_keys::intent(number), encode(writes));
        let reserve = (value.len() > SMALL_BYTES).then(|| own_keys::intent_reserve(number));
        let reserved = match &reserve {
            Some(reserve) => self.map.upsert(reserve, &vec![0; value.len()]).map(|_| ()),
            None => Ok(()),
        };
        if let Err(error) = reserved.and_then(|()| self.map.upsert(&intent, &value)) {
            self.give_up(reserve.as_deref());
            return Err(error.into());
        }
        let made = writes.iter().try_for_each(|(key, write)| self.write(key, write.as_deref()));
        let removed = made.and_then(|()| Ok(self.map.remove(&intent).map(|_| ())?));
        if let Err(error) = removed {
            // It is decided. Nobody is to see half of it.
            tracing::warn!(%error, "writes that were decided cannot be made; they are owed");
            self.is_behind.store(true, Ordering::Release);
            return Ok(());
        }
        self.give_up(reserve.as_deref());
        Ok(())
    }

    /// Removes the reserve of an intent that is over.
    fn give_up(&self, reserve: Option<&[u8]>) {
        if let Some(Err(error)) = reserve.map(|reserve| self.map.remove(reserve)) {
            tracing::warn!(%error, "room that was kept is given up when the store is opened next");
        }
    }

    /// Whether writes are owed; then nobody may look, and [`finish_intents`](Self::finish_intents)
    /// must succeed first.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        // Acquire: with the store of who fell behind. Who looks holds locks, as that one did.
        self.is_behind.load(Ordering::Acquire)
    }

    /// Makes the writes that were decided and not made, at the cost of the reserve if need be.
    /// Nobody else may write meanwhile.
    pub(crate) fn finish_intents(&self) -> Result<()> {
        let mut finished = 0;
        self.at_all_costs(|| self.try_finish(&mut finished))?;
        self.drop_reserves_of_intents()?;
        if finished > 0 {
            tracing::info!(intents = finished, "carried out what had been cut short");
        }
        self.is_behind.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes writes that must be made, at the cost of the reserve if need be. Nobody else may write
    /// meanwhile.
    pub(crate) fn at_all_costs(&self, mut make: impl FnMut() -> Result<()>) -> Result<()> {
        let Err(error) = make() else { return Ok(()) };
        // Until it was counted what is left, no other room is given.
        self.memory.note_intent_reserve(u64::MAX - 1, 0);
        tracing::warn!(%error, "room that was kept is given up for writes that are owed");
        self.drop_reserves_of_intents()?;
        for _ in 1..TRIES {
            self.remove_some(own_keys::BALLASTS, GIVEN_UP)?;
            if make().is_ok() {
                return Ok(());
            }
            std::thread::sleep(WAIT);
        }
        make()
    }

    fn try_finish(&self, finished: &mut u32) -> Result<()> {
        loop {
            let range = KeyRange::prefix(own_keys::INTENTS);
            let mut scan = self.map.scan(range, Order::Ascending)?;
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
            let mut scan = self.map.scan(KeyRange::prefix(prefix), Order::Ascending)?;
            let Some((key, _)) = scan.next_record()? else { return Ok(()) };
            let key = key.to_vec();
            drop(scan);
            self.map.remove(&key)?;
        }
        Ok(())
    }

    /// Removes the reserve of intents, which are all over.
    fn drop_reserves_of_intents(&self) -> Result<()> {
        let range =
            KeyRange::between(&own_keys::intent_reserve(0), &own_keys::intent_reserve(STANDING));
        let mut left = Vec::new();
        let mut scan = self.map.scan(range, Order::Ascending)?;
        while let Some((key, _)) = scan.next_record()? {
            left.push(key.to_vec());
        }
        drop(scan);
        for key in left {
            self.map.remove(&key)?;
        }
        Ok(())
    }

    /// Puts back pieces of the reserve that always stands where they are missing, as far as there
    /// is room.
    pub fn keep_intent_reserve(&self) {
        if self.memory.missing_pieces() == 0 {
            return;
        }
        // Whoever removes it holds all stripes alone.
        let _held = self.stripes.lock([0].into_iter().collect(), Access::Shared);
        match self.count_missing_pieces() {
            Ok(missing) => self.put_pieces(missing),
            Err(error) => tracing::debug!(%error, "no room can be kept"),
        }
    }

    /// The pieces that are not there.
    fn count_missing_pieces(&self) -> Result<Vec<u64>> {
        let mut missing = Vec::new();
        for piece in 0..self.pieces() {
            if self.map.read(&own_keys::intent_reserve(STANDING + piece), |_| ())?.is_none() {
                missing.push(piece);
            }
        }
        Ok(missing)
    }

    fn put_pieces(&self, mut missing: Vec<u64>) {
        let pieces = self.pieces();
        // Not so that the pool is full again at once.
        let room_bytes = self.pool.max_bytes().saturating_sub(self.pool.used_bytes());
        if room_bytes >= 2 * self.enough_pieces() * PIECE_BYTES as u64 {
            while let Some(&piece) = missing.last() {
                let key = own_keys::intent_reserve(STANDING + piece);
                if let Err(error) = self.map.upsert(&key, &[0; PIECE_BYTES]) {
                    tracing::debug!(%error, missing = missing.len(), "no more room can be kept");
                    break;
                }
                missing.pop();
            }
        }
        self.memory.note_intent_reserve(missing.len() as u64, pieces - self.enough_pieces());
    }

    /// Standing pieces that there are to be.
    fn pieces(&self) -> u64 {
        let enough = self.enough_pieces();
        enough + enough.div_ceil(4)
    }

    /// Standing pieces without which no other room is given.
    fn enough_pieces(&self) -> u64 {
        let bytes = (self.pool.max_bytes() / 64).clamp(*ENOUGH_BYTES.start(), *ENOUGH_BYTES.end());
        bytes.div_ceil(PIECE_BYTES as u64)
    }
}

/// An intent: of each write the key's length (4), the key, the value's length (4; all ones for a
/// removal), the value.
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

/// A record's key, and what is to become of it.
type LentWrite<'intent> = (&'intent [u8], Option<&'intent [u8]>);

/// The writes of an intent; `None` if it cannot have been written.
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
