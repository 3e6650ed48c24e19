//! Operations on several sets: SINTER, SUNION, SDIFF, their forms that store the result,
//! SINTERCARD.
//!
//! A result to store is first built in memory, because its destination may be one of the sources.

use std::collections::BTreeSet;

use pando::Order;
use pando_keyspace::Transaction;
use pando_keyspace::collection::{ALL, Collection, ENOUGH, ON, name_of};
use pando_keyspace::failure::{Result, fail};
use pando_keyspace::layout::{Element, Kind, Section};

use super::integers;
use crate::commands::command::{Command, Context, commands};
use crate::errors::SYNTAX;
use crate::resp::reply::Reply;
use crate::spec::Arguments;

pub(super) static COMMANDS: &[Command] = commands! {
    ["set": (READ), ALL]
    "sinter", -2, "1.0.0", reply_with, "Intersect multiple sets";
    "sunion", -2, "1.0.0", reply_with, "Add multiple sets";
    "sdiff", -2, "1.0.0", reply_with, "Subtract multiple sets";
    ["set": (WRITE | DENYOOM), ALL]
    "sinterstore", -3, "1.0.0", store,
        "Intersect multiple sets and store the resulting set in a key";
    "sunionstore", -3, "1.0.0", store, "Add multiple sets and store the resulting set in a key";
    "sdiffstore", -3, "1.0.0", store, "Subtract multiple sets and store the resulting set in a key";
    ["set": (READ), NUMBERED]
    "sintercard", -3, "7.0.0", sintercard,
        "Intersect multiple sets and return the cardinality of the result";
};

/// A set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Intersection,
    Union,
    Difference,
}

impl Operation {
    /// The operation in a command's name: SINTER, ZUNIONSTORE and so on.
    pub(super) fn of(name: &[u8]) -> Self {
        match name.get(1).map(u8::to_ascii_lowercase) {
            Some(b'u') => Self::Union,
            Some(b'd') => Self::Difference,
            _ => Self::Intersection,
        }
    }
}

type Sets<'key> = Vec<Option<Collection<'key>>>;

/// The sets at these keys. An existing key of another type is an error.
fn find_all<'key>(context: &Context<'_, '_>, keys: &[&'key [u8]]) -> Result<Sets<'key>> {
    keys.iter()
        .map(|key| Collection::find(context.transaction, context.space, key, Kind::Set))
        .collect()
}

/// Visits each member of the result once, up to `most` members.
fn visit(
    transaction: &Transaction<'_>,
    operation: Operation,
    mut sets: Sets<'_>,
    most: u64,
    mut visit: impl FnMut(&[u8]),
) -> Result<()> {
    if matches!(operation, Operation::Intersection) {
        if sets.iter().any(Option::is_none) {
            return Ok(());
        }
        sets.sort_by_key(|set| set.as_ref().map_or(0, Collection::count));
    }
    let has = |set: &Option<Collection<'_>>, member: &[u8]| match set {
        Some(set) => set.has(transaction, Element::Field(member)),
        None => Ok(false),
    };
    let mut members = 0;
    for (at, set) in sets.iter().enumerate() {
        if at > 0 && !matches!(operation, Operation::Union) {
            break;
        }
        let Some(set) = set else { continue };
        set.visit(transaction, Section::Fields, ALL, Order::Ascending, |member, _| {
            let member = name_of(member);
            let is_in = match operation {
                Operation::Intersection => {
                    let mut is_in = true;
                    for other in &sets[1..] {
                        is_in = is_in && has(other, member)?;
                    }
                    is_in
                }
                Operation::Union | Operation::Difference => {
                    let others = match operation {
                        Operation::Union => &sets[..at],
                        _ => &sets[1..],
                    };
                    let mut is_out = false;
                    for other in others {
                        is_out = is_out || has(other, member)?;
                    }
                    !is_out
                }
            };
            if is_in {
                members += 1;
                visit(member);
            }
            if members == most { ENOUGH } else { ON }
        })?;
    }
    Ok(())
}

fn reply_with(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let sets = find_all(context, &arguments[1..])?;
    let Context { transaction, reply, .. } = context;
    reply.sized(Reply::set, |reply| {
        let mut members = 0;
        visit(transaction, Operation::of(arguments[0]), sets, u64::MAX, |member| {
            members += 1;
            reply.bulk(member);
        })?;
        Ok(members)
    })
}

fn store(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let sets = find_all(context, &arguments[2..])?;
    let Context { transaction, reply, space, .. } = context;
    let mut members = BTreeSet::new();
    visit(transaction, Operation::of(arguments[0]), sets, u64::MAX, |member| {
        members.insert(member.to_vec());
    })?;
    let mut to = Collection::replacing(transaction, *space, arguments[1], Kind::Set)?;
    for member in &members {
        to.put(transaction, Element::Field(member), &[])?;
    }
    to.finish(transaction)?;
    reply.count(members.len() as u64);
    Ok(())
}

fn sintercard(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let wrong = "ERR numkeys should be greater than 0";
    let keys = match integers::natural(arguments[1], wrong)? {
        0 => return Err(fail(wrong)),
        keys if keys > arguments.len() as u64 - 2 => {
            return Err(fail("ERR Number of keys can't be greater than number of args"));
        }
        keys => keys as usize,
    };
    let (keys, options) = arguments[2..].split_at(keys);
    let mut limit = u64::MAX;
    let (options, rest) = options.as_chunks::<2>();
    for [option, value] in options {
        if !option.eq_ignore_ascii_case(b"limit") {
            return Err(SYNTAX);
        }
        limit = integers::limit(value)?;
    }
    if !rest.is_empty() {
        return Err(SYNTAX);
    }
    let sets = find_all(context, keys)?;
    let mut members = 0;
    visit(context.transaction, Operation::Intersection, sets, limit, |_| members += 1)?;
    context.reply.count(members);
    Ok(())
}
