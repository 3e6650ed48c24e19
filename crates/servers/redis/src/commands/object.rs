//! OBJECT: Redis's description of its internal representation of a value. Ours are different. So
//! the replies are those that Redis gives for a value that was just written.

use std::ops::{Bound, ControlFlow};

use pando::Order;
use pando_keyspace::failure::{Result, fail};
use pando_keyspace::layout::{CollectionId, Content, Count, Element, Kind, Section};

use crate::commands::command::{Command, Context, commands, reply_help};
use crate::decimal;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["generic": (NONE), NONE]
    "object", -2, "2.2.3", reply_help,
        "A container for object introspection commands", HELP, SUBCOMMANDS;
};

static SUBCOMMANDS: &[Command] = commands! {
    ["generic": (READ | ONLY_ABOUT), SECOND]
    "encoding", 3, "2.2.3", encoding, "Inspect the internal encoding of a Redis object";
    "freq", 3, "4.0.0", frequency, "Get the logarithmic access frequency counter of a Redis object";
    "idletime", 3, "2.2.3", idle_time, "Get the time since a Redis object was last accessed";
    "refcount", 3, "2.2.3", references, "Get the number of references to the value of the key";
    ["generic": (ANYTIME), NONE]
    "help", 2, "6.2.0", reply_help, "Show helpful text about the different subcommands";
};

const HELP: &str = "\
ENCODING <key>
    Return the kind of internal representation used in order to store the value
    associated with a <key>.
FREQ <key>
    Return the access frequency index of the <key>. The returned integer is
    proportional to the logarithm of the recent access frequency of the key.
IDLETIME <key>
    Return the idle time of the <key>, that is the approximated number of
    seconds elapsed since the last access to the key.
REFCOUNT <key>
    Return the number of references of the value associated with the specified
    <key>.";

/// Redis stores strings up to this length with their header.
const EMBEDDED_BYTES: usize = 44;
/// Redis shares the objects of these integers.
const SHARED_INTEGERS: std::ops::Range<i64> = 0..10_000;
/// The reference count that Redis reports for a shared object.
const SHARED_REFERENCES: i64 = i32::MAX as i64;
/// Redis stores a collection in one piece of memory up to this number of entries and this length of
/// an entry.
const PACKED_ENTRIES: u64 = 128;
const PACKED_BYTES: usize = 64;
/// Redis stores a set of integers in one piece of memory up to this number of members.
const PACKED_INTEGERS: u64 = 512;

/// The properties of a value that these commands need.
enum Kept {
    String {
        integer: Option<i64>,
        bytes: usize,
    },
    /// Kind, number, count in the head, and number of fields.
    Collection(Kind, CollectionId, Count, u64),
}

/// The value at the key. If the key does not exist, this replies that.
fn kept(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<Option<Kept>> {
    let key = arguments[2];
    let mut found = context.transaction.head(context.space, key, |head| {
        head.map(|head| match head.content {
            Content::String(bytes) => {
                Kept::String { integer: decimal::parse_i64(bytes), bytes: bytes.len() }
            }
            Content::Long(long) => Kept::String { integer: None, bytes: long.bytes as usize },
            Content::Collection(kind, id, count) => Kept::Collection(kind, id, count, 0),
        })
    })?;
    if let Some(Kept::Collection(kind, id, count, fields)) = &mut found {
        *fields = context.transaction.count_of(context.space, key, (*kind, *id, *count))?;
    }
    if found.is_none() {
        context.reply.null();
    }
    Ok(found)
}

fn encoding(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let Some(kept) = kept(context, arguments)? else { return Ok(()) };
    let name = match kept {
        Kept::String { integer: Some(_), .. } => "int",
        Kept::String { bytes: ..=EMBEDDED_BYTES, .. } => "embstr",
        Kept::String { .. } => "raw",
        Kept::Collection(Kind::Set, id, _, count) => {
            let is_small = |member: &[u8], _: &[u8]| decimal::parse_i64(member).is_some();
            let is_packed = count <= PACKED_INTEGERS && all_fields(context, id, is_small)?;
            if is_packed { "intset" } else { "hashtable" }
        }
        Kept::Collection(kind, id, _, count) => {
            let is_small =
                |field: &[u8], value: &[u8]| field.len().max(value.len()) <= PACKED_BYTES;
            let is_packed = count <= PACKED_ENTRIES && all_fields(context, id, is_small)?;
            match kind {
                _ if is_packed => "listpack",
                Kind::SortedSet => "skiplist",
                _ => "hashtable",
            }
        }
    };
    context.reply.bulk(name.as_bytes());
    Ok(())
}

fn all_fields(
    context: &Context<'_, '_>,
    id: CollectionId,
    is_small: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<bool> {
    let mut are_all = true;
    let whole = (Bound::Unbounded, Bound::Unbounded);
    context.transaction.scan_elements(
        id,
        Section::Fields,
        whole,
        Order::Ascending,
        |element, value| match element {
            Element::Field(field) if !is_small(field, value) => {
                are_all = false;
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        },
    )?;
    Ok(are_all)
}

fn frequency(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    if kept(context, arguments)?.is_none() {
        return Ok(());
    }
    Err(fail(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust.",
    ))
}

fn idle_time(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    // This must be first: a lookup of the key counts as a use of it.
    let idle_s = context.server.store.idle_s(arguments[2]);
    if kept(context, arguments)?.is_some() {
        context.reply.count(idle_s);
    }
    Ok(())
}

fn references(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let count = match kept(context, arguments)? {
        None => return Ok(()),
        Some(Kept::String { integer: Some(value), .. }) if SHARED_INTEGERS.contains(&value) => {
            SHARED_REFERENCES
        }
        Some(_) => 1,
    };
    context.reply.integer(count);
    Ok(())
}
