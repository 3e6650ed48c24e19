//! `flush_all`, now or later.
//!
//! It empties database 0, at once whatever its size. A flush that was told to wait is kept in
//! memory, as memcached keeps it: one at most, the last one told. It is carried out when its moment
//! comes, and is forgotten when the server ends before.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_keyspace::failure::Result;
use pando_keyspace::stripes::{Access, STRIPES, StripeIndex};
use parking_lot::Mutex;

use super::item;
use crate::dispatch;
use crate::server::Server;

/// When the flush that waits is due, in milliseconds of the store's clock; `u64::MAX` if none
/// waits.
#[derive(Debug)]
pub(super) struct Waiting {
    due_at: AtomicU64,
    /// Held by who flushes.
    turn: Mutex<()>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { due_at: AtomicU64::new(u64::MAX), turn: Mutex::new(()) }
    }
}

impl Waiting {
    /// In place of what waits already.
    pub(super) fn wait_until(&self, due_at: u64) {
        let _turn = self.turn.lock();
        // Relaxed: only the moment itself matters, and who finds that it has come takes the lock.
        self.due_at.store(due_at, Ordering::Relaxed);
    }
}

/// Empties the database now; a flush that waits is forgotten.
pub(super) fn flush(server: &Server) -> Result<()> {
    let waiting = &server.memcached.waiting;
    let _turn = waiting.turn.lock();
    flush_in_turn(server)?;
    waiting.due_at.store(u64::MAX, Ordering::Relaxed);
    Ok(())
}

/// Carries out the flush that waits, if its moment has come.
#[inline]
pub(crate) fn flush_if_due(server: &Server) -> Result<()> {
    let waiting = &server.memcached.waiting;
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

fn flush_in_turn(server: &Server) -> Result<()> {
    let held = dispatch::lock(server, Some(Access::Alone), (0..STRIPES as StripeIndex).collect())?;
    let mut transaction = server.store.begin(held, server.store.clock().now_ms());
    transaction.flush(std::iter::once(item::DATABASE))?;
    transaction.commit()
}
