//! Facts that follow from a command's flags and group: the flags of COMMAND, and the categories of
//! ACL.

use crate::catalog::Listed;
use crate::spec::{Flags, Keys, Spec, flags};

/// The flags of a command in the reply of COMMAND.
pub(crate) fn flag_words(command: &Spec) -> Vec<&'static str> {
    if command.has_subcommands && command.arity == -2 {
        // The subcommands have their own flags.
        return Vec::new();
    }
    let table: &[(Flags, &[&'static str])] = &[
        (flags::WRITE, &["write"]),
        (flags::READ, &["readonly"]),
        (flags::DENYOOM, &["denyoom"]),
        (flags::ADMIN, &["admin"]),
        (flags::NO_SCRIPT, &["noscript"]),
        (flags::ANYTIME, &["loading", "stale"]),
        (flags::SKIP_SLOWLOG, &["skip_slowlog"]),
        (flags::FAST, &["fast"]),
        (flags::NO_AUTH, &["no_auth"]),
        (flags::NO_ASYNC_LOADING, &["no_async_loading"]),
        (flags::NO_MULTI, &["no_multi"]),
        (flags::ALLOW_BUSY, &["allow_busy"]),
    ];
    let has =
        table.iter().filter(|(flag, _)| command.flags.has(*flag) && !is_only_ours(command, *flag));
    let mut words: Vec<_> = has.flat_map(|(_, words)| words.iter().copied()).collect();
    if matches!(command.keys, Keys::Numbered(..)) {
        words.push("movablekeys");
    }
    words
}

/// The indexes of the first key and of the last key (negative: from the end), and the step. All are
/// zero without keys at fixed places.
pub(crate) fn key_range(command: &Spec) -> (i32, i32, i32) {
    match command.keys {
        Keys::None => (0, 0, 0),
        Keys::Range(first, last, step) => (first, last, step),
        // Only the key of the destination is at a fixed place.
        Keys::Numbered(_, extra) if extra > 0 => (extra as i32, extra as i32, 1),
        Keys::Numbered(..) => (0, 0, 0),
    }
}

/// Whether a flag describes our locks instead of the command.
fn is_only_ours(command: &Spec, flag: Flags) -> bool {
    // WATCH registers itself in the stripes, so it locks them exclusively.
    command.name == "watch" && flag == flags::WRITE
}

/// The categories, in the order of the reply of ACL CAT.
pub(crate) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Whether a command belongs to a category.
pub(crate) fn is_in(listed: Listed, category: &str) -> bool {
    let Listed { command, parent } = listed;
    let has = |flag| command.flags.has(flag);
    let is_container = command.has_subcommands && command.arity == -2;
    let group = match parent.unwrap_or(command).group {
        "generic" => "keyspace",
        "sorted-set" | "sorted_set" => "sortedset",
        "transactions" => "transaction",
        // MEMORY, CONFIG and similar commands have only the categories of their flags.
        "server" => match command.name {
            "dbsize" | "flushall" | "flushdb" | "swapdb" => "keyspace",
            "command" => "connection",
            _ if parent.is_some_and(|parent| parent.name == "command") => "connection",
            _ => "",
        },
        group => group,
    };
    let is_sort = matches!(command.name, "sort" | "sort_ro");
    match category {
        "fast" => has(flags::FAST) && !is_container,
        "slow" => !has(flags::FAST) || is_container,
        _ if is_container => false,
        "read" => has(flags::READ),
        "write" => has(flags::WRITE) && !is_only_ours(command, flags::WRITE),
        "admin" => has(flags::ADMIN) || matches!(command.name, "lastsave" | "role"),
        "dangerous" => {
            has(flags::ADMIN)
                || has(flags::DANGEROUS)
                || is_sort
                || parent.is_none()
                    && matches!(
                        command.name,
                        "keys" | "flushall" | "flushdb" | "swapdb" | "lastsave" | "role"
                    )
        }
        "set" | "list" if is_sort => true,
        "sortedset" if is_sort => true,
        _ if is_sort => false,
        "keyspace" if command.name == "wait" => false,
        "connection" if command.name == "wait" => true,
        _ => group == category && !has(flags::NO_GROUP),
    }
}
