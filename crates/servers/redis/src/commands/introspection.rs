//! COMMAND: the table of commands, for clients.

use pando_keyspace::failure::{Result, fail};
use pando_net::glob;

use crate::catalog::{Catalog, Listed};
use crate::commands::command::{Command, Context, commands, reply_help};
use crate::errors::SYNTAX;
use crate::resp::reply::Reply;
use crate::spec::{Arguments, Keys, Spec, flags};
use crate::{acl, categories};

pub(super) static COMMANDS: &[Command] = commands! {
    ["server": (ANYTIME), NONE]
    "command", -1, "2.8.13", all,
        "Returns detailed information about all commands.", HELP, SUBCOMMANDS;
};

const HELP: &str = "\
(no subcommand)
    Return details about all Redis commands.
COUNT
    Return the total number of commands in this Redis server.
LIST
    Return a list of all commands in this Redis server.
INFO [<command-name> ...]
    Return details about multiple Redis commands.
    If no command names are given, documentation details for all
    commands are returned.
DOCS [<command-name> ...]
    Return documentation details about multiple Redis commands.
    If no command names are given, documentation details for all
    commands are returned.
GETKEYS <full-command>
    Return the keys from a full Redis command.
GETKEYSANDFLAGS <full-command>
    Return the keys and the access flags from a full Redis command.";

static SUBCOMMANDS: &[Command] = commands! {
    ["server": (ANYTIME), NONE]
    "count", 2, "2.8.13", count, "Returns a count of commands.";
    "docs", -2, "7.0.0", docs,
        "Returns documentary information about one, multiple or all commands.";
    "getkeys", -4, "2.8.13", get_keys, "Extracts the key names from an arbitrary command.";
    "getkeysandflags", -4, "7.0.0", get_keys_and_flags,
        "Extracts the key names and access flags for an arbitrary command.";
    "help", 2, "5.0.0", reply_help, "Returns helpful text about the different subcommands.";
    "info", -2, "2.8.13", info, "Returns information about one, multiple or all commands.";
    "list", -2, "7.0.0", list, "Returns a list of command names.";
};

fn all(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    let catalog = context.server.catalog;
    context.reply.array(catalog.commands().count());
    for command in catalog.commands() {
        write(context.reply, catalog, Listed { command, parent: None });
    }
    Ok(())
}

fn count(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    context.reply.count(context.server.catalog.commands().count() as u64);
    Ok(())
}

/// Finds a command, or a subcommand by a name such as `client|id`.
fn find_listed(catalog: &Catalog, name: &[u8]) -> Option<Listed> {
    let lower = name.to_ascii_lowercase();
    catalog.listed().find(|listed| {
        let begins = lower.starts_with(listed.parent.unwrap_or(listed.command).name.as_bytes());
        begins && listed.name().as_bytes() == lower
    })
}

fn info(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    if arguments.len() == 2 {
        return all(context, arguments);
    }
    let catalog = context.server.catalog;
    context.reply.array(arguments.len() - 2);
    for name in &arguments[2..] {
        match find_listed(catalog, name) {
            Some(listed) => write(context.reply, catalog, listed),
            None => context.reply.null(),
        }
    }
    Ok(())
}

fn simples<'word>(reply: &mut Reply, words: impl ExactSizeIterator<Item = &'word str>) {
    reply.set(words.len());
    words.for_each(|word| reply.simple(word));
}

/// Writes ten elements: name, arity, flags, first key, last key, step, categories, tips, keys,
/// subcommands.
fn write(reply: &mut Reply, catalog: &Catalog, listed: Listed) {
    let Listed { command, .. } = listed;
    reply.array(10);
    reply.bulk(listed.name().as_bytes());
    reply.integer(i64::from(command.arity));
    simples(reply, categories::flag_words(command).into_iter());
    let (first, last, step) = categories::key_range(command);
    for number in [first, last, step] {
        reply.integer(i64::from(number));
    }
    let categories: Vec<String> = categories::CATEGORIES
        .into_iter()
        .filter(|category| categories::is_in(listed, category))
        .map(|category| format!("@{category}"))
        .collect();
    simples(reply, categories.iter().map(String::as_str));
    reply.set(0);
    let has_keys = command.keys != Keys::None;
    reply.set(usize::from(has_keys));
    if has_keys {
        write_keys(reply, command);
    }
    reply.set(catalog.subcommands(command).count());
    for subcommand in catalog.subcommands(command) {
        write(reply, catalog, Listed { command: subcommand, parent: Some(command) });
    }
}

/// Writes the place of the first key and the way to find the others.
fn write_keys(reply: &mut Reply, command: &Spec) {
    let word = |reply: &mut Reply, word: &str| reply.bulk(word.as_bytes());
    let pair = |reply: &mut Reply, name: &str, value: i64| {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    };
    reply.map(3);
    word(reply, "flags");
    let is_write = command.flags.has(flags::WRITE) && command.name != "watch";
    if is_write {
        simples(reply, ["RW", "access", "update"].into_iter());
    } else {
        simples(reply, ["RO", "access"].into_iter());
    }
    let (first, kind) = match command.keys {
        Keys::Numbered(at, _) => (at as i64, "keynum"),
        _ => (i64::from(categories::key_range(command).0), "range"),
    };
    word(reply, "begin_search");
    reply.map(2);
    word(reply, "type");
    word(reply, "index");
    word(reply, "spec");
    reply.map(1);
    pair(reply, "index", first);
    word(reply, "find_keys");
    reply.map(2);
    word(reply, "type");
    word(reply, kind);
    word(reply, "spec");
    reply.map(3);
    if kind == "keynum" {
        pair(reply, "keynumidx", 0);
        pair(reply, "firstkey", 1);
        pair(reply, "keystep", 1);
    } else {
        let (first, last, step) = categories::key_range(command);
        // The last key is relative to the first key. A negative one counts from the end.
        pair(reply, "lastkey", i64::from(if last < 0 { last } else { last - first }));
        pair(reply, "keystep", i64::from(step));
        pair(reply, "limit", 0);
    }
}

fn docs(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let catalog = context.server.catalog;
    let wanted: Vec<Listed> = match &arguments[2..] {
        [] => catalog.commands().map(|command| Listed { command, parent: None }).collect(),
        names => names.iter().filter_map(|name| find_listed(catalog, name)).collect(),
    };
    context.reply.map(wanted.len());
    for listed in wanted {
        write_docs(context.reply, catalog, listed);
    }
    Ok(())
}

fn write_docs(reply: &mut Reply, catalog: &Catalog, listed: Listed) {
    let Listed { command, .. } = listed;
    reply.bulk(listed.name().as_bytes());
    let has_subcommands = command.has_subcommands;
    reply.map(3 + usize::from(has_subcommands));
    for (name, value) in
        [("summary", command.summary), ("since", command.since), ("group", command.group)]
    {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if has_subcommands {
        reply.bulk(b"subcommands");
        reply.map(catalog.subcommands(command).count());
        for subcommand in catalog.subcommands(command) {
            write_docs(reply, catalog, Listed { command: subcommand, parent: Some(command) });
        }
    }
}

fn list(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let named = |listed: &Listed| listed.name();
    let catalog = context.server.catalog;
    let names: Vec<String> = match &arguments[2..] {
        [] => catalog.listed().map(|listed| named(&listed)).collect(),
        [filter, by, what] if is(filter, "filterby") => {
            let all = catalog.listed();
            if is(by, "aclcat") {
                let category = String::from_utf8_lossy(what).to_ascii_lowercase();
                all.filter(|listed| categories::is_in(*listed, &category))
                    .map(|listed| named(&listed))
                    .filter(|_| categories::CATEGORIES.contains(&category.as_str()))
                    .collect()
            } else if is(by, "pattern") {
                let matches = |name: &String| glob::matches(what, name.as_bytes(), true);
                all.map(|listed| named(&listed)).filter(matches).collect()
            } else if is(by, "module") {
                Vec::new()
            } else {
                return Err(SYNTAX);
            }
        }
        _ => return Err(SYNTAX),
    };
    context.reply.array(names.len());
    for name in names {
        context.reply.bulk(name.as_bytes());
    }
    Ok(())
}

/// The command in the arguments, and the places of its keys in its own arguments.
fn keys_of<'words, 'bytes>(
    catalog: &Catalog,
    arguments: &'words Arguments<'bytes>,
) -> Result<(&'static Spec, &'words Arguments<'bytes>, Vec<usize>)> {
    let asked = &arguments[2..];
    let command = catalog.find(asked[0]).ok_or(fail("ERR Invalid command specified"))?;
    let command = match asked.get(1) {
        Some(name) => catalog.find_subcommand(command, name).unwrap_or(command),
        _ => command,
    };
    if command.keys == Keys::None {
        return Err(fail("ERR The command has no key arguments"));
    }
    if !command.takes(asked.len()) {
        return Err(fail("ERR Invalid number of arguments specified for command"));
    }
    let mut places: Vec<usize> = command.keys.places(asked).collect();
    places.sort_unstable();
    if places.is_empty() {
        return Err(fail("ERR Invalid arguments specified for command"));
    }
    Ok((command, asked, places))
}

fn get_keys(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (_, asked, places) = keys_of(context.server.catalog, arguments)?;
    context.reply.array(places.len());
    for place in places {
        context.reply.bulk(asked[place]);
    }
    Ok(())
}

fn get_keys_and_flags(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (command, asked, places) = keys_of(context.server.catalog, arguments)?;
    context.reply.array(places.len());
    for place in places {
        context.reply.array(2);
        context.reply.bulk(asked[place]);
        simples(context.reply, acl::access_words(command, asked, place).into_iter());
    }
    Ok(())
}
