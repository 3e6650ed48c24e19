//! The options of a tree.

use crate::layout::MAX_SLOTS;
use crate::volatile::nodes::MAX_CHILDREN;

pando_tree::options! {
    /// The shape of a tree. It is stored with the tree, which always opens as it was created.
    pub struct Options {
        leaf_slots: u32 [3..=MAX_SLOTS as u32] = MAX_SLOTS as u32,
            "records that a leaf has room for";
        inner_children: u32 [4..=MAX_CHILDREN as u32] = MAX_CHILDREN as u32,
            "children that an inner node, in process memory, has at most";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_options() {
        let words = u64::from(MAX_SLOTS as u32) | (MAX_CHILDREN as u64) << 32;
        pando_tree::testing::golden_options::<Options>([words, 0, 0, 0]);
    }
}
