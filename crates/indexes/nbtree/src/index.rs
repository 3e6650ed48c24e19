//! The tree as a [`RangeIndex`].

use pando_index::{Cursor, Error, Intent, KeyRange, Limits, Order, RangeIndex, Upserted};
use pando_pmem::{Domain, Guard};

use crate::cursor::TreeCursor;
use crate::layout::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use crate::tree::NbTree;
use crate::volatile::node::{Kind, LeafRef, Node};

impl<D: Domain> NbTree<D> {
    /// Visits the leaves that inner nodes lead to now, in order, each as it is replaced by now.
    pub(crate) fn visit_leaves<'guard>(
        &self,
        guard: &'guard Guard<'_, D>,
        visit: &mut dyn FnMut(LeafRef<'guard>),
    ) {
        // The last is the next.
        let mut rest: Vec<Node<'guard>> = vec![self.layers.root.slot().load(guard)];
        while let Some(node) = rest.pop() {
            match node.kind() {
                Kind::Inner(inner) => {
                    rest.extend((0..inner.len()).rev().map(|index| inner.slot(index).load(guard)));
                }
                Kind::Leaf(leaf) => match leaf.replaced_by(guard) {
                    Some(replacement) => {
                        let leaves = [replacement.right(guard), replacement.left(guard)];
                        rest.extend(leaves.into_iter().flatten().map(LeafRef::node));
                    }
                    None => visit(leaf),
                },
            }
        }
    }
}

impl<D: Domain> RangeIndex for NbTree<D> {
    fn limits(&self) -> Limits {
        Limits { max_key_bytes: MAX_KEY_BYTES, max_value_bytes: MAX_VALUE_BYTES }
    }

    #[inline]
    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted, Error> {
        self.put_record(key, value, intent)
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        Ok(self.read_with(key, visit)?.is_some())
    }

    #[inline]
    fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        self.delete(key)
    }

    // Inlined, so that who knows the type of the tree knows that of the cursor.
    #[inline]
    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error> {
        Ok(Box::new(TreeCursor::new(self, range, order)))
    }

    fn len(&self) -> Result<u64, Error> {
        let guard = self.pin()?;
        let mut records = 0;
        self.visit_leaves(&guard, &mut |leaf| records += self.count_live(&guard, leaf));
        Ok(records)
    }
}
