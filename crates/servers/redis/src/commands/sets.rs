//! Sets. Operations on several sets are in `set_algebra.rs`.

use pando::Order;
use pando_keyspace::collection::{ALL, Collection, ON, check_name, name_of};
use pando_keyspace::failure::Result;
use pando_keyspace::layout::{Element, Kind, Section};

use super::elements::{self, find};
use super::{element_scan, integers, random_elements};
use crate::commands::command::{Command, Context, commands};
use crate::errors::SYNTAX;
use crate::resp::reply::Reply;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["set": (WRITE | DENYOOM | FAST | ONLY_CHANGES), ONE]
    "sadd", -3, "1.0.0", sadd, "Add one or more members to a set";
    ["set": (WRITE | FAST | ONLY_CHANGES), ONE]
    "srem", -3, "1.0.0", |context, arguments| elements::remove(context, arguments, Kind::Set),
        "Remove one or more members from a set";
    ["set": (WRITE | FAST), ONE]
    "spop", -2, "1.0.0", spop, "Remove and return one or multiple random members from a set";
    ["set": (READ | FAST | ONLY_ABOUT), ONE]
    "scard", 2, "1.0.0", |context, arguments| elements::count(context, arguments, Kind::Set),
        "Get the number of members in a set";
    "sismember", 3, "1.0.0", sismember, "Determine if a given value is a member of a set";
    ["set": (READ | FAST), ONE]
    "smismember", -3, "6.2.0", smismember,
        "Returns the membership associated with the given elements for a set";
    ["set": (READ), ONE]
    "smembers", 2, "1.0.0", smembers, "Get all the members in a set";
    "srandmember", -2, "1.0.0", srandmember, "Get one or multiple random members from a set";
    "sscan", -3, "2.8.0",
        |context, arguments| element_scan::scan(context, arguments, Kind::Set, |_, _| 0),
        "Incrementally iterate Set elements";
    ["set": (WRITE | FAST), TWO]
    "smove", 4, "1.0.0", smove, "Move a member from one set to another";
};

fn sadd(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let (space, key) = (context.space, arguments[1]);
    let mut set = Collection::find_or_begin(context.transaction, space, key, Kind::Set)?;
    arguments[2..].iter().try_for_each(|member| check_name(member))?;
    if let [member] = &arguments[2..] {
        let is_new = set.put_only(context.transaction, Element::Field(member), &[], true)?;
        context.reply.integer(i64::from(is_new));
        return Ok(());
    }
    let mut added = 0;
    for member in &arguments[2..] {
        let member = Element::Field(member);
        if !set.has(context.transaction, member)? {
            set.put_new(context.transaction, member, &[]);
            added += 1;
        }
    }
    set.finish(context.transaction)?;
    context.reply.integer(added);
    Ok(())
}

fn has(context: &Context<'_, '_>, set: &Option<Collection<'_>>, member: &[u8]) -> Result<i64> {
    match set {
        Some(set) => Ok(i64::from(set.has(context.transaction, Element::Field(member))?)),
        None => Ok(0),
    }
}

fn sismember(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let set = find(context, arguments, Kind::Set)?;
    let is_member = has(context, &set, arguments[2])?;
    context.reply.integer(is_member);
    Ok(())
}

fn smismember(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let set = find(context, arguments, Kind::Set)?;
    context.reply.array(arguments.len() - 2);
    for member in &arguments[2..] {
        let is_member = has(context, &set, member)?;
        context.reply.integer(is_member);
    }
    Ok(())
}

fn smembers(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let found = find(context, arguments, Kind::Set)?;
    let Context { transaction, reply, .. } = context;
    reply.sized(Reply::set, |reply| {
        let mut members = 0;
        if let Some(set) = found {
            set.visit(transaction, Section::Fields, ALL, Order::Ascending, |member, _| {
                members += 1;
                reply.bulk(name_of(member));
                ON
            })?;
        }
        Ok(members)
    })
}

fn spop(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let count = match &arguments[2..] {
        [] => None,
        [count] => Some(integers::count(count)?),
        _ => return Err(SYNTAX),
    };
    let found = find(context, arguments, Kind::Set)?;
    let Context { transaction, reply, .. } = context;
    let Some(mut set) = found else {
        match count {
            Some(_) => reply.set(0),
            None => reply.null(),
        }
        return Ok(());
    };
    let picks = match count {
        Some(count) => random_elements::distinct(transaction, &set, count)?,
        None => random_elements::one(transaction, &set)?.into_iter().collect(),
    };
    match count {
        Some(_) => reply.set(picks.len()),
        None if picks.is_empty() => reply.null(),
        None => {}
    }
    let is_all = picks.len() as u64 == set.count();
    for (member, _) in &picks {
        reply.bulk(member);
        if !is_all {
            set.remove(transaction, Element::Field(member))?;
        }
    }
    if is_all {
        set.clear();
    }
    set.finish(transaction)
}

fn srandmember(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    if arguments.len() > 3 {
        return Err(SYNTAX);
    }
    random_elements::random(context, arguments, Kind::Set, "", |_, _| {})
}

fn smove(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let member = Element::Field(arguments[3]);
    let Context { transaction, reply, space, .. } = context;
    let Some(mut from) = Collection::find(transaction, *space, arguments[1], Kind::Set)? else {
        reply.integer(0);
        return Ok(());
    };
    let mut to = Collection::find_or_begin(transaction, *space, arguments[2], Kind::Set)?;
    let is_there = from.has(transaction, member)?;
    reply.integer(i64::from(is_there));
    if !is_there || arguments[1] == arguments[2] {
        return Ok(());
    }
    from.remove(transaction, member)?;
    from.finish(transaction)?;
    if !to.has(transaction, member)? {
        to.put(transaction, member, &[])?;
    }
    to.finish(transaction)
}
