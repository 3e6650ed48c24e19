//! ZADD, ZINCRBY, ZREM, ZPOPMIN, ZPOPMAX.

use pando_keyspace::collection::{Collection, check_name};
use pando_keyspace::failure::{Result, fail};
use pando_keyspace::layout::Kind;

use super::super::integers;
use super::range::{Limit, Range};
use super::{find, member, score, write_members};
use crate::commands::command::{Command, Context, commands};
use crate::errors::SYNTAX;
use crate::resp::reply::{Reply, Version};
use crate::spec::Arguments;

pub(in super::super) static COMMANDS: &[Command] = commands! {
    ["sorted-set": (WRITE | DENYOOM | FAST | ONLY_CHANGES), ONE]
    "zadd", -4, "1.2.0", zadd,
        "Add one or more members to a sorted set, or update its score if it already exists";
    ["sorted-set": (WRITE | DENYOOM | FAST), ONE]
    "zincrby", 4, "1.2.0", zincrby, "Increment the score of a member in a sorted set";
    ["sorted-set": (WRITE | FAST | ONLY_CHANGES), ONE]
    "zrem", -3, "1.2.0", zrem, "Remove one or more members from a sorted set";
    ["sorted-set": (WRITE | FAST), ONE]
    "zpopmin", -2, "5.0.0", pop::<false>,
        "Remove and return members with the lowest scores in a sorted set";
    "zpopmax", -2, "5.0.0", pop::<true>,
        "Remove and return members with the highest scores in a sorted set";
};

/// The options of ZADD.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    only_new: bool,
    only_present: bool,
    only_greater: bool,
    only_less: bool,
    counts_changes: bool,
    increments: bool,
}

fn zadd(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let mut options = Options::default();
    let mut words = &arguments[2..];
    while let Some((word, rest)) = words.split_first() {
        let option = match word.to_ascii_lowercase().as_slice() {
            b"nx" => &mut options.only_new,
            b"xx" => &mut options.only_present,
            b"gt" => &mut options.only_greater,
            b"lt" => &mut options.only_less,
            b"ch" => &mut options.counts_changes,
            b"incr" => &mut options.increments,
            _ => break,
        };
        *option = true;
        words = rest;
    }
    add(context, arguments[1], options, words)
}

fn zincrby(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let options = Options { increments: true, ..Options::default() };
    add(context, arguments[1], options, &arguments[2..])
}

fn add(
    context: &mut Context<'_, '_>,
    key: &[u8],
    options: Options,
    words: &Arguments<'_>,
) -> Result<()> {
    let (pairs, rest) = words.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(SYNTAX);
    }
    if options.only_new && options.only_present {
        return Err(fail("ERR XX and NX options at the same time are not compatible"));
    }
    let bounds = [options.only_greater, options.only_less, options.only_new];
    if bounds.into_iter().filter(|&is_set| is_set).count() > 1 {
        return Err(fail("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if options.increments && pairs.len() > 1 {
        return Err(fail("ERR INCR option supports a single increment-element pair"));
    }
    let scores =
        pairs.iter().map(|[score, _]| score::parse(score)).collect::<Result<Vec<f64>>>()?;
    let Context { transaction, reply, space, .. } = context;
    let mut set = Collection::find_or_begin(transaction, *space, key, Kind::SortedSet)?;
    pairs.iter().try_for_each(|[_, name]| check_name(name))?;
    let (mut added, mut changed, mut result) = (0, 0, None);
    for ([_, name], given) in pairs.iter().zip(scores) {
        let former = member::score_of(transaction, &set, name)?;
        if former.is_some() && options.only_new || former.is_none() && options.only_present {
            continue;
        }
        let mut score = given;
        if let Some(former) = former {
            if options.increments {
                score += former;
                if score.is_nan() {
                    return Err(fail("ERR resulting score is not a number (NaN)"));
                }
            }
            if options.only_less && score >= former || options.only_greater && score <= former {
                continue;
            }
        }
        result = Some(score);
        if former != Some(score) {
            if pairs.len() == 1 {
                set.put_scored_only(transaction, name, former, score)?;
                let added = i64::from(former.is_none());
                reply_added(reply, options, (added, 1), result);
                return Ok(());
            }
            set.put_scored(transaction, name, former, score)?;
            added += i64::from(former.is_none());
            changed += 1;
        }
    }
    set.finish(transaction)?;
    reply_added(reply, options, (added, changed), result);
    Ok(())
}

fn reply_added(
    reply: &mut Reply,
    options: Options,
    (added, changed): (i64, i64),
    result: Option<f64>,
) {
    match (options.increments, result) {
        (true, Some(score)) => reply.double(score),
        (true, None) => reply.null(),
        (false, _) => reply.integer(if options.counts_changes { changed } else { added }),
    }
}

fn zrem(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let mut removed = 0;
    if let Some(mut set) = find(context, arguments)? {
        if let [name] = &arguments[2..] {
            let score = member::score_of(context.transaction, &set, name)?;
            if let Some(score) = score {
                set.remove_scored_only(context.transaction, name, score)?;
            }
            context.reply.integer(i64::from(score.is_some()));
            return Ok(());
        }
        for name in &arguments[2..] {
            if let Some(score) = member::score_of(context.transaction, &set, name)? {
                set.remove_scored(context.transaction, name, score)?;
                removed += 1;
            }
        }
        set.finish(context.transaction)?;
    }
    context.reply.integer(removed);
    Ok(())
}

fn pop<const FROM_END: bool>(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
) -> Result<()> {
    let count = match &arguments[2..] {
        [] => None,
        [count] => Some(integers::count(count)? as i64),
        _ => return Err(SYNTAX),
    };
    let found = find(context, arguments)?;
    let Context { transaction, reply, .. } = context;
    let Some(mut set) = found else {
        reply.array(0);
        return Ok(());
    };
    let limit = Limit { offset: 0, count: count.unwrap_or(1) };
    let members = Range::Rank(0, -1).collect(transaction, &set, FROM_END, limit)?;
    for (name, score) in &members {
        set.remove_scored(transaction, name, *score)?;
    }
    set.finish(transaction)?;
    if count.is_none() && reply.version == Version::Resp3 {
        // ZPOPMIN and ZPOPMAX without a count reply one flat pair, also in RESP3.
        reply.array(2 * members.len());
        for (name, score) in &members {
            reply.bulk(name);
            reply.double(*score);
        }
        return Ok(());
    }
    write_members(reply, members.iter().map(|(name, score)| (name, *score)), true);
    Ok(())
}
