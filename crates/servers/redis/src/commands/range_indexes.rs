//! Range indexes: ordered maps of fields to values. Redis does not have them. The commands are the
//! Range Index commands of Microsoft Garnet (its page `website/docs/commands/range-index.md`, and
//! its handlers for the errors).
//!
//! As in Garnet: RI.CREATE, RI.SET, RI.GET, RI.DEL, RI.SCAN, RI.RANGE, RI.EXISTS, RI.METRICS.
//! RI.CREATE creates a range index. It still exists after the removal of its last field, and is
//! removed by DEL.
//!
//! Differences from Garnet:
//!
//! * RI.CREATE parses Garnet's options and refuses the same ones as Garnet, but the options have no
//!   effect. There is one kind of storage, fields may have 32,000 bytes, and MEMORY is as durable
//!   and allows the same scans. Garnet's reply for an existing key is not known; here it is Redis's
//!   BUSYKEY.
//! * RI.DEL of a missing field replies 0, as Garnet's page says.
//! * RI.METRICS replies the metrics of this server: `entries`.
//! * Unknown words after FIELDS and unknown options are syntax errors. Garnet ignores them.
//! * RI.RANGE with a start after its end is empty. An empty start is the first field.
//! * There is no RI.CONFIG.
//!
//! Additional commands, with replies of the same forms:
//!
//! * `RI.RANGE` also takes `COUNT n`.
//! * `RI.REVRANGE key high low [COUNT n] [FIELDS ..]`: the same closed range in descending order.
//! * `RI.PREFIX key prefix [REV] [COUNT n] [FIELDS ..]`: the fields with this prefix.
//! * `RI.DELRANGE key start end`: removes a closed range, and replies the number of removed fields.
//! * `RI.CAS key field old new`: puts `new` if the value is `old`. `RI.CAS key field new`: puts
//!   `new` if the field does not exist. The reply is 1 after a change, otherwise 0.
//! * `RI.LEN key`: the number of fields. `RI.COUNT key start end`: the number of fields in a closed
//!   range, counted one by one.

use std::ops::Bound;

use pando::{KeyRange, Order};
use pando_keyspace::collection::{
    Bounds, Collection, ENOUGH, ON, bound_of_name, check_name, name_of,
};
use pando_keyspace::failure::{Failure, Result, fail, fail_with};
use pando_keyspace::layout::{Element, Kind, Section};

use super::integers;
use crate::commands::command::{Command, Context, commands};
use crate::errors::SYNTAX;
use crate::resp::reply::Reply;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["range-index": (WRITE | DENYOOM | FAST), ONE]
    "ri.create", -2, "0.1.0", create, "Creates an empty range index";
    "ri.set", 4, "0.1.0", set, "Sets a field of a range index";
    "ri.cas", -4, "0.1.0", cas, "Sets a field if its value is the expected one";
    ["range-index": (READ | FAST), ONE]
    "ri.get", 3, "0.1.0", get, "Returns the value of a field";
    "ri.len", 2, "0.1.0", len, "Returns the number of fields";
    "ri.exists", 2, "0.1.0", exists, "Tells whether a key is a range index";
    "ri.metrics", 2, "0.1.0", metrics, "Returns figures of a range index";
    ["range-index": (WRITE | FAST), ONE]
    "ri.del", 3, "0.1.0", del, "Removes a field";
    ["range-index": (READ), ONE]
    "ri.scan", -5, "0.1.0", scan, "Returns a number of fields in order, from a field on";
    "ri.range", -4, "0.1.0", range, "Returns the fields between two fields, in order";
    "ri.revrange", -4, "0.1.0", revrange, "Returns the fields between two fields, in reverse order";
    "ri.prefix", -3, "0.1.0", prefix, "Returns the fields with a prefix, in order";
    "ri.count", 4, "0.1.0", count, "Counts the fields between two fields";
    ["range-index": (WRITE), ONE]
    "ri.delrange", 4, "0.1.0", delrange, "Removes the fields between two fields";
};

const NOT_FOUND: Failure = fail("ERR range index not found");

/// The range index at the key, which must exist.
fn find<'key>(context: &Context<'_, '_>, arguments: &Arguments<'key>) -> Result<Collection<'key>> {
    let (space, key) = (context.space, arguments[1]);
    let found = Collection::find(context.transaction, space, key, Kind::RangeIndex)?;
    found.ok_or(NOT_FOUND)
}

fn create(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (mut least, mut greatest) = (64, 1024);
    let mut words = arguments[2..].iter();
    while let Some(word) = words.next() {
        let name = word.to_ascii_uppercase();
        match name.as_slice() {
            b"DISK" | b"MEMORY" => {}
            b"CACHESIZE" | b"MINRECORD" | b"MAXRECORD" | b"MAXKEYLEN" | b"PAGESIZE" => {
                let name = String::from_utf8_lossy(&name).into_owned();
                let value = words
                    .next()
                    .ok_or_else(|| fail_with(format!("ERR {name} requires a value")))?;
                let value = integers::integer(value)?;
                if value <= 0 {
                    return Err(fail("ERR numeric options must be greater than zero"));
                }
                match name.as_str() {
                    "MINRECORD" => least = value,
                    "MAXRECORD" => greatest = value,
                    _ => {}
                }
            }
            _ => return Err(fail("ERR unknown option")),
        }
    }
    if least > greatest {
        return Err(fail("ERR MINRECORD must not exceed MAXRECORD"));
    }
    let Context { transaction, reply, space, .. } = context;
    if transaction.head(*space, arguments[1], |head| head.is_some())? {
        return Err(fail("BUSYKEY Target key name already exists."));
    }
    Collection::find_or_begin(transaction, *space, arguments[1], Kind::RangeIndex)?
        .finish(transaction)?;
    reply.ok();
    Ok(())
}

fn set(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let mut index = find(context, arguments)?;
    check_name(arguments[2])?;
    index.put(context.transaction, Element::Ordered(arguments[2]), arguments[3])?;
    index.finish(context.transaction)?;
    context.reply.ok();
    Ok(())
}

fn get(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let index = find(context, arguments)?;
    let reply = &mut *context.reply;
    index.get(context.transaction, Element::Ordered(arguments[2]), |value| {
        reply.bulk_or_null(value);
    })
}

fn del(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let mut index = find(context, arguments)?;
    let removed = index.remove(context.transaction, Element::Ordered(arguments[2]))?;
    index.finish(context.transaction)?;
    context.reply.integer(i64::from(removed));
    Ok(())
}

fn cas(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (expected, value) = match &arguments[3..] {
        [value] => (None, *value),
        [expected, value] => (Some(*expected), *value),
        _ => return Err(fail("ERR wrong number of arguments for 'ri.cas' command")),
    };
    let mut index = find(context, arguments)?;
    check_name(arguments[2])?;
    let field = Element::Ordered(arguments[2]);
    let is_expected = index.get(context.transaction, field, |found| found == expected)?;
    if is_expected {
        index.put(context.transaction, field, value)?;
        index.finish(context.transaction)?;
    }
    context.reply.integer(i64::from(is_expected));
    Ok(())
}

/// The parts of an entry that are returned.
#[derive(Clone, Copy, Debug)]
enum Parts {
    Field,
    Value,
    Both,
}

/// The options after a range.
#[derive(Clone, Copy, Debug)]
struct Options {
    parts: Parts,
    most: u64,
    order: Order,
}

impl Options {
    fn parse(words: &Arguments<'_>, order: Order, may_reverse: bool) -> Result<Self> {
        let mut options = Self { parts: Parts::Both, most: u64::MAX, order };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.to_ascii_lowercase().as_slice() {
                b"fields" => {
                    let parts = words.next().ok_or(SYNTAX)?;
                    options.parts = match parts.to_ascii_lowercase().as_slice() {
                        b"key" => Parts::Field,
                        b"value" => Parts::Value,
                        b"both" => Parts::Both,
                        _ => return Err(SYNTAX),
                    };
                }
                b"count" => options.most = parse_count(words.next().ok_or(SYNTAX)?)?,
                b"rev" if may_reverse => options.order = Order::Descending,
                _ => return Err(SYNTAX),
            }
        }
        Ok(options)
    }
}

fn parse_count(text: &[u8]) -> Result<u64> {
    match integers::natural(text, "ERR invalid count")? {
        0 => Err(fail("ERR invalid count")),
        count => Ok(count),
    }
}

/// The closed range between two fields.
fn between<'name>(start: &'name [u8], end: &'name [u8]) -> Bounds<'name> {
    (bound_of_name(Bound::Included(start), true), bound_of_name(Bound::Included(end), false))
}

/// Replies with the entries of the range.
fn write(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
    bounds: Bounds<'_>,
    options: Options,
) -> Result<()> {
    let index = find(context, arguments)?;
    let Context { transaction, reply, .. } = context;
    reply.sized(Reply::array, |reply| {
        let mut entries = 0;
        index.visit(transaction, Section::Ordered, bounds, options.order, |field, value| {
            match options.parts {
                Parts::Field => reply.bulk(name_of(field)),
                Parts::Value => reply.bulk(value),
                Parts::Both => {
                    reply.array(2);
                    reply.bulk(name_of(field));
                    reply.bulk(value);
                }
            }
            entries += 1;
            if entries as u64 == options.most { ENOUGH } else { ON }
        })?;
        Ok(entries)
    })
}

fn scan(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    if !arguments[3].eq_ignore_ascii_case(b"count") {
        return Err(fail("ERR syntax error, expected COUNT"));
    }
    let options = Options::parse(&arguments[3..], Order::Ascending, false)?;
    let start = bound_of_name(Bound::Included(arguments[2]), true);
    write(context, arguments, (start, Bound::Unbounded), options)
}

fn range(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let options = Options::parse(&arguments[4..], Order::Ascending, false)?;
    write(context, arguments, between(arguments[2], arguments[3]), options)
}

fn revrange(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let options = Options::parse(&arguments[4..], Order::Descending, false)?;
    write(context, arguments, between(arguments[3], arguments[2]), options)
}

fn prefix(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let options = Options::parse(&arguments[3..], Order::Ascending, true)?;
    let prefix = KeyRange::prefix(arguments[2]);
    let low = bound_of_name(prefix.low.as_ref().map(Vec::as_slice), true);
    let high = bound_of_name(prefix.high.as_ref().map(Vec::as_slice), false);
    write(context, arguments, (low, high), options)
}

fn delrange(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let mut index = find(context, arguments)?;
    let Context { transaction, reply, .. } = context;
    let bounds = between(arguments[2], arguments[3]);
    let mut fields = Vec::new();
    index.visit(transaction, Section::Ordered, bounds, Order::Ascending, |field, _| {
        fields.push(name_of(field).to_vec());
        ON
    })?;
    for field in &fields {
        index.remove(transaction, Element::Ordered(field))?;
    }
    index.finish(transaction)?;
    reply.count(fields.len() as u64);
    Ok(())
}

fn count(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let index = find(context, arguments)?;
    let Context { transaction, reply, .. } = context;
    let bounds = between(arguments[2], arguments[3]);
    let mut fields = 0;
    index.visit(transaction, Section::Ordered, bounds, Order::Ascending, |_, _| {
        fields += 1;
        ON
    })?;
    reply.count(fields);
    Ok(())
}

fn len(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let count = find(context, arguments)?.count();
    context.reply.count(count);
    Ok(())
}

fn exists(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is_one = context.transaction.head(context.space, arguments[1], |head| {
        head.is_some_and(|head| head.kind() == Kind::RangeIndex)
    })?;
    context.reply.integer(i64::from(is_one));
    Ok(())
}

fn metrics(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let entries = find(context, arguments)?.count();
    context.reply.array(2);
    context.reply.bulk(b"entries");
    context.reply.bulk(entries.to_string().as_bytes());
    Ok(())
}
