//! Commands that return, store or remove a range of a sorted set.

use pando_keyspace::collection::Collection;
use pando_keyspace::failure::{Result, fail};
use pando_keyspace::layout::Kind;

use super::super::integers;
use super::range::{By, Limit, Range};
use super::{find, store_members, write_member};
use crate::commands::command::{Command, Context, commands};
use crate::errors::SYNTAX;
use crate::resp::reply::{Reply, Version};
use crate::spec::Arguments;

pub(in super::super) static COMMANDS: &[Command] = commands! {
    ["sorted-set": (READ), ONE]
    "zrange", -4, "1.2.0", reply_with, "Return a range of members in a sorted set";
    "zrangebyscore", -4, "1.0.5", reply_with, "Return a range of members in a sorted set, by score";
    "zrevrangebyscore", -4, "2.2.0", reply_with,
        "Return a range of members in a sorted set, by score, with scores ordered from high to low";
    "zrangebylex", -4, "2.8.9", reply_with,
        "Return a range of members in a sorted set, by lexicographical range";
    "zrevrangebylex", -4, "2.8.9", reply_with,
        "Return a range of members in a sorted set, by lexicographical range, ordered from higher to lower strings.";
    "zrevrange", -4, "1.2.0", reply_with,
        "Return a range of members in a sorted set, by index, with scores ordered from high to low";
    ["sorted-set": (WRITE | DENYOOM), TWO]
    "zrangestore", -5, "6.2.0", zrangestore,
        "Store a range of members from sorted set into another key";
    ["sorted-set": (WRITE | ONLY_CHANGES), ONE]
    "zremrangebyrank", 4, "2.0.0", remove,
        "Remove all members in a sorted set within the given indexes";
    "zremrangebyscore", 4, "1.2.0", remove,
        "Remove all members in a sorted set within the given scores";
    "zremrangebylex", 4, "2.8.9", remove,
        "Remove all members in a sorted set between the given lexicographical range";
};

/// The arguments of a command.
#[derive(Clone, Copy, Debug)]
struct Request<'text> {
    range: Range<'text>,
    is_reverse: bool,
    limit: Limit,
    with_scores: bool,
}

/// The properties that the command's name fixes.
#[derive(Clone, Copy, Debug)]
struct Fixed {
    by: Option<By>,
    is_reverse: Option<bool>,
    may_have_scores: bool,
}

impl<'text> Request<'text> {
    /// Parses the ends of the range and the options.
    fn parse(words: &[&'text [u8]], fixed: Fixed) -> Result<Self> {
        let mut by = fixed.by;
        let mut is_reverse = fixed.is_reverse;
        let mut limit = Limit::NONE;
        let mut with_scores = false;
        let mut rest = &words[2..];
        while let Some((word, behind)) = rest.split_first() {
            rest = behind;
            match word.to_ascii_lowercase().as_slice() {
                b"withscores" if fixed.may_have_scores => with_scores = true,
                b"limit" if rest.len() >= 2 => {
                    let (offset, count) =
                        (integers::integer(rest[0])?, integers::integer(rest[1])?);
                    limit = Limit { offset, count };
                    rest = &rest[2..];
                }
                b"rev" if fixed.is_reverse.is_none() => is_reverse = Some(true),
                b"bylex" if fixed.by.is_none() => by = Some(By::Lex),
                b"byscore" if fixed.by.is_none() => by = Some(By::Score),
                _ => return Err(SYNTAX),
            }
        }
        let by = by.unwrap_or(By::Rank);
        let is_reverse = is_reverse.unwrap_or(false);
        if by == By::Rank && limit.count != -1 {
            return Err(fail(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if by == By::Rank {
            limit = Limit::NONE;
        }
        if by == By::Lex && with_scores {
            return Err(fail(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let is_high_first = is_reverse && by != By::Rank;
        let (low, high) = if is_high_first { (words[1], words[0]) } else { (words[0], words[1]) };
        Ok(Self { range: Range::parse(by, low, high)?, is_reverse, limit, with_scores })
    }
}

fn reply_with(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let name = arguments[0].to_ascii_lowercase();
    let fixed = match name.as_slice() {
        b"zrange" => Fixed { by: None, is_reverse: None, may_have_scores: true },
        name => Fixed {
            by: Some(By::named(name)),
            is_reverse: Some(name.starts_with(b"zrev")),
            may_have_scores: true,
        },
    };
    let request = Request::parse(&arguments[2..], fixed)?;
    let found = find(context, arguments)?;
    let Context { transaction, reply, .. } = context;
    let Some(set) = found else {
        reply.array(0);
        return Ok(());
    };
    let Request { range, is_reverse, limit, with_scores } = request;
    let is_flat = with_scores && reply.version == Version::Resp2;
    let begin =
        |reply: &mut Reply, members| reply.array(if is_flat { 2 * members } else { members });
    reply.sized(begin, |reply| {
        let mut members = 0;
        range.visit(transaction, &set, is_reverse, limit, |name, score| {
            members += 1;
            write_member(reply, name, score, with_scores);
            Ok(())
        })?;
        Ok(members)
    })
}

fn zrangestore(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let fixed = Fixed { by: None, is_reverse: None, may_have_scores: false };
    let request = Request::parse(&arguments[3..], fixed)?;
    let (space, key) = (context.space, arguments[2]);
    let from = Collection::find(context.transaction, space, key, Kind::SortedSet)?;
    let Request { range, is_reverse, limit, .. } = request;
    let members = match from {
        Some(set) => range.collect(context.transaction, &set, is_reverse, limit)?,
        None => Vec::new(),
    };
    store_members(context, arguments, &members)
}

fn remove(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let by = By::named(&arguments[0].to_ascii_lowercase());
    let range = Range::parse(by, arguments[2], arguments[3])?;
    let found = find(context, arguments)?;
    let Context { transaction, reply, .. } = context;
    let mut removed = 0;
    if let Some(mut set) = found {
        let members = range.collect(transaction, &set, false, Limit::NONE)?;
        removed = members.len() as u64;
        if removed == set.count() && removed > 0 {
            set.clear();
        } else {
            for (name, score) in &members {
                set.remove_scored(transaction, name, *score)?;
            }
        }
        set.finish(transaction)?;
    }
    reply.count(removed);
    Ok(())
}
