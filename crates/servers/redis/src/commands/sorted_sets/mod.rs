//! Sorted sets: members with scores.
//!
//! * `member.rs`: the two elements of a member.
//! * `score.rs`: parses scores.
//! * `range.rs`: ranges by rank, by score, and by member.
//! * `changes.rs`: ZADD, ZINCRBY, ZREM, ZPOPMIN, ZPOPMAX.
//! * `lookups.rs`: lookups of single members, and counts.
//! * `ranges.rs`: commands that return, store or remove a range.
//! * `algebra.rs`: operations on several sorted sets, or sets.
//!
//! # Times of operations
//!
//! A member or a score is found at once. But the map keeps no counts, so ranks are counted member
//! by member: ZRANK and ZREVRANK from the lowest score, ranges of ranks from the nearer end, ZCOUNT
//! and ZLEXCOUNT over all members in the range. Redis takes logarithmic time for these.

mod algebra;
mod changes;
mod lookups;
mod member;
mod range;
mod ranges;
mod score;

use pando_keyspace::collection::Collection;
use pando_keyspace::failure::Result;
use pando_keyspace::layout::Kind;

use super::elements;
use crate::commands::command::Context;
use crate::resp::reply::{Reply, Version};
use crate::spec::Arguments;

pub(super) use self::algebra::COMMANDS as ALGEBRA;
pub(super) use self::changes::COMMANDS as CHANGES;
pub(super) use self::lookups::COMMANDS as LOOKUPS;
pub(super) use self::ranges::COMMANDS as RANGES;

fn find<'key>(
    context: &Context<'_, '_>,
    arguments: &Arguments<'key>,
) -> Result<Option<Collection<'key>>> {
    elements::find(context, arguments, Kind::SortedSet)
}

/// Puts a sorted set with these members at the first key, and replies their number.
fn store_members(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
    members: &[(Vec<u8>, f64)],
) -> Result<()> {
    let Context { transaction, reply, space, .. } = context;
    let mut to = Collection::replacing(transaction, *space, arguments[1], Kind::SortedSet)?;
    for (name, score) in members {
        to.put_scored(transaction, name, None, *score)?;
    }
    to.finish(transaction)?;
    reply.count(members.len() as u64);
    Ok(())
}

/// Replies with members and, if requested, their scores; in RESP3 as pairs.
fn write_members<Name: AsRef<[u8]>>(
    reply: &mut Reply,
    members: impl ExactSizeIterator<Item = (Name, f64)>,
    with_scores: bool,
) {
    let is_nested = with_scores && reply.version == Version::Resp3;
    reply.array(if with_scores && !is_nested { 2 * members.len() } else { members.len() });
    for (name, score) in members {
        write_member(reply, name.as_ref(), score, with_scores);
    }
}

/// Writes one member of such a reply.
fn write_member(reply: &mut Reply, name: &[u8], score: f64, with_scores: bool) {
    if with_scores && reply.version == Version::Resp3 {
        reply.array(2);
    }
    reply.bulk(name);
    if with_scores {
        reply.double(score);
    }
}
