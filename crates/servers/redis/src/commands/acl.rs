//! ACL: changes users and their rules at run time.

use std::io::Read;
use std::time::Instant;

use pando_keyspace::failure::{Result, fail, fail_with};
use pando_net::access::{self, DEFAULT};

use super::connection::note_denied;
use crate::acl::{self, Denied, rules};
use crate::commands::command::{Command, Context, commands, reply_help};
use crate::errors::NOT_AN_INTEGER;
use crate::server::Server;
use crate::session::Session;
use crate::spec::{Arguments, Spec};
use crate::{categories, config, decimal};

/// The most bits of a generated password.
const MAX_PASSWORD_BITS: i64 = 4096;

pub(super) static COMMANDS: &[Command] = commands! {
    ["server": (NONE), NONE]
    "acl", -2, "6.0.0", reply_help,
        "A container for Access List Control commands.", HELP, SUBCOMMANDS;
};

const HELP: &str = "\
CAT [<category>]
    List all commands that belong to <category>, or all command categories
    when no category is specified.
DELUSER <username> [<username> ...]
    Delete a list of users.
DRYRUN <username> <command> [<arg> ...]
    Returns whether the user can execute the given command without executing the command.
GETUSER <username>
    Get the user's details.
GENPASS [<bits>]
    Generate a secure 256-bit user password. The optional `bits` argument can
    be used to specify a different size.
LIST
    Show users details in config file format.
LOAD
    Reload users from the ACL file.
LOG [<count> | RESET]
    Show the ACL log entries.
SAVE
    Save the current config to the ACL file.
SETUSER <username> <attribute> [<attribute> ...]
    Create or modify a user with the specified attributes.
USERS
    List all the registered usernames.
WHOAMI
    Return the current connection username.";

static SUBCOMMANDS: &[Command] = commands! {
    ["server": (NO_SCRIPT | ANYTIME), NONE]
    "cat", -2, "6.0.0", cat, "Lists the ACL categories, or the commands inside a category.";
    "genpass", -2, "6.0.0", generate_password,
        "Generates a pseudorandom, secure password that can be used to identify ACL users.";
    "whoami", 2, "6.0.0", who_am_i, "Returns the authenticated username of the current connection.";
    ["server": (NO_SCRIPT | ANYTIME | ADMIN), NONE]
    "deluser", -3, "6.0.0", delete_user, "Deletes ACL users, and terminates their connections.";
    "dryrun", -4, "7.0.0", dry_run,
        "Simulates the execution of a command by a user, without executing the command.";
    "getuser", 3, "6.0.0", get_user, "Lists the ACL rules of a user.";
    "list", 2, "6.0.0", list, "Dumps the effective rules in ACL file format.";
    "load", 2, "6.0.0", load, "Reloads the rules from the configured ACL file.";
    "log", -2, "6.0.0", log, "Lists recent security events generated due to ACL rules.";
    "save", 2, "6.0.0", save, "Saves the effective ACL rules in the configured ACL file.";
    "setuser", -3, "6.0.0", set_user, "Creates and modifies an ACL user and its rules.";
    "users", 2, "6.0.0", users, "Lists all ACL users.";
    ["server": (ANYTIME), NONE]
    "help", 2, "6.0.0", reply_help, "Returns helpful text about the different subcommands.";
};

/// Refuses a command that the client may not run with these arguments, and logs the refusal. A
/// command that `was_queued` was allowed when it was queued.
pub(crate) fn admit(
    server: &Server,
    session: &Session,
    command: &'static Spec,
    arguments: &Arguments<'_>,
    was_queued: bool,
) -> Result<()> {
    let Err(denied) = rules::check(&session.user, server.catalog, command, arguments) else {
        return Ok(());
    };
    let name = server.catalog.full_name(command);
    let (reason, object) = match denied {
        Denied::Command => ("command", name.as_bytes()),
        Denied::Key(place) => ("key", arguments[place]),
    };
    let is_of_transaction = was_queued || session.multi.is_some();
    note_denied(server, session, reason, object, session.user.name.clone(), is_of_transaction);
    let changed = |why| {
        fail_with(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
             EXEC call. This command is no longer allowed for the following reason: {why}"
        ))
    };
    Err(match (denied, was_queued) {
        (Denied::Command, true) => changed("no permission to execute the command or subcommand"),
        (Denied::Key(_), true) => changed("no permission to touch the specified keys"),
        (Denied::Command, false) => {
            fail_with(format!("NOPERM this user has no permissions to run the '{name}' command"))
        }
        (Denied::Key(_), false) => {
            fail("NOPERM this user has no permissions to access one of the keys used as arguments")
        }
    })
}

fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned()
}

fn cat(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let names: Vec<String> = match &arguments[2..] {
        [] => categories::CATEGORIES.iter().map(|&name| name.to_owned()).collect(),
        [category] => {
            let lower = shown(category).to_ascii_lowercase();
            if !categories::CATEGORIES.contains(&lower.as_str()) {
                return Err(fail_with(format!("ERR Unknown category '{}'", shown(category))));
            }
            let all = context.server.catalog.listed();
            all.filter(|one| categories::is_in(*one, &lower)).map(|one| one.name()).collect()
        }
        _ => return Err(unknown_or_wrong(arguments[1])),
    };
    context.reply.array(names.len());
    names.iter().for_each(|name| context.reply.bulk(name.as_bytes()));
    Ok(())
}

fn unknown_or_wrong(name: &[u8]) -> pando_keyspace::failure::Failure {
    let name = shown(name);
    fail_with(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP."
    ))
}

fn delete_user(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let names: Vec<String> =
        arguments[2..].iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    if names.iter().any(|name| name == DEFAULT) {
        return Err(fail("ERR The 'default' user cannot be removed"));
    }
    let mut removed = 0;
    for name in names {
        if context.server.acl.remove(&name) {
            removed += 1;
            end_clients_of(context, &name);
        }
    }
    context.reply.integer(removed);
    Ok(())
}

fn end_clients_of(context: &mut Context<'_, '_>, name: &str) {
    for client in context.server.clients.all() {
        if client.user() != name {
            continue;
        }
        if client.id == context.session.client.id {
            context.session.is_closing = true;
        } else {
            client.end();
        }
    }
}

fn dry_run(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let name = String::from_utf8_lossy(arguments[2]);
    let user = context.server.acl.user(&name);
    let user = user.ok_or_else(|| fail_with(format!("ERR User '{name}' not found")))?;
    let words = &arguments[3..];
    let not_found = || fail_with(format!("ERR Command '{}' not found", shown(words[0])));
    let catalog = context.server.catalog;
    let mut command = catalog.find(words[0]).ok_or_else(not_found)?;
    if let Some(sub) = words.get(1)
        && command.has_subcommands
    {
        command = catalog.find_subcommand(command, sub).ok_or_else(not_found)?;
    }
    if !command.takes(words.len()) {
        let name = catalog.full_name(command);
        return Err(fail_with(format!("ERR wrong number of arguments for '{name}' command")));
    }
    match rules::check(&user, catalog, command, words) {
        Ok(()) => context.reply.ok(),
        Err(Denied::Command) => {
            let name = catalog.full_name(command);
            let words = format!("This user has no permissions to run the '{name}' command");
            context.reply.bulk(words.as_bytes());
        }
        Err(Denied::Key(place)) => {
            let begin = b"This user has no permissions to access the '";
            context.reply.bulk(&[&begin[..], words[place], b"' key"].concat());
        }
    }
    Ok(())
}

fn generate_password(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let bits = match &arguments[2..] {
        [] => 256,
        [bits] => decimal::parse_i64(bits).ok_or(NOT_AN_INTEGER)?,
        _ => return Err(unknown_or_wrong(arguments[1])),
    };
    if !(1..=MAX_PASSWORD_BITS).contains(&bits) {
        return Err(fail_with(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up to {MAX_PASSWORD_BITS}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .map_err(|error| fail_with(format!("ERR no random numbers are available: {error}")))?;
    let mut text = hex::encode(random);
    text.truncate(digits);
    context.reply.bulk(text.as_bytes());
    Ok(())
}

fn get_user(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let name = std::str::from_utf8(arguments[2]).ok();
    let user = name.and_then(|name| context.server.acl.user(name));
    let reply = &mut *context.reply;
    let Some(user) = user else {
        reply.null();
        return Ok(());
    };
    let rights = user.rights();
    reply.map(6);
    reply.bulk(b"flags");
    let marks = rules::marks(&rights);
    reply.set(marks.len());
    marks.iter().for_each(|mark| reply.bulk(mark.as_bytes()));
    reply.bulk(b"passwords");
    let hashes = rights.passwords.hashes();
    reply.array(hashes.len());
    hashes.iter().for_each(|hash| reply.bulk(hash.as_bytes()));
    reply.bulk(b"commands");
    reply.bulk(rules::describe_commands(&rights).as_bytes());
    reply.bulk(b"keys");
    reply.bulk(&rules::describe_keys(&rights));
    reply.bulk(b"channels");
    reply.bulk(&rules::describe_channels(&rights));
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

fn list(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let lines = acl::lines(&context.server.acl);
    context.reply.array(lines.len());
    lines.iter().for_each(|line| context.reply.bulk(line.as_bytes()));
    Ok(())
}

fn users(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let users = context.server.acl.all();
    context.reply.array(users.len());
    users.iter().for_each(|user| context.reply.bulk(user.name.as_bytes()));
    Ok(())
}

fn who_am_i(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.bulk(context.session.user.name.as_bytes());
    Ok(())
}

fn set_user(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is_bad = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    let name =
        std::str::from_utf8(arguments[2]).ok().filter(|name| !name.bytes().any(|b| is_bad(&b)));
    let name = name.ok_or(fail("ERR Usernames can't contain spaces or null characters"))?;
    let server = context.server;
    acl::set_user(&server.acl, server.catalog, name, &arguments[3..]).map_err(|(rule, why)| {
        fail_with(format!("ERR Error in ACL SETUSER modifier '{}': {why}", shown(&rule)))
    })?;
    context.reply.ok();
    Ok(())
}

fn log(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let count = match &arguments[2..] {
        [] => 10,
        [word] if word.eq_ignore_ascii_case(b"reset") => {
            context.server.acl.refusals.lock().clear();
            context.reply.ok();
            return Ok(());
        }
        [count] => {
            let count = decimal::parse_i64(count).ok_or(NOT_AN_INTEGER)?;
            usize::try_from(count).unwrap_or(0)
        }
        _ => return Err(unknown_or_wrong(arguments[1])),
    };
    let entries = context.server.acl.refusals.lock().latest(count);
    let now = Instant::now();
    let reply = &mut *context.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.map(7);
        reply.bulk(b"count");
        reply.count(entry.count);
        let pairs: [(&str, &[u8]); 4] = [
            ("reason", entry.reason.as_bytes()),
            ("context", entry.context.as_bytes()),
            ("object", &entry.object),
            ("username", entry.user.as_bytes()),
        ];
        for (name, value) in pairs {
            reply.bulk(name.as_bytes());
            reply.bulk(value);
        }
        reply.bulk(b"age-seconds");
        reply.double(now.duration_since(entry.at).as_millis() as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
    }
    Ok(())
}

/// The path of the file of users, if the server has one.
fn file(context: &Context<'_, '_>) -> Result<String> {
    let path = context.server.config.text(config::ACL_FILE);
    if path.is_empty() {
        return Err(fail(
            "ERR This Redis instance is not configured to use an ACL file. You may want to specify \
             users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have \
             a Redis configuration file set) in order to store users in the Redis configuration.",
        ));
    }
    Ok(path)
}

fn load(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let path = file(context)?;
    let text = std::fs::read_to_string(&path).map_err(|error| {
        fail_with(format!("ERR Error loading ACLs, opening file '{path}': {error}"))
    })?;
    let before = context.server.acl.all();
    context.server.load_users(&text).map_err(|errors| {
        fail_with(format!(
            "ERR {errors} WARNING: ACL errors detected, no change to the previously active ACL \
             rules was performed"
        ))
    })?;
    for user in before {
        if context.server.acl.user(&user.name).is_none() {
            end_clients_of(context, &user.name);
        }
    }
    context.reply.ok();
    Ok(())
}

fn save(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let path = file(context)?;
    let lines = acl::lines(&context.server.acl).join("\n") + "\n";
    access::write_file(path.as_ref(), &lines).map_err(|error| {
        tracing::error!(%error, path, "the users cannot be saved");
        fail("ERR There was an error trying to save the ACLs. Please check the server logs for more information")
    })?;
    context.reply.ok();
    Ok(())
}
