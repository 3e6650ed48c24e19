//! Inserts, updates and deletes of records (paper 4.3, 4.4).
//!
//! Each decides by one state of the key's leaf and takes effect by the swap of that state
//! ([`commit`](crate::commit)). If the state has changed by then, the change of another thread has
//! taken effect, and this one starts again. An insert writes a free cell (`put.rs`). An update
//! writes one too, and the swap exchanges it for the old one. A delete writes none.

use pando_index::{Error, Intent, RangeIndex, Result, Upserted};
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::Blocks;
use pando_tree::checked::{Steps, undamaged};
use pando_tree::key::Probe;
use pando_tree::room::{Tries, nothing_to_give, with_room};

use crate::build;
use crate::claim::Refused;
use crate::commit::commit;
use crate::layout::{Cell, FIXED_BYTES, NodeKind};
use crate::node::Context;
use crate::smo::MERGE_BELOW;
use crate::tree::WbTree;

/// How a write ended, except for an error of the pool. It is returned in a register, as is a boxed
/// error: a copy through memory after the last fence would wait for the fence.
#[derive(Clone, Copy, Debug)]
enum Written {
    Inserted,
    Updated,
    /// The key is there.
    Exists,
    /// The key is not there.
    NotFound,
    /// The value is another than the expected one.
    Mismatch,
}

/// The value of a record's cell, lent to `visit`.
#[inline(always)]
pub(crate) fn with_value<D: Domain, R>(
    context: Context<'_, D>,
    record: &Cell,
    visit: impl FnOnce(&[u8]) -> R,
) -> R {
    if context.shape.is_variable {
        visit(context.block(record.block).1)
    } else {
        visit(&record.link.to_le_bytes())
    }
}

impl<D: Domain> WbTree<D> {
    /// Whether a key of that length can be there; an error if it is too long.
    #[inline(always)]
    pub(crate) fn may_hold(&self, key: &[u8]) -> Result<bool> {
        self.limits().check_key(key)?;
        Ok(self.shape.is_variable || key.len() == FIXED_BYTES)
    }

    fn check_value(&self, value: &[u8]) -> Result<()> {
        self.limits().check_value(value)?;
        let (found_bytes, min_bytes) = (value.len(), FIXED_BYTES);
        match self.shape.is_variable || found_bytes == FIXED_BYTES {
            true => Ok(()),
            false => Err(Error::ValueTooShort { found_bytes, min_bytes }),
        }
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        if !self.may_hold(key)? {
            return Err(match intent {
                Intent::Update | Intent::Exchange { .. } => Error::KeyNotFound,
                Intent::Insert | Intent::Upsert => {
                    Error::KeyTooShort { found_bytes: key.len(), min_bytes: FIXED_BYTES }
                }
            });
        }
        self.check_value(value)?;
        let written = with_room(&self.catalog, Tries::Few, nothing_to_give, || {
            let probe = Probe::new(key);
            let (guard, hint) = self.pin_at_leaf(probe)?;
            guard.without_reserve(|| {
                self.try_write(self.context(&guard), probe, hint, value, intent)
            })
        });
        match written {
            Ok(Written::Inserted) => Ok(Upserted::Inserted),
            Ok(Written::Updated) => Ok(Upserted::Updated),
            Ok(Written::Exists) => Err(Error::KeyExists),
            Ok(Written::NotFound) => Err(Error::KeyNotFound),
            Ok(Written::Mismatch) => Err(Error::ValueMismatch),
            Err(error) => Err(*error),
        }
    }

    fn try_write(
        &self,
        context: Context<'_, D>,
        probe: Probe<'_>,
        mut hint: Option<u64>,
        value: &[u8],
        intent: Intent<'_>,
    ) -> Result<Written, Box<Error>> {
        let mut steps = Steps::of_attempts();
        loop {
            let found = self.seek_leaf(context, probe, hint.take())?;
            let (leaf, state) = (found.node, found.state);
            steps.take(context.guard, leaf.off)?;
            if let Some(left) = found.crossed {
                self.help(context, left);
            }
            let Ok(look) = leaf.look(context, state, probe) else { continue };
            let old = look.found.map(|(_, cell)| cell);
            undamaged(context.guard)?;
            match (&old, intent) {
                (Some(_), Intent::Insert) => return Ok(Written::Exists),
                (None, Intent::Update | Intent::Exchange { .. }) => return Ok(Written::NotFound),
                (Some(old), Intent::Exchange { expected })
                    if !with_value(context, old, |value| value == expected) =>
                {
                    return Ok(Written::Mismatch);
                }
                _ => {}
            }
            let fixed = value.first_chunk().filter(|_| !self.shape.is_variable);
            let link = fixed.map_or(0, |value| u64::from_le_bytes(*value));
            let (record, new) = build::cell(context, probe, value, link)?;
            let blocks = Blocks { new, old: old.map_or(0, |old| old.block) };
            match Self::put_cell(context, &leaf, state, &look, &record, blocks)? {
                Ok(()) if old.is_some() => return Ok(Written::Updated),
                Ok(()) => return Ok(Written::Inserted),
                Err(Refused::Changed) => {}
                Err(Refused::NoRoom) => self.make_room(context, &leaf, state, probe)?,
            }
        }
    }

    /// Removes the record; returns whether it was present. If `expected` is given, a record with
    /// another value is an error.
    pub(crate) fn delete(&self, key: &[u8], expected: Option<&[u8]>) -> Result<bool> {
        if !self.may_hold(key)? {
            return Ok(false);
        }
        let probe = Probe::new(key);
        let attempt = || self.try_delete(probe, expected);
        with_room(&self.catalog, Tries::Many, nothing_to_give, attempt).map_err(|error| *error)
    }

    fn try_delete(&self, probe: Probe<'_>, expected: Option<&[u8]>) -> Result<bool, Box<Error>> {
        let (guard, mut hint) = self.pin_at_leaf(probe)?;
        let context = self.context(&guard);
        let mut steps = Steps::of_attempts();
        loop {
            let found = self.seek_leaf(context, probe, hint.take())?;
            let (leaf, state) = (found.node, found.state);
            steps.take(&guard, leaf.off)?;
            if let Some(left) = found.crossed {
                self.help(context, left);
            }
            let Ok(mut look) = leaf.look(context, state, probe) else { continue };
            undamaged(&guard)?;
            let Some((cell, old)) = look.found else { return Ok(false) };
            if let Some(expected) = expected
                && !with_value(context, &old, |value| value == expected)
            {
                return Err(Box::new(Error::ValueMismatch));
            }
            if leaf.kind != NodeKind::BitmapOnly {
                look.order.remove(look.place);
            }
            let live = state.live(leaf.kind) & !(1 << cell);
            let next = state.next(leaf.kind, live, &look.order, state.fence());
            let freed = if mutant!("wbtree-old-block-kept") { 0 } else { old.block };
            let blocks = Blocks { new: None, old: freed };
            if !commit(context, &leaf, state, next, &look.order, None, blocks)? {
                continue;
            }
            if u64::from(live.count_ones()) * MERGE_BELOW < leaf.cells(context) {
                guard.with_reserve(|| self.merge_underfull(context, probe));
            }
            return Ok(true);
        }
    }
}
