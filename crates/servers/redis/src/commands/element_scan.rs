//! HSCAN, SSCAN, ZSCAN: a part of a collection's fields, and the cursor for the next part.
//!
//! Fields are in order of their hashes, and the cursor is the hash of the next field. So a field
//! that exists during the whole scan is returned exactly once, despite concurrent changes. Fields
//! of one hash are returned together. As in Redis, a small collection is returned completely, and
//! COUNT counts fields before MATCH.

use std::ops::Bound;

use pando::Order;
use pando_keyspace::collection::{Collection, ENOUGH, ON, name_of};
use pando_keyspace::failure::Result;
use pando_keyspace::layout::{HASH_BITS, Kind, Section, hash_of};
use pando_net::glob;

use super::integers;
use crate::commands::command::Context;
use crate::errors::SYNTAX;
use crate::resp::reply::Reply;
use crate::spec::Arguments;

/// The largest collection that is returned completely.
const WHOLE: u64 = 128;
/// The default of COUNT.
const COUNT: i64 = 10;

/// Replies to a scan of the collection at the first key. `write_value` writes the value of a field
/// and returns its number of words.
pub(super) fn scan(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
    kind: Kind,
    write_value: fn(&mut Reply, &[u8]) -> usize,
) -> Result<()> {
    let Context { transaction, reply, space, .. } = context;
    let cursor = integers::cursor(arguments[2])?;
    let Some(found) = Collection::find(transaction, *space, arguments[1], kind)? else {
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let (mut pattern, mut count) = (None, COUNT);
    let (options, rest) = arguments[3..].as_chunks::<2>();
    for [option, value] in options {
        if option.eq_ignore_ascii_case(b"count") {
            count = integers::integer(value)?;
            if count < 1 {
                return Err(SYNTAX);
            }
        } else if option.eq_ignore_ascii_case(b"match") {
            pattern = Some(*value).filter(|pattern| *pattern != b"*");
        } else {
            return Err(SYNTAX);
        }
    }
    if !rest.is_empty() {
        return Err(SYNTAX);
    }
    if found.count() <= WHOLE {
        count = i64::MAX;
    }
    let mut next = 0;
    let mut fields = Reply::default();
    fields.version = reply.version;
    let mut words = 0;
    if cursor >> HASH_BITS == 0 {
        let (mut visited, mut last) = (0, 0);
        let low = cursor.to_be_bytes();
        let bounds = (Bound::Included(&low[..]), Bound::Unbounded);
        found.visit(transaction, Section::Fields, bounds, Order::Ascending, |element, value| {
            let name = name_of(element);
            let hash = hash_of(name);
            if visited >= count && hash != last {
                next = hash;
                return ENOUGH;
            }
            (visited, last) = (visited + 1, hash);
            if pattern.is_none_or(|pattern| glob::matches(pattern, name, false)) {
                fields.bulk(name);
                words += 1 + write_value(&mut fields, value);
            }
            ON
        })?;
    }
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(words);
    reply.buffer_mut().extend_from_slice(fields.bytes());
    Ok(())
}
