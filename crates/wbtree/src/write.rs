//! Inserts, updates and deletes of records (paper 4.3, 4.4).
//!
//! Each decides by one state of the key's leaf and takes effect by the swap of that state
//! ([`commit`](crate::commit)); if it is another by then, somebody else's change has taken effect, and
//! this one begins again. An insert writes a free cell; an update writes one too, and the swap exchanges
//! it for the old one; a delete writes none.

use pando_index::{Error, Upserted};
use pando_pmem::Domain;

use crate::build;
use crate::claim::NoClaim;
use crate::commit::{Blocks, commit};
use crate::layout::{Cell, FIXED_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, NodeKind};
use crate::node::{Context, Node, Probe};
use crate::search::Look;
use crate::smo::MERGE_BELOW;
use crate::state::State;
use crate::tree::WbTree;

/// What a write wants of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Intent<'op> {
    Insert,
    Update,
    Upsert,
    Exchange { expected: &'op [u8] },
}

/// How an attempt to put a cell into a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Done,
    /// The node has another state.
    Changed,
    /// The node has no free cell, or no version.
    NoRoom,
}

/// The value of a record's cell, lent to `visit`.
#[inline(always)]
pub(crate) fn with_value<D: Domain, R>(
    context: Context<'_, '_, D>,
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
    pub(crate) fn may_hold(&self, key: &[u8]) -> Result<bool, Error> {
        let found_bytes = key.len();
        let max_bytes = if self.shape().is_variable { MAX_KEY_BYTES } else { FIXED_BYTES };
        if found_bytes > max_bytes {
            return Err(Error::KeyTooLong { found_bytes, max_bytes });
        }
        Ok(self.shape().is_variable || found_bytes == FIXED_BYTES)
    }

    fn check_value(&self, value: &[u8]) -> Result<(), Error> {
        let found_bytes = value.len();
        let max_bytes = if self.shape().is_variable { MAX_VALUE_BYTES } else { FIXED_BYTES };
        if found_bytes > max_bytes {
            return Err(Error::ValueTooLong { found_bytes, max_bytes });
        }
        if !self.shape().is_variable && found_bytes < FIXED_BYTES {
            return Err(Error::ValueTooShort { found_bytes, min_bytes: FIXED_BYTES });
        }
        Ok(())
    }

    /// Runs `work`, once more if the pool refused it and blocks wait for their epoch: what earlier writes
    /// have unlinked may be all that is in the way.
    fn with_room<R>(&self, work: impl Fn() -> Result<R, Error>) -> Result<R, Error> {
        match work() {
            Err(Error::Storage(_)) if self.pin()?.waiting() > 0 => {
                self.pmwcas().pool().reclaim().map_err(Error::storage)?;
                work()
            }
            result => result,
        }
    }

    pub(crate) fn write(
        &self,
        key: &[u8],
        value: &[u8],
        intent: Intent<'_>,
    ) -> Result<Upserted, Error> {
        if !self.may_hold(key)? {
            return Err(match intent {
                Intent::Update | Intent::Exchange { .. } => Error::KeyNotFound,
                Intent::Insert | Intent::Upsert => {
                    Error::KeyTooShort { found_bytes: key.len(), min_bytes: FIXED_BYTES }
                }
            });
        }
        self.check_value(value)?;
        self.with_room(|| {
            let guard = self.pin()?;
            guard.frugal(|| self.try_write(self.context(&guard), key, value, intent))
        })
    }

    fn try_write(
        &self,
        context: Context<'_, '_, D>,
        key: &[u8],
        value: &[u8],
        intent: Intent<'_>,
    ) -> Result<Upserted, Error> {
        let probe = Probe::new(key);
        loop {
            let found = self.seek_leaf(context, probe);
            let (leaf, state) = (found.node, found.state);
            if let Some(left) = found.crossed {
                self.help(context, left);
            }
            let Ok(look) = leaf.look(context, state, probe) else { continue };
            let old = look.found.map(|(_, cell)| cell);
            match (&old, intent) {
                (Some(_), Intent::Insert) => return Err(Error::KeyExists),
                (None, Intent::Update | Intent::Exchange { .. }) => return Err(Error::KeyNotFound),
                (Some(old), Intent::Exchange { expected })
                    if !with_value(context, old, |value| value == expected) =>
                {
                    return Err(Error::ValueMismatch);
                }
                _ => {}
            }
            let new = if self.shape().is_variable {
                Some(build::block(context, key, value)?)
            } else {
                None
            };
            let mut record = Cell { slice: probe.slice, block: 0, link: 0 };
            match &new {
                Some(block) => record.block = block.off(),
                None => {
                    let value = value.first_chunk::<8>();
                    record.link = value.map_or(0, |value| u64::from_le_bytes(*value));
                }
            }
            let blocks = Blocks { new, old: old.map_or(0, |old| old.block) };
            match Self::put(context, &leaf, state, &look, &record, blocks)? {
                Put::Done if old.is_some() => return Ok(Upserted::Updated),
                Put::Done => return Ok(Upserted::Inserted),
                Put::Changed => {}
                Put::NoRoom => self.make_room(context, &leaf, state, probe)?,
            }
        }
    }

    /// Puts a cell into a node, in place of the one that was found.
    #[inline]
    pub(crate) fn put<'pool>(
        context: Context<'_, 'pool, D>,
        node: &Node<'_, D>,
        state: State,
        look: &Look,
        cell: &Cell,
        blocks: Blocks<'_, 'pool, D>,
    ) -> Result<Put, Error> {
        if state.version() >= context.shape.versions {
            return Ok(Put::NoRoom);
        }
        // One is left for the fence that a split writes.
        let claim = match node.claim(context, state, 1, 1) {
            Ok(claim) => claim,
            Err(NoClaim::Changed) => return Ok(Put::Changed),
            Err(NoClaim::NoRoom) => return Ok(Put::NoRoom),
        };
        let at = claim.first();
        build::write_cell(context, node, at, cell);
        let mut order = look.order;
        let mut live = state.live(node.kind) | 1 << at;
        if let Some((found, _)) = look.found {
            live &= !(1 << found);
        }
        if node.kind != NodeKind::BitmapOnly {
            if look.found.is_some() {
                order.remove(look.place);
            }
            order.insert(look.place, at);
        }
        let next = state.next(node.kind, live, &order, state.fence());
        let is_done = commit(context, node, state, next, &order, Some(claim), blocks)?;
        Ok(if is_done { Put::Done } else { Put::Changed })
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        if !self.may_hold(key)? {
            return Ok(false);
        }
        let probe = Probe::new(key);
        let guard = self.pin()?;
        let context = self.context(&guard);
        loop {
            let found = self.seek_leaf(context, probe);
            let (leaf, state) = (found.node, found.state);
            if let Some(left) = found.crossed {
                self.help(context, left);
            }
            let Ok(mut look) = leaf.look(context, state, probe) else { continue };
            let Some((cell, old)) = look.found else { return Ok(false) };
            if leaf.kind != NodeKind::BitmapOnly {
                look.order.remove(look.place);
            }
            let live = state.live(leaf.kind) & !(1 << cell);
            let next = state.next(leaf.kind, live, &look.order, state.fence());
            let blocks = Blocks { new: None, old: old.block };
            if !commit(context, &leaf, state, next, &look.order, None, blocks)? {
                continue;
            }
            if u64::from(live.count_ones()) * MERGE_BELOW < leaf.cells(context) {
                guard.relieve(|| self.tidy(context, probe));
            }
            return Ok(true);
        }
    }
}
