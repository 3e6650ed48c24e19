//! Random picks among the fields of a collection: HRANDFIELD, SRANDMEMBER, SPOP, ZRANDMEMBER.
//!
//! Fields are in order of their hashes. In a small collection, and for many picks, all fields are
//! read, and all have the same probability. In a larger one a pick begins at a random hash and
//! takes one of the next sixteen fields, which takes the same time for each size. The probability
//! of a field then depends on the distances of the sixteen fields before it. It mostly differs from
//! the exact one by at most a half.

use std::collections::BTreeSet;
use std::ops::Bound;

use pando::Order;
use pando_keyspace::Transaction;
use pando_keyspace::collection::{ALL, Collection, ENOUGH, ON, name_of};
use pando_keyspace::failure::{Result, fail};
use pando_keyspace::layout::{HASH_BITS, Kind, Section};

use super::integers;
use crate::commands::command::Context;
use crate::errors::SYNTAX;
use crate::resp::reply::{Reply, Version};
use crate::spec::Arguments;

/// A field and its value.
pub(super) type Pick = (Vec<u8>, Vec<u8>);

/// The largest collection of which each pick reads all fields.
const SMALL: u64 = 64;
/// The number of fields after a random hash, of which one is picked.
const NEIGHBOURS: usize = 16;
/// The largest collection that is copied to memory for repeated picks.
const KEPT: u64 = 4096;
/// The most repeated picks; more are refused.
const MOST_REPEATED: u64 = 1 << 24;
/// The longest reply of repeated picks, in bytes. Repetition can make a reply much longer than the
/// collection.
const MOST_REPLY_BYTES: usize = 512 << 20;

/// Picks one field.
pub(super) fn one(transaction: &Transaction<'_>, from: &Collection<'_>) -> Result<Option<Pick>> {
    if from.count() == 0 {
        return Ok(None);
    }
    if from.count() <= SMALL {
        let index = fastrand::u64(0..from.count());
        let mut seen = 0;
        let mut pick = None;
        from.visit(transaction, Section::Fields, ALL, Order::Ascending, |element, value| {
            seen += 1;
            if seen <= index {
                return ON;
            }
            pick = Some((name_of(element).to_vec(), value.to_vec()));
            ENOUGH
        })?;
        return Ok(pick);
    }
    let hash = fastrand::u64(..1 << HASH_BITS).to_be_bytes();
    let mut nth = fastrand::usize(..NEIGHBOURS);
    let mut pick = None;
    let behind = (Bound::Included(&hash[..]), Bound::Unbounded);
    for bounds in [behind, ALL] {
        from.visit(transaction, Section::Fields, bounds, Order::Ascending, |element, value| {
            if nth > 0 {
                nth -= 1;
                return ON;
            }
            pick = Some((name_of(element).to_vec(), value.to_vec()));
            ENOUGH
        })?;
        if pick.is_some() {
            break;
        }
    }
    Ok(pick)
}

/// Picks up to `most` different fields; all, if there are no more.
pub(super) fn distinct(
    transaction: &Transaction<'_>,
    from: &Collection<'_>,
    most: u64,
) -> Result<Vec<Pick>> {
    let mut wanted = most.min(from.count());
    let mut picks = Vec::new();
    if from.count() > KEPT && wanted < from.count() / 16 {
        let mut names = BTreeSet::new();
        while (names.len() as u64) < wanted {
            let Some((name, value)) = one(transaction, from)? else { break };
            if names.insert(name.clone()) {
                picks.push((name, value));
            }
        }
        return Ok(picks);
    }
    // The probability of each is the number still wanted, divided by the number still to come.
    let mut to_come = from.count();
    from.visit(transaction, Section::Fields, ALL, Order::Ascending, |element, value| {
        if wanted == 0 {
            return ENOUGH;
        }
        if fastrand::u64(..to_come.max(1)) < wanted {
            picks.push((name_of(element).to_vec(), value.to_vec()));
            wanted -= 1;
        }
        to_come = to_come.saturating_sub(1);
        ON
    })?;
    Ok(picks)
}

/// Picks `count` fields, possibly the same ones several times.
fn repeated(
    transaction: &Transaction<'_>,
    from: &Collection<'_>,
    count: u64,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    if count > MOST_REPEATED {
        return Err(fail("ERR value is out of range"));
    }
    let kept = match from.count() <= KEPT {
        true => distinct(transaction, from, u64::MAX)?,
        false => Vec::new(),
    };
    for _ in 0..count {
        if let Some((name, value)) = fastrand::choice(&kept) {
            take(name, value)?;
        } else if let Some((name, value)) = one(transaction, from)? {
            take(&name, &value)?;
        }
    }
    Ok(())
}

/// HRANDFIELD, ZRANDMEMBER, SRANDMEMBER. The option `with_word` requests values, which
/// `write_value` writes.
pub(super) fn random(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
    kind: Kind,
    with_word: &str,
    write_value: fn(&mut Reply, &[u8]),
) -> Result<()> {
    let key = arguments[1];
    let Context { transaction, reply, space, .. } = context;
    let Some(count) = arguments.get(2) else {
        let pick = match Collection::find(transaction, *space, key, kind)? {
            Some(found) => one(transaction, &found)?,
            None => None,
        };
        reply.bulk_or_null(pick.as_ref().map(|(name, _)| name.as_slice()));
        return Ok(());
    };
    let count = integers::signed_count(count)?;
    let with_values = match &arguments[3..] {
        [] => false,
        [word] if word.eq_ignore_ascii_case(with_word.as_bytes()) => true,
        _ => return Err(SYNTAX),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(fail("ERR value is out of range"));
    }
    let Some(found) = Collection::find(transaction, *space, key, kind)? else {
        reply.array(0);
        return Ok(());
    };
    let is_nested = with_values && reply.version == Version::Resp3;
    let begin = reply.len();
    let header = |reply: &mut Reply, picks: usize| {
        reply.array(if with_values && !is_nested { 2 * picks } else { picks });
    };
    let write = |reply: &mut Reply, name: &[u8], value: &[u8]| {
        if is_nested {
            reply.array(2);
        }
        reply.bulk(name);
        if with_values {
            write_value(reply, value);
        }
    };
    if count >= 0 {
        let picks = distinct(transaction, &found, count.unsigned_abs())?;
        header(reply, picks.len());
        picks.iter().for_each(|(name, value)| write(reply, name, value));
        return Ok(());
    }
    header(reply, count.unsigned_abs() as usize);
    repeated(transaction, &found, count.unsigned_abs(), |name, value| {
        write(reply, name, value);
        if reply.len() - begin > MOST_REPLY_BYTES {
            return Err(fail("ERR the reply would be longer than 512 MiB"));
        }
        Ok(())
    })
}
