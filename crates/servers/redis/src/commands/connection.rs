//! Commands about the connection itself: its user, its version of the protocol, its database.

use std::sync::Arc;
use std::time::Instant;

use pando_keyspace::failure::{Failure, Result, fail, fail_with};
use pando_net::access::{DEFAULT, Refusal};

use super::databases::read_database;
use crate::acl::User;
use crate::commands::command::{Command, Context, commands};
use crate::errors::SYNTAX;
use crate::resp::reply::Version;
use crate::server::Server;
use crate::session::{Replies, Session};
use crate::spec::Arguments;
use crate::{config, decimal};

/// The version of Redis that this server follows. Standard clients check it.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

pub(super) static COMMANDS: &[Command] = commands! {
    ["connection": (FAST), NONE]
    "ping", -1, "1.0.0", ping, "Returns the server's liveliness response.";
    ["connection": (FAST | ANYTIME), NONE]
    "echo", 2, "1.0.0", echo, "Returns the given string.";
    "select", 2, "1.0.0", select, "Changes the selected database.";
    ["connection": (FAST | ANYTIME | NO_SCRIPT | ALLOW_BUSY | NO_AUTH | NOT_QUEUED), NONE]
    "quit", -1, "1.0.0", quit, "Closes the connection.";
    "reset", 1, "6.2.0", reset, "Resets the connection.";
    ["connection": (FAST | ANYTIME | NO_SCRIPT | ALLOW_BUSY | NO_AUTH), NONE]
    "hello", -1, "6.0.0", hello, "Handshakes with the server.";
    "auth", -2, "1.0.0", auth, "Authenticates the connection.";
};

fn ping(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    match arguments {
        [_] => context.reply.simple("PONG"),
        [_, message] => context.reply.bulk(message),
        _ => return Err(fail("ERR wrong number of arguments for 'ping' command")),
    }
    Ok(())
}

fn echo(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    context.reply.bulk(arguments[1]);
    Ok(())
}

fn select(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let database = read_database(arguments[1])?;
    context.session.select(database);
    context.reply.ok();
    Ok(())
}

fn quit(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.session.is_closing = true;
    context.reply.ok();
    Ok(())
}

fn reset(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let session = &mut *context.session;
    session.end_transaction();
    session.replies = Replies::On;
    session.select(0);
    session.client.set_name(String::new());
    session.become_default(context.server);
    set_version(context, Version::Resp2);
    context.reply.simple("RESET");
    Ok(())
}

fn set_version(context: &mut Context<'_, '_>, version: Version) {
    context.reply.version = version;
    context.session.client.set_version(version.number());
}

const WRONG_PASSWORD: Failure =
    fail("WRONGPASS invalid username-password pair or user is disabled.");

fn auth(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (user, password) = match arguments {
        [_, password] => {
            if !context.server.acl.needs_password() {
                return Err(fail(
                    "ERR AUTH <password> called without any password configured for the default \
                     user. Are you sure your configuration is correct?",
                ));
            }
            (DEFAULT.as_bytes(), *password)
        }
        [_, user, password] => (*user, *password),
        _ => return Err(SYNTAX),
    };
    become_user(context, arguments[0], user, password)?;
    context.reply.ok();
    Ok(())
}

/// Authenticates the client as another user, for `command`. The log has the words of the command as
/// they were sent.
fn become_user(
    context: &mut Context<'_, '_>,
    command: &[u8],
    user: &[u8],
    password: &[u8],
) -> Result<()> {
    match context.server.acl.authenticate(user, password) {
        Some(user) => {
            context.session.become_user(user);
            Ok(())
        }
        None => {
            let name = String::from_utf8_lossy(&user[..user.len().min(128)]).into_owned();
            note_denied(context.server, context.session, "auth", command, name, false);
            Err(WRONG_PASSWORD)
        }
    }
}

/// Notes a refusal in the log of the ACL.
pub(crate) fn note_denied(
    server: &Server,
    session: &Session,
    reason: &'static str,
    object: &[u8],
    user: String,
    is_of_transaction: bool,
) {
    let refusal = Refusal {
        count: 1,
        reason,
        context: if is_of_transaction { "multi" } else { "toplevel" },
        object: object.to_vec(),
        user,
        client: session.client.describe(server.clients.now_ms(), server.catalog),
        at: Instant::now(),
    };
    server.acl.refusals.lock().note(refusal, server.config.size(config::ACL_LOG_MAX_LEN));
}

/// Returns a name that a client may set, or refuses it.
pub(super) fn checked_name(name: &[u8]) -> Result<String> {
    let is_plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if !is_plain {
        return Err(fail(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn hello(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let version = match arguments.get(1) {
        None => None,
        Some(number) => match decimal::parse_i64(number) {
            None => {
                return Err(fail("ERR Protocol version is not an integer or out of range"));
            }
            Some(2) => Some(Version::Resp2),
            Some(3) => Some(Version::Resp3),
            Some(_) => return Err(fail("NOPROTO unsupported protocol version")),
        },
    };
    let (mut credentials, mut name) = (None, None);
    let mut rest = arguments.get(2..).unwrap_or_default();
    while let Some((option, behind)) = rest.split_first() {
        let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        match behind {
            [user, password, behind @ ..] if is("auth") => {
                credentials = Some((*user, *password));
                rest = behind;
            }
            [given, behind @ ..] if is("setname") => {
                name = Some(checked_name(given)?);
                rest = behind;
            }
            _ => {
                let option = String::from_utf8_lossy(&option[..option.len().min(128)]);
                return Err(fail_with(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        }
    }
    if let Some((user, password)) = credentials {
        become_user(context, arguments[0], user, password)?;
    }
    if !context.session.may_speak(context.server) {
        return Err(fail(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and select the \
             RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        context.session.client.set_name(name);
    }
    if let Some(version) = version {
        set_version(context, version);
    }
    let id = context.session.client.id;
    let reply = &mut *context.reply;
    reply.map(7);
    let mut pair = |name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    pair("server", "redis");
    pair("version", REDIS_VERSION);
    reply.bulk(b"proto");
    reply.integer(i64::from(reply.version.number()));
    reply.bulk(b"id");
    reply.count(id);
    let mut pair = |name: &str, value: &str| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    pair("mode", "standalone");
    pair("role", "master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

impl Session {
    /// Makes this user the client's user.
    pub(crate) fn become_user(&mut self, user: Arc<User>) {
        self.client.set_user(&user.name);
        self.user = user;
        self.is_known = true;
    }

    /// Gives the client the user of a new connection.
    pub(crate) fn become_default(&mut self, server: &Server) {
        self.become_user(server.acl.default_user());
        self.is_known = !server.acl.needs_password();
    }

    /// Whether the client has authenticated, or need not.
    #[inline]
    pub(crate) fn may_speak(&self, server: &Server) -> bool {
        self.is_known || !server.acl.needs_password()
    }
}
