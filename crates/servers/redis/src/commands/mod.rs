//! Commands: one table. Name lookup, arity, locked keys, access rules, COMMAND, help and the page
//! about compatibility follow from it.
//!
//! A command first checks everything, and writes only when only the store can still fail. So a
//! command that fails has put nothing into its transaction.

mod acl;
mod bits;
mod client;
mod command;
mod config;
mod connection;
mod control;
mod counters;
mod databases;
mod element_scan;
mod elements;
mod expiry;
mod hash_floats;
mod hashes;
mod info;
mod integers;
mod introspection;
mod keys;
mod keyspace;
mod lcs;
mod memory;
mod object;
mod random_elements;
mod range_indexes;
mod rename_copy;
mod set_algebra;
mod set_options;
mod sets;
mod snapshots;
mod sorted_sets;
mod string_ranges;
mod strings;
mod transactions;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

use xxhash_rust::xxh3::xxh3_64;

use crate::catalog::{Catalog, Listed};
use crate::spec::{Arguments, Spec};

pub(crate) use self::acl::admit;
pub(crate) use self::command::{Command, Context};
pub(crate) use self::strings::reply_long;
use pando_keyspace::failure::Result;

/// The tables of all commands, one for each group.
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
    rename_copy::COMMANDS,
    range_indexes::COMMANDS,
    set_algebra::COMMANDS,
    sets::COMMANDS,
    config::COMMANDS,
    snapshots::COMMANDS,
    sorted_sets::ALGEBRA,
    sorted_sets::CHANGES,
    sorted_sets::LOOKUPS,
    sorted_sets::RANGES,
    string_ranges::COMMANDS,
    strings::COMMANDS,
    transactions::COMMANDS,
];

pub(crate) static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let listed = |command: &'static Command| {
        let parent = Some(&command.spec);
        let subcommands = command.subcommands.iter();
        let parts = subcommands.map(move |one| Listed { command: &one.spec, parent });
        std::iter::once(Listed { command: &command.spec, parent: None }).chain(parts)
    };
    Catalog::new(all().flat_map(listed).collect())
});

/// All commands, by number.
static BY_NUMBER: LazyLock<Vec<&'static Command>> = LazyLock::new(|| {
    all().flat_map(|command| std::iter::once(command).chain(command.subcommands)).collect()
});

/// The command with this description.
///
/// # Panics
///
/// If no command has it.
pub(crate) fn described(spec: &'static Spec) -> &'static Command {
    BY_NUMBER[CATALOG.number_of(spec)]
}

type ByName = HashMap<&'static [u8], &'static Command, BuildHasherDefault<NameHasher>>;

static BY_NAME: LazyLock<ByName> =
    LazyLock::new(|| all().map(|command| (command.name.as_bytes(), command)).collect());

/// A fast hash for short names. Only names of the table are inserted, so clients cannot cause
/// collisions.
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

/// All commands.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().copied().flatten()
}

/// The longest name of a command, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// Finds a command by name, in any case.
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

    /// The path of the page that lists all commands.
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/commands.md");

    /// All commands of Redis 7.0.15, each after its group. The test `oracle` compares them with the
    /// real server's list.
    const REDIS: &str = include_str!("redis_7_0.txt");

    /// Commands of Redis that this server does not have, by group.
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
             This page is generated from the server's table of commands, by\n\
             `PANDO_BLESS=1 cargo test -p pando-redis --lib the_page`. Replies and errors are those of\n\
             Redis 7.0.15; [serve.md](serve.md) lists the differences. Commands that are not here are unknown\n\
             commands for the server; the last section lists them.\n",
        );
        for group in groups {
            page.push_str(&format!(
                "\n## {group}\n\n| command | since | summary |\n| --- | --- | --- |\n"
            ));
            let mut commands: Vec<_> = all().filter(|command| command.group == group).collect();
            commands.sort_by_key(|command| command.name);
            for command in commands {
                let summary = command.summary.replace('|', "\\|");
                let name = command.name.to_uppercase();
                page.push_str(&format!("| {name} | {} | {summary} |\n", command.since));
                let mut subcommands: Vec<_> = command.subcommands.iter().collect();
                subcommands.sort_by_key(|subcommand| subcommand.name);
                for subcommand in subcommands {
                    let (what, since) = (subcommand.summary.replace('|', "\\|"), subcommand.since);
                    let name = format!("{name} {}", subcommand.name.to_uppercase());
                    page.push_str(&format!("| {name} | {since} | {what} |\n"));
                }
            }
        }
        page.push_str(
            "\n## Missing commands of Redis 7.0\n\n| group | commands |\n| --- | --- |\n",
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
            "docs/commands.md does not match the table; its first lines say how to generate it"
        );
    }

    #[test]
    fn each_command_has_a_number() {
        for listed in CATALOG.listed() {
            let number = CATALOG.number_of(listed.command);
            assert_eq!(CATALOG.counted()[number].name, listed.name());
            assert!(std::ptr::eq(&BY_NUMBER[number].spec, listed.command));
        }
    }

    #[test]
    fn each_command_has_a_name_of_its_own() {
        let mut names: Vec<_> = CATALOG.listed().map(Listed::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| *name == name.to_lowercase()));
    }

    #[test]
    fn each_command_is_either_fast_or_slow() {
        for listed in CATALOG.listed() {
            assert!(
                crate::categories::is_in(listed, "fast")
                    != crate::categories::is_in(listed, "slow"),
                "{}",
                listed.name()
            );
        }
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
