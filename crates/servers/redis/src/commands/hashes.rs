//! Hashes: fields with values. HINCRBYFLOAT is in `hash_floats.rs`.

use pando::Order;
use pando_keyspace::collection::{ALL, Collection, ON, check_name, name_of};
use pando_keyspace::failure::{Result, fail, fail_with};
use pando_keyspace::layout::{Element, Kind, Section};

use super::elements::{self, find};
use super::{element_scan, integers, random_elements};
use crate::commands::command::{Command, Context, commands};
use crate::decimal;
use crate::errors::OUT_OF_RANGE;
use crate::resp::reply::Reply;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["hash": (WRITE | DENYOOM | FAST | ONLY_CHANGES), ONE]
    "hset", -4, "2.0.0", hset, "Set the string value of a hash field";
    "hmset", -4, "2.0.0", hmset, "Set multiple hash fields to multiple values";
    "hsetnx", 4, "2.0.0", hsetnx, "Set the value of a hash field, only if the field does not exist";
    ["hash": (WRITE | DENYOOM | FAST), ONE]
    "hincrby", 4, "2.0.0", hincrby,
        "Increment the integer value of a hash field by the given number";
    ["hash": (READ | FAST), ONE]
    "hget", 3, "2.0.0", hget, "Get the value of a hash field";
    "hmget", -3, "2.0.0", hmget, "Get the values of all the given hash fields";
    ["hash": (READ | FAST | ONLY_ABOUT), ONE]
    "hlen", 2, "2.0.0", |context, arguments| elements::count(context, arguments, Kind::Hash),
        "Get the number of fields in a hash";
    "hexists", 3, "2.0.0", hexists, "Determine if a hash field exists";
    "hstrlen", 3, "3.2.0", hstrlen, "Get the length of the value of a hash field";
    ["hash": (WRITE | FAST | ONLY_CHANGES), ONE]
    "hdel", -3, "2.0.0", |context, arguments| elements::remove(context, arguments, Kind::Hash),
        "Delete one or more hash fields";
    ["hash": (READ), ONE]
    "hkeys", 2, "2.0.0", hkeys, "Get all the fields in a hash";
    "hvals", 2, "2.0.0", hvals, "Get all the values in a hash";
    "hgetall", 2, "2.0.0", hgetall, "Get all the fields and values in a hash";
    "hrandfield", -2, "6.2.0", hrandfield, "Get one or multiple random fields from a hash";
    "hscan", -3, "2.8.0", hscan, "Incrementally iterate hash fields and associated values";
};

fn find_or_begin<'key>(
    context: &Context<'_, '_>,
    arguments: &Arguments<'key>,
) -> Result<Collection<'key>> {
    Collection::find_or_begin(context.transaction, context.space, arguments[1], Kind::Hash)
}

/// Puts the fields of HSET and HMSET, and returns the number of new ones.
fn put_all(context: &mut Context<'_, '_>, arguments: &Arguments<'_>, name: &str) -> Result<u64> {
    let (pairs, rest) = arguments[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(fail_with(format!("ERR wrong number of arguments for '{name}' command")));
    }
    let mut hash = find_or_begin(context, arguments)?;
    pairs.iter().try_for_each(|[field, _]| check_name(field))?;
    if let [[field, value]] = pairs {
        let is_new = hash.put_only(context.transaction, Element::Field(field), value, false)?;
        return Ok(u64::from(is_new));
    }
    let mut added = 0;
    for [field, value] in pairs {
        added += u64::from(hash.put(context.transaction, Element::Field(field), value)?);
    }
    hash.finish(context.transaction)?;
    Ok(added)
}

fn hset(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let added = put_all(context, arguments, "hset")?;
    context.reply.count(added);
    Ok(())
}

fn hmset(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    put_all(context, arguments, "hmset")?;
    context.reply.ok();
    Ok(())
}

fn hsetnx(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let hash = find_or_begin(context, arguments)?;
    let field = Element::Field(arguments[2]);
    check_name(arguments[2])?;
    let is_new = hash.put_only(context.transaction, field, arguments[3], true)?;
    context.reply.integer(i64::from(is_new));
    Ok(())
}

fn hget(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let found = find(context, arguments, Kind::Hash)?;
    let reply = &mut *context.reply;
    match found {
        Some(hash) => hash.get(context.transaction, Element::Field(arguments[2]), |value| {
            reply.bulk_or_null(value);
        })?,
        None => reply.null(),
    }
    Ok(())
}

fn hmget(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let found = find(context, arguments, Kind::Hash)?;
    let reply = &mut *context.reply;
    reply.array(arguments.len() - 2);
    for field in &arguments[2..] {
        match &found {
            Some(hash) => hash.get(context.transaction, Element::Field(field), |value| {
                reply.bulk_or_null(value);
            })?,
            None => reply.null(),
        }
    }
    Ok(())
}

/// HSTRLEN: replies the length of a field's value.
fn length(context: &Context<'_, '_>, arguments: &Arguments<'_>) -> Result<Option<usize>> {
    match find(context, arguments, Kind::Hash)? {
        Some(hash) => hash
            .get(context.transaction, Element::Field(arguments[2]), |value| value.map(<[u8]>::len)),
        None => Ok(None),
    }
}

fn hexists(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let is_there = length(context, arguments)?.is_some();
    context.reply.integer(i64::from(is_there));
    Ok(())
}

fn hstrlen(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let length = length(context, arguments)?.unwrap_or(0);
    context.reply.count(length as u64);
    Ok(())
}

fn write_all(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
    begin: fn(&mut Reply, usize),
    write: fn(&mut Reply, &[u8], &[u8]),
) -> Result<()> {
    let found = find(context, arguments, Kind::Hash)?;
    let Context { transaction, reply, .. } = context;
    reply.sized(begin, |reply| {
        let mut fields = 0;
        if let Some(hash) = found {
            hash.visit(transaction, Section::Fields, ALL, Order::Ascending, |field, value| {
                fields += 1;
                write(reply, name_of(field), value);
                ON
            })?;
        }
        Ok(fields)
    })
}

fn hkeys(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    write_all(context, arguments, Reply::array, |reply, field, _| reply.bulk(field))
}

fn hvals(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    write_all(context, arguments, Reply::array, |reply, _, value| reply.bulk(value))
}

fn hgetall(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    write_all(context, arguments, Reply::map, |reply, field, value| {
        reply.bulk(field);
        reply.bulk(value);
    })
}

fn hincrby(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let increment = integers::integer(arguments[3])?;
    let hash = find_or_begin(context, arguments)?;
    let field = Element::Field(arguments[2]);
    check_name(arguments[2])?;
    let value = hash.get(context.transaction, field, |value| match value {
        Some(value) => decimal::parse_i64(value).ok_or(fail("ERR hash value is not an integer")),
        None => Ok(0),
    })??;
    let value = value.checked_add(increment).ok_or(OUT_OF_RANGE)?;
    let mut text = Vec::new();
    decimal::push_i64(&mut text, value);
    hash.put_only(context.transaction, field, &text, false)?;
    context.reply.integer(value);
    Ok(())
}

fn hrandfield(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    random_elements::random(context, arguments, Kind::Hash, "withvalues", Reply::bulk)
}

fn hscan(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    element_scan::scan(context, arguments, Kind::Hash, |reply, value| {
        reply.bulk(value);
        1
    })
}
