//! Which records of a leaf have changed since the store got a state of it (`marshal.rs`,
//! `blind.rs`).

use pando_pmem::{Domain, mutant};
use pando_tree::context::Context;

use crate::build::each_record;
use crate::context::{Damaged, Value};
use crate::gather::Gathered;
use crate::layout::{Kind, Link};
use crate::page::{Chain, Page};

/// The records that a delta has.
#[derive(Debug, Default)]
pub(crate) struct Changes<'op> {
    /// In order of keys: keys, and values as the page has them; no value if the record is gone.
    pub records: Vec<(&'op [u8], Option<&'op [u8]>)>,
}

/// All records of a partial page.
pub(crate) fn changes_of_partial<'op, D: Domain>(
    context: Context<'op, D>,
    link: Link,
) -> Result<Changes<'op>, Damaged> {
    let gathered = Gathered::any(context, link)?;
    let mut changes = Changes::default();
    each_record(&gathered.items(false), |key, value| changes.put(key, inline(value)));
    for edit in gathered.edits.iter().filter(|edit| edit.value.is_none()) {
        changes.put(edit.key, None);
    }
    Ok(changes)
}

fn inline(value: Value<'_>) -> Option<&[u8]> {
    match value {
        Value::Inline(bytes) => Some(bytes),
        // No value of a stored tree has a block.
        Value::Block(_) => None,
    }
}

impl<'op> Changes<'op> {
    /// Adds the change of a record, unless there is a newer one.
    fn put(&mut self, key: &'op [u8], value: Option<&'op [u8]>) {
        if let Err(at) = self.records.binary_search_by(|(found, _)| (*found).cmp(key)) {
            self.records.insert(at, (key, value));
        }
    }
}

/// The changes of a leaf since the newest state in its chain that the store has, or all records of
/// a partial page. `None` if the store has no state of the chain, or if a change since then is not
/// one of a record.
pub(crate) fn changes_of<'op, D: Domain>(
    context: Context<'op, D>,
    link: Link,
) -> Result<Option<Changes<'op>>, Damaged> {
    if link == Link::EMPTY || link.is_inner() {
        return Ok(None);
    }
    let (mut chain, mut changes) = (Chain::new(link), Changes::default());
    while let Some(delta) = chain.next(context)? {
        let value = match delta.info.kind {
            Kind::Insert | Kind::Modify => match delta.value() {
                Value::Inline(bytes) => Some(bytes),
                Value::Block(_) => return Ok(None),
            },
            Kind::Delete => None,
            _ if mutant!("bw-delta-across-a-split") => continue,
            _ => return Ok(None),
        };
        // The newest one of a key is met first.
        changes.put(delta.key(), value);
        if chain.link.is_written() {
            return Ok(Some(changes));
        }
    }
    let base = Page::any_of(context, chain.link)?;
    if !base.is_partial() {
        return Ok(None);
    }
    for index in 0..base.records() {
        changes.put(base.key(index), inline(base.value(index)));
    }
    Ok(Some(changes))
}
