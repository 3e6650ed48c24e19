//! Long strings, in pieces: a change of a few bytes writes one or two pieces, at any length of the
//! string.
//!
//! A string of more than 32,000 bytes is a head with a number and the length, and pieces of
//! [`PIECE_BYTES`] under that number (`layout.rs`); in a record store, one of more than 16,000
//! bytes. The length alone determines the form, because a string becomes shorter only by being
//! replaced. All writes go through [`Transaction::put_head`], which chooses the form, or through
//! [`Transaction::edit_string`], which puts a growing string into pieces.
//!
//! # Which bytes count
//!
//! * Bytes of a piece beyond what its record has are zeros, and so is a piece without a record.
//! * Bytes at or beyond the string's length do not count, whatever the records have. A write that
//!   makes the string longer cuts them off first.
//!
//! # Protocol
//!
//! A write within the length changes bytes that count. So it is kept until the commit: one piece is
//! one operation of the index, several are an intent. Two kinds of write change no byte that
//! counts. They are executed at once, each on its own, and a head that is written later is the
//! commit point:
//!
//! *A longer string:* pieces, or ends of pieces, beyond the length.
//!
//! | step | what is written | what a crash after it leaves |
//! | --- | --- | --- |
//! | 1 | bytes beyond the length are cut, up to the beginning of the new bytes | the former string |
//! | 2 | the new bytes | the former string, and bytes that do not count |
//! | 3 | the head with the new length: the commit point | the longer string |
//!
//! *A draft:* a string under a new number that no head has.
//!
//! | step | what is written | what a crash after it leaves |
//! | --- | --- | --- |
//! | 1 | the number as garbage (`0xC0`); the sweep skips it while this process writes the draft | a number to sweep |
//! | 2 | the pieces | pieces to sweep |
//! | 3 | one intent: the head, the removal of the new number's garbage, and the former number as garbage | the new string; the sweep removes the former one |
//!
//! A draft whose transaction is not committed leaves the same as a crash after step 2.
//!
//! The list of drafts is in process memory ([`Drafts`]). A number is in the list from before its
//! garbage is written until its transaction has ended. The sweep searches for garbage under the
//! list's lock. So a number that it finds and that is not in the list is really garbage: its draft
//! was never committed. (Pending writes of an intent may still have to remove the garbage; while
//! there are any, the sweep removes nothing.)

use std::ops::{ControlFlow, Range};

use pando::{KeyRange, Order};

use crate::failure::{Failure, Result, WRONG_TYPE, fail};
use crate::layout::{
    CollectionId, Content, Head, LongString, MAX_LONG_BYTES, Memcached, PIECE_BYTES, piece_key,
    split_piece_key,
};
use crate::own_keys;
use crate::transaction::Transaction;

/// The bytes of a piece without a record.
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// A string before an edit, and the data that stay with it.
enum Found {
    /// A short string that stays short: it has been edited, and has this length now.
    Changed(u64),
    /// A long string.
    Long(LongString, Option<u64>, Option<Memcached>),
    /// A short string that becomes long.
    Grows(Vec<u8>, Option<u64>, Option<Memcached>),
}

impl Transaction<'_> {
    /// Begins a draft: a number for records that no head refers to before this transaction is
    /// committed.
    fn draft(&mut self) -> Result<CollectionId> {
        let store = self.store();
        let id = store.new_id()?;
        store.drafts.hold().push(id);
        self.drafts.push(id);
        let garbage = own_keys::garbage(id);
        store.write(&garbage, Some(&[]))?;
        self.write_later(garbage, None);
        Ok(id)
    }

    /// Writes a new long string, for a head that is put next.
    pub(crate) fn draft_string(&mut self, bytes: &[u8]) -> Result<LongString> {
        if bytes.len() as u64 > MAX_LONG_BYTES {
            return Err(fail("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
        }
        let id = self.draft()?;
        for (index, piece) in (0..).zip(bytes.chunks(PIECE_BYTES)) {
            if !is_zero(piece) {
                self.store().write(&piece_key(id, index), Some(piece))?;
            }
        }
        Ok(LongString { id, bytes: bytes.len() as u64 })
    }

    /// Copies a long string, for a head that is put next.
    pub(crate) fn draft_copy(&mut self, of: LongString) -> Result<LongString> {
        let id = self.draft()?;
        let range = pieces_of(of);
        let mut copied = Ok(());
        let store = self.store();
        self.scan(range, Order::Ascending, |full, piece| {
            let index = split_piece_key(full).ok_or(Failure::Damaged);
            copied = index.and_then(|index| store.write(&piece_key(id, index), Some(piece)));
            if copied.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        copied.map(|()| LongString { id, ..of })
    }

    /// Lends the bytes of `range` of a long string, as far as it has them, in order, until `visit`
    /// ends the visit.
    pub fn read_pieces(
        &self,
        long: LongString,
        range: Range<u64>,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let (mut at, end) = (range.start, range.end.min(long.bytes));
        while at < end {
            let (index, first) = place_of(at);
            let bytes = (end - at).min((PIECE_BYTES - first) as u64) as usize;
            let flow = self.read(&piece_key(long.id, index), |piece| {
                let piece = piece.unwrap_or_default();
                if piece.len() > PIECE_BYTES {
                    return Err(Failure::Damaged);
                }
                let there = piece.get(first..).unwrap_or_default();
                let there = &there[..bytes.min(there.len())];
                if !there.is_empty() && visit(there).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                Ok(match &ZEROS[..bytes - there.len()] {
                    [] => ControlFlow::Continue(()),
                    zeros => visit(zeros),
                })
            })?;
            if flow?.is_break() {
                break;
            }
            at += bytes as u64;
        }
        Ok(())
    }

    /// All bytes of a long string.
    pub fn gather(&self, long: LongString) -> Result<Vec<u8>> {
        let mut whole = Vec::with_capacity(long.bytes as usize);
        self.read_pieces(long, 0..long.bytes, |bytes| {
            whole.extend_from_slice(bytes);
            ControlFlow::Continue(())
        })?;
        Ok(whole)
    }

    /// Lends bytes of the string at `key` in order, until `visit` ends the visit. `choose` gets the
    /// string's length (`None` if the key does not exist) and returns the range. `visit` gets the
    /// position of the bytes.
    pub fn visit_string<State>(
        &self,
        space: u8,
        key: &[u8],
        state: &mut State,
        choose: impl FnOnce(&mut State, Option<u64>) -> Result<Range<u64>>,
        mut visit: impl FnMut(&mut State, u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let found = self.head(space, key, |head| match head.map(|head| head.content) {
            None => choose(state, None).map(|_| None),
            Some(Content::String(bytes)) => {
                let range = choose(state, Some(bytes.len() as u64))?;
                let end = range.end.min(bytes.len() as u64);
                if range.start < end {
                    let _ = visit(state, range.start, &bytes[range.start as usize..end as usize]);
                }
                Ok(None)
            }
            Some(Content::Long(long)) => Ok(Some((long, choose(state, Some(long.bytes))?))),
            Some(Content::Collection(..)) => Err(WRONG_TYPE),
        })?;
        let Some((long, range)) = found? else { return Ok(()) };
        let mut at = range.start;
        self.read_pieces(long, range, |bytes| {
            let flow = visit(state, at, bytes);
            at += bytes.len() as u64;
            flow
        })
    }

    /// Edits `bytes` bytes of the string at `key`, and returns the string's length. `place` gets
    /// the length and returns the position of the first byte. A shorter string is extended by
    /// zeros; a missing one is empty. `edit` gets the bytes in parts, each with the number of bytes
    /// before it, and may be called again from the beginning. `renew` returns memcached's new data.
    pub fn edit_string(
        &mut self,
        space: u8,
        key: &[u8],
        bytes: usize,
        place: impl Fn(u64) -> Result<u64>,
        renew: impl Fn(Memcached) -> Memcached,
        mut edit: impl FnMut(usize, &mut [u8]),
    ) -> Result<u64> {
        let long_above_bytes = self.store().long_above_bytes;
        let found = self.change_string(space, key, |head, next| {
            let (expires_at, memcached) =
                head.map_or((None, None), |head| (head.expires_at, head.memcached));
            let former = match head.map(|head| head.content) {
                None => &[],
                Some(Content::String(bytes)) => bytes,
                Some(Content::Long(long)) => return Ok(Found::Long(long, expires_at, memcached)),
                Some(Content::Collection(..)) => return Err(WRONG_TYPE),
            };
            let at = place(former.len() as u64)?;
            let length = at.saturating_add(bytes as u64).max(former.len() as u64);
            if length > long_above_bytes as u64 {
                return Ok(Found::Grows(former.to_vec(), expires_at, memcached));
            }
            let mut whole = Vec::with_capacity(length as usize);
            whole.extend_from_slice(former);
            whole.resize(length as usize, 0);
            edit(0, &mut whole[at as usize..at as usize + bytes]);
            let memcached = memcached.map(&renew);
            next.put(&Head { expires_at, memcached, content: Content::String(&whole) });
            Ok(Found::Changed(length))
        })?;
        let (long, expires_at, memcached, was_long) = match found {
            Found::Changed(length) => return Ok(length),
            Found::Long(long, expires_at, memcached) => (long, expires_at, memcached, true),
            Found::Grows(former, expires_at, memcached) => {
                (self.draft_string(&former)?, expires_at, memcached, false)
            }
        };
        let at = place(long.bytes)?;
        let length = at.saturating_add(bytes as u64).max(long.bytes);
        self.edit_pieces(long, at, bytes, edit)?;
        if was_long && length == long.bytes && memcached.is_none() {
            self.touch(space, key);
            return Ok(length);
        }
        let content = Content::Long(LongString { bytes: length, ..long });
        let head = Head { expires_at, memcached: memcached.map(renew), content };
        self.put_head(space, key, &head)?;
        Ok(length)
    }

    /// Edits bytes of a long string from `at` on. If they end beyond its end, a head with the new
    /// length must be put next.
    fn edit_pieces(
        &mut self,
        long: LongString,
        at: u64,
        bytes: usize,
        mut edit: impl FnMut(usize, &mut [u8]),
    ) -> Result<()> {
        let is_draft = self.drafts.contains(&long.id);
        if at > long.bytes && !is_draft {
            self.cut_pieces(long, at)?;
        }
        let mut done = 0;
        while done < bytes {
            let from = at + done as u64;
            let (index, first) = place_of(from);
            let part = (bytes - done).min(PIECE_BYTES - first);
            let key = piece_key(long.id, index);
            let counted = counted_bytes(long, index);
            let former = self.read(&key, |piece| {
                let piece = piece?;
                let mut copy = Vec::with_capacity(PIECE_BYTES);
                copy.extend_from_slice(&piece[..piece.len().min(counted)]);
                Some(copy)
            })?;
            let is_there = former.is_some();
            let mut piece = former.unwrap_or_default();
            if piece.len() < first + part {
                piece.resize(first + part, 0);
            }
            edit(done, &mut piece[first..first + part]);
            done += part;
            let write = (!is_zero(&piece)).then_some(piece);
            if write.is_none() && !is_there {
                continue;
            }
            // No byte that counts changes, and the transaction has no later write of the piece.
            if is_draft || from >= long.bytes && !self.has_write(&key) {
                self.store().write(&key, write.as_deref())?;
            } else {
                self.write_later(key, write);
            }
        }
        Ok(())
    }

    /// Cuts off bytes beyond the length, up to the piece with the byte `end`.
    fn cut_pieces(&mut self, long: LongString, end: u64) -> Result<()> {
        let (first, last) = (place_of(long.bytes).0, place_of(end).0);
        if first == last {
            return Ok(());
        }
        let range = KeyRange::between(&piece_key(long.id, first), &piece_key(long.id, last));
        let mut left = Vec::new();
        self.scan(range, Order::Ascending, |full, piece| {
            left.push((full.to_vec(), piece.to_vec()));
            ControlFlow::Continue(())
        })?;
        for (full, piece) in left {
            let index = split_piece_key(&full).ok_or(Failure::Damaged)?;
            let counted = counted_bytes(long, index);
            if piece.len() > counted {
                let rest = (counted > 0).then_some(&piece[..counted]);
                self.store().write(&full, rest)?;
            }
        }
        Ok(())
    }
}

/// The index of a byte's piece, and its position in the piece.
fn place_of(byte: u64) -> (u32, usize) {
    let bytes = PIECE_BYTES as u64;
    // Strings have far fewer than 2^32 pieces.
    ((byte / bytes) as u32, (byte % bytes) as usize)
}

/// The keys of all pieces with bytes that count.
pub(crate) fn pieces_of(long: LongString) -> KeyRange {
    let (last, _) = place_of(long.bytes.saturating_sub(1));
    KeyRange::between(&piece_key(long.id, 0), &piece_key(long.id, last + 1))
}

/// The number of bytes of a piece that count.
pub(crate) fn counted_bytes(long: LongString, index: u32) -> usize {
    let before = u64::from(index) * PIECE_BYTES as u64;
    long.bytes.saturating_sub(before).min(PIECE_BYTES as u64) as usize
}

fn is_zero(piece: &[u8]) -> bool {
    *piece == ZEROS[..piece.len()]
}
