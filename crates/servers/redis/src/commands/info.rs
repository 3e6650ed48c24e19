//! INFO: facts, durability and statistics of the server, by section.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pando_keyspace::failure::Result;
use pando_keyspace::key_counts::Expiries;
use pando_keyspace::layout::DATABASES;
use pando_net::stats::Count;
use procfs::process::Process;
use procfs::{Current, Meminfo};

use super::connection::REDIS_VERSION;
use crate::commands::command::{Command, Context, commands};
use crate::config;
use crate::server::{Counting, Server};
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["server": (ANYTIME | DANGEROUS), NONE]
    "info", -1, "1.0.0", info, "Returns information and statistics about the server.";
};

/// In a pool with fewer used bytes, INFO counts the keys before it replies.
const COUNTED_AT_ONCE_BYTES: u64 = 64 << 20;

/// Up to this number of expiring keys, INFO counts them before it replies.
const EXPIRIES_AT_ONCE: u64 = 10_000;
/// In a store each may be in a page that is not in memory.
const EXPIRIES_AT_ONCE_IN_STORE: u64 = 100;
/// The time for which a count of more keys is used again.
const EXPIRIES_AGE: Duration = Duration::from_secs(10);

/// A section: its name, whether INFO has it by default, and the function that writes it.
type Section = (&'static str, bool, fn(&Context<'_, '_>, &mut String) -> Result<()>);

const SECTIONS: &[Section] = &[
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Commandstats", false, command_stats),
    ("Latencystats", false, latency_stats),
    ("Errorstats", true, error_stats),
    ("Cluster", true, cluster),
    ("Keyspace", true, keyspace),
    ("Pando", true, pando),
];

fn info(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let asked = &arguments[1..];
    let is_asked = |name: &str, is_default: bool| {
        let names = |word: &&[u8]| word.eq_ignore_ascii_case(name.as_bytes());
        let all = |word: &&[u8]| {
            word.eq_ignore_ascii_case(b"all") || word.eq_ignore_ascii_case(b"everything")
        };
        let default = |word: &&[u8]| word.eq_ignore_ascii_case(b"default");
        asked.iter().any(|word| names(word) || all(word) || is_default && default(word))
    };
    // INFO with the section's name waits for the count of the keys, unless they are in a store.
    // INFO of everything does not wait, unless the pool is small.
    let is_asked_for_keys = asked.iter().any(|word| word.eq_ignore_ascii_case(b"keyspace"));
    let tells_keys = asked.is_empty() || is_asked("Keyspace", true);
    let passes_over_keys = tells_keys && !is_asked_for_keys && counts_first(context);
    let mut text = String::new();
    for (name, is_default, write) in SECTIONS {
        if is_asked(name, *is_default) || asked.is_empty() && *is_default {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {name}\r\n");
            if *name == "Keyspace" && passes_over_keys {
                line(&mut text, "counting", 1);
                continue;
            }
            match write(context, &mut text) {
                // A damaged page of a store must not hide the other sections.
                Err(failure) if *name == "Keyspace" => {
                    line(
                        &mut text,
                        "keyspace_error",
                        failure.to_string().replace(['\r', '\n'], " "),
                    );
                }
                written => written?,
            }
        }
    }
    context.reply.verbatim(&text);
    Ok(())
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn server(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    let server = context.server;
    let uptime_s = server.stats.uptime().as_secs();
    line(text, "redis_version", REDIS_VERSION);
    line(text, "redis_mode", "standalone");
    line(text, "pando_version", env!("CARGO_PKG_VERSION"));
    line(text, "os", system_name());
    line(text, "arch_bits", usize::BITS);
    line(text, "multiplexing_api", "epoll");
    line(text, "process_id", std::process::id());
    line(text, "run_id", &server.run_id);
    line(text, "tcp_port", server.config.text(config::PORT));
    line(text, "server_time_usec", pando_keyspace::clock::system_ms() * 1000);
    line(text, "uptime_in_seconds", uptime_s);
    line(text, "uptime_in_days", uptime_s / 86_400);
    line(text, "event_loops", server.stats.loops());
    let executable = std::env::current_exe().unwrap_or_default();
    line(text, "executable", executable.display());
    line(text, "config_file", "");
    Ok(())
}

fn system_name() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}

fn clients(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    let server = context.server;
    line(text, "connected_clients", server.clients.count());
    line(text, "cluster_connections", 0);
    line(text, "maxclients", server.config.text(config::MAX_CLIENTS));
    line(text, "blocked_clients", server.clients.waiting());
    line(text, "tracking_clients", 0);
    Ok(())
}

/// Bytes in a form for people.
fn human(bytes: u64) -> String {
    let units = [(1u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, letter)) => format!("{:.2}{letter}", bytes as f64 / unit as f64),
        None => format!("{bytes}B"),
    }
}

fn memory(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    let server = context.server;
    let mut both = |name: &str, bytes: u64| {
        line(text, name, bytes);
        line(text, &format!("{name}_human"), human(bytes));
    };
    let pool = server.store.pool();
    let is_paged = server.store.page_bytes().is_some();
    // What the pages of a store take on the disk is no memory.
    both("used_memory", if is_paged { resident_bytes() } else { pool.used_bytes() });
    both("used_memory_rss", resident_bytes());
    both("total_system_memory", system_bytes());
    both("maxmemory", server.config.size(config::MAX_MEMORY) as u64);
    both("pool_size", pool.size_bytes());
    both("pool_occupied", server.store.occupied_bytes()?);
    match is_paged {
        true => both("store_used", pool.used_bytes()),
        false => both("pool_max_size", pool.max_bytes()),
    }
    line(text, "maxmemory_policy", server.config.text(config::MAX_MEMORY_POLICY));
    line(text, "mem_allocator", "pando");
    Ok(())
}

/// Resident bytes of the process, including mapped pages of the pool.
fn resident_bytes() -> u64 {
    let memory = Process::myself().and_then(|process| process.statm());
    memory.map_or(0, |memory| memory.resident * procfs::page_size())
}

fn system_bytes() -> u64 {
    Meminfo::current().map_or(0, |memory| memory.mem_total)
}

fn persistence(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    for name in ["loading", "async_loading"] {
        line(text, name, 0);
    }
    // This counts changes since the last snapshot. It is not about durability.
    line(text, "rdb_changes_since_last_save", context.server.changes_since_save());
    let snapshot = context.server.store.snapshot_state();
    let saved_ms = match snapshot.finished_system_ms {
        0 => context.server.started_system_ms,
        finished_ms => finished_ms,
    };
    line(text, "rdb_bgsave_in_progress", u8::from(snapshot.is_writing));
    line(text, "rdb_last_save_time", saved_ms / 1000);
    let status = if snapshot.has_failed { "err" } else { "ok" };
    line(text, "rdb_last_bgsave_status", status);
    let store = &context.server.store;
    line(text, "aof_enabled", u8::from(store.log().is_some()));
    line(text, "aof_rewrite_in_progress", 0);
    line(text, "aof_last_write_status", if store.refuses_writes() { "err" } else { "ok" });
    if let Some(log) = store.log() {
        line(text, "aof_pending_bio_fsync", u8::from(log.is_syncing()));
        line(text, "aof_delayed_fsync", log.delayed());
    }
    line(text, "starts", store.starts());
    Ok(())
}

fn stats(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    let figures = context.server.stats.since_reset();
    for (name, count) in [
        ("total_connections_received", Count::Connections),
        ("total_commands_processed", Count::Commands),
        ("total_net_input_bytes", Count::BytesIn),
        ("total_net_output_bytes", Count::BytesOut),
        ("rejected_connections", Count::ConnectionsRejected),
        ("expired_keys", Count::Expired),
        ("evicted_keys", Count::Evicted),
        ("keyspace_hits", Count::Hits),
        ("keyspace_misses", Count::Misses),
        ("total_error_replies", Count::Errors),
    ] {
        line(text, name, figures.get(count));
    }
    line(text, "pubsub_channels", 0);
    line(text, "pubsub_patterns", 0);
    line(text, "latest_fork_usec", 0);
    Ok(())
}

fn replication(_: &Context<'_, '_>, text: &mut String) -> Result<()> {
    line(text, "role", "master");
    line(text, "connected_slaves", 0);
    line(text, "master_repl_offset", 0);
    Ok(())
}

fn cpu(_: &Context<'_, '_>, text: &mut String) -> Result<()> {
    let (system, user) = processor_seconds();
    line(text, "used_cpu_sys", format_args!("{system:.6}"));
    line(text, "used_cpu_user", format_args!("{user:.6}"));
    Ok(())
}

/// Processor time of the process: in the kernel, and in user mode.
fn processor_seconds() -> (f64, f64) {
    let used = Process::myself().and_then(|process| process.stat());
    let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
    used.map_or((0.0, 0.0), |used| (seconds(used.stime), seconds(used.utime)))
}

fn command_stats(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    let figures = context.server.stats.since_reset();
    for (name, calls) in figures.called() {
        let microseconds = calls.nanoseconds as f64 / 1000.0;
        let each = if calls.calls == 0 { 0.0 } else { microseconds / calls.calls as f64 };
        let _ = write!(
            text,
            "cmdstat_{name}:calls={},usec={microseconds:.0},usec_per_call={each:.2},\
             rejected_calls={},failed_calls={}\r\n",
            calls.calls, calls.rejected, calls.failed
        );
    }
    Ok(())
}

fn latency_stats(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    let latencies = context.server.stats.since_reset().all_latencies();
    let at = |share: f64| latencies.quantile(share).unwrap_or(0) as f64 / 1000.0;
    let _ = write!(
        text,
        "latency_percentiles_usec_all:p50={:.3},p99={:.3},p99.9={:.3}\r\n",
        at(0.5),
        at(0.99),
        at(0.999)
    );
    Ok(())
}

fn error_stats(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    for (code, count) in context.server.stats.errors() {
        let _ = write!(text, "errorstat_{code}:count={count}\r\n");
    }
    Ok(())
}

fn cluster(_: &Context<'_, '_>, text: &mut String) -> Result<()> {
    line(text, "cluster_enabled", 0);
    Ok(())
}

fn keyspace(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    let mut counts = [0; DATABASES as usize];
    for (database, keys) in (0..DATABASES).zip(&mut counts) {
        let Some(count) = context.transaction.count(database)? else {
            line(text, "counting", 1);
            return Ok(());
        };
        *keys = count;
    }
    let expiries = expiries(context.server)?;
    for (database, keys) in (0..DATABASES).zip(counts) {
        if keys > 0 {
            let expires = expiries.keys[usize::from(database)].min(keys);
            let left_ms = expiries.average_ms(database);
            let _ =
                write!(text, "db{database}:keys={keys},expires={expires},avg_ttl={left_ms}\r\n");
        }
    }
    Ok(())
}

/// Keys that expire. Few keys are all counted. Otherwise this is the last count of a background
/// thread, or, before the first count, a part of the keys.
fn expiries(server: &Server) -> Result<Expiries> {
    let most = server.store.page_bytes().map_or(EXPIRIES_AT_ONCE, |_| EXPIRIES_AT_ONCE_IN_STORE);
    let first = server.store.expiries(most)?;
    if first.are_all {
        return Ok(first);
    }
    let known = *server.expiries.lock();
    let is_fresh = known.is_some_and(|(at, _)| at.elapsed() < EXPIRIES_AGE);
    // Relaxed: a stale value only causes a second count.
    if !is_fresh && !server.is_counting.swap(true, Ordering::Relaxed) {
        let count = |server: &Server| {
            let _counting = Counting(&server.is_counting);
            match server.store.expiries(u64::MAX) {
                Ok(expiries) => *server.expiries.lock() = Some((Instant::now(), expiries)),
                Err(error) => tracing::warn!(%error, "the keys that expire cannot be counted"),
            }
        };
        if let Err(error) = server.begin_task("expiries", count) {
            server.is_counting.store(false, Ordering::Relaxed);
            tracing::warn!(%error, "cannot start a thread to count the keys that expire");
        }
    }
    Ok(known.map_or(first, |(_, expiries)| expiries))
}

/// Whether the keys must be counted first, which takes long; then that begins in the background.
fn counts_first(context: &mut Context<'_, '_>) -> bool {
    let store = &context.server.store;
    // Between MULTI and EXEC the section reads the keys. The keys of a store it never reads.
    if !context.transaction.held().is_none()
        || store.page_bytes().is_some()
        || store.pool().used_bytes() < COUNTED_AT_ONCE_BYTES
        || store.known_count().is_some()
    {
        return false;
    }
    store.want_count();
    true
}

/// What a reply guarantees.
fn pando(context: &Context<'_, '_>, text: &mut String) -> Result<()> {
    let Server { promise, .. } = context.server;
    line(text, "pando_version", env!("CARGO_PKG_VERSION"));
    line(text, "domain", promise.domain);
    // Some clients parse a value with a comma as a list.
    line(text, "medium", promise.medium.replace(',', ";"));
    line(text, "guarantee", promise.guarantee.replace(',', ";"));
    let store = &context.server.store;
    if let (Some(log), Some(progress)) = (store.log(), store.pool().log_progress()?) {
        line(text, "sync", log.mode().name());
        line(text, "log_newest_lsn", progress.newest_lsn);
        line(text, "log_durable_lsn", progress.durable_lsn);
        line(text, "log_has_stopped", u8::from(progress.has_stopped));
        let in_a_line = |words: Option<String>| {
            words.unwrap_or_default().replace(['\r', '\n'], " ").replace(',', ";")
        };
        if let Some(figures) = log.stat() {
            line(text, "log", figures.path.display());
            line(text, "log_image_lsn", figures.image_lsn);
            line(text, "log_image_bytes", figures.image_bytes);
            line(text, "log_image_error", in_a_line(figures.image_error));
        }
        line(text, "log_failure", in_a_line(log.failure()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_said_for_people() {
        for (bytes, text) in [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (5 << 30, "5.00G")] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn the_process_is_somewhere_in_memory() {
        assert!(resident_bytes() > 1 << 20 && system_bytes() > resident_bytes());
        let (system, user) = processor_seconds();
        assert!(system >= 0.0 && user >= 0.0);
    }
}
