//! Commands about the whole server: SHUTDOWN, ROLE, WAIT, DEBUG; and about its records: SLOWLOG,
//! LATENCY.

use std::time::Duration;

use pando_keyspace::failure::{Result, fail, fail_with};

use crate::commands::command::{Command, Context, commands, reply_help};
use crate::errors::{NOT_AN_INTEGER, SYNTAX};
use crate::session::DurabilityWait;
use crate::spec::Arguments;
use crate::{config, decimal};

/// The longest time for which DEBUG SLEEP stops its event loop.
const MAX_SLEEP_S: f64 = 60.0;

pub(super) static COMMANDS: &[Command] = commands! {
    ["server": (ADMIN | NO_SCRIPT | ANYTIME | NO_MULTI | ALLOW_BUSY), NONE]
    "shutdown", -1, "1.0.0", shutdown,
        "Synchronously saves the database(s) to disk and shuts down the Redis server.";
    ["server": (NO_SCRIPT | ANYTIME | FAST), NONE]
    "role", 1, "2.8.12", role, "Returns the replication role.";
    ["server": (ADMIN | NO_SCRIPT | ANYTIME), NONE]
    "debug", -2, "1.0.0", debug,
        "A container for debugging commands.", DEBUG_HELP;
    ["server": (NONE), NONE]
    "slowlog", -2, "2.2.12", reply_help,
        "A container for slow log commands.", SLOW_LOG_HELP, SLOW_LOG;
    "latency", -2, "2.8.13", reply_help,
        "A container for latency diagnostics commands.", LATENCY_HELP, LATENCY;
    ["generic": (NO_SCRIPT), NONE]
    "wait", 3, "3.0.0", wait,
        "Blocks until the asynchronous replication of all preceding write commands sent by the \
         connection is completed.";
    "waitaof", 4, "7.2.0", wait_for_log,
        "Blocks until all of the preceding write commands sent by the connection are written to \
         the append-only file of the master and/or replicas.";
};

const DEBUG_HELP: &str = "\
SLEEP <seconds>
    Stop the server for <seconds>. Decimals allowed.";

const SLOW_LOG_HELP: &str = "\
GET [<count>]
    Return top <count> entries from the slowlog (default: 10, -1 mean all).
    Entries are made of:
    id, timestamp, time in microseconds, arguments array, client IP and port,
    client name
LEN
    Return the length of the slowlog.
RESET
    Reset the slowlog.";

static SLOW_LOG: &[Command] = commands! {
    ["server": (ADMIN | ANYTIME), NONE]
    "get", -2, "2.2.12", slow_log_get, "Returns the slow log's entries.";
    "len", 2, "2.2.12", slow_log_len, "Returns the number of entries in the slow log.";
    "reset", 2, "2.2.12", slow_log_reset, "Clears all entries from the slow log.";
    ["server": (ANYTIME), NONE]
    "help", 2, "6.2.0", reply_help, "Show helpful text about the different subcommands";
};

const LATENCY_HELP: &str = "\
DOCTOR
    Return a human readable latency analysis report.
GRAPH <event>
    Return an ASCII latency graph for the <event> class.
HISTORY <event>
    Return time-latency samples for the <event> class.
LATEST
    Return the latest latency samples for all events.
RESET [<event> ...]
    Reset latency data of one or more <event> classes.
    (default: reset all data for all event classes)
HISTOGRAM [COMMAND ...]
    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.
    If no commands are specified then all histograms are replied.";

static LATENCY: &[Command] = commands! {
    ["server": (ADMIN | NO_SCRIPT | ANYTIME), NONE]
    "doctor", 2, "2.8.13", latency_doctor, "Returns a human-readable latency analysis report.";
    "graph", 3, "2.8.13", latency_graph, "Returns a latency graph for an event.";
    "histogram", -2, "7.0.0", latency_histogram,
        "Returns the cumulative distribution of latencies of a subset or all commands.";
    "history", 3, "2.8.13", nothing, "Returns timestamp-latency samples for an event.";
    "latest", 2, "2.8.13", nothing, "Returns the latest latency samples for all events.";
    "reset", -2, "2.8.13", latency_reset, "Resets the latency data for one or more events.";
    ["server": (ANYTIME), NONE]
    "help", 2, "2.8.13", reply_help, "Returns helpful text about the different subcommands.";
};

fn shutdown(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let (mut saves, mut is_abort) = (None, false);
    for option in &arguments[1..] {
        match *option {
            option if is(option, "nosave") && saves != Some(true) => saves = Some(false),
            option if is(option, "save") && saves != Some(false) => saves = Some(true),
            option if is(option, "now") || is(option, "force") => {}
            option if is(option, "abort") => is_abort = true,
            _ => return Err(SYNTAX),
        }
    }
    if is_abort {
        if arguments.len() > 2 {
            return Err(SYNTAX);
        }
        return Err(fail("ERR No shutdown in progress."));
    }
    tracing::info!("a client sent SHUTDOWN; the server stops");
    context.session.is_closing = true;
    context.server.stop.notify_one();
    Ok(())
}

fn role(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.array(3);
    context.reply.bulk(b"master");
    context.reply.integer(0);
    context.reply.array(0);
    Ok(())
}

fn wait(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    decimal::parse_i64(arguments[1]).ok_or(NOT_AN_INTEGER)?;
    let timeout = decimal::parse_i64(arguments[2]);
    match timeout.ok_or(fail("ERR timeout is not an integer or out of range"))? {
        ..0 => Err(fail("ERR timeout is negative")),
        _ => {
            // There are no replicas, so waiting is useless.
            context.reply.integer(0);
            Ok(())
        }
    }
}

fn wait_for_log(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is_local = match decimal::parse_i64(arguments[1]).ok_or(NOT_AN_INTEGER)? {
        0 => false,
        1 => true,
        _ => return Err(fail("ERR value is out of range, value must between 0 and 1")),
    };
    if decimal::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)? < 0 {
        return Err(fail("ERR value is out of range, must be positive"));
    }
    let timeout = decimal::parse_i64(arguments[3]);
    let timeout_ms = timeout.ok_or(fail("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| fail("ERR timeout is negative"))?;
    if is_local && context.server.store.log().is_none() {
        return Err(fail(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    // There are no replicas, so waiting for them is useless. A transaction is not committed yet, so
    // it does not wait.
    let waits = is_local && context.session.has_unsynced && !context.transaction.is_of_several();
    match waits {
        true => {
            let timeout = (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms));
            context.session.wait = Some(DurabilityWait { timeout, is_answered: true });
        }
        false => {
            let are_durable = context.server.store.log().is_some() && !context.session.has_unsynced;
            context.reply.waited(are_durable);
        }
    }
    Ok(())
}

fn debug(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is_here = context.session.client.address.is_here;
    let is_allowed = match context.server.config.number(config::ENABLE_DEBUG) {
        0 => false,
        2 => is_here,
        _ => true,
    };
    if !is_allowed {
        return Err(fail(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        ));
    }
    match arguments {
        [_, name, seconds] if name.eq_ignore_ascii_case(b"sleep") => {
            let seconds = decimal::parse_f64(seconds).unwrap_or(0.0);
            std::thread::sleep(Duration::from_secs_f64(seconds.clamp(0.0, MAX_SLEEP_S)));
            context.reply.ok();
            Ok(())
        }
        [_, name] if name.eq_ignore_ascii_case(b"help") => reply_help(context, arguments),
        _ => Err(unknown_or_wrong(arguments[1], "DEBUG")),
    }
}

fn unknown_or_wrong(name: &[u8], command: &str) -> pando_keyspace::failure::Failure {
    let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
    fail_with(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {command} HELP."
    ))
}

fn slow_log_get(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let count = match &arguments[2..] {
        [] => 10,
        [count] => decimal::parse_i64(count)
            .filter(|count| *count >= -1)
            .ok_or(fail("ERR count should be greater than or equal to -1"))?,
        _ => return Err(unknown_or_wrong(arguments[1], "SLOWLOG")),
    };
    let entries = context.server.slow_log.latest(usize::try_from(count).unwrap_or(usize::MAX));
    let reply = &mut *context.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.count(entry.id);
        reply.count(entry.at_s);
        reply.count(entry.microseconds);
        reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| reply.bulk(argument));
        reply.bulk(entry.address.as_bytes());
        reply.bulk(entry.name.as_bytes());
    }
    Ok(())
}

fn slow_log_len(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.count(context.server.slow_log.len() as u64);
    Ok(())
}

fn slow_log_reset(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.server.slow_log.clear();
    context.reply.ok();
    Ok(())
}

fn nothing(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.array(0);
    Ok(())
}

fn latency_reset(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.integer(0);
    Ok(())
}

fn latency_histogram(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.map(0);
    Ok(())
}

fn latency_graph(_: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let event = String::from_utf8_lossy(&arguments[2][..arguments[2].len().min(128)]);
    Err(fail_with(format!("ERR No samples available for event '{event}'")))
}

fn latency_doctor(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.verbatim(
        "This server does not sample latency by event. SLOWLOG has slow commands, and INFO \
         commandstats has the time of each command.\n",
    );
    Ok(())
}
