//! The replies to `stats`.
//!
//! Only figures with a meaning here are sent: there are no slabs, no recency list and no eviction
//! of memcached's kind.

use std::sync::atomic::Ordering;

use pando_keyspace::clock::system_ms;
use pando_keyspace::failure::Result;
use pando_net::stats::Count;

use crate::counters;
use crate::state::{Server, State, VERSION};

/// Writes the reply to `stats` with this argument, or without one; `false` if the argument is
/// unknown.
pub(crate) fn reply_to(
    server: Server<'_>,
    about: Option<&[u8]>,
    reply: &mut Vec<u8>,
) -> Result<bool> {
    let state = server.state;
    let mut line = |name: &str, value: &str| {
        reply.extend_from_slice(format!("STAT {name} {value}\r\n").as_bytes());
    };
    match about {
        None => general(server, &mut line)?,
        Some(b"settings") => settings(state, &mut line),
        // There are no slabs. This is memcached's reply before it has any.
        Some(b"items") => {}
        Some(b"slabs") => {
            line("active_slabs", "0");
            line("total_malloced", "0");
        }
        Some(b"sizes") => line("sizes_status", "disabled"),
        Some(_) => return Ok(false),
    }
    reply.extend_from_slice(b"END\r\n");
    Ok(true)
}

fn general(server: Server<'_>, line: &mut impl FnMut(&str, &str)) -> Result<()> {
    let counters = &server.state.counters;
    // Relaxed: figures order nothing.
    let connections = counters.connections.load(Ordering::Relaxed);
    let total_connections = counters.total_connections.load(Ordering::Relaxed);
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    for (name, value) in [
        ("pid", std::process::id().to_string()),
        ("uptime", counters.begun.elapsed().as_secs().to_string()),
        ("time", (system_ms() / 1000).to_string()),
        ("version", VERSION.to_owned()),
        ("pando_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("pointer_size", usize::BITS.to_string()),
        ("rusage_total", format!("{}.{:06}", usage.tv_sec, usage.tv_nsec / 1000)),
        ("curr_connections", connections.to_string()),
        ("total_connections", total_connections.to_string()),
    ] {
        line(name, &value);
    }
    for (at, name) in counters::NAMES.iter().enumerate() {
        line(name, &counters.sum(at).to_string());
    }
    line("bytes", &server.store.pool().used_bytes().to_string());
    // Left out until the keys are counted, and if they cannot be.
    if let Ok(Some(count)) = server.store.count_for_client(crate::item::DATABASE) {
        line("curr_items", &count.to_string());
    }
    line("evictions", &server.stats.since_reset().get(Count::Evicted).to_string());
    Ok(())
}

fn settings(state: &State, line: &mut impl FnMut(&str, &str)) {
    for (name, value) in [
        ("evictions", "off".to_owned()),
        ("cas_enabled", "yes".to_owned()),
        ("flush_enabled", "yes".to_owned()),
        ("shutdown_command", "no".to_owned()),
        ("detail_enabled", "no".to_owned()),
        ("auth_enabled_sasl", "no".to_owned()),
        ("auth_enabled_ascii", "no".to_owned()),
        ("binding_protocol", "ascii".to_owned()),
        ("item_size_max", state.max_item_bytes.to_string()),
    ] {
        line(name, &value);
    }
}
