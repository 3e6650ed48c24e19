//! MEMORY: the approximate memory of a key.

use std::ops::{Bound, ControlFlow};

use pando::Order;
use pando_keyspace::failure::{Result, fail_with};
use pando_keyspace::layout::{
    CollectionId, Content, ELEMENT_PREFIX_BYTES, HEAD_PREFIX_BYTES, Kind, PIECE_BYTES, Section,
};

use crate::commands::command::{Command, Context, commands, reply_help};
use crate::decimal;
use crate::errors::{NOT_AN_INTEGER, SYNTAX};
use crate::server::Server;
use crate::spec::Arguments;

/// The overhead of a record in addition to key and value: its slot in a leaf, and its share of the
/// leaf.
const RECORD_BYTES: u64 = 24;
/// The default number of sampled elements.
const SAMPLES: u64 = 5;

pub(super) static COMMANDS: &[Command] = commands! {
    ["server": (NONE), NONE]
    "memory", -2, "4.0.0", reply_help,
        "A container for memory diagnostics commands.", HELP, SUBCOMMANDS;
};

const HELP: &str = "\
PURGE
    Attempt to purge dirty pages for reclamation by the allocator.
USAGE <key> [SAMPLES <count>]
    Return memory in bytes used by <key> and its value. Nested values are
    sampled up to <count> times (default: 5, 0 means sample all).";

static SUBCOMMANDS: &[Command] = commands! {
    ["server": (ANYTIME), NONE]
    "help", 2, "4.0.0", reply_help, "Returns helpful text about the different subcommands.";
    ["server": (NONE), NONE]
    "purge", 2, "4.0.0", purge, "Asks the allocator to release memory.";
    ["server": (READ | ONLY_ABOUT), SECOND]
    "usage", -3, "4.0.0", usage, "Estimates the memory usage of a key.";
};

fn purge(context: &mut Context<'_, '_>, _: &Arguments<'_>) -> Result<()> {
    // A background thread does it: to return some GiB takes longer than other clients should wait.
    let purge = |server: &Server| {
        match server.store.return_all_room() {
            Ok(bytes) => tracing::info!(bytes, "unused memory was returned to the system"),
            Err(error) => tracing::warn!(%error, "unused memory cannot be returned to the system"),
        }
        server.store.end_return_of_all_room();
    };
    let server = context.server;
    if server.store.begin_return_of_all_room()
        && let Err(error) = server.begin_task("purge", purge)
    {
        server.store.end_return_of_all_room();
        return Err(fail_with(format!("ERR cannot start a thread to return memory: {error}")));
    }
    context.reply.ok();
    Ok(())
}

fn usage(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let mut samples = SAMPLES;
    let mut rest = &arguments[3..];
    while let Some((option, behind)) = rest.split_first() {
        let [count, behind @ ..] = behind else { return Err(SYNTAX) };
        if !option.eq_ignore_ascii_case(b"samples") {
            return Err(SYNTAX);
        }
        let count = decimal::parse_i64(count).ok_or(NOT_AN_INTEGER)?;
        samples = match u64::try_from(count) {
            Ok(0) => u64::MAX,
            Ok(count) => count,
            Err(_) => return Err(SYNTAX),
        };
        rest = behind;
    }
    let key = arguments[2];
    let own_bytes = RECORD_BYTES + (HEAD_PREFIX_BYTES + key.len()) as u64;
    let found = context.transaction.head(context.space, key, |head| {
        head.map(|head| match head.content {
            Content::String(bytes) => (own_bytes + 1 + bytes.len() as u64, None),
            // This counts all pieces, although a piece of zeros has no record.
            Content::Long(long) => {
                let pieces = long.bytes.div_ceil(PIECE_BYTES as u64);
                (own_bytes + 17 + pieces * (RECORD_BYTES + 13) + long.bytes, None)
            }
            Content::Collection(kind, id, count) => (own_bytes + 17, Some((kind, id, count))),
        })
    })?;
    match found {
        None => context.reply.null(),
        Some((bytes, None)) => context.reply.count(bytes),
        Some((bytes, Some((kind, id, count)))) => {
            let count = context.transaction.count_of(context.space, key, (kind, id, count))?;
            let elements = elements_bytes(context, kind, id, count, samples)?;
            context.reply.count(bytes.saturating_add(elements));
        }
    }
    Ok(())
}

/// Estimates the memory of a collection's elements from the first ones.
fn elements_bytes(
    context: &Context<'_, '_>,
    kind: Kind,
    id: CollectionId,
    count: u64,
    samples: u64,
) -> Result<u64> {
    let (section, records) = match kind {
        Kind::RangeIndex => (Section::Ordered, 1),
        // Each member has two records: one by score, and one by name.
        Kind::SortedSet => (Section::Fields, 2),
        _ => (Section::Fields, 1),
    };
    let (mut seen, mut bytes) = (0u64, 0u64);
    context.transaction.scan_elements(
        id,
        section,
        (Bound::Unbounded, Bound::Unbounded),
        Order::Ascending,
        |element, value| {
            let name = match element {
                pando_keyspace::layout::Element::Field(name)
                | pando_keyspace::layout::Element::Ordered(name)
                | pando_keyspace::layout::Element::Scored(_, name) => name.len(),
            };
            let record = RECORD_BYTES + (ELEMENT_PREFIX_BYTES + name) as u64;
            bytes += record * records + value.len() as u64;
            seen += 1;
            if seen < samples { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        },
    )?;
    Ok(bytes.checked_div(seen).unwrap_or(0).saturating_mul(count))
}
