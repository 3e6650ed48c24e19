//! Blocks that a word owns, for tests of the allocator: exchanges without contention.

use std::sync::atomic::Ordering;

use crate::alloc::Reservation;
use crate::domain::Domain;
use crate::epoch::Guard;

/// The bits of the word that name a block: all bits of an offset.
const STABLE: u64 = (1 << 48) - 1;

/// Gives `block` to the word at `word_off`, which holds zero; returns the block's offset. The
/// content must be flushed.
pub fn give_to<'pool, D: Domain>(
    guard: &Guard<'pool, D>,
    word_off: u64,
    block: Reservation<'_, 'pool, D>,
) -> u64 {
    let word = guard.pool().word(word_off);
    let exchange = guard.begin_exchange(word_off, STABLE, 0, Some((block, 0)));
    let off = exchange.new_name();
    word.store(off, Ordering::Release);
    word.flush();
    exchange.succeeded();
    off
}

/// Frees the block that the word at `word_off` owns, and sets the word to zero. False if that was
/// no active block.
pub fn take_from<D: Domain>(guard: &Guard<'_, D>, word_off: u64) -> bool {
    let word = guard.pool().word(word_off);
    let exchange = guard.begin_exchange(word_off, STABLE, word.load(Ordering::Acquire), None);
    word.store(0, Ordering::Release);
    word.flush();
    exchange.succeeded()
}
