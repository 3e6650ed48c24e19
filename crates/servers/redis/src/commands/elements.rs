//! Operations that hashes, sets and sorted sets share.

use pando_keyspace::collection::Collection;
use pando_keyspace::failure::Result;
use pando_keyspace::layout::{Element, Kind};

use crate::commands::command::Context;
use crate::spec::Arguments;

/// The collection at the first key, if it exists.
pub(super) fn find<'key>(
    context: &Context<'_, '_>,
    arguments: &Arguments<'key>,
    kind: Kind,
) -> Result<Option<Collection<'key>>> {
    Collection::find(context.transaction, context.space, arguments[1], kind)
}

/// HLEN, SCARD and ZCARD: replies the number of fields.
pub(super) fn count(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
    kind: Kind,
) -> Result<()> {
    let count = find(context, arguments, kind)?.map_or(0, |found| found.count());
    context.reply.count(count);
    Ok(())
}

/// HDEL and SREM: removes fields.
pub(super) fn remove(
    context: &mut Context<'_, '_>,
    arguments: &Arguments<'_>,
    kind: Kind,
) -> Result<()> {
    let mut removed = 0;
    if let Some(mut found) = find(context, arguments, kind)? {
        if let [field] = &arguments[2..] {
            let is_gone = found.remove_only(context.transaction, Element::Field(field))?;
            context.reply.integer(i64::from(is_gone));
            return Ok(());
        }
        for field in &arguments[2..] {
            removed += i64::from(found.remove(context.transaction, Element::Field(field))?);
        }
        found.finish(context.transaction)?;
    }
    context.reply.integer(removed);
    Ok(())
}
