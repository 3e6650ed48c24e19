//! The options of a skip list.

use crate::layout::{MAX_INLINE_BYTES, MAX_LEVELS_AT_ONCE};

pando_tree::options! {
    /// The shape of a skip list. It is stored with the list, which always opens as it was created.
    ///
    /// `height_seed` 0 is replaced by a random one when the list is created, so that no one can
    /// choose keys whose nodes are low. With `even_gaps` a node's height depends on the nodes
    /// beside it too, but is never certain: no order of inserts and removes, chosen without the
    /// seed, leaves only low nodes.
    pub struct Options {
        inline_bytes: u32 [0..=MAX_INLINE_BYTES] = 1024,
            "a longer value has a block of its own from the beginning";
        levels_at_once: u32 [1..=MAX_LEVELS_AT_ONCE] = MAX_LEVELS_AT_ONCE,
            "on so many levels an insert links a node in one step; with 1 each level is a step, as in the paper", experimental;
        height_seed: u32 [0..=u32::MAX] = 0,
            "what heights of nodes follow from, so that a run can be repeated; 0: it is drawn";
        even_gaps: bool ["off", "on"] = 1,
            "an insert's node is likelier to be high where it splits a long gap, so that searches pass few nodes on each level; off: by chance alone, as in the paper", experimental;
    }
}

#[cfg(test)]
mod tests {
    use pando_tree::maps::IndexOptions;

    use super::*;

    #[test]
    fn golden_options() {
        pando_tree::testing::golden_options::<Options>([0x8_0000_0400, 1 << 32, 0, 0]);
        let refused = Options { levels_at_once: 9, ..Options::default() }.values().unwrap_err();
        assert_eq!(refused.to_string(), "levels_at_once is 9; allowed is 1 to 8");
    }
}
