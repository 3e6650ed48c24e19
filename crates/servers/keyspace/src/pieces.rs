//! Long strings, in pieces: a change of a few bytes writes a piece or two, whatever the string's
//! length.
//!
//! A string of more than [`LONG_ABOVE_BYTES`] is a head with its number and length, and pieces of
//! [`PIECE_BYTES`] under that number (`layout.rs`). A string only gets shorter by being replaced,
//! so its length alone says which form it has: every write goes through [`Transaction::put_head`],
//! which chooses, or [`Transaction::edit_string`], which puts a string that grows beyond the bound
//! into pieces.
//!
//! # Which bytes count
//!
//! * Bytes of a piece beyond what its record has are zeros, and so is a piece without a record.
//! * Bytes at and beyond the string's length do not count, whatever records say. Who makes the
//!   string longer cuts them off first.
//!
//! # Protocol
//!
//! A write within the length changes what counts, so it is kept until the commit: one piece by one
//! operation of the index, several by an intent. Two kinds of write change nothing that counts, so
//! they are made at once, each by itself, and what decides is a head that is written later:
//!
//! *Longer:* pieces, or their ends, behind the length.
//!
//! | step | what is written | what a crash behind it leaves |
//! | --- | --- | --- |
//! | 1 | what stands beyond the length is cut, up to where the new bytes begin | the former string |
//! | 2 | the new bytes | the former string, and bytes that do not count |
//! | 3 | the head with the new length: it decides | the longer string |
//!
//! *A draft:* a string under a new number, which no head has.
//!
//! | step | what is written | what a crash behind it leaves |
//! | --- | --- | --- |
//! | 1 | the number as garbage (`0xC0`); the sweep spares it while this process writes the draft | a number to sweep |
//! | 2 | the pieces | pieces to sweep |
//! | 3 | one intent: the head, the end of the new number's garbage, and the former number as garbage | the new string; the sweep removes the former one |
//!
//! A draft whose transaction is not committed is what a crash behind step 2 leaves.
//!
//! The list of drafts is in process memory ([`Drafts`]). A number is in it before its garbage is
//! written and until its transaction has ended, and the sweep looks for garbage under the list's
//! lock. So what the sweep finds that is not in the list is garbage indeed: its draft never was
//! committed. (An intent that could not be carried out may still owe the end of the garbage; while
//! one is owed the sweep removes nothing.)

use std::ops::{ControlFlow, Range};

use pando::{KeyRange, Order};

use crate::failure::{Failure, Result, WRONG_TYPE, fail};
use crate::layout::{
    CollectionId, Content, Head, LONG_ABOVE_BYTES, LongString, MAX_LONG_BYTES, Memcached,
    PIECE_BYTES, piece_key, split_piece_key,
};
use crate::own_keys;
use crate::transaction::Transaction;

/// What a piece without a record has.
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// A string that is to be edited, and what stays with it.
enum Found {
    /// It was short and stays so: it has been changed, and has this length now.
    Changed(u64),
    /// It is in pieces.
    Long(LongString, Option<u64>, Option<Memcached>),
    /// It is short and grows beyond the bound.
    Grows(Vec<u8>, Option<u64>, Option<Memcached>),
}

impl Transaction<'_> {
    /// A number for records that nothing leads to until this transaction puts a head that has it.
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

    /// A new long string, which has these bytes, for a head that is put next.
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

    /// A copy of a long string, for a head that is put next.
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

    /// Lends the bytes of `range` of a long string, as far as it has them, in order, until it is
    /// told to end.
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

    /// Lends those bytes of the string at `key` that `choose` asks for, given its length (none if
    /// nothing is there), in order, until it is told to end. Each time `visit` gets from where on
    /// they are.
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

    /// Changes `bytes` bytes of the string at `key`, which is made longer by zeros if it ends
    /// before; if nothing is there it begins as an empty one. From where on, `place` says, given
    /// its length. `edit` gets them part by part, each with how many came before it, and may be
    /// called again from the beginning. Returns the string's length. What memcached keeps becomes
    /// as `renew` says.
    pub fn edit_string(
        &mut self,
        space: u8,
        key: &[u8],
        bytes: usize,
        place: impl Fn(u64) -> Result<u64>,
        renew: impl Fn(Memcached) -> Memcached,
        mut edit: impl FnMut(usize, &mut [u8]),
    ) -> Result<u64> {
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
            if length > LONG_ABOVE_BYTES as u64 {
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

    /// Changes bytes of a long string from `at` on. If it ends before their end, a head with the
    /// new length must be put next.
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
            // Nothing that counts changes, unless the transaction has a write of its own for later.
            if is_draft || from >= long.bytes && !self.has_write(&key) {
                self.store().write(&key, write.as_deref())?;
            } else {
                self.write_later(key, write);
            }
        }
        Ok(())
    }

    /// Cuts off what stands beyond the length, up to the piece in which `end` is.
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

/// The index of the piece that a byte is in, and its place there.
fn place_of(byte: u64) -> (u32, usize) {
    let bytes = PIECE_BYTES as u64;
    // Strings end far below 2^32 pieces.
    ((byte / bytes) as u32, (byte % bytes) as usize)
}

/// The keys of all pieces of a string in which bytes count.
pub(crate) fn pieces_of(long: LongString) -> KeyRange {
    let (last, _) = place_of(long.bytes.saturating_sub(1));
    KeyRange::between(&piece_key(long.id, 0), &piece_key(long.id, last + 1))
}

/// How many bytes of a piece count.
pub(crate) fn counted_bytes(long: LongString, index: u32) -> usize {
    let before = u64::from(index) * PIECE_BYTES as u64;
    long.bytes.saturating_sub(before).min(PIECE_BYTES as u64) as usize
}

fn is_zero(piece: &[u8]) -> bool {
    *piece == ZEROS[..piece.len()]
}
