//! `flush_all`, at once or with a delay.
//!
//! It empties database 0; its time does not depend on the number of keys. A delayed flush is kept
//! in memory, as in memcached. There is at most one; a later one replaces it. It is forgotten when
//! the server stops.

use std::sync::atomic::Ordering;

use pando_keyspace::failure::Result;
use pando_keyspace::stripes::{Access, STRIPES, StripeIndex};

use crate::item;
use crate::state::Server;

/// Empties the database now, and drops the delayed flush.
pub(crate) fn flush(server: Server<'_>) -> Result<()> {
    let waiting = &server.state.waiting;
    let _turn = waiting.turn.lock();
    flush_in_turn(server)?;
    waiting.due_at.store(u64::MAX, Ordering::Relaxed);
    Ok(())
}

/// Executes the delayed flush, if its time has come. While writes are refused it waits, and reads
/// go on.
#[inline]
pub fn flush_if_due(server: Server<'_>) -> Result<()> {
    let waiting = &server.state.waiting;
    let is_due = || {
        let due_at = waiting.due_at.load(Ordering::Relaxed);
        let is_time = due_at != u64::MAX && due_at <= server.store.clock().now_ms();
        is_time && !server.store.refuses_writes()
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
