//! `flush_all`, at once or with a delay.
//!
//! It empties database 0; its time does not depend on the number of keys. A delayed flush is kept
//! in memory, as in memcached. There is at most one; a later one replaces it. It is forgotten when
//! the server stops.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pando_keyspace::LogSync;
use pando_keyspace::failure::{Result, fail_with};
use pando_keyspace::stripes::{Access, STRIPES, StripeIndex};

use crate::item;
use crate::state::{Refused, Server};

/// The time between two tries of a delayed flush that is refused.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Empties the database now, and drops the delayed flush.
pub(crate) fn flush(server: Server<'_>) -> Result<()> {
    let waiting = &server.state.waiting;
    let mut refused = waiting.turn.lock();
    flush_in_turn(server)?;
    *refused = None;
    waiting.due_at.store(u64::MAX, Ordering::Relaxed);
    Ok(())
}

/// Executes the delayed flush, if its time has come. While writes are refused, or wait for the disk
/// of the log, the flush waits, and reads go on.
///
/// # Errors
///
/// Its error, if it failed now or within the last second. Within that second it is not tried again,
/// because each try locks all keys. No value may be shown meanwhile.
#[inline]
pub fn flush_if_due(server: Server<'_>) -> Result<()> {
    let waiting = &server.state.waiting;
    let is_due = || {
        let due_at = waiting.due_at.load(Ordering::Relaxed);
        let is_time = due_at != u64::MAX && due_at <= server.store.clock().now_ms();
        is_time
            && !server.store.refuses_writes()
            && !server.store.log().is_some_and(LogSync::is_behind)
    };
    if !is_due() {
        return Ok(());
    }
    let mut refused = waiting.turn.lock();
    if !is_due() {
        return Ok(());
    }
    let now = Instant::now();
    if let Some(Refused { failure, .. }) = refused.as_ref().filter(|last| now < last.again_at) {
        return Err(fail_with(failure.clone()));
    }
    if let Err(failure) = flush_in_turn(server) {
        // The try may have taken long.
        let again_at = Instant::now() + AGAIN_AFTER;
        *refused = Some(Refused { again_at, failure: failure.to_string() });
        return Err(failure);
    }
    *refused = None;
    waiting.due_at.store(u64::MAX, Ordering::Relaxed);
    Ok(())
}

fn flush_in_turn(server: Server<'_>) -> Result<()> {
    let held = server.store.lock((0..STRIPES as StripeIndex).collect(), Access::Exclusive)?;
    let mut transaction = server.store.begin(held, server.store.clock().now_ms());
    transaction.flush(std::iter::once(item::DATABASE))?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use pando_keyspace::{Store, StoreOptions};
    use pando_net::stats::Stats;
    use pando_net::web_request::Alarm;

    use super::*;
    use crate::connection::{Connection, Progress};
    use crate::state::State;

    /// The replies to `input` on a new connection, which stays open.
    fn replies(server: Server<'_>, input: &str) -> String {
        let mut connection = Connection::new(server, String::new());
        let (mut begin, mut reply) = (0, Vec::new());
        let progress = connection.carry_out(input.as_bytes(), &mut begin, &mut reply, usize::MAX);
        assert_eq!(progress, Progress::Incomplete(0));
        assert!(!connection.is_closing());
        String::from_utf8(reply).expect("text")
    }

    #[test]
    fn only_commands_that_need_values_fail_while_a_delayed_flush_is_refused() {
        let store = Store::open(None, &StoreOptions::default()).expect("a store");
        let (stats, alarm, state) = (Stats::new(1, &[]), Alarm::default(), State::new(None));
        let server =
            Server { store: &store, stats: &stats, web_request_alarm: &alarm, state: &state };
        assert_eq!(
            replies(server, "set a 0 0 1\r\n1\r\nget a\r\n"),
            "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n"
        );
        let refuse_until = |again_at| {
            let failure = "ERR the flush is refused".to_owned();
            *state.waiting.turn.lock() = Some(Refused { again_at, failure });
            state.waiting.due_at.store(0, Ordering::Relaxed);
        };
        refuse_until(Instant::now() + Duration::from_secs(1000));
        let refused = "SERVER_ERROR the flush is refused\r\n";
        for line in
            ["get a b", "gets a", "gat 0 a", "incr a 1", "touch a 0", "mg a v", "ma a", "me a"]
        {
            assert_eq!(replies(server, &format!("{line}\r\n")), refused, "{line}");
        }
        for line in ["set b 0 0 1\r\n2", "append a 0 0 1\r\n2", "ms b 1\r\n2"] {
            assert_eq!(replies(server, &format!("{line}\r\nmn\r\n")), format!("{refused}MN\r\n"));
        }
        let passed = replies(
            server,
            "set b 0 0 1 noreply\r\n2\r\nincr a 1 noreply\r\ntouch a 0 noreply\r\ndelete a\r\nmd b\r\nversion\r\nstats settings\r\n",
        );
        assert!(
            passed.starts_with("DELETED\r\nNF\r\nVERSION ") && passed.ends_with("END\r\n"),
            "{passed}"
        );

        // It is tried again in time, and a flush of a client takes its place.
        replies(server, "set a 0 0 1 noreply\r\n1\r\n");
        refuse_until(Instant::now());
        assert_eq!(replies(server, "get a\r\n"), "END\r\n");
        assert_eq!(state.waiting.due_at.load(Ordering::Relaxed), u64::MAX);
        refuse_until(Instant::now() + Duration::from_secs(1000));
        assert_eq!(replies(server, "flush_all\r\nget a\r\n"), "OK\r\nEND\r\n");
    }
}
