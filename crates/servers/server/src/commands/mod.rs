//! Commands: one table, from which follow parsing of names and arity, which keys are locked, who
//! may run what, COMMAND, help and the compatibility page.
//!
//! A command looks first, and writes only when nothing can go wrong any more but the store: a
//! command that fails must not have put anything into its transaction.

mod acl;
mod bits;
mod client;
mod connection;
mod control;
mod counters;
mod databases;
mod element_scan;
mod expiry;
mod hash_floats;
mod hashes;
mod help;
mod info;
mod introspection;
mod keys;
mod keyspace;
mod lcs;
mod memory;
mod numbers;
mod object;
mod picks;
mod places;
mod properties;
mod range_indexes;
mod set_algebra;
mod set_options;
mod sets;
mod settings;
mod snapshots;
mod sorted_sets;
mod spec;
mod string_ranges;
mod strings;
mod transactions;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use xxhash_rust::xxh3::xxh3_64;

pub(crate) use self::acl::{admit, admit_queued};
pub(crate) use self::properties::{CATEGORIES, Listed, full_name, is_in, listed};
pub(crate) use self::spec::{Command, Keys, flags};
pub(crate) use self::strings::reply_long;
use crate::resp::reply::Reply;
use crate::server::Server;
use crate::session::Session;
use pando_keyspace::Transaction;
use pando_keyspace::failure::Result;

/// What a command works with.
pub(crate) struct Context<'run, 'store> {
    /// The server.
    pub server: &'run Server,
    /// The client that asks.
    pub session: &'run mut Session,
    /// The store, with the command's keys locked as its flags say.
    pub transaction: &'run mut Transaction<'store>,
    /// Where the reply goes.
    pub reply: &'run mut Reply,
    /// The space of the client's database.
    pub space: u8,
}

/// A command's words: its name first, a subcommand's name second.
pub(crate) type Arguments<'request> = [&'request [u8]];

/// The tables of all commands, a group each.
static GROUPS: &[&[Command]] = &[
    acl::COMMANDS,
    bits::COMMANDS,
    client::COMMANDS,
    connection::COMMANDS,
    control::COMMANDS,
    counters::COMMANDS,
    databases::COMMANDS,
    expiry::COMMANDS,
    hash_floats::COMMANDS,
    hashes::COMMANDS,
    info::COMMANDS,
    introspection::COMMANDS,
    keys::COMMANDS,
    keyspace::COMMANDS,
    lcs::COMMANDS,
    memory::COMMANDS,
    object::COMMANDS,
    places::COMMANDS,
    range_indexes::COMMANDS,
    set_algebra::COMMANDS,
    sets::COMMANDS,
    settings::COMMANDS,
    snapshots::COMMANDS,
    sorted_sets::ALGEBRA,
    sorted_sets::CHANGES,
    sorted_sets::LOOKUPS,
    sorted_sets::RANGES,
    string_ranges::COMMANDS,
    strings::COMMANDS,
    transactions::COMMANDS,
];

type ByName = HashMap<&'static [u8], &'static Command, BuildHasherDefault<NameHasher>>;

static BY_NAME: LazyLock<ByName> =
    LazyLock::new(|| all().map(|command| (command.name.as_bytes(), command)).collect());

/// Quick on short names. The names in the table are ours, so nobody can make them collide.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes).wrapping_add(self.0.rotate_left(1));
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = self.0.rotate_left(1) ^ number as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Every command.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().copied().flatten()
}

/// Longest name of a command, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// The command of that name, in any case.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; MAX_NAME_BYTES];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// Runs a command whose keys are locked.
pub(crate) fn run(
    command: &Command,
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
) -> Result<()> {
    (command.run)(context, arguments)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Where the page is that lists all commands, from the table.
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/commands.md");

    /// All commands of Redis 7.0.15, each behind its group; `oracle` compares them with its own
    /// list.
    const REDIS: &str = include_str!("redis_7_0.txt");

    /// The commands of Redis that are not in the table, by group.
    fn absent() -> BTreeMap<&'static str, Vec<String>> {
        let mut absent = BTreeMap::<_, Vec<String>>::new();
        for (group, name) in REDIS.lines().filter_map(|line| line.split_once(' ')) {
            if find(name.as_bytes()).is_none() {
                absent.entry(group).or_default().push(name.to_uppercase());
            }
        }
        absent
    }

    fn page() -> String {
        let mut groups: Vec<&str> = all().map(|command| command.group).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut page = String::from(
            "# Commands of the Redis protocol\n\n\
             Made from the server's table of commands (`PANDO_BLESS=1 cargo test -p pando-server --lib the_page`\n\
             makes it anew). Replies and errors are those of Redis 7.0.15; what differs is in\n\
             [server.md](server.md). A command that is not here answers as Redis does to one that it does not\n\
             know; the last section lists them.\n",
        );
        for group in groups {
            page.push_str(&format!(
                "\n## {group}\n\n| command | since | what it does |\n| --- | --- | --- |\n"
            ));
            let mut commands: Vec<_> = all().filter(|command| command.group == group).collect();
            commands.sort_by_key(|command| command.name);
            for command in commands {
                let summary = command.summary.replace('|', "\\|");
                let name = command.name.to_uppercase();
                page.push_str(&format!("| {name} | {} | {summary} |\n", command.since));
                for subcommand in command.subcommands {
                    let (what, since) = (subcommand.summary.replace('|', "\\|"), subcommand.since);
                    let name = format!("{name} {}", subcommand.name.to_uppercase());
                    page.push_str(&format!("| {name} | {since} | {what} |\n"));
                }
            }
        }
        page.push_str(
            "\n## Commands of Redis 7.0 that are not here\n\n| group | commands |\n| --- | --- |\n",
        );
        for (group, names) in absent() {
            page.push_str(&format!("| {group} | {} |\n", names.join(", ")));
        }
        page
    }

    #[test]
    fn the_page_lists_what_there_is() {
        if std::env::var_os("PANDO_BLESS").is_some() {
            std::fs::write(PAGE, page()).expect("the page can be written");
        }
        let found = std::fs::read_to_string(PAGE).unwrap_or_default();
        assert!(
            found == page(),
            "docs/commands.md is not what the table says; see its first lines"
        );
    }

    #[test]
    fn names_are_found_in_any_case_and_stand_once() {
        let mut names: Vec<_> = all().map(|command| command.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(find(b"GeT").is_some_and(|command| command.name == "get"));
        assert!(find(b"").is_none() && find(&[b'x'; 100]).is_none());
    }
}
