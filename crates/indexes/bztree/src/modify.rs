//! Read-modify-write of a single record: one descent for the look and the write.
//!
//! The record is read in its leaf, by the look of a write (`write.rs`). The new value is written
//! from that look on, by a compare-exchange with the value that was read, or by an insert if there
//! was none. If another thread has claimed a slot since, the claim fails, and the next look tells
//! whether the key still has that value. If it has not, the operation starts again at the root.
//! Slots in doubt, and values in blocks of their own, are compared again as in any other write.

use pando_index::{Change, Error, Intent, Result, Upserted};
use pando_pmem::Domain;
use pando_tree::checked::undamaged;
use pando_tree::room::Tries;

use crate::layout::LIMITS;
use crate::node::Probe;
use crate::tree::BzTree;

impl<D: Domain> BzTree<D> {
    /// Replaces the value of `key` by the one that `change` computes; `None` if it is to stay.
    #[inline]
    pub(crate) fn read_modify_write(
        &self,
        key: &[u8],
        change: &mut Change<'_>,
    ) -> Result<Option<Upserted>> {
        LIMITS.check_key(key)?;
        let probe = Probe::new(key);
        let mut new = Vec::new();
        let mut rooms = 1;
        self.until_done(
            Tries::Few,
            || self.give_back(),
            |guard| {
                let context = self.context(guard);
                let leaf = self.find_leaf(context, probe);
                let (number, found, look);
                let ranged = leaf.ranged(context);
                let found = match &ranged {
                    Some(leaf) => {
                        number = probe.number.and_then(|number| leaf.get(context, number));
                        found = number.map(u64::to_le_bytes);
                        look = None;
                        found.as_ref().map(<[u8; 8]>::as_slice)
                    }
                    None => {
                        let made = leaf.look(context, probe, None);
                        let found = leaf.visible_value(context, made.newest);
                        look = Some(made);
                        match found {
                            Ok(found) => found,
                            // The value's block was superseded or deleted meanwhile: look again.
                            Err(_) => return Ok(None),
                        }
                    }
                };
                undamaged(guard)?;
                new.clear();
                if !change(found, &mut new) {
                    return Ok(Some(None));
                }
                LIMITS.check_value(&new)?;
                let intent = found.map_or(Intent::Insert, |expected| Intent::Exchange { expected });
                let pointer = self.wants_block(key, &new);
                // As in `put`: writes leave some room in a full pool, so that deletes can make room
                // again.
                let attempt = guard.without_reserve(|| match look {
                    Some(look) => self
                        .write_from(context, leaf, look, probe, &new, pointer, intent, &mut rooms),
                    None => {
                        self.write_in_leaf(context, leaf, probe, &new, pointer, intent, &mut rooms)
                    }
                });
                match attempt {
                    Err(Error::KeyExists | Error::KeyNotFound | Error::ValueMismatch) => Ok(None),
                    attempt => Ok(attempt?.map(Some)),
                }
            },
        )
    }
}
