//! CONFIG: reads and changes config parameters at run time.

use pando_keyspace::SyncMode;
use pando_keyspace::failure::{Failure, Result, fail, fail_with};
use pando_net::glob;

use crate::commands::command::{Command, Context, commands, reply_help};
use crate::config::{self, Kind, ParameterId, Parsed};
use crate::errors::SYNTAX;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["server": (NONE), NONE]
    "config", -2, "2.0.0", reply_help,
        "A container for server configuration commands.", HELP, SUBCOMMANDS;
};

const HELP: &str = "\
GET <pattern>
    Return parameters matching the glob-like <pattern> and their values.
SET <directive> <value>
    Set the configuration <directive> to <value>.
RESETSTAT
    Reset statistics reported by the INFO command.
REWRITE
    Rewrite the configuration file.";

static SUBCOMMANDS: &[Command] = commands! {
    ["server": (ANYTIME), NONE]
    "help", 2, "5.0.0", reply_help, "Returns helpful text about the different subcommands.";
    ["server": (ADMIN | NO_SCRIPT | ANYTIME), NONE]
    "get", -3, "2.0.0", get, "Returns the effective values of configuration parameters.";
    "resetstat", 2, "2.0.0", reset_stat, "Resets the server's statistics.";
    "rewrite", 2, "2.8.0", rewrite, "Persists the effective configuration to file.";
    "set", -4, "2.0.0", set, "Sets configuration parameters in-flight.";
};

fn get(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let patterns = &arguments[2..];
    let is_wanted =
        |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes(), true));
    let selected = context.server.config.select(is_wanted);
    context.reply.map(selected.len());
    for (name, value) in selected {
        context.reply.bulk(name.as_bytes());
        context.reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn set(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (pairs, rest) = arguments[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(SYNTAX);
    }
    let mut changes: Vec<(ParameterId, Parsed)> = Vec::new();
    for [name, value] in pairs {
        let shown = String::from_utf8_lossy(&name[..name.len().min(128)]).into_owned();
        let id = config::find(&shown).ok_or_else(|| {
            fail_with(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
            ))
        })?;
        let parameter = id.parameter();
        if !parameter.is_settable {
            return Err(refused(&shown, "can't set immutable config"));
        }
        if changes.iter().any(|(known, _)| *known == id) {
            return Err(refused(&shown, "duplicate parameter"));
        }
        let Ok(value) = std::str::from_utf8(value) else {
            return Err(refused(&shown, "argument must be text"));
        };
        let is_another = context.server.config.text(id) != value;
        if let (Kind::Only(reason), true) = (parameter.kind, is_another) {
            return Err(refused(&shown, reason));
        }
        if id == config::APPEND_FSYNC && is_another && context.server.store.log().is_none() {
            return Err(refused(&shown, "the pool has no log; create one with `pando --log DIR`"));
        }
        let of_memory = [config::MAX_MEMORY, config::MAX_MEMORY_POLICY];
        if of_memory.contains(&id) && is_another && context.server.store.page_bytes().is_some() {
            return Err(refused(&shown, config::MEMORY_OF_STORE));
        }
        let parsed = config::parse(parameter.kind, value);
        changes.push((id, parsed.map_err(|why| refused(&shown, &why))?));
    }
    for (id, parsed) in changes {
        if id == config::REQUIRE_PASS {
            context.server.acl.set_default_password(parsed.text().as_bytes());
        }
        let log = context.server.store.log().filter(|_| id == config::APPEND_FSYNC);
        context.server.config.set_and_apply(id, parsed, |parsed| {
            if let Some(log) = log {
                log.set_mode(SyncMode::at(parsed.place()).unwrap_or_default());
            }
        });
        if [config::MAX_MEMORY, config::MAX_MEMORY_POLICY].contains(&id) {
            context.server.limit_memory();
        }
    }
    context.reply.ok();
    Ok(())
}

fn refused(name: &str, why: &str) -> Failure {
    fail_with(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

fn reset_stat(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.server.stats.reset();
    context.reply.ok();
    Ok(())
}

fn rewrite(_: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    Err(fail("ERR The server is running without a config file"))
}
