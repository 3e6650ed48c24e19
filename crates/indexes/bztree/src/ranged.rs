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

#[cfg(test)]
mod tests {
    use pando_index::{KeyRange, Order, RangeIndex};
    use pando_pmem::Process;
    use pando_tree::maps::Tree;
    use pando_tree::testing::Fixture;

    use crate::index::BzTrees;
    use crate::node::Probe;
    use crate::options::{Numbers, Options};

    const KEY: u64 = 7 << 20;

    /// Where a slot's value word is behind its key word.
    const VALUE_AT: u64 = 32;

    /// A tree of one range leaf, in which the key word of `KEY` is changed. Calls `test` with it.
    fn with_damage(change: fn(u64) -> u64, test: impl FnOnce(&crate::BzTree<Process>)) {
        with_damage_at(0, change, test);
    }

    /// The same for the word so many bytes behind the key word.
    fn with_damage_at(
        behind: u64,
        change: fn(u64) -> u64,
        test: impl FnOnce(&crate::BzTree<Process>),
    ) {
        let options = Options { numbers: Numbers::Ranged, ..Options::default() };
        let tree = Fixture::<Process, BzTrees>::anonymous(options).index;
        for number in 0..40_u64 {
            tree.insert(&(number << 20).to_be_bytes(), &[1; 8]).expect("room");
        }
        {
            let guard = tree.pin().expect("a slot");
            let context = tree.context(&guard);
            let leaf = tree.find_leaf(context, Probe::new(&KEY.to_be_bytes()));
            let leaf = leaf.ranged(context).expect("a range leaf");
            let words = leaf.node.off..leaf.node.off + leaf.node.header().node_bytes;
            // Class and version are zero, and the lowest key is zero.
            let of_key = |off: &u64| context.read(*off) == KEY + 1;
            let off = words.step_by(8).find(of_key).expect("its key word");
            let word = context.pool().word(off + behind);
            let order = std::sync::atomic::Ordering::Acquire;
            word.store(change(word.load(order)), std::sync::atomic::Ordering::Release);
        }
        test(&tree);
    }

    /// A key word that refers to no operation is not taken for that of another key, or of none.
    #[test]
    fn a_key_word_that_refers_to_nothing_is_told() {
        let damaged = "the leaf is damaged";
        with_damage(
            |word| word | 1 << 63,
            |tree| {
                let key = KEY.to_be_bytes();
                tree.get(&key).expect_err(damaged);
                tree.upsert(&key, &[2; 8]).expect_err(damaged);
                tree.remove(&key).expect_err(damaged);
                let mut cursor = tree.scan(KeyRange::all(), Order::Ascending).expect("a scan");
                cursor.next().expect_err(damaged);
                assert!(!tree.audit().expect("an audit").problems.is_empty(), "{damaged}");
            },
        );
    }

    /// A get needs no word of another key, so the records beside a damaged word are still found.
    #[test]
    fn records_beside_a_damaged_word_are_found() {
        with_damage(
            |word| word | 1 << 63,
            |tree| {
                let others = (0..40_u64).map(|number| number << 20).filter(|&key| key != KEY);
                for key in others {
                    let found = tree.get(&key.to_be_bytes()).expect("no damage of its own");
                    assert_eq!(found.as_deref(), Some(&[1; 8][..]), "{key:x}");
                }
            },
        );
    }

    /// Neither a panic nor silence follows from key words whose distance or version is damaged.
    #[test]
    fn a_key_word_that_none_writes_is_found() {
        let changes: [fn(u64) -> u64; 3] = [|_| 1 << 53, |_| 1 << 57, |word| word | 1 << 53];
        for (turn, change) in changes.into_iter().enumerate() {
            with_damage(change, |tree| {
                let _ = tree.get(&KEY.to_be_bytes());
                for order in [Order::Ascending, Order::Descending] {
                    let mut cursor = tree.scan(KeyRange::all(), order).expect("a scan");
                    while let Ok(Some(_)) = cursor.next() {}
                }
                let _ = tree.upsert(&KEY.to_be_bytes(), &[0xF0; 8]);
                let audit = tree.audit().expect("an audit");
                assert!(!audit.problems.is_empty(), "change {turn}");
            });
        }
    }

    /// A scan tells what it finds, and does not leave out records.
    #[test]
    fn a_scan_tells_damaged_words() {
        let fails = |tree: &crate::BzTree<Process>| {
            for order in [Order::Ascending, Order::Descending] {
                for expected in [1, 100] {
                    let mut cursor = tree.scan(KeyRange::all(), order).expect("a scan");
                    cursor.expect(expected);
                    let failed = std::iter::from_fn(|| match cursor.next() {
                        Ok(found) => found.map(|_| false),
                        Err(_) => Some(true),
                    });
                    assert!(failed.take(50).any(|failed| failed), "{order:?} {expected}");
                }
            }
        };
        with_damage_at(VALUE_AT, |_| u64::MAX, fails);
        with_damage_at(0, |word| word + (25 << 20), fails);
    }

    /// A copy of the leaf would keep either value of a key with two slots.
    #[test]
    fn a_leaf_with_a_key_twice_is_not_replaced() {
        with_damage(
            |word| word - (1 << 20),
            |tree| {
                let mut inserts = (0..400_u64)
                    .map(|number| tree.insert(&(number << 20 | 1).to_be_bytes(), &[1; 8]));
                assert!(inserts.any(|inserted| inserted.is_err()), "the leaf was replaced");
            },
        );
    }
}
