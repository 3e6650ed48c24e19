//! Range leaves of the tree: which records they take, and what is done if they have no room.
//!
//! A leaf is a range leaf if, when it was built, all of its records had keys and values of eight
//! bytes, and so had the write for which it was built. Any other write makes it a leaf of the other
//! kind, and a later copy of that makes it a range leaf again, if it can be one.

use pando_index::{Error, Intent, Result, Upserted};
use pando_pmem::Domain;
use pando_ranged::{Pair, RangeLeaf, Written, check};
use pando_tree::context::Context;

use crate::build::Wanted;
use crate::leaf::Leaf;
use crate::node::Probe;
use crate::tree::BzTree;
use crate::write::more_rooms;

impl Leaf {
    /// The leaf, if it is a range leaf.
    #[inline(always)]
    pub(crate) fn ranged<D: Domain>(&self, context: Context<'_, D>) -> Option<RangeLeaf> {
        RangeLeaf::of(context, self.node)
    }
}

impl<D: Domain> BzTree<D> {
    /// One attempt to write in a range leaf. `None` means: search again from the root.
    #[expect(clippy::too_many_arguments, reason = "the state of one operation, passed once")]
    #[inline(never)]
    pub(crate) fn write_in_range(
        &self,
        context: Context<'_, D>,
        leaf: &RangeLeaf,
        probe: Probe<'_>,
        value: &[u8],
        intent: Intent<'_>,
        wanted: Wanted,
        rooms: &mut u64,
    ) -> Result<Option<Upserted>> {
        let pair = Pair::of(probe.bytes, value).filter(|_| wanted.number().is_some());
        let written = match pair {
            Some(pair) => leaf.write(context, pair, intent)?,
            None => {
                let found = probe.number.and_then(|number| leaf.get(context, number));
                check(intent, found)?;
                Written::NoRoom
            }
        };
        match written {
            Written::Done(upserted) => return Ok(Some(upserted)),
            Written::NoRoom => {
                let _left = self.leave_for_merges(context);
                self.restructure(context, probe, wanted)?;
            }
            Written::Closed => {
                if let Err(refusal) = self.replace_closed(context, leaf, probe, wanted) {
                    let Some(Pair { key, value }) = pair else { return Err(refusal) };
                    let written = leaf.write_closed(context, key, Some(value), intent)?;
                    return without_replacement(written, refusal);
                }
            }
        }
        *rooms = more_rooms(*rooms, wanted.record_bytes);
        Ok(None)
    }

    /// The same for a delete.
    #[inline(never)]
    pub(crate) fn delete_in_range(
        &self,
        context: Context<'_, D>,
        leaf: &RangeLeaf,
        probe: Probe<'_>,
        expected: Option<&[u8]>,
    ) -> Result<Option<Upserted>> {
        let number = probe.number.ok_or(Error::KeyNotFound)?;
        match leaf.delete(context, number, expected)? {
            Written::Done(upserted) => Ok(Some(upserted)),
            Written::NoRoom | Written::Closed => {
                let replace = || self.replace_closed(context, leaf, probe, Wanted::NONE);
                match context.guard.with_reserve(replace) {
                    Ok(()) => Ok(None),
                    Err(refusal) => {
                        let intent = expected
                            .map_or(Intent::Update, |expected| Intent::Exchange { expected });
                        let written = leaf.write_closed(context, number, None, intent)?;
                        without_replacement(written, refusal)
                    }
                }
            }
        }
    }
}

/// The result of a write to a closed leaf whose replacement was refused.
fn without_replacement(written: Written, refusal: Error) -> Result<Option<Upserted>> {
    match written {
        Written::Done(upserted) => Ok(Some(upserted)),
        Written::Closed => Ok(None),
        Written::NoRoom => Err(refusal),
    }
}
