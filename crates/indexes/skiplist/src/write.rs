//! Inserts, writes of values, removes: find, then let the style change the links.

use std::ops::Range;

use pando_index::{Change, Error, Intent, Result, Upserted};
use pando_pmem::Domain;
use pando_tree::checked::{Steps, undamaged};
use pando_tree::context::Context;
use pando_tree::key::Probe;
use pando_tree::room::{Tries, nothing_to_give};

use crate::build;
use crate::height;
use crate::layout::LIMITS;
use crate::list::SkipList;
use crate::node::Node;
use crate::style::{Found, Links, NewNode, Place, Raise, Raised, Removal};

impl<D: Domain, S: Links<D>> SkipList<D, S> {
    /// Writes the value of `key`, if the key's state is as `intent` requires.
    pub(crate) fn put(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted> {
        LIMITS.check_key(key)?;
        LIMITS.check_value(value)?;
        let probe = Probe::new(key);
        self.until_done(|context| match intent {
            Intent::Insert | Intent::Upsert => {
                let place = self.find_place(context, probe, |_| ());
                match place.found {
                    None => self.insert(context, place, probe, value),
                    Some(node) => self.write_value(context, node, value, intent),
                }
            }
            Intent::Update | Intent::Exchange { .. } => match self.find_node(context, probe) {
                None => Err(Error::KeyNotFound),
                Some(node) => self.write_value(context, node, value, intent),
            },
        })
    }

    /// Replaces the value of `key` by the one that `change` computes; `None` if it is to stay. The
    /// list is searched once for the look and the write.
    pub(crate) fn read_modify_write(
        &self,
        key: &[u8],
        change: &mut Change<'_>,
    ) -> Result<Option<Upserted>> {
        LIMITS.check_key(key)?;
        let probe = Probe::new(key);
        let mut new = Vec::new();
        self.until_done(|context| {
            let place = self.find_place(context, probe, |_| ());
            let found = place.found.map(|node| (node, node.value(context)));
            undamaged(context.guard)?;
            // Its value, and its state with that value.
            let old = match found {
                Some((node, Some((state, value)))) => Some((node, state, value)),
                // Deleted since this operation began.
                Some((node, None)) => {
                    S::bury(context, node);
                    return Ok(None);
                }
                None => None,
            };
            new.clear();
            if !change(old.as_ref().map(|(_, _, value)| value.as_bytes()), &mut new) {
                return Ok(Some(None));
            }
            LIMITS.check_value(&new)?;
            Ok(match old {
                Some((node, state, _)) => {
                    S::replace(context, node, state, &new)?.then_some(Some(Upserted::Updated))
                }
                None => self.insert(context, place, probe, &new)?.map(Some),
            })
        })
    }

    /// Removes the record; returns whether it was present. If `expected` is given, a record with
    /// another value is an error.
    pub(crate) fn delete(&self, key: &[u8], expected: Option<&[u8]>) -> Result<bool> {
        LIMITS.check_key(key)?;
        let probe = Probe::new(key);
        self.until_done(|context| {
            // The neighbours' words will be changed, and their lines were not read yet.
            let met = |node: Node| {
                let (pred, succ) = (node.prev(context), node.next(context, 0).node());
                context.pool().word(succ.prev_off()).prefetch_for_write();
                context.pool().prefetch(pred.0);
            };
            let place = self.find_place(context, probe, met);
            let Some(node) = place.found else { return Ok(Some(false)) };
            Ok(match S::remove(self, context, Found { place: &place, node, expected })? {
                Removal::Done => Some(true),
                // Another thread removed it since this operation began: at that time it was absent.
                Removal::Deleted => Some(false),
                Removal::Again => None,
            })
        })
    }

    /// Runs attempts until one succeeds: a failure means that another operation has succeeded.
    #[inline(always)]
    fn until_done<R>(
        &self,
        mut attempt: impl FnMut(Context<'_, D>) -> Result<Option<R>>,
    ) -> Result<R> {
        self.handle.until_done(Tries::Few, nothing_to_give, |guard| {
            // A remove takes no block. The room that an insert leaves is for merges in other maps.
            let attempted = guard.without_reserve(|| attempt(self.context(guard)));
            // Damage may have led to an answer.
            undamaged(guard)?;
            attempted
        })
    }

    /// Inserts the record at `place`; `None` if another change came first.
    fn insert(
        &self,
        context: Context<'_, D>,
        place: Place,
        probe: Probe<'_>,
        value: &[u8],
    ) -> Result<Option<Upserted>> {
        // Written soon, and not read yet.
        context.pool().word(place.succ(0).prev_off()).prefetch_for_write();
        let seed = self.seed(context);
        let height = match self.options.even_gaps {
            true => height::by_gaps(probe.bytes, seed, &place),
            false => height::by_chance(probe.bytes, seed),
        };
        let at_once = if S::COUNTS_LEVELS { self.options.levels_at_once as usize } else { 1 };
        let levels = height.min(at_once);
        for level in 1..levels {
            // The hints in the node's words may depend on their slices.
            context.pool().prefetch(place.succ(level).0);
        }
        let inline_bytes = self.options.inline_bytes;
        let (block, own) =
            build::node(context, &place, height, levels, probe, value, inline_bytes)?;
        let node = Node(block.off());
        // Often this is the next insert's block; its stores are fast only if its line is in the
        // cache.
        context.pool().prefetch(block.off() + block.bytes());
        let (place_of, slice) = (&place, probe.slice);
        let new = NewNode { place: place_of, slice, height: levels, node: block, value: own };
        if !S::insert(self, context, new)? {
            return Ok(None);
        }
        // The record is inserted. The rest only makes it faster to find, and may be left out.
        let _ = self.raise(context, place, node, levels..height, probe);
        Ok(Some(Upserted::Inserted))
    }

    /// Links `node` on these levels too, or on as many as other threads allow.
    fn raise(
        &self,
        context: Context<'_, D>,
        mut place: Place,
        node: Node,
        levels: Range<usize>,
        probe: Probe<'_>,
    ) -> Result<()> {
        let mut steps = Steps::of_attempts();
        for level in levels {
            loop {
                steps.take(context.guard, node.0)?;
                match S::raise(self, context, Raised { place: &place, node, level })? {
                    Raise::Done => break,
                    Raise::Over => return Ok(()),
                    Raise::Again => place = self.find_place(context, probe, |_| ()),
                }
                if place.found != Some(node) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Writes the value of a node of the key; `None` if the key must be searched again.
    fn write_value(
        &self,
        context: Context<'_, D>,
        node: Node,
        value: &[u8],
        intent: Intent<'_>,
    ) -> Result<Option<Upserted>> {
        let mut steps = Steps::of_attempts();
        loop {
            steps.take(context.guard, node.0)?;
            let state = match intent {
                Intent::Insert | Intent::Upsert | Intent::Update => node.state(context),
                Intent::Exchange { expected } => match node.value(context) {
                    Some((_, found)) if found.as_bytes() != expected => {
                        return Err(Error::ValueMismatch);
                    }
                    Some((state, _)) => state,
                    None => return Err(Error::KeyNotFound),
                },
            };
            match intent {
                // Deleted since this operation began: at that time the key was absent.
                Intent::Update if state.is_deleted() => return Err(Error::KeyNotFound),
                _ if state.is_deleted() => {
                    S::bury(context, node);
                    return Ok(None);
                }
                Intent::Insert => return Err(Error::KeyExists),
                _ => {}
            }
            if S::replace(context, node, state, value)? {
                return Ok(Some(Upserted::Updated));
            }
        }
    }
}
