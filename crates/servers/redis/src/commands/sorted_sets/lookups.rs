//! Lookups of single members of a sorted set, counts, random picks, and ZSCAN.

use std::ops::Bound;

use pando::Order;
use pando_keyspace::collection::ON;
use pando_keyspace::failure::Result;
use pando_keyspace::layout::{Kind, ordered_bits};

use super::super::{element_scan, elements, random_elements};
use super::range::{By, Range};
use super::{find, member};
use crate::commands::command::{Command, Context, commands};
use crate::decimal;
use crate::resp::reply::Reply;
use crate::spec::Arguments;

pub(in super::super) static COMMANDS: &[Command] = commands! {
    ["sorted-set": (READ | FAST | ONLY_ABOUT), ONE]
    "zcard", 2, "1.2.0", |context, arguments| elements::count(context, arguments, Kind::SortedSet),
        "Get the number of members in a sorted set";
    ["sorted-set": (READ | FAST), ONE]
    "zscore", 3, "1.2.0", zscore, "Get the score associated with the given member in a sorted set";
    "zmscore", -3, "6.2.0", zmscore,
        "Get the score associated with the given members in a sorted set";
    "zrank", 3, "2.0.0", zrank, "Determine the index of a member in a sorted set";
    "zrevrank", 3, "2.0.0", zrevrank,
        "Determine the index of a member in a sorted set, with scores ordered from high to low";
    "zcount", 4, "2.0.0", |context, arguments| count(context, arguments, By::Score),
        "Count the members in a sorted set with scores within the given values";
    "zlexcount", 4, "2.8.9", |context, arguments| count(context, arguments, By::Lex),
        "Count the number of members in a sorted set between a given lexicographical range";
    ["sorted-set": (READ), ONE]
    "zrandmember", -2, "6.2.0", zrandmember,
        "Get one or multiple random elements from a sorted set";
    "zscan", -3, "2.8.0", zscan, "Incrementally iterate sorted sets elements and associated scores";
};

fn write_score(reply: &mut Reply, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn zscore(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let score = match find(context, arguments)? {
        Some(set) => member::score_of(context.transaction, &set, arguments[2])?,
        None => None,
    };
    write_score(context.reply, score);
    Ok(())
}

fn zmscore(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let found = find(context, arguments)?;
    context.reply.array(arguments.len() - 2);
    for name in &arguments[2..] {
        let score = match &found {
            Some(set) => member::score_of(context.transaction, set, name)?,
            None => None,
        };
        write_score(context.reply, score);
    }
    Ok(())
}

/// The rank of a member, and the number of members.
fn rank(context: &Context<'_, '_>, arguments: &Arguments<'_>) -> Result<Option<(u64, u64)>> {
    let Some(set) = find(context, arguments)? else { return Ok(None) };
    let name = arguments[2];
    let Some(score) = member::score_of(context.transaction, &set, name)? else { return Ok(None) };
    let own = [&ordered_bits(score).to_be_bytes(), name].concat();
    let mut rank = 0;
    let below = (Bound::Unbounded, Bound::Excluded(&own[..]));
    member::visit(context.transaction, &set, below, Order::Ascending, |_, _| {
        rank += 1;
        ON
    })?;
    Ok(Some((rank, set.count())))
}

fn zrank(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    match rank(context, arguments)? {
        Some((rank, _)) => context.reply.count(rank),
        None => context.reply.null(),
    }
    Ok(())
}

fn zrevrank(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    match rank(context, arguments)? {
        Some((rank, count)) => context.reply.count(count - 1 - rank),
        None => context.reply.null(),
    }
    Ok(())
}

fn count(context: &mut Context<'_, '_>, arguments: &Arguments<'_>, by: By) -> Result<()> {
    let range = Range::parse(by, arguments[2], arguments[3])?;
    let members = match find(context, arguments)? {
        Some(set) => range.count(context.transaction, &set)?,
        None => 0,
    };
    context.reply.count(members);
    Ok(())
}

fn zrandmember(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    random_elements::random(context, arguments, Kind::SortedSet, "withscores", |reply, score| {
        reply.double(member::decode(score).unwrap_or(0.0));
    })
}

fn zscan(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    element_scan::scan(context, arguments, Kind::SortedSet, |reply, score| {
        // It is a string in RESP3, too. Large integers have all their digits, as in Redis's small
        // sorted sets.
        let score = member::decode(score).unwrap_or(0.0);
        if score.trunc() == score && score.abs() < (1u64 << 62) as f64 {
            reply.bulk((score as i64).to_string().as_bytes());
        } else {
            reply.bulk(decimal::format_double(score).as_bytes());
        }
        1
    })
}
