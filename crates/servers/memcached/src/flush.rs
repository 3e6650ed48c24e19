//! `flush_all`, now or later.
//!
//! It empties database 0, at once whatever its size. A flush that was told to wait is kept in
//! memory, as memcached keeps it: one at most, the last one told. It is carried out when its moment
//! comes, and is forgotten when the server ends before.

use std::sync::atomic::Ordering;

use pando_keyspace::failure::Result;
use pando_keyspace::stripes::{Access, STRIPES, StripeIndex};

use crate::item;
use crate::state::Server;

/// Empties the database now; a flush that waits is forgotten.
pub(crate) fn flush(server: Server<'_>) -> Result<()> {
    let waiting = &server.state.waiting;
    let _turn = waiting.turn.lock();
    flush_in_turn(server)?;
    waiting.due_at.store(u64::MAX, Ordering::Relaxed);
    Ok(())
}

/// Carries out the flush that waits, if its moment has come.
#[inline]
pub fn flush_if_due(server: Server<'_>) -> Result<()> {
    let waiting = &server.state.waiting;
    let is_due = || {
        let due_at = waiting.due_at.load(Ordering::Relaxed);
        due_at != u64::MAX && due_at <= server.store.clock().now_ms()
    };
    if !is_due() {
        return Ok(());
    }
    let _turn = waiting.turn.lock();
    if is_due() {
        flush_in_turn(server)?;
        waiting.due_at.store(u64::MAX, Ordering::Relaxed);
    }
    Ok(())
}

fn flush_in_turn(server: Server<'_>) -> Result<()> {
    let held = server.store.lock((0..STRIPES as StripeIndex).collect(), Access::Exclusive)?;
    let mut transaction = server.store.begin(held, server.store.clock().now_ms());
    transaction.flush(std::iter::once(item::DATABASE))?;
    transaction.commit()
}
