//! The note of damage that the calling thread has found, until its guard takes it
//! ([`Guard::damage`](crate::Guard::damage)).
//!
//! A note is a store to memory of the thread, and no call. It is made within the loops of searches,
//! where a call costs registers even if it never happens.
//!
//! The first pin of a thread forgets the note, which may have been made without a guard.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

#[derive(Clone, Copy, Debug)]
struct Note {
    /// The address of the pool's mapping, [`UNKNOWN`], or zero if nothing is noted.
    base: usize,
    /// The offset in the pool; if the pool is unknown, the address.
    at: u64,
}

const NONE: Note = Note { base: 0, at: 0 };
/// No mapping begins here.
const UNKNOWN: usize = 1;

thread_local! {
    static NOTE: Cell<Note> = const { Cell::new(NONE) };
}

#[inline(always)]
fn keep_first(note: Note) {
    if !is_noted() {
        NOTE.set(note);
    }
}

/// Notes that the data at `off` of the pool at `base` is damaged, or that `off` lies outside it.
#[inline(always)]
pub(crate) fn note(base: *const u8, off: u64) {
    keep_first(Note { base: base as usize, at: off });
}

/// Notes a load beyond the end of `words`.
#[inline(always)]
pub(crate) fn note_behind(words: &[AtomicU64]) {
    keep_first(Note { base: UNKNOWN, at: words.as_ptr() as u64 });
}

#[inline(always)]
pub(crate) fn is_noted() -> bool {
    // A closure is inlined; `get` would be a call.
    NOTE.with(|note| note.get().base != 0)
}

#[inline(always)]
pub(crate) fn forget() {
    NOTE.set(NONE);
}

/// Takes the note, if it is of the pool that is mapped at `base`; returns the offset.
pub(crate) fn take(base: *const u8, bytes: u64) -> Option<u64> {
    let Note { base: noted, at } = NOTE.get();
    let base = base as usize;
    let off = match noted {
        UNKNOWN => at.checked_sub(base as u64).filter(|&off| off < bytes)?,
        _ if noted == base => at,
        _ => return None,
    };
    forget();
    Some(off)
}
