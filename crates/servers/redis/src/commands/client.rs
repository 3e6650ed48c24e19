//! CLIENT: information for a client about itself, its own options, and the ending of other clients.

use pando_keyspace::failure::{Result, fail, fail_with};

use super::connection::checked_name;
use crate::clients::{Client, Pause};
use crate::commands::command::{Command, Context, commands, reply_help};
use crate::decimal;
use crate::errors::{NOT_AN_INTEGER, SYNTAX};
use crate::session::Replies;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["connection": (NONE), NONE]
    "client", -2, "2.4.0", reply_help,
        "A container for client connection commands.", HELP, SUBCOMMANDS;
};

const HELP: &str = "\
CACHING (YES|NO)
    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.
GETREDIR
    Return the client ID we are redirecting to when tracking is enabled.
GETNAME
    Return the name of the current connection.
ID
    Return the ID of the current connection.
INFO
    Return information about the current client connection.
KILL <ip:port>
    Kill connection made from <ip:port>.
KILL <option> <value> [<option> <value> [...]]
    Kill connections. Options are:
    * ADDR (<ip:port>|<unixsocket>:0)
      Kill connections made from the specified address
    * LADDR (<ip:port>|<unixsocket>:0)
      Kill connections made to specified local address
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
      Kill connections by type.
    * USER <username>
      Kill connections authenticated by <username>.
    * SKIPME (YES|NO)
      Skip killing current connection (default: yes).
LIST [options ...]
    Return information about client connections. Options:
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
      Return clients of specified type.
UNPAUSE
    Stop the current client pause, resuming traffic.
PAUSE <timeout> [WRITE|ALL]
    Suspend all, or just write, clients for <timeout> milliseconds.
REPLY (ON|OFF|SKIP)
    Control the replies sent to the current connection.
SETNAME <name>
    Assign the name <name> to the current connection.
UNBLOCK <clientid> [TIMEOUT|ERROR]
    Unblock the specified blocked client.
TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]
         [OPTIN] [OPTOUT] [NOLOOP]
    Control server assisted client side caching.
TRACKINGINFO
    Report tracking status for the current connection.
NO-EVICT (ON|OFF)
    Protect current client connection from eviction.";

static SUBCOMMANDS: &[Command] = commands! {
    ["connection": (NO_SCRIPT | ANYTIME), NONE]
    "caching", 3, "5.0.0", caching,
        "Instructs the server whether to track the keys in the next request.";
    "getname", 2, "5.0.0", get_name, "Returns the name of the connection.";
    "getredir", 2, "5.0.0", get_redirect,
        "Returns the client ID to which tracking notifications are redirected.";
    "id", 2, "5.0.0", id, "Returns the unique client ID of the connection.";
    "info", 2, "5.0.0", info, "Returns information about the connection.";
    "reply", 3, "5.0.0", reply, "Instructs the server whether to reply to commands.";
    "setname", 3, "5.0.0", set_name, "Sets the connection name.";
    "tracking", -3, "5.0.0", tracking,
        "Controls server-assisted client-side caching for the connection.";
    "trackinginfo", 2, "5.0.0", tracking_info,
        "Returns information about server-assisted client-side caching for the connection.";
    ["connection": (ANYTIME), NONE]
    "help", 2, "5.0.0", reply_help, "Returns helpful text about the different subcommands.";
    ["connection": (NO_SCRIPT | ANYTIME | ADMIN), NONE]
    "kill", -3, "5.0.0", kill, "Terminates open connections.";
    "list", -2, "5.0.0", list, "Lists open connections.";
    "no-evict", 3, "5.0.0", no_evict, "Sets the client eviction mode of the connection.";
    "pause", -3, "5.0.0", pause, "Suspends commands processing.";
    "unblock", -3, "5.0.0", unblock,
        "Unblocks a client blocked by a blocking command from a different connection.";
    "unpause", 2, "5.0.0", unpause, "Resumes processing commands from paused clients.";
};

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned()
}

fn id(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.count(context.session.client.id);
    Ok(())
}

fn get_name(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let name = context.session.client.name();
    context.reply.bulk_or_null(Some(name.as_bytes()).filter(|name| !name.is_empty()));
    Ok(())
}

fn set_name(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let name = checked_name(arguments[2])?;
    context.session.client.set_name(name);
    context.reply.ok();
    Ok(())
}

fn info(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let line =
        context.session.client.describe(context.server.clients.now_ms(), context.server.catalog);
    context.reply.verbatim(&format!("{line}\n"));
    Ok(())
}

/// Whether clients of a type exist here. All clients are normal ones.
fn is_our_type(name: &[u8]) -> Result<bool> {
    if is(name, "normal") {
        Ok(true)
    } else if ["master", "replica", "slave", "pubsub"].iter().any(|other| is(name, other)) {
        Ok(false)
    } else {
        Err(fail_with(format!("ERR Unknown client type '{}'", shown(name))))
    }
}

fn list(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let clients = &context.server.clients;
    let mut listed = clients.all();
    match &arguments[2..] {
        [] => {}
        [option, name] if is(option, "type") => {
            if !is_our_type(name)? {
                listed.clear();
            }
        }
        [option, ids @ ..] if is(option, "id") && !ids.is_empty() => {
            let mut wanted = Vec::with_capacity(ids.len());
            for id in ids {
                let id = decimal::parse_i64(id).ok_or(fail("ERR Invalid client ID"))?;
                wanted.extend(listed.iter().find(|client| client.id as i64 == id).cloned());
            }
            listed = wanted;
        }
        _ => return Err(SYNTAX),
    }
    let now_ms = clients.now_ms();
    let text: String = listed
        .iter()
        .map(|client| client.describe(now_ms, context.server.catalog) + "\n")
        .collect();
    context.reply.verbatim(&text);
    Ok(())
}

/// The clients that CLIENT KILL ends.
struct Filter<'words> {
    id: Option<u64>,
    address: Option<&'words [u8]>,
    local_address: Option<&'words [u8]>,
    user: Option<String>,
    is_our_type: bool,
    skips_me: bool,
}

impl Filter<'_> {
    fn takes(&self, client: &Client) -> bool {
        self.is_our_type
            && self.id.is_none_or(|id| id == client.id)
            && self.address.is_none_or(|address| address == client.address.peer.as_bytes())
            && self.local_address.is_none_or(|address| address == client.address.local.as_bytes())
            && self.user.as_ref().is_none_or(|user| *user == client.user())
    }
}

fn kill(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let mut filter = Filter {
        id: None,
        address: None,
        local_address: None,
        user: None,
        is_our_type: true,
        skips_me: true,
    };
    if let [_, _, address] = arguments {
        filter.address = Some(address);
        filter.skips_me = false;
        if end(context, &filter) == 0 {
            return Err(fail("ERR No such client"));
        }
        context.reply.ok();
        return Ok(());
    }
    let (pairs, rest) = arguments[2..].as_chunks::<2>();
    for &[option, value] in pairs {
        match option {
            _ if is(option, "id") => {
                let id = decimal::parse_i64(value).filter(|&id| id > 0);
                let id = id.ok_or(fail("ERR client-id should be greater than 0"))?;
                filter.id = Some(id as u64);
            }
            _ if is(option, "type") => filter.is_our_type = is_our_type(value)?,
            _ if is(option, "addr") => filter.address = Some(value),
            _ if is(option, "laddr") => filter.local_address = Some(value),
            _ if is(option, "user") => {
                let name = std::str::from_utf8(value).ok();
                if name.and_then(|name| context.server.acl.user(name)).is_none() {
                    return Err(fail_with(format!("ERR No such user '{}'", shown(value))));
                }
                filter.user = name.map(str::to_owned);
            }
            _ if is(option, "skipme") && is(value, "yes") => filter.skips_me = true,
            _ if is(option, "skipme") && is(value, "no") => filter.skips_me = false,
            _ => return Err(SYNTAX),
        }
    }
    if !rest.is_empty() {
        return Err(SYNTAX);
    }
    let ended = end(context, &filter);
    context.reply.count(ended);
    Ok(())
}

fn end(context: &mut Context<'_, '_>, filter: &Filter<'_>) -> u64 {
    let mut ended = 0;
    for client in context.server.clients.all().into_iter().filter(|client| filter.takes(client)) {
        if client.id != context.session.client.id {
            client.end();
        } else if filter.skips_me {
            continue;
        } else {
            // The client gets the reply first.
            context.session.is_closing = true;
        }
        ended += 1;
    }
    ended
}

fn reply(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    context.session.replies = match arguments[2] {
        mode if is(mode, "on") => Replies::On,
        mode if is(mode, "off") => Replies::Off,
        mode if is(mode, "skip") => match context.session.replies {
            Replies::Off => Replies::Off,
            _ => Replies::SkipThisAndNext,
        },
        _ => return Err(SYNTAX),
    };
    context.reply.ok();
    Ok(())
}

fn no_evict(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is_on = is(arguments[2], "on");
    if !is_on && !is(arguments[2], "off") {
        return Err(SYNTAX);
    }
    context.session.client.set_never_evicted(is_on);
    context.reply.ok();
    Ok(())
}

fn pause(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let what = match &arguments[3..] {
        [] => Pause::All,
        [mode] if is(mode, "all") => Pause::All,
        [mode] if is(mode, "write") => Pause::Writes,
        [_] => return Err(fail("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(SYNTAX),
    };
    let for_ms = decimal::parse_i64(arguments[2]);
    let for_ms = for_ms.ok_or(fail("ERR timeout is not an integer or out of range"))?;
    let for_ms = u64::try_from(for_ms).map_err(|_| fail("ERR timeout is negative"))?;
    context.server.clients.pause(what, for_ms);
    context.reply.ok();
    Ok(())
}

fn unpause(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.server.clients.unpause();
    context.reply.ok();
    Ok(())
}

fn unblock(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    match &arguments[3..] {
        [] => {}
        [reason] if is(reason, "timeout") || is(reason, "error") => {}
        _ => return Err(fail("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    }
    decimal::parse_i64(arguments[2]).ok_or(NOT_AN_INTEGER)?;
    // No command of this server blocks, so there is nothing to unblock.
    context.reply.integer(0);
    Ok(())
}

fn tracking(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    match arguments[2] {
        mode if is(mode, "off") => {
            context.reply.ok();
            Ok(())
        }
        mode if is(mode, "on") => Err(fail("ERR this server does not track the caches of clients")),
        _ => Err(SYNTAX),
    }
}

fn caching(_: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    Err(fail(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
         OPTOUT mode enabled",
    ))
}

fn get_redirect(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.integer(-1);
    Ok(())
}

fn tracking_info(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let reply = &mut *context.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(1);
    reply.bulk(b"off");
    reply.bulk(b"redirect");
    reply.integer(-1);
    reply.bulk(b"prefixes");
    reply.array(0);
    Ok(())
}
